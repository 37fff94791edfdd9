"""What a job is: the words of the front process, and the record that the engine keeps.

Problem. A job's state is asked for by clients, changed by provers, timeouts and cancellations, and must reach
exactly one end. Elsewhere several threads write it, and ids hang for ever.

Design. `JobRequest` comes in, `JobView` goes out, both frozen. Between them lives one mutable `Job`, owned by
the engine's event loop: nobody else may touch it, everybody else sends events. A job is one or more
partitions; each is one witness and becomes one proof.

Life. queued -> synthesising -> proving -> verifying -> done | failed | cancelled. The last three are ends: chosen
once, recorded, then announced; what is kept of a job from then on is in `ended`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

# The pipeline's phases in order; the same names are metric labels, fields of log events and of replies.
# `queue_wait` and `total` are measured by the front, all others by the prover. `synthesis` is the sparse
# product.
PHASES = (
    "queue_wait", "witness", "key_load", "synthesis", "stage_copy", "pin", "gpu_wait", "h2d", "spmv", "ntt_h",
    "prep_msm", "msm_h", "msm_l", "msm_a", "msm_b_g1", "msm_b_g2", "d2h", "unpin", "assembly", "verify",
    "total",
)  # fmt: skip

RESULT_BYTES = 1024  # of a result, beside its proof and its public inputs


class Priority(IntEnum):
    """Numbers of the wire. Higher goes first; inside one priority the order is that of arrival."""

    LOW = 1
    NORMAL = 2
    HIGH = 3
    CRITICAL = 4


class JobState(StrEnum):
    QUEUED = "queued"
    SYNTHESISING = "synthesising"
    PROVING = "proving"
    VERIFYING = "verifying"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


class Stage(StrEnum):
    """Where one partition is. Offered: a prover holds it and has not begun."""

    QUEUED = "queued"
    OFFERED = "offered"
    SYNTHESISING = "synthesising"
    READY = "ready"
    PROVING = "proving"
    VERIFYING = "verifying"
    DONE = "done"

    @property
    def in_hand(self) -> bool:
        """A prover has it."""
        return self not in (Stage.QUEUED, Stage.DONE)


@dataclass(frozen=True)
class WitnessBytes:
    """A whole .wtns file inside the request."""

    data: bytes = field(repr=False)


@dataclass(frozen=True)
class UploadRef:
    """A file that came through `Engine.upload`; used up by the job that names it."""

    upload_id: str


@dataclass(frozen=True)
class ServerPath:
    """A file on this machine, beneath a folder that the operator allows; it is copied."""

    path: str


@dataclass(frozen=True)
class InputJson:
    """The circuit's inputs, inside the request; the witness is calculated before the job is accepted."""

    data: bytes = field(repr=False)


Payload = WitnessBytes | UploadRef | ServerPath | InputJson


@dataclass(frozen=True)
class JobRequest:
    """circuit: name of an installed circuit. partitions: one witness, or one set of inputs, each. request_id:
    idempotency key, "" for none. owner: the identity that submits, who alone sees the job; "" where callers are not
    told apart. deadline_s: from submission, 0 for none.
    """

    circuit: str
    partitions: Sequence[Payload]
    request_id: str = ""
    priority: Priority = Priority.NORMAL
    owner: str = ""
    deadline_s: float = 0.0


@dataclass(frozen=True)
class PartitionResult:
    """One verified proof.

    proof: formats.proof_bytes of the circuit's curve. publics: 32 bytes big-endian each, canonical, without
    the constant. phases: seconds by name (PHASES, and parts of msm_*). attempts: times that provers were
    given it.
    """

    index: int
    proof: bytes
    publics: tuple[bytes, ...]
    phases: Mapping[str, float]
    backend: str
    device: str
    attempts: int
    key_digest: str
    h2d_bytes: int

    @property
    def nbytes(self) -> int:
        """About what it takes in memory."""
        return len(self.proof) + sum(map(len, self.publics)) + RESULT_BYTES


@dataclass(frozen=True)
class JobView:
    """A job as it was at one moment.

    results: of a job that is done, all of them, by index; else empty. error_code, error_message: why it
    failed or was cancelled; a code of cuzkd.errors. queue_position: partitions waiting before its first
    waiting one, 0 when none of it waits. queue_wait_s: until its first partition was begun. total_s:
    submission to the end, or to now. progress: 0 to 1. expected_s: until its end, None when nobody knows. stages:
    (stage, attempt) by index.
    """

    job_id: str
    request_id: str
    circuit: str
    priority: Priority
    state: JobState
    partitions: int
    partitions_done: int
    results: tuple[PartitionResult, ...]
    error_code: str
    error_message: str
    queue_position: int
    queue_wait_s: float
    total_s: float
    progress: float = 0.0
    expected_s: float | None = None
    stages: tuple[tuple[Stage, int], ...] = ()


@dataclass(frozen=True)
class SpoolFile:
    """A payload on our own disk. digest: keyed, tells equal contents from others, and nothing else."""

    path: str
    nbytes: int
    digest: bytes = field(repr=False)


@dataclass(frozen=True)
class Ticket:
    """A partition that waits for a prover. (priority, sequence) is its place, also when it comes back."""

    partition_id: str
    job_id: str
    index: int
    circuit: str
    circuit_digest: str
    spool_path: str
    priority: Priority
    sequence: int
    attempt: int = 1


@dataclass
class PartitionRecord:
    """One partition's progress. `prover`: who holds it, "" when nobody does. content: keyed digest of circuit and
    payload.
    """

    ticket: Ticket
    file: SpoolFile
    stage: Stage = Stage.QUEUED
    content: bytes = field(default=b"", repr=False)
    prover: str = ""
    since_s: float = 0.0  # when it entered its stage
    begun_s: float | None = None  # when its latest attempt left the queues
    result: PartitionResult | None = None


@dataclass(frozen=True, slots=True)
class End:
    """How a job ends. state: done, failed or cancelled. code, message: why not done. at_s: when that was decided."""

    state: JobState
    code: str
    message: str
    at_s: float


@dataclass(eq=False)
class Job:
    """The one record of a job. Owned by the engine's event loop; times are of its monotonic clock.

    An end is chosen once (`end`), then recorded, then announced: until that `state` and every view are as before.
    """

    job_id: str
    request: JobRequest  # without its payloads: those are in the spool
    content: bytes = field(repr=False)
    submitted_s: float
    partitions: list[PartitionRecord]
    state: JobState = field(init=False)
    end: End | None = None  # chosen, perhaps not announced
    first_begun_s: float | None = None
    crashes: int = 0  # of the daemon, in a row, while it was under way
    under_way: bool = False  # a prover has been given some of it
    handed_back: bool = False  # to the next run of the daemon
    changed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)  # replaced at every change
    ended: asyncio.Event = field(default_factory=asyncio.Event, repr=False)  # announced, or handed back
    stages: Counter[Stage] = field(init=False, repr=False)  # how many partitions are in each

    _in_hand: dict[int, PartitionRecord] = field(init=False, repr=False, default_factory=dict)  # by index

    def __post_init__(self) -> None:
        self.stages = Counter(record.stage for record in self.partitions)
        self.state = self._progress()

    @property
    def owner(self) -> str:
        return self.request.owner

    @property
    def circuit(self) -> str:
        return self.request.circuit

    @property
    def in_hand(self) -> list[PartitionRecord]:
        """Those that provers hold."""
        return list(self._in_hand.values())

    @property
    def first_waiting(self) -> PartitionRecord | None:
        if not self.stages[Stage.QUEUED]:
            return None
        return next(record for record in self.partitions if record.stage is Stage.QUEUED)

    @property
    def sequence(self) -> int:
        """The place of its first partition; the others follow without a gap."""
        return self.partitions[0].ticket.sequence

    @property
    def last_sequence(self) -> int:
        return self.partitions[-1].ticket.sequence

    @property
    def digest(self) -> str:
        """Of the key that it was accepted for."""
        return self.partitions[0].ticket.circuit_digest

    @property
    def result_bytes(self) -> int:
        """About what its results take in memory, and in the journal."""
        return sum(record.result.nbytes for record in self.partitions if record.result)

    def move(self, record: PartitionRecord, stage: Stage) -> None:
        """A partition is in another stage, and the job's state what they all amount to: the furthest of them."""
        self.stages[record.stage] -= 1
        self.stages[stage] += 1
        record.stage = stage
        if stage.in_hand:
            self._in_hand[record.ticket.index] = record
        else:
            self._in_hand.pop(record.ticket.index, None)
        self.state = self._progress()

    def _progress(self) -> JobState:
        stages = self.stages
        if stages[Stage.DONE] == len(self.partitions):
            return JobState.VERIFYING  # until its end is announced
        if stages[Stage.VERIFYING]:
            return JobState.VERIFYING
        if stages[Stage.PROVING] or stages[Stage.DONE]:
            return JobState.PROVING
        if stages[Stage.SYNTHESISING] or stages[Stage.READY]:
            return JobState.SYNTHESISING
        return JobState.QUEUED

    @property
    def proved(self) -> bool:
        """Whether every partition has its proof."""
        return self.stages[Stage.DONE] == len(self.partitions)

    def announce(self) -> None:
        """The chosen end is recorded: it is the state from now on, and whoever waits is woken."""
        assert self.end is not None
        self.state = self.end.state
        self.ended.set()
        self.notify()

    def notify(self) -> None:
        """Wake whoever watches."""
        self.changed.set()
        self.changed = asyncio.Event()

    def view(
        self, now_s: float, queue_position: int = 0, progress: float = 0.0, expected_s: float | None = None
    ) -> JobView:
        """Of one that has not ended, as far as anybody has been told."""
        begun_s = now_s if self.first_begun_s is None else self.first_begun_s
        return JobView(
            job_id=self.job_id,
            request_id=self.request.request_id,
            circuit=self.request.circuit,
            priority=self.request.priority,
            state=self.state,
            partitions=len(self.partitions),
            partitions_done=self.stages[Stage.DONE],
            results=(),
            error_code="",
            error_message="",
            queue_position=queue_position,
            queue_wait_s=begun_s - self.submitted_s,
            total_s=now_s - self.submitted_s,
            progress=progress,
            expected_s=expected_s,
            stages=tuple((record.stage, record.ticket.attempt) for record in self.partitions),
        )
