"""What the engine must be told. Values of its own, not the daemon's whole configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuzkd.engine.calculators import IntakeSettings
from cuzkd.engine.job import Stage
from cuzkd.engine.supervisor import COMMAND, Timing

HOUR_S = 3600.0
# Far above what the largest circuits take on a slow machine: what is longer in a stage hangs.
STAGE_S: Mapping[Stage, float] = {
    Stage.OFFERED: 12 * HOUR_S,
    Stage.SYNTHESISING: 2 * HOUR_S,
    Stage.READY: 4 * HOUR_S,
    Stage.PROVING: 2 * HOUR_S,
    Stage.VERIFYING: HOUR_S / 2,
}


@dataclass(frozen=True)
class EngineSettings:
    """Sizes in bytes, times in seconds.

    threads: native threads of a prover, 0 = all cores. max_attempts: how often a partition is given to
    provers. budget_bytes: host memory, 0 = auto. slab_bytes: of a prover's pool, 0 = learned. max_partitions:
    that may wait; as many uploads may wait for jobs. result_expiry_s, max_results: how long, and how many,
    ended jobs are kept. server_folders:
    where clients may name files of this machine. eviction_min_idle_s: a key that nobody has used for so long
    gives way when memory is short. intake: where witnesses are calculated from inputs. fault, command: of tests
    (engine/faults.py; what is started as a prover).
    """

    state_dir: Path
    backend: str = "auto"
    threads: int = 0
    max_parallel_synthesis: int = 1
    ready_target: int = 2
    max_attempts: int = 3
    budget_bytes: int = 0
    slab_bytes: int = 0
    wipe: bool = True
    prewarm: bool = True
    max_partitions: int = 10_000
    result_expiry_s: float = HOUR_S
    max_results: int = 10_000
    max_upload_bytes: int = 64 << 30
    upload_expiry_s: float = 900.0
    server_folders: tuple[Path, ...] = ()
    eviction_min_idle_s: float = 300.0
    intake: IntakeSettings = field(default_factory=IntakeSettings)
    heartbeat_s: float = 60.0
    stage_s: Mapping[Stage, float] = field(default_factory=lambda: STAGE_S)
    timing: Timing = field(default_factory=Timing)
    tick_s: float = 0.5
    fault: str = ""
    command: Sequence[str] = COMMAND
