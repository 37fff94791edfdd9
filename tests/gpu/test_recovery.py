"""On a real device: a killed prover, a broken context, a full card, a cancelled job. Every job reaches its end."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engine.front import running

from cuzkd.circuits import builtin
from cuzkd.circuits.registry import Registry
from cuzkd.curves.params import CURVES
from cuzkd.engine.fleet.supervisor import COMMAND, Timing
from cuzkd.engine.job import JobRequest, JobState, Stage, WitnessBytes
from cuzkd.engine.stats import PartitionStage, ProverState, Quarantined
from cuzkd.formats import proof_bytes, wtns
from cuzkd.groth16 import setup, verifier

pytestmark = pytest.mark.gpu

ROUNDS = 3000  # nine thousand constraints
PATIENCE_S = 120.0
POISONED = (sys.executable, "-P", str(Path(__file__).with_name("poisoned_prover.py")))
BALLAST = """
import cupy, sys
leave = int(sys.argv[1])
free = cupy.cuda.runtime.memGetInfo()[0]
held = [cupy.cuda.runtime.malloc(free - leave)]
print("held", flush=True)
sys.stdin.read()
"""


class Bed:
    """A state directory with a circuit on each curve, and witnesses for them."""

    def __init__(self, folder):
        self.state = folder / "state"
        self.folder = folder
        self.vks = {}
        for curve in CURVES:
            key = setup.setup(builtin.constraints(curve, ROUNDS))
            Registry(self.state).install(f"chain-{curve}", key, source="test")
            self.vks[curve] = key.vk

    def job(self, curve, *preimages):
        payloads = []
        for preimage in preimages:
            path = self.folder / "w.wtns"
            wtns.write(path, curve, builtin.witness(curve, ROUNDS, preimage))
            payloads.append(WitnessBytes(path.read_bytes()))
        return JobRequest(f"chain-{curve}", payloads)

    def check(self, view, curve, backend="cuda"):
        assert view.state is JobState.DONE, (view.error_code, view.error_message)
        for result in view.results:
            publics = [int.from_bytes(value, "big") for value in result.publics]
            assert verifier.verify(self.vks[curve], proof_bytes.decode(curve, result.proof), publics)
            assert result.backend == backend

    def running(self, **changes):
        known = {
            "command": COMMAND,
            "policy": "require",
            "budget_bytes": 8 << 30,
            "timing": Timing(handshake_s=PATIENCE_S, first_pause_s=0.1, longest_pause_s=1.0),
            "quarantine_s": 1.0,
        }
        return running(self.state, Registry(self.state), **{**known, **changes})


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    return Bed(tmp_path_factory.mktemp("bed"))


async def ready(front):
    async with asyncio.timeout(PATIENCE_S):
        while not front.serving()[0]:
            await asyncio.sleep(0.02)


async def proved(front, bed, curve, *preimages):
    view = await front.submit(bed.job(curve, *preimages))
    return await front.wait(view.job_id, PATIENCE_S)


def pids(front):
    return [event.pid for event in front.events if isinstance(event, ProverState) and event.state == "ready"]


def test_a_killed_prover_is_back_with_its_keys(bed, record_property):
    async def body():
        async with bed.running() as front:
            await ready(front)
            for curve in CURVES:
                bed.check(await proved(front, bed, curve, 5), curve)
            began = time.monotonic()
            os.kill(pids(front)[-1], signal.SIGKILL)
            bed.check(await proved(front, bed, "bls12_381", 6), "bls12_381")
            print(f"first proof {time.monotonic() - began:.2f} s after kill -9")
            assert len(pids(front)) == 2

    asyncio.run(body())


@pytest.mark.parametrize("curve", CURVES)
def test_a_prover_killed_while_it_proves_loses_nothing(bed, curve):
    async def body():
        async with bed.running() as front:
            await ready(front)
            view = await front.submit(bed.job(curve, *range(2, 12)))
            async with asyncio.timeout(PATIENCE_S):
                while not any(
                    isinstance(e, PartitionStage) and e.stage is Stage.PROVING for e in front.events
                ):
                    await asyncio.sleep(0.001)
            os.kill(pids(front)[-1], signal.SIGKILL)
            bed.check(await front.wait(view.job_id, PATIENCE_S), curve)

    asyncio.run(body())


def test_a_broken_context_is_replaced(bed):
    (bed.state / "poison").write_text("1")

    async def body():
        async with bed.running(command=POISONED) as front:
            await ready(front)
            view = await proved(front, bed, "bn254", 7, 8)
            bed.check(view, "bn254")
            assert max(result.attempts for result in view.results) == 2
            assert front.stats.retries["device_fault"] >= 1
            assert len(pids(front)) == 2

    asyncio.run(body())


def test_a_device_that_always_breaks_goes_into_quarantine_and_the_processor_goes_on(bed):
    (bed.state / "poison").write_text("1000")

    async def body():
        async with bed.running(
            command=POISONED, policy="prefer", quarantine_after=2, quarantine_s=600.0
        ) as front:
            await ready(front)
            view = await proved(front, bed, "bn254", 9)
            bed.check(view, "bn254", backend="cpu")
            found = [event for event in front.events if isinstance(event, Quarantined)]
            assert found and found[0].device.startswith("GPU-") and found[0].counters
            print(found[0])

    asyncio.run(body())


def test_it_returns_from_quarantine_after_a_self_test(bed):
    (bed.state / "poison").write_text("2")

    async def body():
        async with bed.running(
            command=POISONED, policy="require", quarantine_after=2, quarantine_s=0.5, max_attempts=5
        ) as front:
            await ready(front)
            bed.check(await proved(front, bed, "bn254", 10), "bn254")
            assert len(pids(front)) == 3

    asyncio.run(body())


@contextlib.contextmanager
def ballast(leave):
    """Somebody else takes the card's memory, but for `leave` bytes."""
    process = subprocess.Popen(
        [sys.executable, "-c", BALLAST, str(leave)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"held\n"
        yield
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.mark.parametrize("leave", [32 << 20, 128 << 20, 512 << 20])
def test_a_full_card_costs_no_more_than_a_job(bed, leave):
    async def body():
        async with bed.running() as front:
            await ready(front)
            with ballast(leave):
                view = await proved(front, bed, "bls12_381", 11)
                if view.state is JobState.DONE:
                    bed.check(view, "bls12_381")
                else:
                    assert view.error_code == "exhausted", (view.error_code, view.error_message)
                print(leave, view.state, view.error_message)
            bed.check(await proved(front, bed, "bls12_381", 12), "bls12_381")
            assert len(pids(front)) == 1, "the process went on"

    asyncio.run(body())


def test_cancelled_work_leaves_the_device_free(bed):
    async def body():
        async with bed.running() as front:
            await ready(front)
            bed.check(await proved(front, bed, "bn254", 3), "bn254")
            for n in range(20):
                view = await front.submit(bed.job("bn254", *range(20, 24)))
                await asyncio.sleep(0.01 * n)
                await front.cancel(view.job_id)
                ended = await front.wait(view.job_id, PATIENCE_S)
                assert ended.state in (JobState.CANCELLED, JobState.DONE)
            bed.check(await proved(front, bed, "bn254", 4), "bn254")

    asyncio.run(body())
