"""What the engine tells the outside besides replies: events, and the picture that they add up to.

Problem. Numbers that each part keeps for itself contradict each other, and counting inside the hot path slows
it. Design. The engine publishes small frozen events on its loop. `Stats` adds them up for GetStatus and
/status (status.py); `cuzkd.metrics` makes Prometheus series of them. Neither asks the engine anything, so an event says
all it means. Life. An event is made where the state changes, handed to every subscriber, forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cuzkd.engine.job import JobState, PartitionResult, Priority, Stage


@dataclass(frozen=True)
class JobSubmitted:
    job_id: str
    circuit: str
    priority: Priority
    partitions: int


@dataclass(frozen=True)
class PartitionStage:
    """A partition entered a stage."""

    job_id: str
    index: int
    circuit: str
    stage: Stage
    prover: str


@dataclass(frozen=True)
class PartitionFinished:
    """A verified proof came back."""

    job_id: str
    circuit: str
    result: PartitionResult


@dataclass(frozen=True)
class PartitionRetried:
    """An attempt ended without a proof, and there will be another. reason: code of cuzkd.errors, or self_verify: then
    device is whose proof did not verify.
    """

    job_id: str
    index: int
    circuit: str
    reason: str
    message: str
    attempt: int
    device: str = ""


@dataclass(frozen=True)
class WitnessCalculated:
    """Inputs became a witness, or did not: reason is a code of cuzkd.errors, "" when they did. phases: seconds by
    name, before the job is submitted: calculation_wait, calculation_compile, calculation.
    """

    circuit: str
    reason: str
    phases: Mapping[str, float]


@dataclass(frozen=True)
class JobFinished:
    """A job reached its end. reason: "" when done, else a code of cuzkd.errors."""

    job_id: str
    circuit: str
    state: JobState
    reason: str
    total_s: float


@dataclass(frozen=True)
class ProverState:
    """A prover process changed. state: starting, ready, dead, quarantined, stopped. cause: of a death."""

    prover: str
    state: str
    pid: int = 0
    backend: str = ""
    device: str = ""
    device_name: str = ""
    vram_total_bytes: int = 0
    cause: str = ""


@dataclass(frozen=True)
class Heartbeat:
    """A prover's own numbers, as of now. `*_total`, slabs_made and device_busy_s count from its start."""

    prover: str
    pinned_slab_bytes: int
    pinned_leased_bytes: int
    pinned_free_bytes: int
    slabs_made: int
    slabs_made_on_job_path: int
    h2d_bytes_total: int
    vram_used_bytes: int
    synthesising: int
    ready: int
    device_busy: bool
    resident_key_bytes: int
    vram_free_bytes: int = 0
    pinned_lost_bytes: int = 0
    device_busy_s: float = 0.0


@dataclass(frozen=True)
class CircuitLoaded:
    """A key became resident in a prover (nbytes, load_s), or stopped being so (nbytes = 0)."""

    prover: str
    circuit: str
    loaded: bool
    nbytes: int
    load_s: float


@dataclass(frozen=True)
class JobResumed:
    """A job that an earlier run of the daemon accepted goes on. done: partitions that need not be proved again;
    indexes: which.
    """

    job_id: str
    circuit: str
    partitions: int
    done: int
    indexes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Refused:
    """A submission that was not accepted. reason: code of cuzkd.errors."""

    reason: str


@dataclass(frozen=True)
class JournalWrite:
    """One transaction of the journal: how many records, how long until they were on the disk, or that it failed."""

    records: int
    seconds: float
    failed: bool


@dataclass(frozen=True)
class SelfTest:
    """A prover has made and verified a known proof before it became ready, or could not."""

    prover: str
    device: str
    passed: bool
    seconds: float


@dataclass(frozen=True)
class Quarantined:
    """A device is left alone for a while. device: its UUID. stage: where it failed last, counters: what the driver
    counts of its errors, by name.
    """

    prover: str
    device: str
    cause: str
    stage: str
    failures: int
    seconds: float
    counters: Mapping[str, str]


@dataclass(frozen=True)
class DeviceReturned:
    """A device that was in quarantine has passed its self-test."""

    prover: str
    device: str


@dataclass(frozen=True)
class LaunchSet:
    """A proof was made; size: of how many partitions that the device began together it was one."""

    prover: str
    size: int


@dataclass(frozen=True)
class QueueDepths:
    """Waiting partitions by priority."""

    waiting: Mapping[Priority, int]


@dataclass(frozen=True)
class BudgetState:
    """The host budget. used: granted, by prover. waiting: requests in its queue."""

    limit_bytes: int
    used_bytes: int
    peak_bytes: int
    waiting: int


Event = (
    JobSubmitted
    | PartitionStage
    | PartitionFinished
    | PartitionRetried
    | WitnessCalculated
    | JobFinished
    | ProverState
    | Heartbeat
    | CircuitLoaded
    | JobResumed
    | Refused
    | JournalWrite
    | SelfTest
    | Quarantined
    | DeviceReturned
    | LaunchSet
    | QueueDepths
    | BudgetState
)


@dataclass
class JournalStatus:
    """What the journal has written since the start. failing: its last transaction could not be written."""

    transactions: int = 0
    records: int = 0
    failures: int = 0
    seconds: float = 0.0
    failing: bool = False


GONE = ("dead", "quarantined", "stopped")  # states in which there is no process


@dataclass
class ProverNumbers:
    """What is known of one prover; `before` holds counters of its dead predecessors."""

    state: ProverState
    beat: Heartbeat | None = None
    restarts: int = 0
    evidence: Mapping[str, str] = field(default_factory=dict)  # of its device's last quarantine
    h2d_bytes_before: int = 0
    circuits: dict[str, int] = field(default_factory=dict)

    @property
    def h2d_bytes(self) -> int:
        return self.h2d_bytes_before + (self.beat.h2d_bytes_total if self.beat else 0)


class Stats:
    """The sum of all events. Lives on the engine's loop."""

    def __init__(self) -> None:
        self.provers: dict[str, ProverNumbers] = {}
        self.jobs: dict[str, int] = {state.value: 0 for state in JobState if state.ended}
        self.failures: dict[str, int] = {}
        self.retries: dict[str, int] = {}
        self.proofs_completed = 0
        self.refused: dict[str, int] = {}
        self.resumed = 0
        self.quarantines = 0
        self.journal = JournalStatus()

    def handle(self, event: Event) -> None:
        match event:
            case ProverState():
                self._prover_state(event)
            case Heartbeat():
                self.provers[event.prover].beat = event
            case CircuitLoaded():
                circuits = self.provers[event.prover].circuits
                if event.loaded:
                    circuits[event.circuit] = event.nbytes
                else:
                    circuits.pop(event.circuit, None)
            case PartitionFinished():
                self.proofs_completed += 1
            case PartitionRetried():
                self.retries[event.reason] = self.retries.get(event.reason, 0) + 1
            case JobFinished():
                self.jobs[event.state.value] += 1
                if event.state is JobState.FAILED:
                    self.failures[event.reason] = self.failures.get(event.reason, 0) + 1
            case Refused():
                self.refused[event.reason] = self.refused.get(event.reason, 0) + 1
            case JobResumed():
                self.resumed += 1
            case Quarantined():
                self.quarantines += 1
                if event.prover in self.provers:
                    self.provers[event.prover].evidence = event.counters
            case JournalWrite():
                self._journal(event)

    def _journal(self, event: JournalWrite) -> None:
        sums = self.journal
        sums.transactions += 1
        sums.seconds += event.seconds
        sums.failing = event.failed
        if event.failed:
            sums.failures += 1
        else:
            sums.records += event.records

    def _prover_state(self, event: ProverState) -> None:
        numbers = self.provers.setdefault(event.prover, ProverNumbers(event))
        if event.state in GONE:
            # Its memory is gone with it; what it has copied stays counted.
            numbers.h2d_bytes_before = numbers.h2d_bytes
            numbers.beat = None
            numbers.circuits.clear()
            numbers.restarts += event.state == "dead"
        numbers.state = event

    def resident(self, circuit: str) -> int | None:
        """Bytes that provers hold of a circuit; None when none has it loaded."""
        held = [n.circuits[circuit] for n in self.provers.values() if circuit in n.circuits]
        return sum(held) if held else None

    def pinned(self) -> tuple[int, int, int]:
        """Bytes of slabs, of leases, and free, over all provers."""
        beats = [n.beat for n in self.provers.values() if n.beat]
        return (
            sum(beat.pinned_slab_bytes for beat in beats),
            sum(beat.pinned_leased_bytes for beat in beats),
            sum(beat.pinned_free_bytes for beat in beats),
        )

    @property
    def h2d_bytes(self) -> int:
        return sum(n.h2d_bytes for n in self.provers.values())
