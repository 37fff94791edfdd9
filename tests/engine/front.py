"""A front with a fake prover and made-up circuits, for tests of the engine."""

import contextlib
import sys
from pathlib import Path

from cuzkd.circuits import manifest as manifests
from cuzkd.engine.engine import Engine
from cuzkd.engine.fleet.supervisor import Timing
from cuzkd.engine.job import JobRequest, Priority, WitnessBytes
from cuzkd.engine.settings import EngineSettings
from cuzkd.errors import NotFound

FAKE = (sys.executable, str(Path(__file__).with_name("fake_prover.py")))
QUICK = Timing(handshake_s=30.0, shutdown_s=5.0, first_pause_s=0.0, longest_pause_s=0.0)


def manifest(name="square", **changes):
    known = {
        "name": name,
        "curve": "bn254",
        "n_constraints": 6,
        "n_public": 1,
        "n_wires": 10,
        "log_domain": 3,
        "root_family": 5,
        "reduction": "circom",
        "constraint_check": "derived",
        "n_coefficients": 20,
        "key_bytes": 8192,
        "sections": (),
        "calculator": "",
        "source": "made up",
    }
    return manifests.make(**{**known, **changes})


class FakeRegistry:
    def __init__(self, *circuits):
        self.circuits = {m.name: m for m in circuits or (manifest(), manifest("cube", n_wires=11))}
        self.cached = set()  # names of those whose files are in the page cache

    def get(self, name):
        if name not in self.circuits:
            raise NotFound(f"circuit {name}: not installed")
        return self.circuits[name]

    def list(self):
        return list(self.circuits.values())

    def warm(self, manifest):
        return manifest.name in self.cached


def settings(state_dir, **changes):
    known = {
        "state_dir": state_dir,
        "command": FAKE,
        "timing": QUICK,
        "budget_bytes": 1 << 20,
        "tick_s": 0.02,
    }
    return EngineSettings(**{**known, **changes})


@contextlib.asynccontextmanager
async def running(state_dir, registry=None, **changes):
    """An engine from start to stop. It must be left without a file in the spool, and without a byte granted."""
    engine = Engine(settings(state_dir, **changes), registry or FakeRegistry())
    engine.events = []
    engine.subscribe(engine.events.append)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()
    assert engine._desk.budget.used_bytes == 0


def job(*payloads, circuit="square", request_id="", priority=Priority.NORMAL, owner="", deadline_s=0.0):
    partitions = tuple(WitnessBytes(p.encode()) if isinstance(p, str) else p for p in payloads)
    return JobRequest(circuit, partitions, request_id, priority, owner, deadline_s)


def spooled(state_dir):
    return sorted(path.name for path in (state_dir / "spool").iterdir())


def begun(state_dir):
    """(payload, attempt) in the order in which the prover began them."""
    lines = (state_dir / "begun").read_text().splitlines()
    return [(payload, int(attempt)) for _, attempt, payload in (line.split(" ", 2) for line in lines)]
