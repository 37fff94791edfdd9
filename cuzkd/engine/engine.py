"""The front process's engine: takes jobs, has provers prove them, answers.

Problem. Clients submit, wait, cancel and vanish; provers die; memory is short; this process itself may be killed.
Nobody may be kept waiting by somebody else's waiting, nothing that can never succeed may be accepted, and what is
accepted may not be lost.

Design. One event loop for everything. This file is what clients see, and the order of starting and stopping;
`submissions` makes jobs of requests, `jobs` owns them, `journal` remembers them, `fleet` has the provers, `intake` the
payloads, `budget_desk` the memory. Waiting is an event per job, so a thousand waiters cost nothing.

Life. start: what the journal holds goes on, then new work is taken. drain: no new work, nothing more for provers. stop:
what has not ended is handed back to the journal, for the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import structlog

from cuzkd.circuits.manifest import Manifest
from cuzkd.circuits.registry import Registry
from cuzkd.engine import faults
from cuzkd.engine.ended import AnyJob, EndedJob
from cuzkd.engine.fleet import devices
from cuzkd.engine.fleet.budget_desk import BudgetDesk, Limit, auto_limit
from cuzkd.engine.fleet.copies import Copies
from cuzkd.engine.fleet.fleet import Fleet
from cuzkd.engine.fleet.health import Health
from cuzkd.engine.fleet.patience import Patience
from cuzkd.engine.fleet.supervisor import Supervisor
from cuzkd.engine.job import Job, JobRequest, JobState, JobView
from cuzkd.engine.jobs.jobs import Jobs
from cuzkd.engine.jobs.outlook import Outlook
from cuzkd.engine.jobs.resume import Found, look
from cuzkd.engine.jobs.submissions import Submissions
from cuzkd.engine.journal.file import require_whole
from cuzkd.engine.journal.journal import Journal
from cuzkd.engine.journal.rows import Remembered
from cuzkd.engine.payloads.calculators import Calculators
from cuzkd.engine.payloads.intake import Intake
from cuzkd.engine.payloads.spool import Chunk, Spool
from cuzkd.engine.payloads.uploads import Uploads
from cuzkd.engine.scheduling.estimates import Estimates
from cuzkd.engine.settings import EngineSettings
from cuzkd.engine.stats import Event, JobResumed, Stats
from cuzkd.engine.status import EngineStatus, describe
from cuzkd.engine.upkeep import Upkeep
from cuzkd.errors import Cancelled, CuzkdError, Exhausted, NeverFits, Unavailable
from cuzkd.memory.budget import Reservation

log = structlog.get_logger()

STARTING = "the daemon is starting"
STUCK_S = 30.0  # a journal that has not answered for so long serves nobody
WATCH_S = 0.05  # between two views for one who watches, but for the last
LAST_RECORDS_S = 10.0  # how long a stop waits for the disk


@dataclass(frozen=True)
class Preloaded:
    already_loaded: bool
    load_s: float


@dataclass(frozen=True)
class Evicted:
    was_loaded: bool
    freed_bytes: int


class Engine:
    """All methods belong to the loop on which start() ran. clock: monotonic seconds."""

    def __init__(
        self, settings: EngineSettings, registry: Registry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._clock = clock
        self.stats = Stats()
        self._subscribers: list[Callable[[Event], None]] = [self.stats.handle]
        self._budget = Limit(settings.budget_bytes, "configured") if settings.budget_bytes else auto_limit()
        self._desk = BudgetDesk(self._budget.limit_bytes, self._memory_is_short)
        planned = faults.load(settings.front_fault)
        require_whole(settings.state_dir)
        self._spool = Spool(settings.state_dir, settings.max_upload_bytes, settings.server_folders, planned)
        self._journal = Journal(settings.state_dir, planned, self.publish, clock=clock)
        self._estimates = Estimates(settings.state_dir / "estimates.json")
        self._calculators = Calculators(settings.state_dir, settings.intake, self._desk.reserve_async)
        uploads = Uploads(settings.upload_expiry_s, settings.max_partitions)
        self._intake = Intake(
            self._spool, uploads, self._calculators, self._journal, planned, self.publish, clock
        )
        self._jobs = Jobs(
            settings, self._intake, self._journal, self._estimates, planned, self.publish, clock
        )
        patience = Patience(
            self._estimates, settings.least_stage_s, lambda name: registry.get(name).log_domain
        )
        self._fleet = Fleet(self._jobs, self._desk, self.publish, clock, patience, settings.away_after_s)
        self._jobs.serve(self._fleet, Copies(self._desk.copies, registry.get))
        self._outlook = Outlook(self._jobs.queue, self._fleet, self._estimates, clock)
        self._submissions = Submissions(
            registry,
            self._jobs,
            self._intake,
            self._journal,
            self._outlook,
            planned,
            self.publish,
            clock,
            require_open=self._require_open,
            require_possible=lambda manifest: self._desk.require_possible(manifest, self._fleet.in_place()),
        )
        self._upkeep = Upkeep(
            self._jobs,
            self._intake,
            self._journal,
            self._estimates,
            self._desk,
            self._fleet,
            registry,
            self.publish,
        )
        self._started_s = clock()
        self._closed = STARTING  # why no work is accepted; "" when it is
        self._stopped = False
        self._ticker: asyncio.Task[None] | None = None

    def _add_provers(self, found: Sequence[str]) -> None:
        """found: the device of each."""
        share = max(len(os.sched_getaffinity(0)) // len(found), 1)
        for number, device in enumerate(found):
            supervisor = self._supervisor(f"prover-{number}", device, share)
            self._fleet.add(supervisor, Health(self._settings.health_rules(), device))

    def _supervisor(self, name: str, device: str, share: int) -> Supervisor:
        """share: of the cores."""
        settings = self._settings
        return Supervisor(
            name,
            lambda backend: settings.configure(backend, share),
            self._fleet,
            timing=settings.timing,
            cwd=str(settings.state_dir.resolve()),
            command=settings.command,
            lock=settings.state_dir.resolve() / "provers" / f"{name}.lock",
            besides=devices.visible(device),
        )

    # -- life --

    async def start(self) -> None:
        """Go on with what earlier runs have left, start the provers, accept work. Returns before any is ready.

        Raises InvalidInput when the journal cannot be used, Exhausted when the disk is full.
        """
        remembered = await self._journal.open()
        found = await asyncio.to_thread(look, remembered, self._spool)
        self._restore(remembered, found)
        log.info(
            "engine_started",
            budget_bytes=self._budget.limit_bytes,
            budget_source=self._budget.source,
            swept_files=found.swept,
            resumed_jobs=len(found.running),
            ended_jobs=len(remembered.ended),
            clean=remembered.clean,
        )
        self._add_provers(await devices.provers_for(self._settings.policy, self._settings.devices))
        self._fleet.start()
        self._closed = ""
        self._ticker = asyncio.get_running_loop().create_task(
            self._upkeep.run(self._settings.tick_s), name="engine-upkeep"
        )

    def _restore(self, remembered: Remembered, found: Found) -> None:
        self._intake.restore(found.uploads)
        if found.lost_uploads:
            self._journal.forget_uploads(found.lost_uploads)
        self._jobs.unprovable.restore(remembered.unprovable)
        for over in remembered.ended:
            self._jobs.table.restore(over)
        self._submissions.resume_after(remembered.last_sequence)
        for job, trouble in found.running:
            self._jobs.begin(job, held=not remembered.clean)
            if trouble:
                self._jobs.end(job, JobState.FAILED, CuzkdError.code, trouble)
            else:
                done = tuple(record.ticket.index for record in job.partitions if record.result is not None)
                self.publish(
                    JobResumed(job.job_id, job.request.circuit, len(job.partitions), len(done), done)
                )
        self._jobs.check()

    def drain(self) -> None:
        """Refuse new work from now on and give provers nothing more; what they have goes on."""
        self._closed = "the daemon is draining"
        self._jobs.drain()

    async def stop(self, drain_s: float = 0.0) -> int:
        """Drain, let provers finish what they have for drain_s, hand the rest back to the journal, stop the provers.
        Returns how many jobs go on at the next start. Nothing is cancelled by stopping. Once more, it does what a
        cancelled stop has left undone.
        """
        self.drain()
        if self._stopped:
            return 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await self._jobs.rest()
        await self._jobs.stop_looking()
        await self._calculators.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_RECORDS_S):
                await self._submissions.settle()
                await self._jobs.announced()
        left = self._jobs.hand_back()
        await self._fleet.stop()
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker
        await self._intake.settle()
        await self._journal.close()
        await self._intake.settle()  # files of ends that were written at the last moment
        await asyncio.to_thread(self._estimates.save)
        self._stopped = True
        log.info("engine_stopped", handed_back_jobs=left)
        return left

    def serving(self) -> tuple[bool, str]:
        """Whether a job submitted now could be proved now or soon, and if not, why."""
        reason = self._closed or self._stuck() or self._fleet.trouble()
        return not reason, reason

    def subscribe(self, callback: Callable[[Event], None]) -> None:
        """callback is called with every event, on the loop; it must not block. What it raises is logged."""
        self._subscribers.append(callback)

    def publish(self, event: Event) -> None:
        for callback in self._subscribers:
            try:
                callback(event)
            except Exception:
                log.exception("subscriber_failed", kind=type(event).__name__)

    # -- jobs, as clients see them --

    async def upload(self, size_bytes: int, chunks: AsyncIterator[Chunk], owner: str = "") -> str:
        """Stream one payload to the spool; returns the id for UploadRef. An upload that fails leaves nothing; one that
        does not is there after a restart, too. owner: who alone may name it.

        Raises InvalidInput when the size is too large or not what came, Exhausted when the disk is full or
        too many uploads wait for jobs, Unavailable.
        """
        self._require_open()
        return await self._intake.upload(size_bytes, chunks, owner)

    async def submit(self, request: JobRequest, on_disk: Callable[[], None] = lambda: None) -> JobView:
        """Accept a job. Its payloads and its row are on our disk, synced, when this returns. on_disk is called as soon
        as nothing of them is held in memory any more: inputs take longer, their witnesses are calculated first.

        A request_id seen before with the same content gives the job of then, whatever has become of it, also while no
        new job is accepted; unless it was cancelled or failed for what may go well another time: then it gives a new
        one.

        Raises InvalidInput, UnsatisfiedWitness and InvalidWitness (inputs; or a content that has failed before),
        NotFound (circuit, calculator, upload, path), InvalidKey, NeverFits, Exhausted (queue, disk, calculations),
        AlreadyExists (request_id with other content), Unsupported, Unavailable.
        """
        self._require_started()
        return self._outlook.accepted(await self._submissions.submit(request, on_disk))

    async def wait(self, some_id: str, timeout_s: float | None = None, owner: str = "") -> JobView:
        """The job once it has ended; when the time is over first, as it is then (`state.ended` is False).

        some_id: a job_id, or a request_id, meaning its newest job. timeout_s None: for ever. Raises NotFound,
        Unavailable when the daemon stops before the job has ended.
        """
        job = self._find(some_id, owner)
        if isinstance(job, Job):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await job.ended.wait()
            _require_ours(job)
        return self._outlook.view(job)

    def view(self, some_id: str, owner: str = "") -> JobView:
        """The job as it is now. Raises NotFound, Unavailable (starting)."""
        return self._outlook.view(self._find(some_id, owner))

    async def watch(self, some_id: str, owner: str = "") -> AsyncGenerator[JobView]:
        """The job now and after its changes; the last view has ended. Changes may be skipped, ends are
        not. Raises as wait does.
        """
        job = self._find(some_id, owner)
        if isinstance(job, EndedJob):
            yield job.view()
            return
        while True:
            changed = job.changed
            _require_ours(job)
            view = self._outlook.view(job)
            yield view
            if view.state.ended:
                return
            await changed.wait()
            with contextlib.suppress(TimeoutError):  # wide jobs change often, and have many who watch them
                async with asyncio.timeout(WATCH_S):
                    await job.ended.wait()

    async def cancel(self, some_id: str, owner: str = "") -> bool:
        """End a job; it is recorded that it has when this returns. False: it had ended already, and nothing changes.
        Raises NotFound, Unavailable.
        """
        job = self._find(some_id, owner)
        if isinstance(job, EndedJob):
            return False
        first = self._jobs.end(job, JobState.CANCELLED, Cancelled.code, "cancelled at a client's wish")
        await job.ended.wait()
        _require_ours(job)
        return first

    def circuits(self) -> Sequence[Manifest]:
        """The circuits that are installed, by name."""
        return self._registry.list()

    async def preload(self, circuit: str) -> Preloaded:
        """Make a circuit's key resident. Raises NotFound, Unavailable, DeviceFault, NeverFits, InvalidKey."""
        manifest = await asyncio.to_thread(self._registry.get, circuit)
        load_s = await self._fleet.preload(circuit, manifest.digest)
        return Preloaded(load_s is None, load_s or 0.0)

    async def evict(self, circuit: str) -> Evicted:
        """Let go of a circuit's key; partitions that use it finish first, and this waits for them.

        Raises NotFound, DeviceFault.
        """
        await asyncio.to_thread(self._registry.get, circuit)
        nbytes = await self._fleet.evict(circuit)
        return Evicted(nbytes is not None, nbytes or 0)

    def reserve_now(self, nbytes: int, what: str) -> Reservation | None:
        """Host memory for what surrounds the engine, from the one budget: there at once, or None."""
        with contextlib.suppress(Exhausted, NeverFits):
            return self._desk.budget.reserve(nbytes, what, timeout_s=0)
        return None

    def status(self) -> EngineStatus:
        """Everything at once. Reads the manifests of all circuits."""
        return describe(
            self.stats,
            self._fleet,
            self._jobs.table.loads(),
            self._jobs.queue,
            self._desk.budget,
            self._registry,
            serving=self.serving(),
            uptime_s=self._clock() - self._started_s,
            now_s=self._clock(),
            policy=self._settings.policy,
            expected_wait_s=self._outlook.wait_s(),
        )

    # -- inside --

    def _find(self, some_id: str, owner: str) -> AnyJob:
        self._require_started()
        return self._jobs.table.find(some_id, owner)

    def _require_started(self) -> None:
        """Until the journal is read nobody can say what is unknown."""
        if self._closed == STARTING:
            raise Unavailable(STARTING)

    def _stuck(self) -> str:
        stuck_s = self._journal.stuck_s()
        return f"the journal's disk has not answered for {stuck_s:.0f} s" if stuck_s > STUCK_S else ""

    def _require_open(self) -> None:
        if reason := self._closed or self._stuck():
            raise Unavailable(reason)
        if self._fleet.useless():
            raise Unavailable(self._fleet.trouble())

    def _memory_is_short(self, nbytes: int) -> None:
        self._fleet.make_room(nbytes, self._settings.eviction_min_idle_s)


def _require_ours(job: Job) -> None:
    """Raises Unavailable when it is the next run's."""
    if job.handed_back:
        raise Unavailable(f"the daemon is stopping; job {job.job_id} goes on when it is back")
