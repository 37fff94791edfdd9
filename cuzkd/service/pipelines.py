"""Where every partition is, for the status page: the sum of the engine's events, job by job.

Problem: a page with ten thousand partitions takes longer to make than the engine's loop may stand still.
Design: one more subscriber of the engine's events. It keeps a few words about each partition, on the loop; the page
is made of them by the thread that serves it, under a lock that is held for copying alone. What the page lists is
bounded: the oldest jobs first, up to `MAX_LISTED` partitions, and it says how many jobs are left out.
Life of data: a job comes with its submission (or when it goes on after a restart) and goes `KEPT_S` after its end.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cuzkd.engine.job import JobState, Stage
from cuzkd.engine.stats import (
    GONE,
    CircuitLoaded,
    Event,
    JobFinished,
    JobResumed,
    JobSubmitted,
    PartitionFinished,
    PartitionStage,
    ProverState,
)
from cuzkd.service.conversion import DEVICE_PHASES, SYNTHESIS_PHASES

KEPT_S = 30.0
MAX_ENDED = 1000
MAX_LISTED = 2000  # partitions on one page


@dataclass
class PartitionLine:
    """since_s: when it entered its stage. synthesis_s, device_s: how long it was there, None when it is not through."""

    stage: Stage = Stage.QUEUED
    since_s: float = 0.0
    synthesis_s: float | None = None
    device_s: float | None = None


@dataclass
class JobLine:
    """ended: its end, None while it runs. begun_s: when it came."""

    job_id: str
    circuit: str
    begun_s: float
    partitions: list[PartitionLine] = field(default_factory=list)
    ended: JobState | None = None
    ended_s: float = 0.0


@dataclass(frozen=True)
class Working:
    """What a prover's device is busy with."""

    job_id: str
    index: int
    since_s: float


@dataclass(frozen=True)
class Picture:
    """A copy of everything, of one moment. left_out: jobs that are not listed. in_stage: partitions by stage, of all
    jobs. used_s: when a circuit was last used.
    """

    now_s: float
    jobs: list[JobLine]
    left_out: int
    in_stage: dict[Stage, int]
    working: dict[str, Working]
    completed: dict[str, int]
    failed: dict[str, int]
    used_s: dict[str, float]


class Pipelines:
    """Give `handle` to Engine.subscribe. clock: monotonic seconds. `picture` may be called from any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: dict[str, JobLine] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()  # oldest end first
        self._in_stage: Counter[Stage] = Counter()  # of jobs that run
        self._working: dict[str, OrderedDict[tuple[str, int], float]] = {}  # by prover
        self._completed: Counter[str] = Counter()  # jobs, by circuit
        self._failed: Counter[str] = Counter()
        self._used_s: dict[str, float] = {}

    def handle(self, event: Event) -> None:
        with self._lock:
            match event:
                case JobSubmitted():
                    self._add(event.job_id, event.circuit, event.partitions, ())
                case JobResumed():
                    self._add(event.job_id, event.circuit, event.partitions, event.indexes)
                case PartitionStage():
                    self._used_s[event.circuit] = self._clock()
                    self._stage(event)
                case PartitionFinished():
                    self._finished(event)
                case JobFinished():
                    self._end(event)
                case CircuitLoaded(loaded=True):
                    self._used_s[event.circuit] = self._clock()
                case ProverState(state=state) if state in GONE:
                    self._working.pop(event.prover, None)

    def _add(self, job_id: str, circuit: str, count: int, done: tuple[int, ...]) -> None:
        now_s = self._clock()
        lines = [PartitionLine(since_s=now_s) for _ in range(count)]
        for index in done:
            lines[index].stage = Stage.DONE
        self._in_stage.update(line.stage for line in lines)
        self._jobs[job_id] = JobLine(job_id, circuit, now_s, lines)

    def _stage(self, event: PartitionStage) -> None:
        job = self._jobs.get(event.job_id)
        if job is None or job.ended is not None:
            return
        line, now_s = job.partitions[event.index], self._clock()
        took_s = now_s - line.since_s
        match line.stage, event.stage:
            case _, Stage.QUEUED:
                line.synthesis_s = line.device_s = None
            case Stage.SYNTHESISING, _:
                line.synthesis_s = took_s
            case Stage.PROVING, _ if line.device_s is None:
                line.device_s = took_s
        self._leave(event.job_id, event.index)
        if event.stage is Stage.PROVING:
            self._working.setdefault(event.prover, OrderedDict())[event.job_id, event.index] = now_s
        self._in_stage[line.stage] -= 1
        self._in_stage[event.stage] += 1
        line.stage, line.since_s = event.stage, now_s

    def _leave(self, job_id: str, index: int) -> None:
        for working in self._working.values():
            working.pop((job_id, index), None)

    def _finished(self, event: PartitionFinished) -> None:
        job = self._jobs.get(event.job_id)
        if job is not None:
            phases = event.result.phases
            line = job.partitions[event.result.index]
            line.synthesis_s = sum(phases.get(name, 0.0) for name in SYNTHESIS_PHASES)
            line.device_s = sum(phases.get(name, 0.0) for name in DEVICE_PHASES)

    def _end(self, event: JobFinished) -> None:
        if event.state is JobState.DONE:
            self._completed[event.circuit] += 1
        elif event.state is JobState.FAILED:
            self._failed[event.circuit] += 1
        job = self._jobs.get(event.job_id)
        if job is None or job.ended is not None:
            return
        job.ended, job.ended_s = event.state, self._clock()
        for index, line in enumerate(job.partitions):
            self._in_stage[line.stage] -= 1
            self._leave(event.job_id, index)
        self._ended[event.job_id] = None
        self._expire()

    def _expire(self) -> None:
        now_s = self._clock()
        while self._ended:
            oldest = next(iter(self._ended))
            if len(self._ended) <= MAX_ENDED and now_s - self._jobs[oldest].ended_s < KEPT_S:
                break
            del self._ended[oldest], self._jobs[oldest]

    def picture(self) -> Picture:
        with self._lock:
            self._expire()
            listed: list[JobLine] = []
            room = MAX_LISTED
            for job in self._jobs.values():
                room -= len(job.partitions)
                if room < 0 and listed:
                    break
                listed.append(replace(job, partitions=[replace(line) for line in job.partitions]))
            return Picture(
                now_s=self._clock(),
                jobs=listed,
                left_out=len(self._jobs) - len(listed),
                in_stage={stage: self._in_stage[stage] for stage in Stage},
                working={
                    prover: Working(*at, since_s)
                    for prover, working in self._working.items()
                    for at, since_s in list(working.items())[:1]
                },
                completed=dict(self._completed),
                failed=dict(self._failed),
                used_s=dict(self._used_s),
            )
