"""The whole engine: the front with the real prover process, native CPU backend, real circuits."""

import asyncio
import os
import signal

import pytest
from engine.front import running

from cuzkd.circuits import builtin
from cuzkd.circuits.registry import Registry
from cuzkd.curves.params import CURVES
from cuzkd.engine.fleet.budget_desk import need_bytes
from cuzkd.engine.fleet.supervisor import COMMAND, Timing
from cuzkd.engine.job import PHASES, JobRequest, JobState, Priority, Stage, UploadRef, WitnessBytes
from cuzkd.engine.stats import CircuitLoaded, PartitionStage, ProverState
from cuzkd.formats import proof_bytes, wtns
from cuzkd.groth16 import setup, verifier
from cuzkd.metrics import Metrics

ROUNDS = 40
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("state")
    for curve in CURVES:
        key = setup.setup(builtin.constraints(curve, ROUNDS))
        Registry(directory).install(f"chain-{curve}", key, source="test")
    return directory


@pytest.fixture
def witness(tmp_path):
    def make(curve, preimage):
        path = tmp_path / f"{curve}-{preimage}.wtns"
        wtns.write(path, curve, builtin.witness(curve, ROUNDS, preimage))
        return path.read_bytes()

    return make


def engine(state, **changes):
    known = {
        "command": COMMAND,
        "policy": "cpu",
        "threads": 2,
        "budget_bytes": 1 << 30,
        "timing": Timing(handshake_s=PATIENCE_S, first_pause_s=0.0),
        "heartbeat_s": PATIENCE_S,
    }
    return running(state, Registry(state), **{**known, **changes})


def check(state, view, curve, preimages):
    """Every proof belongs to its own statement."""
    assert view.state is JobState.DONE, (view.error_code, view.error_message)
    manifest, key = Registry(state).get(f"chain-{curve}"), Registry(state).open(f"chain-{curve}").key
    for result, preimage in zip(view.results, preimages, strict=True):
        publics = [int.from_bytes(value, "big") for value in result.publics]
        assert publics == [builtin.digest(curve, ROUNDS, preimage)]
        assert verifier.verify(key.vk, proof_bytes.decode(curve, result.proof), publics)
        assert result.key_digest == manifest.digest and result.backend == "cpu"


def test_clients_at_once_on_both_curves(installed, witness):
    async def body():
        metrics = Metrics("test")
        async with engine(installed) as front:
            front.subscribe(metrics.handle)
            curves = list(CURVES)
            jobs = [(curves[n % 2], [10 * n, 10 * n + 1]) for n in range(6)]
            submitted = [
                await front.submit(
                    JobRequest(f"chain-{curve}", [WitnessBytes(witness(curve, x)) for x in preimages])
                )
                for curve, preimages in jobs
            ]
            views = await asyncio.gather(*(front.wait(view.job_id, PATIENCE_S) for view in submitted))
            for (curve, preimages), view in zip(jobs, views, strict=True):
                check(installed, view, curve, preimages)
                for result in view.results:
                    inside = sum(result.phases.get(phase, 0.0) for phase in PHASES if phase != "total")
                    assert {"queue_wait", "witness", "synthesis", "verify", "total"} <= set(result.phases)
                    assert inside <= 1.000001 * result.phases["total"]
            assert 'phase="synthesis"' in metrics.text() and 'phase="queue_wait"' in metrics.text()

    asyncio.run(body())


@pytest.mark.parametrize("parallel", [1, 2])
def test_room_for_one_key_and_two_circuits(installed, witness, parallel):
    """Keys give way to each other as long as anybody waits, whatever is urgent and however much is under way."""

    async def body():
        registry = Registry(installed)
        need = max(need_bytes(registry.get(f"chain-{curve}"), in_place=True) for curve in CURVES)
        tight = {"budget_bytes": need + 4096, "max_parallel_synthesis": parallel, "group": 2}
        async with engine(installed, **tight) as front:
            curves = list(CURVES)
            jobs = [(curves[n // 2 % 2], [100 + n, 200 + n], list(Priority)[n % 4]) for n in range(16)]
            submitted = [
                await front.submit(
                    JobRequest(
                        f"chain-{curve}",
                        [WitnessBytes(witness(curve, x)) for x in preimages],
                        priority=priority,
                    )
                )
                for curve, preimages, priority in jobs
            ]
            views = await asyncio.gather(*(front.wait(view.job_id, PATIENCE_S) for view in submitted))
            for (curve, preimages, _), view in zip(jobs, views, strict=True):
                check(installed, view, curve, preimages)
            for curve in curves:
                await front.preload(f"chain-{curve}")
            assert front.status().provers[0].restarts == 0

    asyncio.run(body())


def test_killing_the_prover_in_mid_job_costs_the_client_nothing_but_time(installed, witness):
    async def body():
        async with engine(installed, fault="hold:synthesis:1,hold:launch:1") as front:
            pids = []

            def kill_once(event):
                if isinstance(event, ProverState) and event.state == "ready":
                    pids.append(event.pid)
                # The fault keeps the first partition half a second where it is.
                if isinstance(event, PartitionStage) and event.stage is Stage.SYNTHESISING and len(pids) == 1:
                    os.kill(pids[0], signal.SIGKILL)

            front.subscribe(kill_once)
            view = await front.submit(
                JobRequest("chain-bn254", [WitnessBytes(witness("bn254", x)) for x in range(4)], "kill me")
            )
            view = await front.wait("kill me", PATIENCE_S)
            check(installed, view, "bn254", range(4))
            assert len(pids) == 2 and front.status().provers[0].restarts == 1
            assert [result.attempts for result in view.results] == [2, 1, 1, 1]

    asyncio.run(body())


@pytest.mark.parametrize("fault", ["exit:ready:1", "fault:launch:1"])
def test_a_device_that_fails_every_process_ends_the_job_with_its_cause(installed, witness, fault):
    async def body():
        async with engine(installed, fault=fault, max_attempts=2) as front:
            view = await front.submit(JobRequest("chain-bn254", [WitnessBytes(witness("bn254", 5))]))
            view = await front.wait(view.job_id, PATIENCE_S)
            assert view.state is JobState.FAILED and view.error_code == "device_fault"
            assert front.status().provers[0].restarts >= 1

    asyncio.run(body())


def test_bad_witnesses_fail_with_their_own_error_and_harm_nobody(installed, witness):
    async def body():
        async with engine(installed) as front:
            good = witness("bn254", 3)
            unsatisfied = good[:-32] + (int.from_bytes(good[-32:], "little") ^ 1).to_bytes(32, "little")
            for data, code in (
                (unsatisfied, "unsatisfied_witness"),
                (good[:-8], "malformed_file"),
                (witness("bls12_381", 3), "invalid_witness"),
            ):
                view = await front.submit(JobRequest("chain-bn254", [WitnessBytes(good), WitnessBytes(data)]))
                view = await front.wait(view.job_id, PATIENCE_S)
                assert (view.state, view.error_code) == (JobState.FAILED, code), view.error_message
                assert view.error_message.startswith("partition 1: ")

            async def chunks():
                yield good[:100]
                yield good[100:]

            upload = await front.upload(len(good), chunks())
            view = await front.submit(JobRequest("chain-bn254", [UploadRef(upload)]))
            check(installed, await front.wait(view.job_id, PATIENCE_S), "bn254", [3])
            assert front.status().provers[0].restarts == 0

    asyncio.run(body())


def test_preload_and_evict(installed):
    async def body():
        async with engine(installed) as front:
            ready = asyncio.Event()
            front.subscribe(
                lambda e: ready.set() if isinstance(e, ProverState) and e.state == "ready" else None
            )
            await asyncio.wait_for(ready.wait(), PATIENCE_S)
            assert not (await front.preload("chain-bn254")).already_loaded
            assert (await front.preload("chain-bn254")).already_loaded
            evicted = await front.evict("chain-bn254")
            assert evicted.was_loaded and evicted.freed_bytes > 0
            assert any(isinstance(event, CircuitLoaded) and event.loaded for event in front.events)

    asyncio.run(body())
