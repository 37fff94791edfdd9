"""All jobs on their way: the one owner of their state.

Problem. A job ends because its last proof came, a partition failed once too often, its prover could not be
replaced, a client cancelled it, or the daemon stops; any two of these may come together, and late reports
come after all of them.

Design. Events come in as calls, from clients through the engine and from provers through the fleet. Each
changes the record at once and asks for a decision, which the pure scheduler makes on the next turn of the
loop. `_enter` is the only place where a running job's state moves, `end` the only way to an end, and it says
whether it was the first. A partition that was lost with its prover goes back to its old place in the queue;
after max_attempts its job fails, naming the cause.

Life of a job. add: table and queue. Then offers, stages, results. end: what is left of it is taken back, its
files are removed, whoever waits is woken, and it is kept until it expires.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from cuzkd.circuits.manifest import Manifest
from cuzkd.engine.fleet import Fleet
from cuzkd.engine.intake import Gathered, Intake
from cuzkd.engine.job import (
    PHASES,
    Job,
    JobRequest,
    JobState,
    JobView,
    PartitionRecord,
    PartitionResult,
    Stage,
    Ticket,
)
from cuzkd.engine.queue import PartitionQueue
from cuzkd.engine.scheduler import Limits, decide, places
from cuzkd.engine.settings import EngineSettings
from cuzkd.engine.stats import (
    Event,
    JobFinished,
    JobSubmitted,
    PartitionFinished,
    PartitionRetried,
    PartitionStage,
    QueueDepths,
)
from cuzkd.engine.table import JobTable
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import DeviceFault, Unavailable

log = structlog.get_logger()


class Jobs:
    """Implements fleet.Owner. clock: monotonic seconds. publish: hands an event to all subscribers."""

    def __init__(
        self,
        settings: EngineSettings,
        intake: Intake,
        publish: Callable[[Event], None],
        clock: Callable[[], float],
    ) -> None:
        self.table = JobTable(settings.result_expiry_s, settings.max_results)
        self.queue = PartitionQueue(settings.max_partitions)
        self.idle = asyncio.Event()  # set while no job runs
        self.idle.set()
        self._max_attempts = settings.max_attempts
        self._limits = Limits(
            settings.ready_target, settings.max_parallel_synthesis, settings.heartbeat_s, settings.group
        )
        self._intake = intake
        self._publish = publish
        self._clock = clock
        self._sequences = itertools.count(1)
        self._decision: asyncio.Handle | None = None
        self._fleet: Fleet

    def serve(self, fleet: Fleet) -> None:
        """Give work to this fleet, whose owner we are."""
        self._fleet = fleet

    def close(self) -> None:
        if self._decision is not None:
            self._decision.cancel()

    def add(self, request: JobRequest, manifest: Manifest, gathered: Gathered) -> Job:
        """A job begins to exist. Does not wait. Raises Exhausted when the queue is full, NotFound for an
        upload that another job has taken; then nothing has changed.
        """
        self._intake.require_free(gathered)
        job = self._make(request, manifest, gathered)
        self.queue.push([record.ticket for record in job.partitions])
        self._intake.claim(gathered)
        self.table.add(job)
        self.idle.clear()
        self._publish(JobSubmitted(job.job_id, request.circuit, request.priority, len(job.partitions)))
        self.fleet_changed()
        return job

    def _make(self, request: JobRequest, manifest: Manifest, gathered: Gathered) -> Job:
        job_id, now_s = str(uuid.uuid4()), self._clock()
        records = []
        for index, file in enumerate(gathered.files):
            ticket = Ticket(
                partition_id=f"{job_id}/{index}",
                job_id=job_id,
                index=index,
                circuit=manifest.name,
                circuit_digest=manifest.digest,
                spool_path=file.path,
                priority=request.priority,
                sequence=next(self._sequences),
            )
            records.append(PartitionRecord(ticket, file, since_s=now_s))
        return Job(job_id, replace(request, partitions=()), gathered.content, now_s, records)

    # -- what the fleet reports --

    def stage_reached(self, ticket: Ticket, stage: Stage, prover: str) -> None:
        job = self.table.get(ticket.job_id)
        if job is None or job.state.ended:
            return
        self._enter(job, ticket, stage, prover)

    def partition_done(self, ticket: Ticket, done: wire.PartitionDone, ready: wire.Ready) -> None:
        job = self.table.get(ticket.job_id)
        if job is None or job.state.ended:
            return
        record = job.partitions[ticket.index]
        now_s = self._clock()
        begun_s = now_s if record.begun_s is None else record.begun_s
        phases = {phase.name: phase.seconds for phase in done.phases}
        total_s = now_s - job.submitted_s
        worked_s = sum(phases.get(phase, 0.0) for phase in PHASES)
        # A busy loop reads of the beginning late; that time is the prover's already and must not count twice.
        phases["queue_wait"] = max(0.0, min(begun_s - job.submitted_s, total_s - worked_s))
        phases["total"] = total_s
        repeated = max(done.attempts_inside, 1) - 1
        record.result = PartitionResult(
            index=ticket.index,
            proof=done.proof,
            publics=tuple(done.publics),
            phases=phases,
            backend=ready.backend,
            device=ready.device,
            attempts=ticket.attempt + repeated,
            key_digest=done.key_digest,
            h2d_bytes=done.h2d_bytes,
        )
        for _ in range(repeated):
            self._retried(ticket, "self_verify", "a proof did not verify and was made again")
        self._publish(PartitionFinished(job.job_id, ticket.circuit, record.result))
        self._enter(job, ticket, Stage.DONE, "")
        if job.state is JobState.DONE:
            self.end(job, JobState.DONE, "", "")

    def partition_failed(self, ticket: Ticket, failed: wire.PartitionFailed) -> None:
        job = self.table.get(ticket.job_id)
        if job is None or job.state.ended:
            return
        if failed.retryable and ticket.attempt < self._max_attempts:
            self._again(job, ticket, failed.error_code, failed.error_message)
        else:
            message = f"partition {ticket.index}: {failed.error_message}"
            if ticket.attempt > 1:
                message += f" (attempt {ticket.attempt} of at most {self._max_attempts})"
            self.end(job, JobState.FAILED, failed.error_code, message)

    def partitions_lost(self, blamed: Sequence[Ticket], others: Sequence[Ticket], cause: str) -> None:
        for ticket in blamed:
            job = self.table.get(ticket.job_id)
            if job is None or job.state.ended:
                continue
            if ticket.attempt < self._max_attempts:
                self._again(job, ticket, DeviceFault.code, f"its prover died: {cause}")
            else:
                self.end(
                    job,
                    JobState.FAILED,
                    DeviceFault.code,
                    f"partition {ticket.index}: its prover died in attempt {ticket.attempt} "
                    f"of {self._max_attempts}: {cause}",
                )
        for ticket in others:
            job = self.table.get(ticket.job_id)
            if job is not None and not job.state.ended:
                self._wait_again(job, ticket)
        if self._fleet.useless():
            for job in self.table.running:
                self.end(job, JobState.FAILED, Unavailable.code, self._fleet.trouble())

    def fleet_changed(self) -> None:
        """Decide on the next turn of the loop, once for all changes of this one."""
        if self._decision is None:
            self._decision = asyncio.get_running_loop().call_soon(self._decide)

    # -- inside --

    def _decide(self) -> None:
        """The loop's sentence: look, decide, act."""
        self._decision = None
        views = self._fleet.views()
        waiting = self.queue.candidates({view.circuit for view in views}, places(views, self._limits))
        decisions = decide(self._clock(), waiting, views, self._limits)
        for replacement in decisions.replacements:
            self._fleet.replace(replacement.prover, replacement.cause)
        for offer in decisions.offers:
            self.queue.remove(offer.ticket)
            job = self.table.get(offer.ticket.job_id)
            assert job is not None  # jobs that end take their tickets out of the queue
            self._fleet.offer(offer.ticket, offer.prover)
            self._enter(job, offer.ticket, Stage.OFFERED, offer.prover)
        self._publish(QueueDepths(self.queue.depths()))

    def _enter(self, job: Job, ticket: Ticket, stage: Stage, prover: str) -> None:
        """A partition is in another stage. The only place where a running job's state moves."""
        record = job.partitions[ticket.index]
        now_s = self._clock()
        if stage is Stage.SYNTHESISING and record.stage is Stage.OFFERED:
            record.begun_s = now_s
            if job.first_begun_s is None:
                job.first_begun_s = now_s
        record.ticket, record.stage, record.prover, record.since_s = ticket, stage, prover, now_s
        job.state = job.progress()
        self._publish(PartitionStage(job.job_id, ticket.index, ticket.circuit, stage, prover))
        job.notify()

    def _again(self, job: Job, ticket: Ticket, reason: str, message: str) -> None:
        self._retried(ticket, reason, message)
        self._wait_again(job, replace(ticket, attempt=ticket.attempt + 1))

    def _wait_again(self, job: Job, ticket: Ticket) -> None:
        self.queue.put_back([ticket])
        self._enter(job, ticket, Stage.QUEUED, "")

    def _retried(self, ticket: Ticket, reason: str, message: str) -> None:
        log.warning(
            "partition_retried",
            job_id=ticket.job_id,
            index=ticket.index,
            attempt=ticket.attempt,
            reason=reason,
            message=message,
        )
        self._publish(
            PartitionRetried(ticket.job_id, ticket.index, ticket.circuit, reason, message, ticket.attempt)
        )

    def end(self, job: Job, state: JobState, code: str, message: str) -> bool:
        """The one way to an end. False: it has ended before."""
        if job.ended_s is not None:
            return False
        job.state, job.error_code, job.error_message = state, code, message
        job.ended_s = self._clock()
        for record in reversed(job.partitions):  # what is under way last, lest the prover begin the next one
            if record.stage is Stage.QUEUED:
                self.queue.remove(record.ticket)
            elif record.stage is not Stage.DONE:
                self._fleet.cancel(record.ticket.partition_id)
        self._intake.remove([record.file for record in job.partitions])
        self.table.end(job)
        total_s = job.ended_s - job.submitted_s
        log.info(
            "job_ended",
            job_id=job.job_id,
            circuit=job.request.circuit,
            state=state.value,
            code=code,
            message=message,
            total_s=round(total_s, 6),
        )
        self._publish(JobFinished(job.job_id, job.request.circuit, state, code, total_s))
        job.ended.set()
        job.notify()
        if not len(self.table):
            self.idle.set()
        self.fleet_changed()
        return True

    def view(self, job: Job) -> JobView:
        waits = next((record for record in job.partitions if record.stage is Stage.QUEUED), None)
        position = 0 if waits is None or job.state.ended else self.queue.position(waits.ticket)
        return job.view(self._clock(), position)
