"""Requests that come twice, at once, too late, from others, or that the disk cannot take."""

import asyncio
import collections
import errno
import os

import pytest
import structlog
from engine.front import FakeRegistry, begun, job, manifest, running, spooled
from engine.test_engine import PATIENCE_S, begins, proved, run, until

from cuzkd.engine.job import JobState, ServerPath, UploadRef
from cuzkd.engine.payloads.spool import Spool
from cuzkd.engine.stats import JobFinished, JobSubmitted, Refused
from cuzkd.errors import (
    AlreadyExists,
    CuzkdError,
    Exhausted,
    InvalidInput,
    NeverFits,
    NotFound,
    Unavailable,
)


async def chunks(data):
    yield data


def submitted(engine):
    return [event.job_id for event in engine.events if isinstance(event, JobSubmitted)]


@pytest.mark.parametrize(
    ("payload", "same"),
    [
        ("ok", True),
        ("fail:invalid_witness", True),
        ("fail:unsatisfied_witness", True),
        ("fail:malformed_file", True),
        ("fail:invalid_input", True),
        ("fail:internal", False),
        ("fail:exhausted", False),
        ("fail:device_fault", False),
        ("fail:never_fits", False),
        ("die:99", False),
    ],
)
def test_what_a_repeated_request_gets(tmp_path, payload, same):
    async def body():
        async with running(tmp_path) as engine:
            first = await proved(engine, payload, request_id="r")
            with pytest.raises(AlreadyExists, match=first.job_id):
                await engine.submit(job("other", request_id="r"))
            again = await engine.submit(job(payload, request_id="r"))
            assert (again.job_id == first.job_id) is same
            assert engine.view("r").job_id == again.job_id  # the newest
            assert len(submitted(engine)) == (1 if same else 2)

    run(body())


def test_after_a_cancel_or_a_deadline_there_is_a_new_job(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            first = await engine.submit(job("hold", request_id="r"))
            await engine.cancel("r")
            second = await engine.submit(job("hold", request_id="r", deadline_s=0.01))
            over = await engine.wait("r", PATIENCE_S)
            assert over.job_id == second.job_id != first.job_id
            assert (over.state, over.error_code) == (JobState.FAILED, "deadline_exceeded")
            assert "0.01 s" in over.error_message
            third = await engine.submit(job("hold", request_id="r"))
            assert third.job_id not in (first.job_id, second.job_id)
            await engine.cancel("r")
            assert (await proved(engine, "ok", deadline_s=PATIENCE_S)).state is JobState.DONE
            assert not engine._jobs._deadlines

    run(body())


def test_a_deadline_frees_everything_once(tmp_path):
    async def body():
        async with running(tmp_path, ready_target=1) as engine:
            held = await engine.submit(job("hold", "hold", "ok", "ok", "ok", deadline_s=0.1))
            assert (await engine.wait(held.job_id, PATIENCE_S)).error_code == "deadline_exceeded"
            assert not len(engine._jobs.queue) and not engine._jobs._held
            assert (await proved(engine, "ok")).state is JobState.DONE
            await engine._intake.settle()
            assert spooled(tmp_path) == []
            ends = collections.Counter(e.job_id for e in engine.events if isinstance(e, JobFinished))
            assert ends[held.job_id] == 1

    run(body())


def test_many_at_once_under_one_id_are_one_job(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            views = await asyncio.gather(
                *(engine.submit(job("hold", request_id="r")) for _ in range(50)),
                *(engine.submit(job("hold", request_id="r", owner="other")) for _ in range(5)),
            )
            assert len({view.job_id for view in views[:50]}) == 1
            assert len({view.job_id for view in views[50:]}) == 1 and len(set(submitted(engine))) == 2
            assert len(spooled(tmp_path)) == 2 and not engine._submissions._turns
            outcomes = await asyncio.gather(
                *(engine.submit(job(f"hold:{n}", request_id="q")) for n in range(10)), return_exceptions=True
            )
            assert [type(outcome) for outcome in outcomes].count(AlreadyExists) == 9

    run(body())


def test_a_client_that_leaves_while_its_job_is_recorded(tmp_path):
    async def body():
        async with running(tmp_path, front_fault="hold:journal_write:1@1") as engine:
            leaving = asyncio.create_task(engine.submit(job("hold", request_id="r")))
            while not engine._submissions._recording:
                await asyncio.sleep(0.001)
            leaving.cancel()
            again = asyncio.create_task(engine.submit(job("hold", request_id="r")))
            with pytest.raises(asyncio.CancelledError):
                await leaving
            view = await again
            assert submitted(engine) == [view.job_id] and len(spooled(tmp_path)) == 1

    run(body())


def test_a_repeated_request_is_answered_whatever_the_daemon_is_at(tmp_path):
    allowed, state = tmp_path / "allowed", tmp_path / "state"
    allowed.mkdir()
    (allowed / "w").write_text("ok:path")

    async def body():
        async with running(state, max_partitions=2, ready_target=1, server_folders=(allowed,)) as engine:
            upload = await engine.upload(9, chunks(b"ok:upload"))
            requests = [
                job("ok:1", request_id="bytes"),
                job(UploadRef(upload), request_id="upload"),
                job(ServerPath(str(allowed / "w")), request_id="path"),
            ]
            views = []
            for request in requests:
                views.append(await engine.submit(request))
                await engine.wait(views[-1].job_id, PATIENCE_S)
            blocker = await engine.submit(job("hold"))
            await until(engine, begins(blocker))
            await engine.submit(job("hold"))
            requests.append(job("ok:last", request_id="waits"))
            views.append(await engine.submit(requests[-1]))
            await engine.submit(job("ok"))
            with pytest.raises(Exhausted, match="2 of at most 2 partitions wait"):
                await engine.submit(job("ok", request_id="new"))
            files = spooled(state)
            for drained in (False, True):
                if drained:
                    engine.drain()
                    with pytest.raises(Unavailable, match="draining"):
                        await engine.submit(job("ok", request_id="new"))
                for request, view in zip(requests, views, strict=True):
                    assert (await engine.submit(request)).job_id == view.job_id
                    with pytest.raises(AlreadyExists):
                        await engine.submit(job("else", request_id=request.request_id))
            assert spooled(state) == files  # nothing was written to find out
            reasons = collections.Counter(e.reason for e in engine.events if isinstance(e, Refused))
            assert reasons == {"exhausted": 1, "unavailable": 1, "already_exists": 8}

    run(body())


def test_a_job_larger_than_the_queue_never_fits(tmp_path):
    async def body():
        async with running(tmp_path, max_partitions=2) as engine:
            with pytest.raises(NeverFits, match="3 partitions in one job, at most 2") as caught:
                await engine.submit(job("ok", "ok", "ok"))
            assert caught.value.retry_after_s is None and "again" not in str(caught.value)

    run(body())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_out_of_descriptors_is_not_now(tmp_path, monkeypatch, number):
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "w").write_text("ok:path")
    real = os.open

    def none_left(path, *arguments, **options):
        if str(path).startswith(str(tmp_path)) and "journal" not in str(path):
            raise OSError(number, os.strerror(number))
        return real(path, *arguments, **options)

    async def body():
        async with running(tmp_path / "state", server_folders=(allowed,)) as engine:
            with monkeypatch.context() as patched:
                patched.setattr(os, "open", none_left)
                for submit in (
                    lambda: engine.submit(job("ok")),
                    lambda: engine.submit(job(ServerPath(str(allowed / "w")))),
                    lambda: engine.upload(2, chunks(b"ok")),
                ):
                    with pytest.raises(Exhausted, match="try again later"):
                        await submit()
            assert (await proved(engine, ServerPath(str(allowed / "w")))).state is JobState.DONE

    run(body())


def test_a_file_that_cannot_be_removed_takes_no_other_along_and_is_tried_again(tmp_path, monkeypatch):
    remove, stuck = Spool.remove, []

    def removing(spool, file):
        if stuck and file.path == stuck[0]:
            raise PermissionError(errno.EPERM, "immutable")
        remove(spool, file)

    monkeypatch.setattr(Spool, "remove", removing)

    async def body():
        async with running(tmp_path, tick_s=0.01) as engine:
            view = await engine.submit(job("hold", "hold", "hold"))
            (record, *_) = engine._jobs.table.find(view.job_id).partitions
            stuck.append(record.file.path)
            with structlog.testing.capture_logs() as logs:
                await engine.cancel(view.job_id)
                while len(spooled(tmp_path)) > 1:
                    await asyncio.sleep(0.01)
                for _ in range(3):  # several more tries
                    engine._intake.expire()
                    await engine._intake.settle()
            assert [str(tmp_path / "spool" / name) for name in spooled(tmp_path)] == stuck
            said = [line for line in logs if line["event"] == "payload_not_removed"]
            assert [line["file"] for line in said] == stuck
            stuck.clear()
            while spooled(tmp_path):
                await asyncio.sleep(0.01)

    run(body())


def test_a_repeated_request_gets_its_job_whatever_has_become_of_the_circuit(tmp_path):
    async def body():
        registry = FakeRegistry()
        async with running(tmp_path, registry) as engine:
            done = await proved(engine, "ok:1", request_id="r")
            failed = await proved(engine, "fail:internal", request_id="f")
            for circuits in (
                {},
                {"square": manifest(n_wires=12)},
                {"square": manifest(), "cube": manifest()},
            ):
                registry.circuits = circuits
                assert (await engine.submit(job("ok:1", request_id="r"))).job_id == done.job_id
                for other in (job("ok:2", request_id="r"), job("ok:1", circuit="cube", request_id="r")):
                    with pytest.raises(AlreadyExists, match=done.job_id):
                        await engine.submit(other)
            registry.circuits = {}
            with pytest.raises(NotFound, match="square"):  # a new try needs it
                await engine.submit(job("fail:internal", request_id="f"))
            registry.circuits = {"square": manifest(n_wires=12)}
            again = await engine.submit(job("fail:internal", request_id="f"))
            assert again.job_id != failed.job_id
            await engine.wait(again.job_id, PATIENCE_S)

    run(body())


def test_what_a_request_named_is_known_as_long_as_its_job(tmp_path):
    allowed, state = tmp_path / "allowed", tmp_path / "state"
    allowed.mkdir()
    (allowed / "w").write_text("ok:path")
    options = {"upload_expiry_s": 0.0, "tick_s": 3600.0, "server_folders": (allowed,)}

    async def body():
        async with running(state, **options) as engine:
            upload = await engine.upload(9, chunks(b"ok:upload"))
            by_upload = job(UploadRef(upload), request_id="u")
            by_path = job(ServerPath(str(allowed / "w")), request_id="p")
            done = [await engine.submit(request) for request in (by_upload, by_path)]
            for view in done:
                await engine.wait(view.job_id, PATIENCE_S)
            (allowed / "w").unlink()
        for _ in range(2):
            async with running(state, **options) as engine:
                engine._intake.expire()
                assert (await engine.submit(by_upload)).job_id == done[0].job_id
                assert (await engine.submit(job("ok:upload", request_id="u"))).job_id == done[0].job_id
                with pytest.raises(NotFound, match=rf"does not exist; .* job {done[1].job_id} has it"):
                    await engine.submit(by_path)
                with pytest.raises(NotFound, match="used it up"):
                    await engine.submit(job(UploadRef(upload)))
        async with running(state, **options, result_expiry_s=0.0) as engine:
            engine._jobs.expire()
            with pytest.raises(NotFound, match="unknown, or it has expired"):
                await engine.submit(by_upload)
            assert not engine._intake._uploads._taken

    run(body())


def test_owners_do_not_meet(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            mine = await engine.submit(job("hold", request_id="r", owner="me"))
            theirs = await engine.submit(job("else", request_id="r", owner="you"))
            assert mine.job_id != theirs.job_id
            assert engine.view("r", "me").job_id == mine.job_id == engine.view(mine.job_id, "me").job_id
            upload = await engine.upload(2, chunks(b"ok"), "me")
            for ask in (
                engine.wait(mine.job_id, 0, "you"),
                engine.cancel(mine.job_id, "you"),
                anext(engine.watch(mine.job_id, "you")),
                engine.wait(mine.job_id, 0),
                engine.submit(job(UploadRef(upload), owner="you")),
                engine.submit(job(UploadRef(upload))),
            ):
                with pytest.raises(NotFound, match="unknown"):
                    await ask
            done = await engine.submit(job(UploadRef(upload), owner="me"))
            assert (await engine.cancel(done.job_id, "me")) is True
            assert await engine.cancel("r", "me") is True

    run(body())


@pytest.mark.parametrize("point", ["spool_write", "spool_sync", "journal_write", "journal_commit"])
@pytest.mark.parametrize(
    ("action", "error"), [("full", Exhausted), ("memory", Exhausted), ("raise", Exception)]
)
def test_what_the_disk_cannot_take_leaves_nothing(tmp_path, point, action, error):
    async def body():
        passed = 2 if point.startswith("journal") else 1  # the start of the journal, and an upload
        async with running(tmp_path, front_fault=f"{action}:{point}:2@{passed}") as engine:
            upload = await engine.upload(2, chunks(b"ok"))
            with pytest.raises(error):
                await engine.submit(job(UploadRef(upload), "ok", request_id="r"))
            with pytest.raises(error):
                await engine.upload(2, chunks(b"ok"))
            await engine._intake.settle()
            assert len(spooled(tmp_path)) == 1 and not len(engine._jobs.table)
            view = await engine.submit(job(UploadRef(upload), "ok", request_id="r"))
            assert (await engine.wait(view.job_id, PATIENCE_S)).state is JobState.DONE
            await engine._intake.settle()
            assert spooled(tmp_path) == []

    run(body())


def test_ends_are_told_though_they_cannot_be_written(tmp_path):
    async def body():
        # All transactions after the second fail for a while: the start, the job. Its beginning goes with its end.
        async with running(tmp_path, front_fault="full:journal_write:40@2", tick_s=0.01) as engine:
            view = await engine.submit(job("hold"))
            await until(engine, begins(view))
            assert await engine.cancel(view.job_id) is True
            assert engine.view(view.job_id).state is JobState.CANCELLED
            assert len(spooled(tmp_path)) == 1  # what would be needed if we died now
            while spooled(tmp_path):
                await asyncio.sleep(0.01)
            assert engine._journal.failures == 40 and not engine._journal.unwritten
        async with running(tmp_path) as engine:
            assert engine.view(view.job_id).state is JobState.CANCELLED

    run(body())


def test_a_journal_that_does_not_answer_is_no_silent_hang(tmp_path, monkeypatch):
    monkeypatch.setattr("cuzkd.engine.engine.STUCK_S", 0.0)
    monkeypatch.setattr("cuzkd.engine.engine.LAST_RECORDS_S", 0.1)

    async def body():
        async with running(tmp_path, front_fault="hold:journal_write:2@1") as engine:
            first = asyncio.create_task(engine.submit(job("ok")))
            while engine._journal.stuck_s() == 0.0:
                await asyncio.sleep(0.001)
            assert "the journal's disk has not answered" in engine.serving()[1]
            with pytest.raises(Unavailable, match="has not answered"):
                await engine.submit(job("ok"))
            assert not (await first).state.ended

    run(body())


def test_odd_requests(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            for request in (job(), job("ok", request_id="x" * 257)):
                with pytest.raises(InvalidInput):
                    await engine.submit(request)
            with pytest.raises(CuzkdError, match="cannot hold"):
                await engine.submit(job("ok", request_id="\ud800"))
            endless = await proved(engine, "ok", deadline_s=float("inf"))
            assert endless.state is JobState.DONE
            await engine._intake.settle()
            assert spooled(tmp_path) == []
            assert begun(tmp_path) == [("ok", 1)]

    run(body())
