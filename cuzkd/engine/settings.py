"""What the engine must be told. Values of its own, not the daemon's whole configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuzkd.engine.fleet.health import HOSTS, Rules
from cuzkd.engine.fleet.supervisor import COMMAND, Timing
from cuzkd.engine.payloads.calculators import IntakeSettings
from cuzkd.engine.wire import prover_pb2 as wire

HOUR_S = 3600.0


@dataclass(frozen=True)
class EngineSettings:
    """Sizes in bytes, times in seconds.

    policy: who computes. prefer: a CUDA device, the processor where there is none or it is in quarantine; require: a
    CUDA device or nobody; cpu; reference (tests). launch_set, launch_wait_s: partitions of one circuit that a device
    may begin together, and how long one may wait for others. vram_bytes: of a device's memory that its prover uses at
    most, 0 = what is free; tables: of keys' points there, where there is room. group: of one circuit in a row while
    others wait. least_stage_s: no partition is thought to hang before that. quarantine_after: failures in a row;
    quarantine_s: the first one, doubling up to longest_quarantine_s. max_result_bytes: of ended jobs.
    devices: UUIDs, or their beginnings, a prover for each; ("all",); or none, for the first device that is found.
    threads: native threads of a prover, 0 = the cores, divided among the devices. max_attempts: how often a partition
    is given to provers. budget_bytes: host memory, 0 = auto. slab_bytes: of a prover's pool, 0 = learned.
    max_partitions: that may wait; as many uploads may wait for jobs. result_expiry_s, max_results: how long, and how
    many, ended jobs are kept. server_folders:
    where clients may name files of this machine. eviction_min_idle_s: a key that nobody has used for so long
    gives way when memory is short. intake: where witnesses are calculated from inputs. fault, front_fault, command: of
    tests (engine/faults.py, in the prover and in the front; what is started as a prover).
    """

    state_dir: Path
    policy: str = "prefer"
    devices: Sequence[str] = ()
    threads: int = 0
    max_parallel_synthesis: int = 1
    ready_target: int = 2
    max_attempts: int = 3
    launch_set: int = 8
    launch_wait_s: float = 0.002
    vram_bytes: int = 0
    tables: bool = True
    group: int = 16
    budget_bytes: int = 0
    slab_bytes: int = 0
    wipe: bool = True
    prewarm: bool = True
    max_partitions: int = 10_000
    result_expiry_s: float = HOUR_S
    max_results: int = 10_000
    max_result_bytes: int = 256 << 20
    max_upload_bytes: int = 64 << 30
    upload_expiry_s: float = 900.0
    server_folders: tuple[Path, ...] = ()
    eviction_min_idle_s: float = 300.0
    intake: IntakeSettings = field(default_factory=IntakeSettings)
    heartbeat_s: float = 20.0
    least_stage_s: float = 900.0
    quarantine_after: int = 2
    quarantine_s: float = 60.0
    longest_quarantine_s: float = HOUR_S
    timing: Timing = field(default_factory=Timing)
    tick_s: float = 0.5
    fault: str = ""
    front_fault: str = ""
    command: Sequence[str] = COMMAND

    @property
    def away_after_s(self) -> float:
        """A loop that has not come by for so long was stopped. Below any sensible heartbeat_s."""
        return max(2 * self.tick_s, 0.25)

    def configure(self, backend: str, share: int) -> wire.Configure:
        """A prover's first message. share: its native threads beside the other devices' provers; one that works with
        the processor works alone, and has all cores.
        """
        return wire.Configure(
            backend=backend,
            state_dir=str(self.state_dir.resolve()),
            threads=self.threads or (0 if backend in HOSTS else share),
            max_parallel_synthesis=self.max_parallel_synthesis,
            ready_target=self.ready_target,
            wipe=self.wipe,
            slab_bytes=self.slab_bytes,
            prewarm=self.prewarm,
            fault=self.fault,
            launch_set=self.launch_set,
            launch_wait_s=self.launch_wait_s,
            vram_bytes=self.vram_bytes,
            no_tables=not self.tables,
        )

    def health_rules(self) -> Rules:
        """When a device is left alone, and for how long."""
        return Rules(
            self.policy,
            self.quarantine_after,
            self.quarantine_s,
            self.longest_quarantine_s,
            self.timing.first_pause_s,
            self.timing.longest_pause_s,
        )
