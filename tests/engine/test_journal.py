"""The journal: what is in it after a crash at any byte, what a full disk does, and whom it lets in."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cuzkd.engine.ended import EndedJob
from cuzkd.engine.engine import Engine
from cuzkd.engine.faults import load
from cuzkd.engine.job import (
    End,
    Job,
    JobRequest,
    JobState,
    PartitionRecord,
    PartitionResult,
    Priority,
    SpoolFile,
    Stage,
    Ticket,
)
from cuzkd.engine.journal import rows as journal_rows
from cuzkd.engine.journal.file import require_whole
from cuzkd.engine.journal.journal import Journal
from cuzkd.engine.journal.rows import Unprovable, Upload
from cuzkd.engine.settings import EngineSettings
from cuzkd.engine.stats import JournalWrite
from cuzkd.errors import CuzkdError, Exhausted, InvalidInput

WRITER = Path(__file__).with_name("journal_writer.py")


def made(job_id, *, partitions=1, sequence=1, request_id="", owner="", folder="/spool", submitted_s=None):
    request = JobRequest("square", (), request_id, Priority.HIGH, owner, 7.5)
    records = []
    for index in range(partitions):
        file = SpoolFile(f"{folder}/{job_id}-{index}", 100 + index, b"mac %d" % index)
        ticket = Ticket(
            f"{job_id}/{index}", job_id, index, "square", "d1", file.path, Priority.HIGH, sequence + index
        )
        records.append(PartitionRecord(ticket, file, content=bytes([index % 256]) * 32))
    now_s = time.monotonic() if submitted_s is None else submitted_s
    return Job(job_id, request, b"content " + job_id.encode(), now_s, records)


def proof(index):
    return PartitionResult(
        index, b"proof%d" % index, (b"\1" * 32, b"\2" * 32), {"h2d": 0.5, "total": 1.25}, "cpu", "cpu", 2, "d1", 64
    )  # fmt: skip


def end(job, state=JobState.FAILED, code="internal", message="why"):
    job.end = End(state, code, message, time.monotonic())


@contextlib.asynccontextmanager
async def opened(state_dir, faults="", events=None, **options):
    """A journal, and what it remembered."""
    journal = Journal(state_dir, load(faults), (events if events is not None else []).append, **options)
    journal.remembered = await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


def remembered(state_dir):
    async def body():
        async with opened(state_dir) as journal:
            return journal.remembered

    return asyncio.run(body())


async def record(tell):
    """Call tell(tried, written), and wait until it is written."""
    written = asyncio.Event()
    tell(lambda: None, written.set)
    await asyncio.wait_for(written.wait(), 30)


def crash_copy(state_dir, target):
    """What a crash at this moment would leave."""
    target.mkdir()
    for path in state_dir.glob("journal.sqlite*"):
        shutil.copy(path, target)
    return target


def seen(job):
    """All of a job that must come back."""
    parts = [(r.ticket, r.file, r.content, r.result) for r in job.partitions]
    stages = {stage: count for stage, count in job.stages.items() if count}
    return (job.job_id, job.request, job.content, parts, stages, job.state.ended, job.end and job.end.code)


def test_everything_comes_back(tmp_path):
    folder = str(tmp_path / "spool")
    first, second, third = (
        made("a", partitions=3, sequence=1, request_id="r [1]", owner="o", folder=folder),
        made("b", sequence=4, folder=folder),
        made("c", partitions=2, sequence=5, folder=folder, submitted_s=time.monotonic() - 10),
    )

    async def body():
        async with opened(tmp_path) as journal:
            assert journal.remembered == journal_rows.Remembered()
            for job in (second, first, third):
                await journal.accept(job)
            record_ = first.partitions[1]
            record_.result = proof(1)
            first.move(record_, Stage.DONE)
            journal.proved("a", record_.result)
            first.partitions[0].ticket = replace(first.partitions[0].ticket, attempt=3)
            journal.attempt(first.partitions[0].ticket)
            third.first_begun_s = third.submitted_s + 0.25
            journal.begun(third)
            end(third)
            await record(lambda *heard: journal.ended(third, *heard))

    asyncio.run(body())
    found = remembered(tmp_path)
    assert [seen(job) for job in found.running] == [seen(first), seen(second)]
    (over,) = found.ended
    same = ("job_id", "owner", "request_id", "circuit", "priority", "content", "stages", "result_bytes")
    assert all(getattr(over, name) == getattr(EndedJob.of(third), name) for name in same)
    assert over.end.message == "why" and found.last_sequence == 6
    view, before = over.view(), EndedJob.of(third).view()
    assert view.total_s == pytest.approx(before.total_s, abs=1e-3)
    assert view.queue_wait_s == pytest.approx(0.25, abs=1e-3)
    assert found.clean and stat.S_IMODE(os.stat(tmp_path / "journal.sqlite").st_mode) == 0o600


def test_forgotten_is_forgotten(tmp_path):
    async def body():
        async with opened(tmp_path) as journal:
            for name in "abc":
                await journal.accept(made(name, partitions=2))
            journal.forget(["a", "c"])

    asyncio.run(body())
    assert [job.job_id for job in remembered(tmp_path).running] == ["b"]
    with sqlite3.connect(tmp_path / "journal.sqlite") as db:
        assert db.execute("SELECT count(*) FROM partition").fetchone() == (2,)
    db.close()


def test_uploads_and_who_took_them(tmp_path):
    async def body():
        now_s = time.monotonic()
        async with opened(tmp_path) as journal:
            for name in ("u1", "u2", "u3"):
                file = SpoolFile(str(tmp_path / "spool" / name), 5, b"m" * 32)
                await journal.upload(Upload(name, file, "o", now_s + 100))
            await journal.accept(made("a"), ["u2"])
            journal.forget_uploads(["u3"])

    asyncio.run(body())
    uploads = {upload.upload_id: upload for upload in remembered(tmp_path).uploads}
    assert {name: upload.job_id for name, upload in uploads.items()} == {"u1": "", "u2": "a"}
    assert uploads["u1"].file == SpoolFile(str(tmp_path / "spool" / "u1"), 5, b"m" * 32)
    assert uploads["u1"].owner == "o" and 90 < uploads["u1"].expires_s - time.monotonic() < 101

    async def forgotten():
        async with opened(tmp_path) as journal:
            journal.forget(["a"])

    asyncio.run(forgotten())
    assert [upload.upload_id for upload in remembered(tmp_path).uploads] == ["u1"]


def test_the_unprovable_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_rows, "MAX_UNPROVABLE", 3)

    async def body():
        async with opened(tmp_path) as journal:
            for n in range(5):
                journal.unprovable(Unprovable(bytes([n]), "unsatisfied_witness", f"row {n}"))

    asyncio.run(body())
    assert [what.content for what in remembered(tmp_path).unprovable] == [b"\2", b"\3", b"\4"]


def test_times_survive_a_clock_that_starts_anew(tmp_path):
    async def body():
        async with opened(tmp_path, clock=lambda: 1000.0, wall=lambda: 5e8) as journal:
            await journal.accept(made("a", submitted_s=990.0))
        async with opened(tmp_path, clock=lambda: 3.0, wall=lambda: 5e8 + 60) as journal:
            assert journal.remembered.running[0].submitted_s == pytest.approx(3.0 - 70.0)
        async with opened(tmp_path, clock=lambda: 3.0, wall=lambda: 4e8) as journal:  # set back by years
            assert journal.remembered.running[0].submitted_s == 3.0

    asyncio.run(body())


def test_what_comes_together_shares_a_sync(tmp_path):
    events = []

    async def body():
        async with opened(tmp_path, events=events) as journal:
            await asyncio.gather(*(journal.accept(made(f"{n}", sequence=n)) for n in range(200)))

    asyncio.run(body())
    writes = [event for event in events if isinstance(event, JournalWrite)]
    assert sum(write.records for write in writes) == 201 and len(writes) < 20  # one more: the clean end
    assert len(remembered(tmp_path).running) == 200


def test_who_was_under_way_when_the_daemon_died(tmp_path):
    def crashes(state_dir):
        return {job.job_id: job.crashes for job in remembered(state_dir).running}

    async def run(state_dir, target):
        async with opened(state_dir) as journal:
            if not journal.remembered.running:
                await asyncio.gather(journal.accept(made("a")), journal.accept(made("b", sequence=2)))
            journal.begun(made("a"))
            await journal.accept(made(f"sync{target.name}", sequence=3))
            crash_copy(state_dir, target)

    asyncio.run(run(tmp_path, tmp_path / "1"))
    assert set(crashes(tmp_path).values()) == {0}  # that one was closed
    asyncio.run(run(tmp_path / "1", tmp_path / "2"))  # these were not
    asyncio.run(run(tmp_path / "2", tmp_path / "3"))
    found = remembered(tmp_path / "3")
    assert not found.clean
    assert {job.job_id: job.crashes for job in found.running if job.job_id in "ab"} == {"a": 3, "b": 0}
    assert crashes(tmp_path / "3")["a"] == 0  # after a clean end


def test_a_job_that_gets_on_is_no_suspect(tmp_path):
    """Killed in each of its runs, it has proved something in all but the last."""

    async def run(state_dir, target, number):
        async with opened(state_dir) as journal:
            if not number:
                await journal.accept(made("a", partitions=9))
            journal.begun(made("a"))
            if number < 6:
                journal.proved("a", proof(number))
            await journal.accept(made(f"sync{number}", sequence=20))
            crash_copy(state_dir, target)

    for number in range(7):
        asyncio.run(run(tmp_path / f"{number}", tmp_path / f"{number + 1}", number))
    (job,) = [job for job in remembered(tmp_path / "7").running if job.job_id == "a"]
    assert job.crashes == 2 and job.stages[Stage.DONE] == 6  # that after the last proof, and one without any


# -- crashes --


def test_a_log_torn_at_any_place(tmp_path):
    state, log = tmp_path / "state", tmp_path / "state" / "journal.sqlite-wal"
    sizes = []

    async def body():
        async with opened(state) as journal:
            for n in range(6):
                await journal.accept(made(f"{n}", partitions=4, sequence=4 * n))
                sizes.append(log.stat().st_size)
            job = made("5", partitions=4, sequence=20)
            end(job)
            await record(lambda *heard: journal.ended(job, *heard))
            sizes.append(log.stat().st_size)
            crash_copy(state, tmp_path / "crash")

    asyncio.run(body())
    whole = (tmp_path / "crash" / log.name).read_bytes()
    assert len(whole) == sizes[-1]
    for cut in range(sizes[2], len(whole) + 1, 512):
        for rest in (b"", bytes(4096), os.urandom(4096)):
            shutil.rmtree(tmp_path / "torn", ignore_errors=True)
            shutil.copytree(tmp_path / "crash", tmp_path / "torn")
            (tmp_path / "torn" / log.name).write_bytes(whole[:cut] + rest)
            found = remembered(tmp_path / "torn")
            committed = sum(size <= cut for size in sizes)
            assert {job.job_id for job in (*found.running, *found.ended)} == {
                f"{n}" for n in range(min(committed, 6))
            }
            assert [job.job_id for job in found.ended] == (["5"] if committed == 7 else [])


@pytest.mark.parametrize("plan", ["", "kill:journal_write:1@3", "kill:journal_commit:1@3"])
def test_a_writer_that_is_killed_keeps_its_word(tmp_path, plan):
    promised = set()
    for _ in range(3):
        path = [str(WRITER.parent.parent), str(WRITER.parents[2])]
        writer = subprocess.Popen(
            [sys.executable, str(WRITER), str(tmp_path), plan],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        )
        lines = 0
        while line := writer.stdout.readline():
            promised |= set(line.split())
            lines += 1
            if not plan and lines == 40:
                writer.kill()
        writer.wait()
        writer.stdout.close()
        assert lines
    # Nobody opened it in between but the next writer.
    assert promised <= {job.job_id for job in remembered(tmp_path).running}


# -- disks that fail --


@pytest.mark.parametrize("point", ["journal_write", "journal_commit"])
@pytest.mark.parametrize(
    ("action", "error"), [("full", Exhausted), ("memory", Exhausted), ("raise", CuzkdError)]
)
def test_what_asks_fails_and_what_tells_is_kept(tmp_path, point, action, error):
    events = []

    async def body():
        # The first two transactions (the start, a job) pass.
        async with opened(tmp_path, f"{action}:{point}:3@2", events) as journal:
            job = made("a")
            await journal.accept(job)
            end(job, JobState.DONE, "", "")
            tried, written = asyncio.Event(), asyncio.Event()
            journal.ended(job, tried.set, written.set)
            await asyncio.wait_for(tried.wait(), 30)
            assert not written.is_set() and journal.unwritten == 1
            with pytest.raises(error) as caught:
                await journal.accept(made("b"))
            assert type(caught.value) is error and str(journal.path) in str(caught.value)
            journal.retry()
            while journal.failures < 3:
                await asyncio.sleep(0.001)
            assert not written.is_set()
            await journal.accept(made("c"))  # there is room again
            assert written.is_set() and journal.unwritten == 0

    asyncio.run(body())
    found = remembered(tmp_path)
    assert [job.job_id for job in found.running] == ["c"] and [job.job_id for job in found.ended] == ["a"]
    assert sum(event.failed for event in events) == 3


def test_a_disk_that_is_really_full(tmp_path):
    async def body():
        async with opened(tmp_path) as journal:
            await journal.accept(made("a"))
            # As small as it is: SQLite itself finds no room, whatever the disk has.
            limit = threading.Event()
            real = journal._faults.at

            def at(point):
                if not limit.is_set():
                    (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
                    journal._db.execute(f"PRAGMA max_page_count = {pages}")
                    limit.set()
                real(point)

            journal._faults.at = at
            with pytest.raises(Exhausted, match="the disk is full"):
                await journal.accept(made("large", partitions=4000))
            journal.proved("a", proof(0))

    asyncio.run(body())
    (job,) = remembered(tmp_path).running
    assert job.job_id == "a" and job.partitions[0].result == proof(0)


def test_a_record_that_cannot_be_takes_no_other_along(tmp_path):
    async def body():
        async with opened(tmp_path) as journal:
            await journal.accept(made("a"))
            results = await asyncio.gather(
                journal.accept(made("b", sequence=2)),
                journal.accept(made("a", sequence=3)),  # twice the same id
                journal.accept(made("c", sequence=1 << 70)),  # no number of a database
                journal.accept(made("d", sequence=4)),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [type(None), CuzkdError, CuzkdError, type(None)]

    asyncio.run(body())
    assert [job.job_id for job in remembered(tmp_path).running] == ["a", "b", "d"]


# -- files that are not ours --


def _newer(path):
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()


def _other_database(path):
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (a)")
    db.close()


def _holes(path):
    data = bytearray(path.read_bytes())
    data[4096:12288] = b"\xff" * 8192
    path.write_bytes(data)


def _state(path):
    with sqlite3.connect(path) as db:
        db.execute("UPDATE job SET state = 'strange'")
    db.close()


def _outside(path):
    with sqlite3.connect(path) as db:
        db.execute("UPDATE partition SET file = '../../etc/passwd'")
    db.close()


def _lost_partition(path):
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM partition WHERE number = 0")
    db.close()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_newer, "version 99, this cuzkd knows versions up to 1"),
        (lambda path: path.write_bytes(b"not a database" * 1000), "no journal of cuzkd"),
        (lambda path: path.write_bytes(path.read_bytes()[:50]), "no journal of cuzkd"),
        (lambda path: path.write_bytes(path.read_bytes()[:9000]), "is damaged"),
        (_other_database, "a database of something else"),
        (_holes, "is damaged"),
        (_state, "is damaged"),
        (_outside, "is damaged"),
        (_lost_partition, "is damaged"),
    ],
)
def test_a_file_that_cannot_be_understood_is_left_alone(tmp_path, damage, says):
    async def body():
        async with opened(tmp_path) as journal:
            for n in range(30):
                await journal.accept(made(f"{n}", partitions=3, sequence=3 * n))

    asyncio.run(body())
    path = tmp_path / "journal.sqlite"
    damage(path)
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match=says) as caught:
        remembered(tmp_path)
    assert str(path) in str(caught.value) and "Nothing was changed" in str(caught.value)
    if damage is not _other_database:  # (which learns of the write-ahead log)
        assert path.read_bytes() == before


@pytest.mark.parametrize("empty", [False, True])
def test_payloads_without_their_journal_are_left_alone(tmp_path, empty):
    path, spool = tmp_path / "journal.sqlite", tmp_path / "spool"
    require_whole(tmp_path)  # nothing is there
    spool.mkdir()
    (spool / "payload").touch()
    require_whole(tmp_path)  # nobody's: no daemon that had a journal was ever here
    (tmp_path / "spool.key").touch()
    if empty:
        path.touch()
    with pytest.raises(
        InvalidInput, match=r"is missing, and .*spool has 1 files .* move spool/ away"
    ) as caught:
        Engine(EngineSettings(tmp_path), None)
    assert "journal.sqlite-wal" in str(caught.value) and (spool / "payload").exists()
    path.write_bytes(b"x")
    require_whole(tmp_path)
    path.unlink()
    (spool / "payload").unlink()
    require_whole(tmp_path)


def test_an_empty_file_is_a_beginning(tmp_path):
    (tmp_path / "journal.sqlite").touch()
    assert remembered(tmp_path) == journal_rows.Remembered()


def test_one_process_at_a_time(tmp_path):
    async def body():
        async with opened(tmp_path):
            with pytest.raises(InvalidInput, match="another process uses it"):
                async with opened(tmp_path):
                    pass
        async with opened(tmp_path):
            pass

    asyncio.run(body())
