"""The engine with a fake prover process: ends, retries, priorities, idempotency, memory."""

import asyncio
import collections
import gc
import random
import threading

import pytest
from engine.front import FakeRegistry, begun, job, manifest, running, spooled

from cuzkd.engine.job import JobState, Priority, ServerPath, Stage, UploadRef
from cuzkd.engine.payloads.spool import Incoming
from cuzkd.engine.stats import JobFinished, PartitionRetried, PartitionStage, ProverState
from cuzkd.errors import (
    AlreadyExists,
    Exhausted,
    InvalidInput,
    NeverFits,
    NotFound,
    Unavailable,
)

PATIENCE_S = 60.0


async def until(engine, condition):
    """Wait for an event after which condition(event) holds; those that have been count too."""
    found = asyncio.Event()

    def look(event):
        if condition(event):
            found.set()

    for event in engine.events:
        look(event)
    engine.subscribe(look)
    await asyncio.wait_for(found.wait(), PATIENCE_S)


def begins(view):
    def condition(event):
        return (
            isinstance(event, PartitionStage)
            and event.job_id == view.job_id
            and event.stage is Stage.SYNTHESISING
        )

    return condition


async def proved(engine, *payloads, **options):
    view = await engine.submit(job(*payloads, **options))
    return await engine.wait(view.job_id, PATIENCE_S)


def run(coroutine):
    return asyncio.run(coroutine)


def test_a_job_of_several_partitions(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            view = await proved(engine, "ok:0", "ok:1", "ok:2")
            assert view.state is JobState.DONE and view.partitions_done == 3 and not view.error_code
            assert [r.index for r in view.results] == [0, 1, 2]
            for index, result in enumerate(view.results):
                assert result.proof.decode() == f"{view.job_id}/{index} 1 ok:{index}"
                assert (result.backend, result.device, result.attempts, result.h2d_bytes) == (
                    "cpu",
                    "cpu",
                    1,
                    64,
                )
                assert 0 <= result.phases["queue_wait"] <= result.phases["total"]
            await engine._intake.settle()
            assert spooled(tmp_path) == []
            assert engine.status().queues == ()

    run(body())


def test_twenty_jobs_at_once_each_get_their_own_proofs(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            views = await asyncio.gather(
                *(
                    proved(
                        engine, f"ok:{n}", f"ok:{n}b", circuit=("square", "cube")[n % 2], request_id=f"[{n}]"
                    )
                    for n in range(20)
                )
            )
            for n, view in enumerate(views):
                assert view.request_id == f"[{n}]"
                assert [r.proof.decode().split(" ")[2] for r in view.results] == [f"ok:{n}", f"ok:{n}b"]
            assert engine.stats.proofs_completed == 40 and engine.stats.jobs["done"] == 20

    run(body())


@pytest.mark.parametrize("payload", ["die:1", "die-proving:1", "die:2"])
def test_a_prover_that_dies_is_replaced_and_the_job_completes(tmp_path, payload):
    async def body():
        async with running(tmp_path) as engine:
            view = await proved(engine, "ok:before", payload, "ok:after")
            assert view.state is JobState.DONE
            assert view.results[1].attempts == int(payload[-1]) + 1
            assert len(view.results) == 3
            deaths = [e for e in engine.events if isinstance(e, ProverState) and e.state == "dead"]
            assert len(deaths) == int(payload[-1]) and "status 9" in deaths[0].cause
            assert engine.status().provers[0].restarts == len(deaths)
            assert engine.stats.retries["device_fault"] >= 1

    run(body())


def test_a_partition_that_kills_provers_fails_alone_and_with_its_cause(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            bad, *good = await asyncio.gather(
                proved(engine, "die:99"), *(proved(engine, f"ok:{n}", f"ok:{n}b") for n in range(4))
            )
            assert bad.state is JobState.FAILED and bad.error_code == "device_fault"
            assert "partition 0" in bad.error_message and "attempt 3 of 3" in bad.error_message
            assert "exited with status 9" in bad.error_message
            assert all(view.state is JobState.DONE for view in good)
            assert [a for p, a in begun(tmp_path) if p == "die:99"] == [1, 2, 3]

    run(body())


def test_one_failed_partition_fails_the_job_and_frees_its_siblings(tmp_path):
    async def body():
        async with running(tmp_path, ready_target=1) as engine:
            view = await engine.submit(job("fail:unsatisfied_witness", "hold", "hold", "hold"))
            view = await engine.wait(view.job_id, PATIENCE_S)
            assert view.state is JobState.FAILED and view.error_code == "unsatisfied_witness"
            assert view.error_message == "partition 0: made to fail with unsatisfied_witness"
            assert view.results == ()
            assert (await proved(engine, "ok")).state is JobState.DONE
            await engine._intake.settle()
            assert spooled(tmp_path) == []
            assert engine.stats.failures == {"unsatisfied_witness": 1}

    run(body())


def test_what_can_be_retried_is_up_to_the_bound(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            twice, often = await asyncio.gather(proved(engine, "retry:2"), proved(engine, "retry:9"))
            assert twice.state is JobState.DONE and twice.results[0].attempts == 3
            assert often.state is JobState.FAILED and "attempt 3 of at most 3" in often.error_message
            assert sum(isinstance(e, PartitionRetried) for e in engine.events) == 4
            assert engine.status().provers[0].restarts == 0

    run(body())


def test_a_prover_whose_device_failed_is_given_nothing_more(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            view = await proved(engine, "fault:1", "ok:1")
            assert view.state is JobState.DONE and view.results[0].attempts == 2
            assert engine.status().provers[0].restarts == 1
            assert engine.stats.retries == {"device_fault": 1}
            worse = await proved(engine, "fault:9")
            assert worse.state is JobState.FAILED and "attempt 3 of at most 3" in worse.error_message

    run(body())


def test_never_two_results_for_one_partition(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            first = await proved(engine, "twice", "twice")
            second = await proved(engine, "ok")
            assert first.state is second.state is JobState.DONE
            assert engine.stats.proofs_completed == 3

    run(body())


def test_cancel(tmp_path):
    async def body():
        async with running(tmp_path, ready_target=1) as engine:
            held = await engine.submit(job("hold", request_id="held"))
            queued = await engine.submit(job("ok", "ok", "ok", "ok"))
            await until(engine, begins(held))
            assert await engine.cancel(queued.job_id) is True
            assert await engine.cancel("held") is True  # a request_id means its newest job
            for view in (await engine.wait(held.job_id, 0), await engine.wait(queued.job_id, 0)):
                assert view.state is JobState.CANCELLED and view.error_code == "cancelled"
            assert await engine.cancel(held.job_id) is False
            with pytest.raises(NotFound, match="unknown"):
                await engine.cancel("nobody")
            done = await proved(engine, "ok")
            assert await engine.cancel(done.job_id) is False
            assert engine.view(done.job_id).state is JobState.DONE
            ends = collections.Counter(e.job_id for e in engine.events if isinstance(e, JobFinished))
            assert set(ends.values()) == {1} and len(ends) == 3
            await engine._intake.settle()
            assert spooled(tmp_path) == []

    run(body())


def test_the_urgent_ones_overtake_what_waits(tmp_path):
    async def body():
        async with running(tmp_path, ready_target=1, max_parallel_synthesis=1) as engine:
            blocker = await engine.submit(job("hold", "ok:held"))
            await until(engine, begins(blocker))
            order = [Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.NORMAL, Priority.CRITICAL]
            views = [
                await engine.submit(job(f"ok:{priority.name}{n}", priority=priority))
                for n, priority in enumerate(order)
            ]
            assert [view.queue_position for view in views] == [0, 0, 0, 2, 0]
            assert engine.view(views[0].job_id).queue_position == 3  # the urgent one does not even wait
            await engine.cancel(blocker.job_id)
            await asyncio.gather(*(engine.wait(view.job_id, PATIENCE_S) for view in views))
            started = [payload for payload, _ in begun(tmp_path) if payload.startswith("ok:")]
            assert started == ["ok:CRITICAL4", "ok:HIGH2", "ok:NORMAL1", "ok:NORMAL3", "ok:LOW0"]

    run(body())


def test_wait_honours_its_timeout_and_five_hundred_waiters_cost_nothing(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            held = await engine.submit(job("hold"))
            assert (await engine.wait(held.job_id, 0.01)).state.ended is False
            tasks_before = len(asyncio.all_tasks())
            waiters = [asyncio.create_task(engine.wait(held.job_id)) for _ in range(500)]
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == tasks_before + 500
            await engine.cancel(held.job_id)
            views = await asyncio.gather(*waiters)
            assert {view.state for view in views} == {JobState.CANCELLED}

    run(body())


def test_watch_ends_with_the_end(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            view = await engine.submit(job("ok", "ok"))
            states = [seen.state async for seen in engine.watch(view.job_id)]
            assert states[-1] is JobState.DONE and all(not state.ended for state in states[:-1])
            assert [seen.state async for seen in engine.watch(view.job_id)] == [JobState.DONE]

    run(body())


def test_request_ids_are_bound_to_content(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            first = await proved(engine, "ok:1", "ok:2", request_id="a b[0]")
            again = await engine.submit(job("ok:1", "ok:2", request_id="a b[0]"))
            assert again.job_id == first.job_id and again.state is JobState.DONE
            for other in (
                job("ok:2", "ok:1", request_id="a b[0]"),
                job("ok:1", request_id="a b[0]"),
                job("ok:1", "ok:2", circuit="cube", request_id="a b[0]"),
            ):
                with pytest.raises(AlreadyExists, match=first.job_id):
                    await engine.submit(other)
            assert (await engine.submit(job("ok:1", "ok:2"))).job_id != first.job_id
            views = await asyncio.gather(*(proved(engine, "ok:3", request_id="race") for _ in range(8)))
            assert len({view.job_id for view in views}) == 1
            await engine._intake.settle()
            assert engine.stats.proofs_completed <= 5

    run(body())


def test_uploads(tmp_path):
    async def chunks(data, size=3):
        for begin in range(0, len(data), size):
            yield data[begin : begin + size]

    async def body():
        async with running(tmp_path, max_upload_bytes=100) as engine:
            upload = await engine.upload(8, chunks(b"ok:large"))
            view = await proved(engine, UploadRef(upload), "ok:2", request_id="u")
            assert view.results[0].proof.endswith(b"ok:large")
            again = await engine.submit(job(UploadRef(upload), "ok:2", request_id="u"))
            assert again.job_id == view.job_id  # a repeated request, though its upload is used up
            for refused in (job(UploadRef(upload)), job(UploadRef("none"))):
                with pytest.raises(NotFound):
                    await engine.submit(refused)
            for size, data in ((4, b"12345"), (6, b"12345"), (101, bytes(101))):
                with pytest.raises(InvalidInput):
                    await engine.upload(size, chunks(data))
            twice = await engine.upload(2, chunks(b"ok"))
            with pytest.raises(InvalidInput, match="same upload"):
                await engine.submit(job(UploadRef(twice), UploadRef(twice)))
            assert (await proved(engine, UploadRef(twice))).state is JobState.DONE
            await engine._intake.settle()
            assert spooled(tmp_path) == []

    run(body())


def test_uploads_that_no_job_takes_are_bounded(tmp_path):
    async def chunks():
        yield b"ok"

    async def never():
        yield b"o"
        await asyncio.Event().wait()

    async def body():
        async with running(tmp_path, max_partitions=3) as engine:
            first, _ = [await engine.upload(2, chunks()) for _ in range(2)]
            arriving = asyncio.create_task(engine.upload(2, never()))
            while len(spooled(tmp_path)) < 3:
                await asyncio.sleep(0.01)
            with pytest.raises(Exhausted, match="3 of at most 3"):
                await engine.upload(2, chunks())
            assert len(spooled(tmp_path)) == 3  # nothing was written for the refused one
            arriving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await arriving
            await engine.upload(2, chunks())  # the place of the one that its client has left
            assert (await proved(engine, UploadRef(first))).state is JobState.DONE
            await engine.upload(2, chunks())  # the place of the one that a job has taken
            with pytest.raises(Exhausted):
                await engine.upload(2, chunks())

    run(body())


def test_an_upload_that_its_client_leaves_is_removed(tmp_path):
    async def body():
        async with running(tmp_path, upload_expiry_s=0.0) as engine:
            begun_upload = asyncio.Event()

            async def chunks():
                yield b"12"
                begun_upload.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(engine.upload(4, chunks()))
            await begun_upload.wait()
            assert len(spooled(tmp_path)) == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert spooled(tmp_path) == []

            async def whole():
                yield b"ok"

            upload = await engine.upload(2, whole())
            engine._intake.expire()
            await engine._intake.settle()
            assert spooled(tmp_path) == []
            with pytest.raises(NotFound):
                await engine.submit(job(UploadRef(upload)))

    run(body())


@pytest.mark.parametrize("announced", [2, 3])
def test_an_upload_whose_client_leaves_at_its_end_leaves_nothing(tmp_path, monkeypatch, announced):
    """Cancelled while the disk syncs: what the thread has made, or failed with, is for nobody."""
    at_work, go_on = threading.Event(), threading.Event()
    commit = Incoming.commit

    def slow(incoming):
        at_work.set()
        go_on.wait(10)
        return commit(incoming)

    monkeypatch.setattr(Incoming, "commit", slow)
    complaints = []

    async def whole():
        yield b"ok"

    async def body():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with running(tmp_path) as engine:
            task = asyncio.create_task(engine.upload(announced, whole()))
            await asyncio.to_thread(at_work.wait, 10)
            task.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            await engine._intake.settle()
            assert spooled(tmp_path) == []
        del task
        gc.collect()

    run(body())
    assert complaints == []


def test_server_paths(tmp_path):
    allowed, state = tmp_path / "allowed", tmp_path / "state"
    allowed.mkdir()
    state.mkdir()
    (allowed / "w.wtns").write_text("ok:path")

    async def body():
        async with running(state, server_folders=(allowed,)) as engine:
            view = await proved(engine, ServerPath(str(allowed / "w.wtns")))
            assert view.results[0].proof.endswith(b"ok:path")
            with pytest.raises(InvalidInput):
                await engine.submit(job("ok", ServerPath("/etc/passwd")))
            await engine._intake.settle()
            assert spooled(state) == []

    run(body())
    assert (allowed / "w.wtns").read_text() == "ok:path"


def test_refusals_leave_nothing(tmp_path):
    large = manifest("large", key_bytes=2 << 20)

    async def body():
        async with running(
            tmp_path, FakeRegistry(manifest(), large), max_partitions=3, ready_target=1
        ) as engine:
            blocker = await engine.submit(job("hold"))
            await until(engine, begins(blocker))
            await engine.submit(job("hold"))  # held by the prover as well
            waiting = await engine.submit(job("ok", "ok"))
            assert not waiting.state.ended
            refusals = {
                InvalidInput: [job(), job("ok", request_id="x" * 300)],
                NotFound: [job("ok", circuit="nope")],
                NeverFits: [job("ok", circuit="large")],
                Exhausted: [job("ok", "ok")],
            }
            files = spooled(tmp_path)
            for error, requests in refusals.items():
                for request in requests:
                    with pytest.raises(error):
                        await engine.submit(request)
            with pytest.raises(NeverFits, match=r"\d{7} bytes.*1048576 bytes"):
                await engine.submit(job("ok", circuit="large"))
            assert spooled(tmp_path) == files
            engine.drain()
            assert engine.serving() == (False, "the daemon is draining")
            with pytest.raises(Unavailable, match="draining"):
                await engine.submit(job("ok"))

    run(body())


def test_stop_lets_what_provers_have_end_and_hands_back_the_rest(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            short = await engine.submit(job("ok", "ok"))
            await until(engine, begins(short))
            assert await engine.stop(drain_s=PATIENCE_S) == 0
            assert engine.view(short.job_id).state is JobState.DONE
            assert spooled(tmp_path) == []
        async with running(tmp_path) as engine:
            held = await engine.submit(job("hold", "ok"))
            waiter = asyncio.create_task(engine.wait(held.job_id))
            watcher = asyncio.create_task(anext(watch := engine.watch(held.job_id)))
            assert not (await watcher).state.ended
            await until(engine, begins(held))
            assert await engine.stop(drain_s=0.01) == 1
            with pytest.raises(Unavailable, match=f"the daemon is stopping; job {held.job_id} goes on"):
                await waiter
            with pytest.raises(Unavailable, match="goes on when it is back"):
                async for _ in watch:
                    pass
            assert not [event for event in engine.events if isinstance(event, JobFinished)]
            assert len(spooled(tmp_path)) == 2

    run(body())


def test_results_expire_by_count(tmp_path):
    async def body():
        async with running(tmp_path, max_results=2, tick_s=3600.0) as engine:
            views = [await proved(engine, f"ok:{n}", request_id=f"r{n}") for n in range(4)]
            engine._jobs.table.expire(0.0)
            for view in views[:2]:
                for some_id in (view.job_id, view.request_id):
                    with pytest.raises(NotFound, match="expired"):
                        engine.view(some_id)
            assert engine.view("r3").job_id == views[3].job_id
            with pytest.raises(NotFound, match="unknown"):
                await engine.wait("r9", 0)

    run(body())


def test_memory_waits_comes_back_and_survives_a_death(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            desk = engine._desk
            other = desk.budget.reserve(1 << 19, "somebody else")
            view = await engine.submit(job(f"grant:{1 << 20}"))
            await until(engine, begins(view))
            while not desk.budget.waiting:
                await asyncio.sleep(0.01)
            other.release()
            assert (await engine.wait(view.job_id, PATIENCE_S)).state is JobState.DONE
            kept = await proved(engine, f"keep:{1 << 20}")  # its first prover dies with the whole budget
            assert kept.state is JobState.DONE and kept.results[0].attempts == 2
            never = await proved(engine, f"grant:{(1 << 20) + 1}")
            assert never.state is JobState.FAILED and never.error_code == "never_fits"
            assert desk.budget.used_bytes == 0

    run(body())


def test_keys_are_loaded_and_evicted(tmp_path):
    async def body():
        async with running(tmp_path) as engine:
            await until(engine, lambda event: isinstance(event, ProverState) and event.state == "ready")
            loaded = await engine.preload("square")
            assert (loaded.already_loaded, loaded.load_s) == (False, 0.25)
            assert (await engine.preload("square")).already_loaded
            assert engine.status().circuits[0].resident_bytes == 100
            evicted = await engine.evict("square")
            assert (evicted.was_loaded, evicted.freed_bytes) == (True, 100)
            assert (await engine.evict("square")).was_loaded is False
            with pytest.raises(NotFound):
                await engine.preload("nope")

    run(body())


@pytest.mark.parametrize(("fault", "cause"), [("refuse", "no such device"), ("garbage", "spoke out of turn")])
def test_a_prover_that_never_works_is_no_silent_hang(tmp_path, fault, cause):
    async def body():
        async with running(tmp_path, fault=fault, longest_quarantine_s=0.0) as engine:
            await until(engine, lambda event: isinstance(event, ProverState) and event.state == "dead")
            if fault == "refuse":
                with pytest.raises(Unavailable, match=cause):
                    while True:
                        view = await proved(engine, "ok")
                        assert view.error_code == "unavailable" and cause in view.error_message
                assert cause in engine.serving()[1]
            deaths = [event for event in engine.events if isinstance(event, ProverState) and event.cause]
            assert cause in deaths[0].cause

    run(body())


def test_a_silent_prover_is_replaced(tmp_path):
    async def body():
        async with running(tmp_path, heartbeat_s=0.05) as engine:
            held = await engine.submit(job("hold"))
            await until(engine, lambda event: isinstance(event, ProverState) and event.state == "dead")
            deaths = [event for event in engine.events if isinstance(event, ProverState) and event.cause]
            assert "no heartbeat" in deaths[0].cause
            await engine.cancel(held.job_id)

    run(body())


def test_random_cancels_and_deaths_end_every_job_exactly_once(tmp_path):
    random.seed(7)

    async def body():
        async with running(tmp_path) as engine:
            views = []
            for _ in range(30):
                payload = random.choice(["ok", "ok", "die:1", "retry:1", "fault:1", "fail:internal", "hold"])
                views.append(await engine.submit(job("ok", payload, priority=random.choice(list(Priority)))))
                if random.random() < 0.5 or payload == "hold":
                    await engine.cancel(random.choice(views).job_id)
            for view in views:
                if not (await engine.wait(view.job_id, 0.2)).state.ended:
                    await engine.cancel(view.job_id)
            ended = await asyncio.gather(*(engine.wait(view.job_id, PATIENCE_S) for view in views))
            assert all(view.state.ended for view in ended)
            counts = collections.Counter(e.job_id for e in engine.events if isinstance(e, JobFinished))
            assert len(counts) == 30 and set(counts.values()) == {1}
            assert (await proved(engine, "ok")).state is JobState.DONE
            await engine._intake.settle()
            assert spooled(tmp_path) == []
            assert len(engine._jobs.queue) == 0

    run(body())
