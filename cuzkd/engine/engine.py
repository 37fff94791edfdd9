"""The front process's engine: takes jobs, has provers prove them, answers.

Problem. Clients submit, wait, cancel and vanish; provers die; memory is short. Nobody may be kept waiting by
somebody else's waiting, nothing that can never succeed may be accepted, and what is accepted may not be lost.

Design. One event loop for everything. This file is what clients see; `jobs` owns the jobs, `fleet` the
provers, `intake` the payloads, `budget_desk` the memory. Waiting is an event per job, so a thousand waiters
cost nothing.

Life of a request. Judged by what is known without reading it (circuit, counts, memory, room in the queue),
spooled and synced, then accepted in one step that does not wait. What cannot be accepted leaves nothing
behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import structlog

from cuzkd.circuits.manifest import Manifest
from cuzkd.circuits.registry import Registry
from cuzkd.engine.budget_desk import BudgetDesk, Limit, auto_limit
from cuzkd.engine.calculators import Calculators
from cuzkd.engine.fleet import Fleet
from cuzkd.engine.intake import Gathered, Intake
from cuzkd.engine.job import (
    JobRequest,
    JobState,
    JobView,
)
from cuzkd.engine.jobs import Jobs
from cuzkd.engine.settings import EngineSettings
from cuzkd.engine.spool import Spool
from cuzkd.engine.stats import (
    BudgetState,
    EngineStatus,
    Event,
    Stats,
)
from cuzkd.engine.status import describe
from cuzkd.engine.supervisor import Supervisor
from cuzkd.engine.uploads import Uploads
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import (
    AlreadyExists,
    Cancelled,
    InvalidInput,
    InvalidKey,
    NotFound,
    Unavailable,
)

log = structlog.get_logger()

MAX_REQUEST_ID = 256  # characters
BACKENDS = {"prefer": "auto", "require": "cuda", "cpu": "cpu", "reference": "reference"}  # by policy


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
        self._spool = Spool(settings.state_dir, settings.max_upload_bytes, settings.server_folders)
        uploads = Uploads(settings.upload_expiry_s, settings.max_partitions)
        self._calculators = Calculators(settings.state_dir, settings.intake)
        self._intake = Intake(self._spool, uploads, self._calculators, self.publish, clock)
        self._jobs = Jobs(settings, self._intake, self.publish, clock)
        self._fleet = Fleet(self._jobs, self._desk, self.publish, clock)
        self._fleet.add(self._supervisor("prover-0"))
        self._jobs.serve(self._fleet)
        self._started_s = clock()
        self._closed = "the daemon is starting"  # why no work is accepted; "" when it is
        self._ticker: asyncio.Task[None] | None = None

    def _supervisor(self, name: str) -> Supervisor:
        settings = self._settings
        configure = wire.Configure(
            backend=BACKENDS[settings.policy],
            state_dir=str(settings.state_dir.resolve()),
            threads=settings.threads,
            max_parallel_synthesis=settings.max_parallel_synthesis,
            ready_target=settings.ready_target,
            wipe=settings.wipe,
            slab_bytes=settings.slab_bytes,
            prewarm=settings.prewarm,
            fault=settings.fault,
            launch_set=settings.launch_set,
            launch_wait_s=settings.launch_wait_s,
        )
        return Supervisor(
            name,
            configure,
            self._fleet,
            timing=settings.timing,
            cwd=str(settings.state_dir.resolve()),
            command=settings.command,
        )

    # -- life --

    async def start(self) -> None:
        """Sweep the spool, start the prover, accept work. Returns before the prover is ready."""
        swept = await asyncio.to_thread(self._spool.sweep)
        log.info(
            "engine_started",
            budget_bytes=self._budget.limit_bytes,
            budget_source=self._budget.source,
            swept_files=swept,
        )
        self._fleet.start()
        self._closed = ""
        self._ticker = asyncio.get_running_loop().create_task(self._tick(), name="engine-tick")

    def drain(self) -> None:
        """Refuse new work from now on; what was accepted goes on."""
        self._closed = "the daemon is draining"

    async def stop(self, drain_s: float = 0.0) -> int:
        """Drain, give running jobs drain_s to end, cancel the rest, stop the provers. Returns how many it
        cancelled.
        """
        self.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await self._jobs.idle.wait()
        left = list(self._jobs.table.running)
        for job in left:
            self._jobs.end(
                job, JobState.CANCELLED, Unavailable.code, "the daemon stopped before the job had ended"
            )
        await self._calculators.stop()
        await self._fleet.stop()
        self._jobs.close()
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker
        await self._intake.settle()
        log.info("engine_stopped", cancelled_jobs=len(left))
        return len(left)

    def serving(self) -> tuple[bool, str]:
        """Whether a job submitted now could be proved now or soon, and if not, why."""
        reason = self._closed or self._fleet.trouble()
        return not reason, reason

    def subscribe(self, callback: Callable[[Event], None]) -> None:
        """callback is called with every event, on the loop; it must not block."""
        self._subscribers.append(callback)

    def publish(self, event: Event) -> None:
        for callback in self._subscribers:
            callback(event)

    # -- jobs, as clients see them --

    async def upload(self, size_bytes: int, chunks: AsyncIterator[bytes], owner: str = "") -> str:
        """Stream one payload to the spool; returns the id for UploadRef. An upload that fails leaves nothing.

        Raises InvalidInput when the size is too large or not what came, Exhausted when the disk is full or
        too many uploads wait for jobs, Unavailable.
        """
        self._require_open()
        return await self._intake.upload(size_bytes, chunks)

    async def submit(self, request: JobRequest, on_disk: Callable[[], None] = lambda: None) -> JobView:
        """Accept a job. Its payloads are on our disk, synced, when this returns. on_disk is called as soon as nothing
        of them is held in memory any more: inputs take longer, their witnesses are calculated first.

        A request_id seen before with the same content gives the job of then, whatever has become of it.

        Raises InvalidInput, UnsatisfiedWitness (inputs), NotFound (circuit, calculator, upload, path), InvalidKey,
        NeverFits, Exhausted (queue, disk, calculations), AlreadyExists (request_id with other content), Unsupported,
        Unavailable.
        """
        self._require_open()
        if not request.partitions:
            raise InvalidInput("partitions: expected at least 1, got 0")
        if len(request.request_id) > MAX_REQUEST_ID:
            raise InvalidInput(
                f"request_id: {len(request.request_id)} characters, at most {MAX_REQUEST_ID} are allowed"
            )
        manifest = await asyncio.to_thread(self._registry.get, request.circuit)
        self._desk.require_possible(manifest, self._fleet.in_place())
        if self._jobs.table.newest(request.request_id) is None:
            self._jobs.queue.require_room(len(request.partitions))  # before anything is written
        gathered = await self._intake.gather(manifest, request.partitions)
        try:
            request = replace(request, partitions=())
            on_disk()
            if gathered.inputs and self._jobs.table.newest(request.request_id) is None:
                gathered = await self._intake.calculate(manifest, gathered)
            return self._accept(request, manifest, gathered)
        except BaseException:
            self._intake.discard(gathered)
            raise

    def _accept(self, request: JobRequest, manifest: Manifest, gathered: Gathered) -> JobView:
        """The moment in which a job begins to exist. Does not wait, so nothing comes between its steps."""
        self._require_open()
        earlier = self._jobs.table.newest(request.request_id)
        if earlier is not None:
            if earlier.content != gathered.content:
                raise AlreadyExists(
                    f"request_id {request.request_id!r}: job {earlier.job_id} has it, with other content"
                )
            self._intake.discard(gathered)
            return self._jobs.view(earlier)
        return self._jobs.view(self._jobs.add(request, manifest, gathered))

    async def wait(self, some_id: str, timeout_s: float | None = None, owner: str = "") -> JobView:
        """The job once it has ended; when the time is over first, as it is then (`state.ended` is False).

        some_id: a job_id, or a request_id, meaning its newest job. timeout_s None: for ever. Raises NotFound.
        """
        job = self._jobs.table.find(some_id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await job.ended.wait()
        return self._jobs.view(job)

    def view(self, some_id: str, owner: str = "") -> JobView:
        """The job as it is now. Raises NotFound."""
        return self._jobs.view(self._jobs.table.find(some_id))

    async def watch(self, some_id: str, owner: str = "") -> AsyncGenerator[JobView]:
        """The job now and after its changes; the last view has ended. Changes may be skipped, ends are
        not.
        """
        job = self._jobs.table.find(some_id)
        while True:
            changed = job.changed
            view = self._jobs.view(job)
            yield view
            if view.state.ended:
                return
            await changed.wait()

    def cancel(self, some_id: str, owner: str = "") -> bool:
        """End a job. False: it had ended already, and nothing changes. Raises NotFound."""
        job = self._jobs.table.find(some_id)
        return self._jobs.end(job, JobState.CANCELLED, Cancelled.code, "cancelled at a client's wish")

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

    def status(self) -> EngineStatus:
        """Everything at once. Reads the manifests of all circuits."""
        return describe(
            self.stats,
            self._fleet,
            self._jobs.table.running,
            self._jobs.queue,
            self._desk.budget,
            self._registry,
            serving=self.serving(),
            uptime_s=self._clock() - self._started_s,
        )

    # -- inside --

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable(self._closed)
        if self._fleet.useless():
            raise Unavailable(self._fleet.trouble())

    def _memory_is_short(self, nbytes: int) -> None:
        self._fleet.make_room(nbytes, self._settings.eviction_min_idle_s)

    async def _drop_removed(self) -> None:
        """Keys of circuits that were removed or replaced give way, unless a job still counts on them."""
        for circuit, digest in await asyncio.to_thread(self._gone, self._fleet.loaded()):
            if not self._jobs.table.counts_on(circuit, digest):
                log.info("removed_circuit_dropped", circuit=circuit, digest=digest)
                self._fleet.drop(circuit, digest)

    def _gone(self, keys: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those of (circuit, digest) that are not installed any more. One whose manifest cannot be read may be."""
        gone = []
        for circuit, digest in keys:
            try:
                installed = self._registry.get(circuit).digest
            except NotFound:
                installed = ""
            except InvalidKey:
                continue
            if installed != digest:
                gone.append((circuit, digest))
        return gone

    async def _tick(self) -> None:
        """What time alone brings about."""
        while True:
            self._jobs.table.expire(self._clock())
            self._intake.expire()
            if short := self._desk.short_bytes():
                self._memory_is_short(short)
            budget = self._desk.budget
            self.publish(
                BudgetState(budget.limit_bytes, budget.used_bytes, budget.peak_bytes, budget.waiting)
            )
            self._jobs.fleet_changed()
            await self._drop_removed()
            await asyncio.sleep(self._settings.tick_s)
