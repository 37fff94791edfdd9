"""One device, one prover: also where two of different names think that it is theirs. Real processes, the processor in
disguise."""

import asyncio
import os
import sys
from pathlib import Path
from signal import SIGKILL

from engine.front import running
from engine.test_quarantine import PATIENCE_S, until

from cuzkd.circuits.registry import Registry
from cuzkd.engine.fleet.supervisor import Timing
from cuzkd.engine.stats import ProverState

DISGUISED = Path(__file__).parent.parent / "faults" / "prover.py"
GPU = "GPU-12345678"


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
