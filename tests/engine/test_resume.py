"""What the next start makes of what a run has left, wherever that run was ended."""

import asyncio
import contextlib
import shutil
from pathlib import Path

import pytest
from engine.front import FakeRegistry, begun, job, running, spooled
from engine.test_engine import PATIENCE_S, begins, proved, run, until
from engine.test_journal import end, made, opened, proof

from cuzkd.engine.job import JobState, Priority, Stage, UploadRef
from cuzkd.engine.jobs.resume import MAX_CRASHES, look
from cuzkd.engine.journal.rows import Remembered
from cuzkd.engine.payloads.spool import Spool
from cuzkd.engine.stats import JobFinished, JobResumed, PartitionFinished
from cuzkd.errors import AlreadyExists, NotFound, Unavailable, UnsatisfiedWitness


@contextlib.asynccontextmanager
async def crashed(engine, state_dir, target):
    """The daemon of a state directory is killed now: a daemon that starts with what is on the disk."""
    await engine._intake.settle()
    shutil.copytree(state_dir, target, ignore=shutil.ignore_patterns("begun"))
    async with running(target) as again:
        yield again


async def chunks(data):
    yield data


def test_everything_goes_on(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"

    async def body():
        async with running(first, ready_target=1) as engine:
            done = await proved(engine, "ok:done", request_id="done")
            failed = await proved(engine, "fail:invalid_witness", request_id="failed")
            half = await engine.submit(job("ok:half", "hold", "ok:rest", request_id="half", owner="me"))
            await until(engine, lambda e: isinstance(e, PartitionFinished) and e.job_id == half.job_id)
            await until(engine, begins(half))
            low = await engine.submit(job("ok:low", priority=Priority.LOW))
            urgent = await engine.submit(job("ok:urgent", priority=Priority.HIGH))
            upload = await engine.upload(9, chunks(b"ok:upload"))
            await engine.submit(job("ok", request_id="sync"))  # a record after all others
            async with crashed(engine, first, second) as again:
                resumed = [event for event in again.events if isinstance(event, JobResumed)]
                ids = [half.job_id, low.job_id, urgent.job_id]
                assert [event.job_id for event in resumed][:3] == ids  # in the order of arrival
                assert (resumed[0].partitions, resumed[0].done) == (3, 1)
                # By both ids, with its results; the other owner's are nobody's.
                assert again.view("done") == again.view(done.job_id)
                seen = again.view("done")
                assert (seen.results, seen.state) == (done.results, JobState.DONE)
                assert seen.total_s == pytest.approx(done.total_s, abs=1e-3)
                assert seen.queue_wait_s == pytest.approx(done.queue_wait_s, abs=1e-3)
                assert again.view("failed").error_message == failed.error_message
                with pytest.raises(NotFound):
                    again.view("half")
                waiter = asyncio.create_task(again.wait("half", owner="me"))
                await again.cancel(half.job_id, "me")
                assert (await waiter).state is JobState.CANCELLED
                for view in (low, urgent):
                    assert (await again.wait(view.job_id, PATIENCE_S)).state is JobState.DONE
                order = [payload for payload, _ in begun(second) if payload.startswith("ok:")]
                assert "ok:half" not in order  # it has its proof
                assert order.index("ok:urgent") < order.index("ok:low")
                # Repeated requests, and an upload from before.
                assert (await again.submit(job("ok:done", request_id="done"))).job_id == done.job_id
                with pytest.raises(AlreadyExists):
                    await again.submit(job("ok:other", request_id="done"))
                assert (await proved(again, UploadRef(upload))).results[0].proof.endswith(b"ok:upload")
                await again.wait("sync", PATIENCE_S)
                await again._intake.settle()
                assert spooled(second) == []

    run(body())


def test_a_stop_is_no_end(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            view = await engine.submit(job("hold", "ok", request_id="r"))
            await until(engine, begins(view))
            assert await engine.stop() == 1
            assert await engine.stop() == 0
            for ask in (engine.wait("r"), engine.cancel("r"), anext(engine.watch("r"))):
                with pytest.raises(Unavailable, match="goes on when it is back"):
                    await ask
        async with running(tmp_path) as engine:
            (resumed,) = [event for event in engine.events if isinstance(event, JobResumed)]
            assert resumed.job_id == view.job_id and not engine.view("r").state.ended
            attempts = engine._jobs.table.find("r").partitions
            assert [record.ticket.attempt for record in attempts] == [1, 1]  # a stop blames nobody
            assert await engine.cancel("r") is True
        async with running(tmp_path) as engine:
            assert engine.view(view.job_id).state is JobState.CANCELLED
            assert spooled(tmp_path) == []

    run(body())


def test_nothing_is_known_before_the_journal_is_read(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            await proved(engine, "ok", request_id="r")
        from engine.front import settings

        from cuzkd.engine.engine import Engine

        engine = Engine(settings(tmp_path), FakeRegistry())
        for ask in (engine.wait("r"), engine.cancel("r"), engine.submit(job("ok", request_id="r"))):
            with pytest.raises(Unavailable, match="the daemon is starting"):
                await ask
        with pytest.raises(Unavailable, match="the daemon is starting"):
            engine.view("r")

    run(body())


def test_attempts_survive(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"

    async def body():
        async with running(first) as engine:
            view = await engine.submit(job("die:99"))
            await until(engine, lambda event: getattr(event, "attempt", 0) == 2)  # PartitionRetried
            await engine.submit(job("ok", request_id="sync"))
            async with crashed(engine, first, second) as again:
                failed = await again.wait(view.job_id, PATIENCE_S)
                assert failed.state is JobState.FAILED and "attempt 3 of 3" in failed.error_message
                assert [attempt for payload, attempt in begun(second) if payload == "die:99"] == [3]

    run(body())


def test_a_content_without_a_proof_is_remembered(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            await proved(engine, "fail:unsatisfied_witness")
            for _ in range(2):
                with pytest.raises(UnsatisfiedWitness, match="partition 1: made to fail with unsat"):
                    await engine.submit(job("ok", "fail:unsatisfied_witness"))
            other = await proved(engine, "fail:unsatisfied_witness", circuit="cube")
            assert other.state is JobState.FAILED  # another circuit: nobody knew
            await proved(engine, "fail:internal")
            assert (await proved(engine, "fail:internal")).error_code == "internal"
        async with running(tmp_path) as engine:
            with pytest.raises(UnsatisfiedWitness, match="partition 0"):
                await engine.submit(job("fail:unsatisfied_witness"))
            await engine._intake.settle()
            assert spooled(tmp_path) == []

    run(body())


# -- rows against files --


def spool_with(tmp_path, *jobs):
    """A spool that has all files of these jobs."""
    spool = Spool(tmp_path, 1 << 20)
    for one in jobs:
        for record in one.partitions:
            Path(record.file.path).write_bytes(bytes(record.file.nbytes))
    return spool


def of(tmp_path, job_id, **options):
    return made(job_id, folder=str(tmp_path / "spool"), **options)


def test_files_decide(tmp_path):
    good, gone, short, proved_ = (of(tmp_path, name, partitions=2) for name in ("a", "b", "c", "d"))
    spool = spool_with(tmp_path, good, gone, short, proved_)
    Path(gone.partitions[1].file.path).unlink()
    Path(short.partitions[0].file.path).write_bytes(b"x")
    Path(proved_.partitions[0].file.path).unlink()
    proved_.partitions[0].result = proof(0)
    proved_.move(proved_.partitions[0], Stage.DONE)
    (tmp_path / "spool" / "nobody's").touch()
    found = look(Remembered(running=(good, gone, short, proved_)), spool)
    assert found.swept == 1
    assert [(job.job_id, trouble) for job, trouble in found.running] == [
        ("a", ""),
        ("b", "partition 1: after a restart of the daemon its payload is gone from the spool"),
        ("c", "partition 0: after a restart of the daemon its payload has 1 bytes, and had 100"),
        ("d", ""),
    ]


def test_a_job_that_the_daemon_always_dies_of(tmp_path):
    job_ = of(tmp_path, "a")
    spool = spool_with(tmp_path, job_)
    job_.crashes = MAX_CRASHES - 1
    assert look(Remembered(running=(job_,)), spool).running == ((job_, ""),)
    job_.crashes = MAX_CRASHES
    ((_, trouble),) = look(Remembered(running=(job_,)), spool).running
    assert trouble == "the daemon died 5 times while it was being proved"


def test_what_the_journal_has_of_a_run_that_was_killed(tmp_path):
    """Made by hand: a job whose end alone is missing, one whose file is, and one that is over."""
    complete, lost, over = (of(tmp_path, name, sequence=n) for n, name in enumerate("abc", 1))
    spool_with(tmp_path, complete, over)

    async def body():
        async with opened(tmp_path) as journal:
            for one in (complete, lost, over):
                await journal.accept(one)
            journal.proved("a", proof(0))
            end(over, JobState.DONE, "", "")
            journal.proved("c", proof(0))
            journal.ended(over, lambda: None, lambda: None)
        async with running(tmp_path) as engine:
            view = await engine.wait("a", PATIENCE_S)
            assert view.state is JobState.DONE and view.results == (proof(0),)
            view = await engine.wait("b", PATIENCE_S)
            assert (view.state, view.error_code) == (JobState.FAILED, "internal")
            assert "is gone from the spool" in view.error_message
            assert engine.view("c").results == (proof(0),)
            ends = [event.job_id for event in engine.events if isinstance(event, JobFinished)]
            assert sorted(ends) == ["a", "b"]
            await engine._intake.settle()
            assert spooled(tmp_path) == []
            assert (await engine.submit(job("ok"))).state is JobState.QUEUED
            (newest,) = engine._jobs.table.running
            assert newest.sequence == 4  # places go on behind the old ones

    run(body())


@pytest.mark.parametrize("when", ["jobs", "nothing"])
def test_restarts_leave_nothing_behind(tmp_path, when):
    async def body():
        for n in range(3):
            async with running(tmp_path) as engine:
                if when == "jobs":
                    await proved(engine, f"ok:{n}", request_id=f"r{n}")
                for before in range(n if when == "jobs" else 0):
                    assert engine.view(f"r{before}").state is JobState.DONE
        of_the_fake = {"begun", "started"}
        found = {path.name for path in tmp_path.iterdir()} - of_the_fake
        assert found <= {"estimates.json", "journal.sqlite", "spool", "spool.key", "provers"}

    run(body())
