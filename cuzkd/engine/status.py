"""The picture of one moment, for GetStatus and /status.

Problem. A status call must cost little and wait for nothing, least of all for a device.
Design. Everything is put together from what the engine knows already: the sums of the events, the fleet's
holdings, the table of running jobs, the manifests on disk and what the kernel has of their keys in memory. No process
is started and no device asked.
Life. Made for one reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cuzkd.circuits.manifest import Manifest
from cuzkd.circuits.prepared import head_bytes
from cuzkd.circuits.registry import Registry
from cuzkd.engine.fleet.fleet import Fleet
from cuzkd.engine.scheduling.queue import PartitionQueue
from cuzkd.engine.stats import JournalStatus, ProverNumbers, Stats
from cuzkd.memory.budget import Budget


@dataclass(frozen=True)
class ProverStatus:
    """One device, or who stands in for it. state: starting, idle, proving, dead, stopped, quarantined (nobody stands
    in). cause: why it is dead or in quarantine. failures: of the device, in a row. quarantined: UUID of the device that
    is left alone, for another quarantine_left_s. evidence: of its last quarantine, what the driver counts of errors.
    """

    prover: str
    state: str
    pid: int
    backend: str
    device: str
    device_name: str
    vram_total_bytes: int
    vram_used_bytes: int
    synthesising: int
    ready: int
    current_job_id: str
    current_circuit: str
    restarts: int
    cause: str
    vram_free_bytes: int = 0
    failures: int = 0
    quarantined: str = ""
    quarantine_left_s: float = 0.0
    evidence: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CircuitStatus:
    """An installed circuit. resident_bytes: what provers hold of it; matrix_bytes: of its matrices, in one prover;
    cached: loading it would not wait for the disk; users: partitions held by provers now.
    """

    circuit: str
    loaded: bool
    size_bytes: int
    resident_bytes: int
    cached: bool
    users: int
    matrix_bytes: int = 0


@dataclass(frozen=True)
class QueueStatus:
    circuit: str
    pending: int
    in_progress: int


@dataclass(frozen=True)
class EngineStatus:
    """Everything that GetStatus and /status show, of one moment. expected_wait_s: of a job submitted now, None when
    nobody knows.
    """

    serving: bool
    not_serving_reason: str
    uptime_s: float
    provers: tuple[ProverStatus, ...]
    circuits: tuple[CircuitStatus, ...]
    queues: tuple[QueueStatus, ...]
    waiting: Mapping[str, int]  # partitions by name of priority
    jobs: Mapping[str, int]  # ended jobs by state, since the start
    failures: Mapping[str, int]  # failed jobs by reason, since the start
    retries: Mapping[str, int]  # attempts that were repeated, by reason, since the start
    proofs_completed: int
    pinned_bytes: int
    pinned_leased_bytes: int
    pinned_free_bytes: int
    h2d_bytes: int
    budget_used_bytes: int
    budget_limit_bytes: int
    budget_peak_bytes: int = 0
    budget_waiting: int = 0
    policy: str = ""
    expected_wait_s: float | None = None
    refused: Mapping[str, int] = field(default_factory=dict)  # submissions, by reason, since the start
    resumed: int = 0  # jobs of earlier runs that went on
    quarantines: int = 0  # since the start
    journal: JournalStatus = field(default_factory=JournalStatus)


def describe(
    stats: Stats,
    fleet: Fleet,
    loads: Mapping[str, tuple[int, int]],
    queue: PartitionQueue,
    budget: Budget,
    registry: Registry,
    *,
    serving: tuple[bool, str],
    uptime_s: float,
    now_s: float,
    policy: str = "",
    expected_wait_s: float | None = None,
) -> EngineStatus:
    """loads: partitions that wait and that provers have, by circuit. now_s: of the engine's clock. expected_wait_s:
    of a job submitted now, None when nobody knows.
    """
    slabs, leased, free = stats.pinned()
    return EngineStatus(
        serving=serving[0],
        not_serving_reason=serving[1],
        uptime_s=uptime_s,
        provers=tuple(_prover(name, numbers, fleet, now_s) for name, numbers in stats.provers.items()),
        circuits=tuple(_circuit(manifest, stats, fleet, registry) for manifest in registry.list()),
        queues=tuple(QueueStatus(circuit, waiting, held) for circuit, (waiting, held) in loads.items()),
        waiting={priority.name.lower(): count for priority, count in queue.depths().items()},
        jobs=dict(stats.jobs),
        failures=dict(stats.failures),
        retries=dict(stats.retries),
        proofs_completed=stats.proofs_completed,
        pinned_bytes=slabs,
        pinned_leased_bytes=leased,
        pinned_free_bytes=free,
        h2d_bytes=stats.h2d_bytes,
        budget_used_bytes=budget.used_bytes,
        budget_limit_bytes=budget.limit_bytes,
        budget_peak_bytes=budget.peak_bytes,
        budget_waiting=budget.waiting,
        policy=policy,
        expected_wait_s=expected_wait_s,
        refused=dict(stats.refused),
        resumed=stats.resumed,
        quarantines=stats.quarantines,
        journal=replace(stats.journal),
    )


def _prover(name: str, numbers: ProverNumbers, fleet: Fleet, now_s: float) -> ProverStatus:
    state, beat, ticket, health = numbers.state, numbers.beat, fleet.holding(name), fleet.health(name)
    shut_out = health.until_s is not None
    shown = state.state
    if shown == "ready":
        shown = "idle" if ticket is None else "proving"
    elif shut_out and shown == "dead":
        shown = "quarantined"
    return ProverStatus(
        prover=name,
        state=shown,
        pid=state.pid,
        backend=state.backend,
        device=state.device or health.device,
        device_name=state.device_name,
        vram_total_bytes=state.vram_total_bytes,
        vram_used_bytes=beat.vram_used_bytes if beat else 0,
        synthesising=beat.synthesising if beat else 0,
        ready=beat.ready if beat else 0,
        current_job_id=ticket.job_id if ticket else "",
        current_circuit=ticket.circuit if ticket else "",
        restarts=numbers.restarts,
        cause=health.cause or state.cause,
        vram_free_bytes=beat.vram_free_bytes if beat else 0,
        failures=health.failures,
        quarantined=(health.device or "unknown") if shut_out else "",
        quarantine_left_s=max(health.until_s - now_s, 0.0) if health.until_s is not None else 0.0,
        evidence=dict(numbers.evidence),
    )


def _circuit(manifest: Manifest, stats: Stats, fleet: Fleet, registry: Registry) -> CircuitStatus:
    resident = stats.resident(manifest.name)
    return CircuitStatus(
        circuit=manifest.name,
        loaded=resident is not None,
        size_bytes=manifest.key_bytes,
        resident_bytes=resident or 0,
        cached=resident is not None or registry.warm(manifest),
        users=fleet.users(manifest.name),
        matrix_bytes=head_bytes(manifest),
    )
