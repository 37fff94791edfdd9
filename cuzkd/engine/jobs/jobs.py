"""All jobs on their way: the one owner of their state.

Problem. A job ends because its last proof came, a partition failed once too often, its prover could not be
replaced, a client cancelled it, its time was over, or never in this run because the daemon stops; any two of these may
come together, and late reports come after all of them. And the daemon may be killed between any two steps.

Design. Events come in as calls, from clients through the engine and from provers through the fleet. Each
changes the record at once and asks for a decision, which the pure scheduler makes on the next turn of the
loop. `_enter` is the only place where a running job's stages move, `end` the only way to an end, and it says
whether it was the first: an end is chosen, then recorded in the journal, then announced, and only then are the job's
files removed. A record that fails (full disk) is announced all the same, and its files stay until it is written. A
partition that was lost with its prover goes back to its old place in the queue; after max_attempts its job fails,
naming the cause.

Life of a job. begin, once the journal has it, or restore: table and queue. Then offers, stages, results. end: what is
left of it is taken back, its files are removed, whoever waits is woken, and it is kept until it expires. Or hand_back:
the next run of the daemon goes on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from cuzkd.engine.faults import NoFaults
from cuzkd.engine.fleet.copies import Copies
from cuzkd.engine.fleet.fleet import Fleet
from cuzkd.engine.job import End, Job, JobState, PartitionRecord, Stage, Ticket
from cuzkd.engine.jobs.answers import repeated, result_of
from cuzkd.engine.jobs.intact import Intact
from cuzkd.engine.jobs.table import JobTable
from cuzkd.engine.jobs.unprovable import LASTING, UnprovableContents
from cuzkd.engine.journal.journal import Journal
from cuzkd.engine.payloads.intake import Intake
from cuzkd.engine.scheduling.estimates import Estimates
from cuzkd.engine.scheduling.queue import PartitionQueue
from cuzkd.engine.scheduling.scheduler import Limits, decide, places
from cuzkd.engine.settings import EngineSettings
from cuzkd.engine.stats import (
    Event,
    JobFinished,
    PartitionFinished,
    PartitionRetried,
    PartitionStage,
    QueueDepths,
)
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import CuzkdError, DeadlineExceeded, DeviceFault, Unavailable

log = structlog.get_logger()


class Jobs:
    """Implements fleet.Owner. clock: monotonic seconds. publish: hands an event to all subscribers."""

    def __init__(
        self,
        settings: EngineSettings,
        intake: Intake,
        journal: Journal,
        estimates: Estimates,
        faults: NoFaults,
        publish: Callable[[Event], None],
        clock: Callable[[], float],
    ) -> None:
        self.table = JobTable(settings.result_expiry_s, settings.max_results, settings.max_result_bytes)
        self.queue = PartitionQueue(settings.max_partitions)
        self.unprovable = UnprovableContents()
        self._max_attempts = settings.max_attempts
        self._limits = Limits(
            settings.ready_target, settings.max_parallel_synthesis, settings.heartbeat_s, settings.group
        )
        self._intake = intake
        self._intact = Intact(intake, self._checked)
        self._journal = journal
        self._estimates = estimates
        self._faults = faults
        self._publish = publish
        self._clock = clock
        self._deadlines: dict[str, asyncio.TimerHandle] = {}  # by job_id
        self._decision: asyncio.Handle | None = None
        self._held = 0  # partitions that provers have, of jobs that have not ended
        self._recording = 0  # ends that are chosen and not announced
        self._moved = asyncio.Event()  # replaced whenever one of the two falls
        self._draining = False
        self._closed = False  # what comes now is for the next run
        self._fleet: Fleet
        self._copies: Copies

    def serve(self, fleet: Fleet, copies: Copies) -> None:
        """Give work to this fleet, whose owner we are."""
        self._fleet, self._copies = fleet, copies

    # -- beginnings --

    def begin(self, job: Job, held: bool = False) -> None:
        """The journal has it: it exists, with whatever of it is proved already. Does not wait. held: nothing of it is
        offered before `check` has found its payload to be what it was.
        """
        self.table.add(job)
        if held:
            self._intact.add(job)
        else:
            self.queue.put_back(record.ticket for record in job.partitions if record.stage is Stage.QUEUED)
        if job.request.deadline_s:
            left_s = job.submitted_s + job.request.deadline_s - self._clock()
            timer = asyncio.get_running_loop().call_later(max(left_s, 0.0), self._overdue, job)
            self._deadlines[job.job_id] = timer
        if job.proved:  # the end alone was missing
            self.end(job, JobState.DONE, "", "")
        self.fleet_changed()

    def check(self) -> None:
        """Look at the payloads of what is held, in the background."""
        self._intact.start()

    def _checked(self, job: Job, record: PartitionRecord, trouble: str) -> None:
        if trouble:
            self.end(job, JobState.FAILED, CuzkdError.code, trouble)
        elif job.end is None and not self._closed:
            self.queue.put_back([record.ticket])
            self.fleet_changed()

    # -- what the fleet reports --

    def stage_reached(self, ticket: Ticket, stage: Stage, prover: str) -> None:
        if job := self._alive(ticket):
            self._enter(job, ticket, stage, prover)

    def partition_done(self, ticket: Ticket, done: wire.PartitionDone, ready: wire.Ready) -> None:
        job = self._alive(ticket)
        if job is None:
            return
        self._faults.at("result")
        result = result_of(job, ticket, done, ready, self._clock())
        job.partitions[ticket.index].result = result
        self._estimates.learn(ticket.circuit_digest, ready.backend, result.phases)
        for _ in range(repeated(done)):
            self._retried(ticket, "self_verify", "a proof did not verify and was made again", ready.device)
        self._publish(PartitionFinished(job.job_id, ticket.circuit, result))
        self._journal.proved(job.job_id, result)
        self._enter(job, ticket, Stage.DONE, "")
        if job.proved:
            self.end(job, JobState.DONE, "", "")

    def partition_failed(self, ticket: Ticket, failed: wire.PartitionFailed) -> None:
        job = self._alive(ticket)
        if job is None:
            return
        code, message = failed.error_code, failed.error_message
        if failed.retryable and ticket.attempt < self._max_attempts:
            self._again(job, ticket, code, message)
        elif code in LASTING:
            self._intact.run(self._blame_payload(job, ticket, code, message))
        else:
            self._fail(job, ticket, code, message)

    async def _blame_payload(self, job: Job, ticket: Ticket, code: str, message: str) -> None:
        """The prover says that it is the payload's fault: so it is, if it had the payload that we accepted."""
        record = job.partitions[ticket.index]
        trouble = await self._intact.trouble(record)
        if self._alive(ticket) is None:
            return
        if trouble:
            self.end(job, JobState.FAILED, CuzkdError.code, trouble)
            return
        if what := self.unprovable.learn(record.content, code, message):
            self._journal.unprovable(what)
        self._fail(job, ticket, code, message)

    def _fail(self, job: Job, ticket: Ticket, code: str, message: str) -> None:
        message = f"partition {ticket.index}: {message}"
        if ticket.attempt > 1:
            message += f" (attempt {ticket.attempt} of at most {self._max_attempts})"
        self.end(job, JobState.FAILED, code, message)

    def partition_mishandled(self, ticket: Ticket, error: Exception) -> None:
        """Its answer was taken by halves, because of a bug of ours or for want of memory: that costs it an attempt."""
        job = self._alive(ticket)
        if job is None:
            return
        message = f"its answer could not be taken: {error!r}"
        if not job.partitions[ticket.index].stage.in_hand:  # it was, and is what it is
            if job.proved:
                self.end(job, JobState.DONE, "", "")
        elif ticket.attempt < self._max_attempts:
            job.partitions[ticket.index].result = None
            self._again(job, ticket, CuzkdError.code, message)
        else:
            self.end(job, JobState.FAILED, CuzkdError.code, f"partition {ticket.index}: {message}")

    def partitions_lost(self, blamed: Sequence[Ticket], others: Sequence[Ticket], cause: str) -> None:
        for ticket in blamed:
            job = self._alive(ticket)
            if job is None:
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
            if job := self._alive(ticket):
                self._wait_again(job, ticket)
        if self._fleet.hopeless():
            for job in self.table.running:
                self.end(job, JobState.FAILED, Unavailable.code, self._fleet.trouble())

    def fleet_changed(self) -> None:
        """Decide on the next turn of the loop, once for all changes of this one."""
        if self._decision is None and not self._closed:
            self._decision = asyncio.get_running_loop().call_soon(self._decide)

    # -- ends --

    def end(self, job: Job, state: JobState, code: str, message: str) -> bool:
        """The one way to an end. False: one was chosen before, or the next run will."""
        if job.end is not None or self._closed:
            return False
        job.end = End(state, code, message, self._clock())
        if timer := self._deadlines.pop(job.job_id, None):
            timer.cancel()
        for record in reversed(job.partitions):  # what is under way last, lest the prover begin the next one
            if record.stage is Stage.QUEUED:
                self.queue.remove(record.ticket)
            elif record.stage.in_hand:
                self._held -= 1
                self._fleet.cancel(record.ticket.partition_id)
        self._recording += 1
        try:
            self._journal.ended(job, tried=lambda: self._announce(job), written=lambda: self._clean_up(job))
        except Exception:  # the next run may have to prove it again; whoever waits need not
            log.exception("end_unrecorded", job_id=job.job_id)
            self._announce(job)
        self.fleet_changed()
        return True

    def _announce(self, job: Job) -> None:
        """The end is recorded, or cannot be for now. Whoever waits hears of it, whatever else goes wrong."""
        try:
            self._faults.at("ended")
        finally:
            self._recording -= 1
            self.table.end(job)
            job.announce()
            self._stirred()
            self._tell(job)

    def _tell(self, job: Job) -> None:
        """Logs and metrics of an end."""
        end = job.end
        assert end is not None
        total_s = end.at_s - job.submitted_s
        log.info(
            "job_ended",
            job_id=job.job_id,
            circuit=job.request.circuit,
            state=end.state.value,
            code=end.code,
            message=end.message,
            total_s=round(total_s, 6),
        )
        self._publish(JobFinished(job.job_id, job.request.circuit, end.state, end.code, total_s))

    def _clean_up(self, job: Job) -> None:
        self._intake.remove([record.file for record in job.partitions])

    def _overdue(self, job: Job) -> None:
        allowed_s = job.request.deadline_s
        self.end(
            job,
            JobState.FAILED,
            DeadlineExceeded.code,
            f"the job had not ended {allowed_s:g} s after it came",
        )

    def expire(self) -> None:
        """Forget ended jobs that are too old or too many."""
        if gone := self.table.expire(self._clock()):
            self._journal.forget(gone)
            self._intake.forget(gone)

    # -- stopping --

    def drain(self) -> None:
        """Nothing more is given to provers; what they have may go on."""
        self._draining = True

    async def rest(self) -> None:
        """Wait until provers have nothing more of ours and every end is announced."""
        while self._held or self._recording:
            await self._moved.wait()

    async def stop_looking(self) -> None:
        """Payloads are looked at no more; what was held stays so."""
        await self._intact.stop()

    async def announced(self) -> None:
        """Wait until every end that was chosen is announced."""
        while self._recording:
            await self._moved.wait()

    def hand_back(self) -> int:
        """What has not ended is the next run's. Whoever waits is told so. Returns how many jobs that are."""
        self._closed = True
        if self._decision is not None:
            self._decision.cancel()
        for timer in self._deadlines.values():
            timer.cancel()
        left = [job for job in self.table.running if job.end is None]
        for job in left:
            job.handed_back = True
            job.ended.set()
            job.notify()
        return len(left)

    # -- inside --

    def _alive(self, ticket: Ticket) -> Job | None:
        """Its job, if what is said of it still counts."""
        job = self.table.get(ticket.job_id)
        return None if job is None or job.end is not None or self._closed else job

    def _decide(self) -> None:
        """The loop's sentence: look, decide, act."""
        self._decision = None
        views = self._fleet.views()
        waiting: Sequence[Ticket] = ()
        if not self._draining:
            waiting = self.queue.candidates({view.circuit for view in views}, places(views, self._limits))
        decisions = decide(self._clock(), waiting, views, self._limits, self._copies(waiting, views))
        for replacement in decisions.replacements:
            self._fleet.replace(replacement.prover, replacement.cause, replacement.partition_id)
        for offer in decisions.offers:
            job = self.table.get(offer.ticket.job_id)
            assert job is not None  # jobs that end take their tickets out of the queue
            if not job.under_way:
                job.under_way = True
                self._journal.begun(job)
            self.queue.remove(offer.ticket)
            self._fleet.offer(offer.ticket, offer.prover)
            self._enter(job, offer.ticket, Stage.OFFERED, offer.prover)
            self._faults.at("offered")
        self._publish(QueueDepths(self.queue.depths()))

    def _enter(self, job: Job, ticket: Ticket, stage: Stage, prover: str) -> None:
        """A partition is in another stage. The only place where a running job's stages move."""
        record = job.partitions[ticket.index]
        now_s = self._clock()
        if stage is Stage.SYNTHESISING and record.stage is Stage.OFFERED:
            record.begun_s = now_s
            if job.first_begun_s is None:
                job.first_begun_s = now_s
        self._held += stage.in_hand - record.stage.in_hand
        self.table.moved(ticket.circuit, record.stage, stage)
        record.ticket, record.prover, record.since_s = ticket, prover, now_s
        job.move(record, stage)
        self._publish(PartitionStage(job.job_id, ticket.index, ticket.circuit, stage, prover))
        job.notify()
        self._stirred()

    def _stirred(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def _again(self, job: Job, ticket: Ticket, reason: str, message: str) -> None:
        self._retried(ticket, reason, message)
        another = replace(ticket, attempt=ticket.attempt + 1)
        self._journal.attempt(another)
        self._wait_again(job, another)

    def _wait_again(self, job: Job, ticket: Ticket) -> None:
        self.queue.put_back([ticket])
        self._enter(job, ticket, Stage.QUEUED, "")

    def _retried(self, ticket: Ticket, reason: str, message: str, device: str = "") -> None:
        log.warning(
            "partition_retried",
            job_id=ticket.job_id,
            index=ticket.index,
            attempt=ticket.attempt,
            reason=reason,
            message=message,
            device=device,
        )
        self._publish(
            PartitionRetried(
                ticket.job_id, ticket.index, ticket.circuit, reason, message, ticket.attempt, device
            )
        )
