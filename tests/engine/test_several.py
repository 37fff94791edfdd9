"""Several devices in one front, with processes that only pretend to have them."""

import asyncio
import sys
from collections import Counter
from os import kill
from pathlib import Path
from signal import SIGKILL

import pytest
from engine.front import FakeRegistry, job, manifest, running, settings
from engine.test_quarantine import LONG, PATIENCE_S, SOON, backends, nothing_to_ask, proved, until

from cuzkd.engine.fleet import devices
from cuzkd.engine.job import JobState, Priority
from cuzkd.engine.stats import DeviceReturned, ProverState, Quarantined
from cuzkd.errors import Unavailable

A, B = "GPU-aaaaaaaa", "GPU-bbbbbbbb"
UUIDS = tuple(f"GPU-{n}0000000-1111-2222-3333-444444444444" for n in range(3))

assert nothing_to_ask  # for all tests here, too


def device(state_dir, name, text):
    (state_dir / f"device-{name}").write_text(text)


def two(state_dir, a="ok", b="ok", **changes):
    device(state_dir, A, a)
    device(state_dir, B, b)
    return running(state_dir, devices=[A, B], heartbeat_s=600.0, **changes)  # they pretend that, too


async def both(engine):
    for name in (A, B):
        await until(engine, ProverState, state="ready", device=name)


def places(view):
    assert view.state is JobState.DONE, view.error_message
    return Counter(result.device for result in view.results)


def stand_ins(engine):
    """Most provers with the processor that lived at the same time; those that make way until they are gone."""
    alive, most = {}, 0
    for event in engine.events:
        if isinstance(event, ProverState):
            alive[event.prover] = event.state == "ready" and event.backend == "cpu"
            most = max(most, sum(alive.values()))
    return most


def started(state_dir):
    return [tuple(line.split()) for line in (state_dir / "started").read_text().splitlines()]


def test_both_get_work(tmp_path):
    async def body():
        async with two(tmp_path) as engine:
            await both(engine)
            view = await proved(engine, *(f"ok:{n}" for n in range(12)))
            assert set(places(view)) == {A, B}
            held = await engine.submit(job("hold", "hold"))
            async with asyncio.timeout(PATIENCE_S):
                while not all(view.held for view in engine._fleet.views()):
                    await asyncio.sleep(0.01)
            shown = {prover.prover: prover for prover in engine.status().provers}
            assert {name: p.device for name, p in shown.items()} == {"prover-0": A, "prover-1": B}
            assert {p.state for p in shown.values()} == {"proving"}
            await engine.cancel(held.job_id)
        threads = {int(count) for _, _, count in started(tmp_path)}
        assert len(threads) == 1 and threads != {0}

    asyncio.run(body())


def test_one_dies_in_the_middle_of_a_job(tmp_path):
    async def body():
        async with two(tmp_path, policy="require") as engine:
            await both(engine)
            never_again(engine, "prover-0")
            view = await proved(engine, "die:1", *(f"ok:{n}" for n in range(5)))
            assert places(view)[B] >= 4 and set(places(view)) <= {A, B}
            assert (view.results[0].attempts, view.results[0].device) == (2, B)
            assert engine.serving() == (True, "")

    asyncio.run(body())


def never_again(engine, name):
    """Its next processes end before they have said a word."""
    engine._fleet._provers[name].supervisor._command = (sys.executable, "-c", "raise SystemExit(7)")


def begun(state_dir):
    return (state_dir / "begun").exists()


def test_one_in_quarantine_waits_and_its_job_is_done_by_the_other(tmp_path):
    async def body():
        async with two(tmp_path, b="faulty", policy="prefer", **SOON) as engine:
            await both(engine)
            jobs = 0
            while not any(isinstance(event, Quarantined) for event in engine.events):
                view = await proved(engine, *(f"ok:{n}" for n in range(4)))
                assert places(view) == {A: 4}
                jobs += 1
            assert jobs < 50
            quarantined = await until(engine, Quarantined)
            assert (quarantined.prover, quarantined.device) == ("prover-1", B)
            await until(engine, ProverState, state="quarantined", prover="prover-1")
            assert engine.serving() == (True, "")
            device(tmp_path, B, "ok")
            assert (await until(engine, DeviceReturned)).device == B
            assert stand_ins(engine) == 0
            assert {backend for _, backend, _ in started(tmp_path)} == {"cuda"}

    asyncio.run(body())


def test_one_processor_stands_in_while_no_device_works_and_makes_way_for_the_first_that_returns(tmp_path):
    async def body():
        async with two(tmp_path, "broken", "broken", policy="prefer", **SOON) as engine:
            for name in (A, B):
                await until(engine, Quarantined, device=name)
            await until(engine, ProverState, state="ready", backend="cpu")
            assert backends(await proved(engine, "ok:1", "ok:2")) == {"cpu"}
            assert engine.serving()[0]
            for name in (A, B):  # several quarantines of each later
                await until(engine, Quarantined, 3, device=name)
            assert backends(await proved(engine, "ok:3")) == {"cpu"}
            device(tmp_path, A, "ok")
            await until(engine, DeviceReturned, device=A)
            assert backends(await proved(engine, "ok:4")) <= {"cpu", "cuda"}
            async with asyncio.timeout(PATIENCE_S):
                while any(view.backend == "cpu" for view in engine._fleet.views()):
                    await asyncio.sleep(0.01)
            assert places(await proved(engine, "ok:5", "ok:6")) == {A: 2}
            device(tmp_path, B, "ok")
            await until(engine, DeviceReturned, device=B)
            assert stand_ins(engine) == 1
        alone = {threads for _, backend, threads in started(tmp_path) if backend == "cpu"}
        assert alone == {"0"}  # the whole machine

    asyncio.run(body())


def test_one_that_waits_is_called_when_the_last_device_fails_for_ever(tmp_path):
    """The other's process does not come up, and nothing speaks against its device."""

    async def body():
        async with two(tmp_path, b="broken", policy="prefer", quarantine_after=1, **LONG) as engine:
            await until(engine, ProverState, state="quarantined", prover="prover-1")
            assert not any(view.backend == "cpu" for view in engine._fleet.views())
            never_again(engine, "prover-0")
            pid = (await until(engine, ProverState, state="ready", device=A)).pid
            kill(pid, SIGKILL)
            ready = await until(engine, ProverState, state="ready", backend="cpu")
            assert ready.prover == "prover-1"
            assert backends(await proved(engine, "ok")) == {"cpu"}

    asyncio.run(body())


def test_one_that_is_not_there_says_so_and_the_other_works(tmp_path):
    device(tmp_path, A, "ok")

    async def body():
        async with running(tmp_path, devices=[A, B], policy="prefer", **LONG) as engine:
            await until(engine, ProverState, state="quarantined", prover="prover-1")
            assert places(await proved(engine, "ok:1", "ok:2")) == {A: 2}
            gone = next(prover for prover in engine.status().provers if prover.prover == "prover-1")
            assert (gone.state, gone.device, gone.quarantined) == ("quarantined", B, B)
            assert "no CUDA device" in gone.cause
            assert stand_ins(engine) == 0

    asyncio.run(body())


def test_required(tmp_path):
    async def body():
        async with two(tmp_path, b="broken", policy="require", **LONG) as engine:
            await until(engine, ProverState, state="quarantined", prover="prover-1")
            assert places(await proved(engine, "ok")) == {A: 1}
            assert engine.serving() == (True, "")
            device(tmp_path, A, "broken")
            view = await engine.submit(job("die:1"))
            await until(engine, ProverState, state="quarantined", prover="prover-0")
            serving, reason = engine.serving()
            assert not serving and f"prover-0: device {A}" in reason and f"prover-1: device {B}" in reason
            with pytest.raises(Unavailable, match="in quarantine"):
                await engine.submit(job("ok"))
            assert not engine.view(view.job_id).state.ended and stand_ins(engine) == 0

    asyncio.run(body())


def test_a_job_is_done_by_the_other_however_often_one_fails_before_it_is_left_alone(tmp_path):
    async def body():
        async with two(
            tmp_path, a="faulty", policy="require", quarantine_after=100, max_attempts=2, **LONG
        ) as engine:
            await both(engine)
            view = await proved(engine, *(f"ok:{n}" for n in range(6)))
            assert places(view) == {B: 6}
            assert max(result.attempts for result in view.results) == 2

    asyncio.run(body())


def test_one_that_is_slow_to_start_keeps_nobody_waiting(tmp_path):
    async def body():
        async with two(tmp_path, b="slow") as engine:
            await until(engine, ProverState, state="ready", device=A)
            assert places(await proved(engine, "ok")) == {A: 1}
            device(tmp_path, B, "ok")
            await both(engine)

    asyncio.run(body())


def test_keys_are_loaded_and_dropped_everywhere(tmp_path):
    async def body():
        async with two(tmp_path) as engine:
            await both(engine)
            assert not (await engine.preload("square")).already_loaded
            assert (await engine.preload("square")).already_loaded
            (circuit,) = (c for c in engine.status().circuits if c.circuit == "square")
            assert circuit.resident_bytes == 200
            assert (await engine.evict("square")).freed_bytes == 200
            assert not engine._fleet.loaded()

    asyncio.run(body())


def test_where_only_one_copy_of_a_key_fits_only_one_proves_that_circuit(tmp_path):
    large = manifest("large", n_wires=20_000)
    registry = FakeRegistry(large, manifest())

    async def body():
        async with two(tmp_path, registry=registry) as engine:
            assert engine._desk.copies(large, in_place=False) == 1
            await both(engine)
            view = await engine.submit(job(*["ok"] * 12, circuit="large"))
            view = await engine.wait(view.job_id, PATIENCE_S)
            assert len(places(view)) == 1
            assert len(places(await proved(engine, *["ok"] * 12))) == 2

    asyncio.run(body())


def test_an_urgent_one_goes_to_the_emptier(tmp_path):
    async def body():
        async with two(tmp_path) as engine:
            await both(engine)
            held = await engine.submit(job("hold"))
            await until_begun(tmp_path)
            view = await engine.submit(job("ok", priority=Priority.CRITICAL))
            view = await engine.wait(view.job_id, PATIENCE_S)
            (busy,) = (v.prover for v in engine._fleet.views() if v.held)
            assert places(view) == {{"prover-0": B, "prover-1": A}[busy]: 1}
            await engine.cancel(held.job_id)

    asyncio.run(body())


async def until_begun(state_dir):
    async with asyncio.timeout(PATIENCE_S):
        while not begun(state_dir):
            await asyncio.sleep(0.01)


# -- who is asked for --


@pytest.fixture
def smi(tmp_path):
    """An nvidia-smi in the only folder that is searched."""

    def make(body):
        path = Path(tmp_path) / "nvidia-smi"
        path.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
        path.chmod(0o700)

    return make


SAYS = f"""
assert sys.argv[1:] == ["--query-gpu=uuid", "--format=csv,noheader"]
print({UUIDS[0]!r}); print({UUIDS[1]!r})
"""


def names(tmp_path, **changes):
    return asyncio.run(devices.provers_for(**{"policy": "prefer", "wanted": devices.ALL, **changes}))


def test_all_that_the_driver_knows_of(tmp_path, smi):
    smi(SAYS)
    assert names(tmp_path) == UUIDS[:2]
    assert names(tmp_path, policy="cpu") == names(tmp_path, wanted=()) == ("",)
    assert names(tmp_path, wanted=[A]) == (A,)


def test_one_that_is_lost_does_not_take_the_others_along(tmp_path, smi):
    smi(
        SAYS
        + "print('Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost.'); sys.exit(15)"
    )
    found = devices.installed(command=str(tmp_path / "nvidia-smi"))
    assert found.uuids == UUIDS[:2] and "status 15" in found.trouble and "is lost" in found.trouble
    assert UUIDS[0] not in found.trouble


def test_no_answer_is_one_prover(tmp_path, smi):
    assert "cannot be started" in devices.installed(command=str(tmp_path / "none")).trouble
    assert names(tmp_path) == ("",)
    smi("time.sleep(3600)")
    found = devices.installed(patience_s=0.5, command=str(tmp_path / "nvidia-smi"))
    assert found.uuids == () and "did not answer" in found.trouble
    smi("print('No devices were found')")
    assert devices.installed(command=str(tmp_path / "nvidia-smi")).trouble


def test_all_from_the_start_to_a_proof(tmp_path, smi):
    smi(SAYS)
    for uuid in UUIDS[:2]:
        device(tmp_path, uuid, "ok")

    async def body():
        async with running(tmp_path, devices=devices.ALL, policy="require") as engine:
            for uuid in UUIDS[:2]:
                await until(engine, ProverState, state="ready", device=uuid)
            assert set(places(await proved(engine, *["ok"] * 8))) == set(UUIDS[:2])

    asyncio.run(body())


@pytest.mark.parametrize(("policy", "serves"), [("prefer", True), ("require", False)])
def test_all_of_none(tmp_path, policy, serves):
    async def body():
        async with running(tmp_path, devices=devices.ALL, policy=policy) as engine:
            if serves:
                assert backends(await proved(engine, "ok")) == {"cpu"}
            else:
                await until(engine, ProverState, state="dead")
                serving, reason = engine.serving()
                assert not serving and "no CUDA device" in reason
            assert [prover.prover for prover in engine.status().provers] == ["prover-0"]

    asyncio.run(body())


def test_threads_that_are_set_are_each_ones(tmp_path):
    for backend in ("cuda", "cpu"):
        assert settings(tmp_path, threads=5).configure(backend, 2).threads == 5
