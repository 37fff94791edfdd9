"""A front whose device fails in all ways that a device can, with processes that only pretend to have one."""

import asyncio
import signal
from os import kill

import pytest
from engine.front import begun, job, running

from cuzkd.engine.job import JobState
from cuzkd.engine.stats import DeviceReturned, ProverState, Quarantined, SelfTest
from cuzkd.errors import Unavailable

PATIENCE_S = 60.0
SOON = {"quarantine_s": 0.3, "longest_quarantine_s": 60.0}
LONG = {"quarantine_s": 600.0, "longest_quarantine_s": 600.0}


@pytest.fixture(autouse=True)
def nothing_to_ask(monkeypatch, tmp_path):
    """No nvidia-smi, whatever this machine has."""
    monkeypatch.setenv("PATH", str(tmp_path))


def device(state_dir, text):
    (state_dir / "device").write_text(text)


async def until(engine, kind, count=1, **fields):
    """The count-th event of a kind, also one that has been."""

    def found():
        return [
            event
            for event in engine.events
            if isinstance(event, kind) and all(getattr(event, name) == v for name, v in fields.items())
        ]

    changed = asyncio.Event()
    engine.subscribe(lambda event: changed.set())
    async with asyncio.timeout(PATIENCE_S):
        while len(found()) < count:
            changed.clear()
            await changed.wait()
    return found()[count - 1]


async def proved(engine, *payloads):
    view = await engine.submit(job(*payloads))
    return await engine.wait(view.job_id, PATIENCE_S)


def backends(view):
    assert view.state is JobState.DONE, view.error_message
    return {result.backend for result in view.results}


def test_a_device_that_fails_always_is_replaced_by_the_processor_and_tried_again(tmp_path):
    device(tmp_path, "broken")

    async def body():
        async with running(tmp_path, policy="prefer", **SOON) as engine:
            quarantined = await until(engine, Quarantined)
            assert (quarantined.stage, quarantined.failures, quarantined.seconds) == ("selftest", 2, 0.3)
            assert quarantined.device.startswith("GPU-") and quarantined.counters == {}
            assert not (await until(engine, SelfTest)).passed
            await until(engine, Quarantined, seconds=0.6)
            assert backends(await proved(engine, "ok", "ok")) == {"cpu"}
            assert engine.serving()[0]
            device(tmp_path, "ok")
            returned = await until(engine, DeviceReturned)
            assert returned.device == quarantined.device
            assert (await until(engine, SelfTest, passed=True, device=returned.device)).seconds == 0.25
            assert backends(await proved(engine, "ok")) == {"cuda"}
            health = engine._fleet.health("prover-0")
            assert (health.state, health.failures, health.backend) == ("ready", 0, "cuda")

    asyncio.run(body())


def test_jobs_go_on_where_the_processor_stands_in(tmp_path):
    """The device fails each partition; quarantine comes before the attempts are used up."""
    device(tmp_path, "faulty")

    async def body():
        async with running(tmp_path, policy="prefer", quarantine_after=2, **LONG) as engine:
            view = await proved(engine, "ok:1")
            assert backends(view) == {"cpu"} and view.results[0].attempts == 3
            assert [attempt for _, attempt in begun(tmp_path)] == [1, 2, 3]
            health = engine._fleet.health("prover-0")
            assert (health.state, health.failures, health.backend) == ("quarantined", 2, "cpu")
            assert health.until_s > 0 and "device_fault" in health.cause
            assert engine.serving()[0]

    asyncio.run(body())


def test_wrong_proofs_that_were_put_right_count_and_what_it_holds_is_finished(tmp_path):
    device(tmp_path, "wrong")

    async def body():
        async with running(tmp_path, policy="prefer", ready_target=1, **LONG) as engine:
            view = await proved(engine, *(f"ok:{n}" for n in range(8)))
            assert backends(view) == {"cuda", "cpu"}
            by_device = [result for result in view.results if result.backend == "cuda"]
            assert len(by_device) >= 2 and all(result.attempts == 2 for result in by_device)
            quarantined = await until(engine, Quarantined)
            assert (quarantined.stage, quarantined.failures) == ("verify", 2)
            assert engine.status().provers[0].restarts == 0  # it made way

    asyncio.run(body())


def test_a_device_that_returns_waits_until_the_processor_holds_nothing(tmp_path):
    device(tmp_path, "broken")

    async def body():
        async with running(tmp_path, policy="prefer", **SOON) as engine:
            await until(engine, ProverState, state="ready", backend="cpu")
            held = await engine.submit(job("hold"))
            while not (tmp_path / "begun").exists():
                await asyncio.sleep(0.01)
            device(tmp_path, "ok")
            await asyncio.sleep(0.5)  # far beyond the quarantine: it is the processor's still
            while not engine._fleet.views()[0].closing:
                await asyncio.sleep(0.01)
            next_one = await engine.submit(job("ok:next"))
            assert engine._fleet.health("prover-0").backend == "cpu"
            assert begun(tmp_path) == [("hold", 1)]
            with pytest.raises(Unavailable, match="about to be replaced"):
                await engine.preload("square")
            await engine.cancel(held.job_id)
            assert backends(await engine.wait(next_one.job_id, PATIENCE_S)) == {"cuda"}

    asyncio.run(body())


def test_required_means_that_accepted_jobs_wait_and_new_ones_are_refused(tmp_path):
    device(tmp_path, "ok")

    async def body():
        async with running(
            tmp_path, policy="require", quarantine_after=2, quarantine_s=0.5, longest_quarantine_s=60.0
        ) as engine:
            await until(engine, ProverState, state="ready", backend="cuda")
            device(tmp_path, "broken")
            first = await engine.submit(job("die:1"))
            state = await until(engine, ProverState, state="quarantined")
            assert state.device.startswith("GPU-") and "self-test" in state.cause
            serving, reason = engine.serving()
            assert not serving and "in quarantine for another" in reason and state.device in reason
            with pytest.raises(Unavailable, match="in quarantine"):
                await engine.submit(job("ok"))
            assert not engine.view(first.job_id).state.ended
            device(tmp_path, "ok")
            view = await engine.wait(first.job_id, PATIENCE_S)
            assert backends(view) == {"cuda"} and view.results[0].attempts == 2
            assert engine.serving() == (True, "")
            await until(engine, DeviceReturned)

    asyncio.run(body())


def test_required_and_never_there(tmp_path):
    async def body():
        async with running(tmp_path, policy="require", quarantine_s=0.1, longest_quarantine_s=1.0) as engine:
            early = await engine.submit(job("ok"))
            view = await engine.wait(early.job_id, PATIENCE_S)
            assert (view.state, view.error_code) == (JobState.FAILED, "unavailable")
            assert "no CUDA device" in view.error_message
            with pytest.raises(Unavailable, match="no CUDA device"):
                await engine.submit(job("ok"))
            assert not any(isinstance(event, Quarantined) for event in engine.events)

    asyncio.run(body())


def test_whoever_kills_a_prover_does_not_speak_against_its_device(tmp_path):
    device(tmp_path, "ok")

    async def body():
        async with running(tmp_path, policy="prefer", quarantine_after=1, **LONG) as engine:
            for count in range(1, 4):
                ready = await until(engine, ProverState, count, state="ready")
                assert ready.backend == "cuda"
                kill(ready.pid, signal.SIGKILL)
            await until(engine, ProverState, 4, state="ready")
            assert engine._fleet.health("prover-0").failures == 0

    asyncio.run(body())


def test_a_device_that_hangs_is_blamed_for_it(tmp_path):
    device(tmp_path, "ok")

    async def body():
        async with running(tmp_path, policy="prefer", quarantine_after=1, heartbeat_s=0.2, **LONG) as engine:
            held = await engine.submit(job("hold"))
            quarantined = await until(engine, Quarantined)
            assert quarantined.stage == "synthesising" and "no heartbeat" in quarantined.cause
            await engine.cancel(held.job_id)

    asyncio.run(body())


def test_a_stage_that_lasts_too_long_is_a_hang(tmp_path):
    async def body():
        async with running(tmp_path, least_stage_s=0.1, heartbeat_s=600.0, max_attempts=1) as engine:
            view = await proved(engine, "hold")
            assert view.error_code == "device_fault"
            assert "has been synthesising for" in view.error_message

    asyncio.run(body())
