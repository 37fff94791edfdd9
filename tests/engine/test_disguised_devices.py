"""Real provers, with the processor in disguise as their devices: two prove, and one is never used by two."""

import asyncio
import os
import sys
from pathlib import Path
from signal import SIGKILL

from engine.front import running
from engine.test_quarantine import PATIENCE_S, until

from cuzkd.circuits import builtin
from cuzkd.circuits.registry import Registry
from cuzkd.engine.fleet.supervisor import Timing
from cuzkd.engine.job import JobRequest, JobState, Stage, WitnessBytes
from cuzkd.engine.stats import PartitionStage, ProverState
from cuzkd.formats import proof_bytes, wtns
from cuzkd.groth16 import setup, verifier

DISGUISED = Path(__file__).parent.parent / "faults" / "prover.py"
GPU = "GPU-12345678"


def test_two_prove_and_one_that_is_killed_is_missed_by_nobody(tmp_path):
    key = setup.setup(builtin.constraints("bn254", 3))
    Registry(tmp_path).install("chain", key, source="test")
    payloads = []
    for preimage in range(2, 10):
        wtns.write(tmp_path / "w.wtns", "bn254", builtin.witness("bn254", 3, preimage))
        payloads.append(WitnessBytes((tmp_path / "w.wtns").read_bytes()))
    gpus = ("GPU-1", "GPU-2")

    async def body():
        async with running(
            tmp_path,
            Registry(tmp_path),
            command=(sys.executable, "-P", str(DISGUISED), str(tmp_path / "book"), "visible"),
            devices=gpus,
            policy="require",
            budget_bytes=1 << 30,
            timing=Timing(first_pause_s=0.0),
        ) as engine:
            for name in gpus:
                await until(engine, ProverState, state="ready", device=name)
            submitted = await engine.submit(JobRequest("chain", payloads))
            begun = await until(engine, PartitionStage, stage=Stage.SYNTHESISING)
            pid = (await until(engine, ProverState, state="ready", prover=begun.prover)).pid
            os.kill(pid, SIGKILL)
            view = await engine.wait(submitted.job_id, PATIENCE_S)
            assert view.state is JobState.DONE, view.error_message
            for result in view.results:
                publics = [int.from_bytes(value, "big") for value in result.publics]
                assert verifier.verify(key.vk, proof_bytes.decode("bn254", result.proof), publics)
            await until(engine, ProverState, 2, state="ready", prover=begun.prover)
            again = await engine.submit(JobRequest("chain", payloads))
            again = await engine.wait(again.job_id, PATIENCE_S)
            assert {result.device for result in again.results} == set(gpus)
            assert {result.backend for result in again.results} == {"cuda"}

    asyncio.run(body())


def test_the_second_waits_until_the_first_is_gone(tmp_path):
    command = (sys.executable, "-P", str(DISGUISED), str(tmp_path / "book"), GPU)

    async def body():
        async with running(
            tmp_path,
            Registry(tmp_path),
            command=command,
            devices=[GPU, GPU[:-1]],
            budget_bytes=1 << 30,
            timing=Timing(first_pause_s=3600.0),
        ) as engine:
            first = await until(engine, ProverState, state="ready")
            assert first.device == GPU
            lock = tmp_path / "provers" / f"{GPU}.lock"
            assert lock.read_text() == f"{first.pid}\n"
            second = 1 - int(first.prover[-1])
            (pid,) = {e.pid for e in engine.events if isinstance(e, ProverState) and e.pid} - {first.pid}
            async with asyncio.timeout(PATIENCE_S):
                while not _waits_for(pid, lock):
                    await asyncio.sleep(0.01)
            assert len([e for e in engine.events if isinstance(e, ProverState) and e.state == "ready"]) == 1
            os.kill(first.pid, SIGKILL)
            ready = await until(engine, ProverState, state="ready", prover=f"prover-{second}")
            assert (ready.pid, ready.device) == (pid, GPU)
            assert lock.read_text() == f"{pid}\n"

    asyncio.run(body())


def _waits_for(pid, lock):
    """As the kernel says."""
    inode = str(lock.stat().st_ino)
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("->" in line and str(pid) in line and line[6].endswith(f":{inode}") for line in lines)
