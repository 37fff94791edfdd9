"""From a request to a job: judged, put on the disk, recorded, and only then answered.

Problem. A client that has lost the reply asks again, perhaps beside itself, perhaps after a restart, perhaps while the
queue is full: it must get the job of then and not a second one. What is accepted may not be lost by any crash; what is
refused must leave nothing behind.

Design. Under one request_id of one owner, submits go one after the other. Whoever finds a job there is compared with it
by content and gets it, before anything else is asked; only a new job needs an open daemon and a place in the queue. It
is judged by what is known without reading it (circuit, counts, memory, room), then its payloads go to the disk, then
its row to the journal, then it begins. From the journal on nobody's leaving changes anything.

Life of a request. looked up -> judged -> gathered (intake) [-> calculated] -> recorded -> a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from cuzkd.circuits.manifest import Manifest
from cuzkd.circuits.registry import Registry
from cuzkd.engine.ended import AnyJob
from cuzkd.engine.faults import NoFaults
from cuzkd.engine.job import Job, JobRequest, JobState, PartitionRecord, Ticket
from cuzkd.engine.jobs.jobs import Jobs
from cuzkd.engine.jobs.outlook import Outlook
from cuzkd.engine.jobs.unprovable import LASTING
from cuzkd.engine.journal.journal import Journal
from cuzkd.engine.payloads.intake import Gathered, Intake
from cuzkd.engine.stats import Event, JobSubmitted, Refused
from cuzkd.errors import AlreadyExists, CuzkdError, Exhausted, InvalidInput, NotFound

MAX_REQUEST_ID = 256  # characters


class Submissions:
    """Owned by the engine's loop. require_open: raises Unavailable when no new work is taken. require_possible: raises
    NeverFits.
    """

    def __init__(
        self,
        registry: Registry,
        jobs: Jobs,
        intake: Intake,
        journal: Journal,
        outlook: Outlook,
        faults: NoFaults,
        publish: Callable[[Event], None],
        clock: Callable[[], float],
        *,
        require_open: Callable[[], None],
        require_possible: Callable[[Manifest], None],
    ) -> None:
        self._registry = registry
        self._jobs = jobs
        self._intake = intake
        self._journal = journal
        self._outlook = outlook
        self._faults = faults
        self._publish = publish
        self._clock = clock
        self._require_open = require_open
        self._require_possible = require_possible
        self._sequences = itertools.count(1)
        self._turns: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}  # and how many hold or want it
        self._arriving = 0  # partitions of jobs that are being recorded
        self._recording: set[asyncio.Task[None]] = set()

    def resume_after(self, sequence: int) -> None:
        """Places up to this one are taken by jobs of earlier runs."""
        self._sequences = itertools.count(sequence + 1)

    async def submit(self, request: JobRequest, on_disk: Callable[[], None]) -> AnyJob:
        """The job of this request. on_disk, errors: see Engine.submit."""
        try:
            async with self._turn(request):
                return await self._submit(request, on_disk)
        except CuzkdError as error:
            self._publish(Refused(error.code))
            raise

    async def settle(self) -> None:
        """Wait until what is being recorded is, or has failed."""
        while self._recording:
            await asyncio.wait(self._recording)

    async def _submit(self, request: JobRequest, on_disk: Callable[[], None]) -> AnyJob:
        if not request.partitions:
            raise InvalidInput("partitions: expected at least 1, got 0")
        if len(request.request_id) > MAX_REQUEST_ID:
            raise InvalidInput(
                f"request_id: {len(request.request_id)} characters, at most {MAX_REQUEST_ID} are allowed"
            )
        earlier = self._jobs.table.newest(request.request_id, request.owner)
        if earlier is not None:  # whatever has become of its circuit
            await self._require_same(request, earlier)
            if _stands(earlier):
                return earlier
        self._require_open()
        manifest = self._registry.get(request.circuit)  # read once; from then on it is a look at its file
        self._require_possible(manifest)
        self._require_room(len(request.partitions))  # before anything is written
        gathered = await self._intake.gather(manifest, request.partitions, request.owner)
        try:
            request = replace(request, partitions=())
            on_disk()
            self._jobs.unprovable.require_provable(gathered.contents)
            if gathered.inputs:
                gathered = await self._intake.calculate(manifest, gathered)
            self._require_open()
            self._require_room(len(gathered.files))
            job = self._make(request, manifest, gathered)
            self._intake.claim(gathered, job.job_id)
        except BaseException:
            self._intake.discard(gathered)
            raise
        recording = asyncio.ensure_future(self._record(job, gathered))
        self._recording.add(recording)
        recording.add_done_callback(self._recorded)
        try:
            await asyncio.shield(recording)
        except (
            asyncio.CancelledError
        ):  # the client has gone: the job is the daemon's now, and its id is taken
            await asyncio.wait([recording])
            raise
        self._faults.at("accepted")
        return job

    async def _require_same(self, request: JobRequest, earlier: AnyJob) -> None:
        """Compared by the key that the earlier one was accepted for."""
        try:
            content = await self._intake.content(earlier.digest, request.partitions, request.owner)
        except NotFound as error:
            raise NotFound(
                f"{error}; request_id {request.request_id!r}: job {earlier.job_id} has it, ask for that"
            ) from None
        if (request.circuit, content) != (earlier.circuit, earlier.content):
            raise AlreadyExists(
                f"request_id {request.request_id!r}: job {earlier.job_id} has it, with other content"
            )

    def _require_room(self, count: int) -> None:
        try:
            self._jobs.queue.require_room(count, self._arriving)
        except Exhausted as error:
            wait_s = self._outlook.room_s(count)
            if wait_s is None:
                raise
            full = Exhausted(f"{error} in about {max(round(wait_s), 1)} s")
            full.retry_after_s = max(wait_s, 1.0)
            raise full from None

    async def _record(self, job: Job, gathered: Gathered) -> None:
        """The moment in which a job begins to exist. Nothing that a client does ends it half-way."""
        self._arriving += len(job.partitions)
        try:
            await self._journal.accept(job, [upload.upload_id for upload in gathered.uploads])
        except BaseException:
            self._intake.give_back(gathered, job.job_id)
            raise
        finally:
            self._arriving -= len(job.partitions)
        self._publish(JobSubmitted(job.job_id, job.circuit, job.request.priority, len(job.partitions)))
        self._jobs.begin(job)

    def _recorded(self, recording: asyncio.Task[None]) -> None:
        self._recording.discard(recording)
        if not recording.cancelled():
            recording.exception()  # its client may have gone

    def _make(self, request: JobRequest, manifest: Manifest, gathered: Gathered) -> Job:
        job_id, now_s = str(uuid.uuid4()), self._clock()
        records = []
        for index, (file, content) in enumerate(zip(gathered.files, gathered.contents, strict=True)):
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
            records.append(PartitionRecord(ticket, file, content=content, since_s=now_s))
        return Job(job_id, request, gathered.content, now_s, records)

    @contextlib.asynccontextmanager
    async def _turn(self, request: JobRequest) -> AsyncIterator[None]:
        """Alone with this request_id."""
        if not request.request_id:
            yield
            return
        key = request.owner, request.request_id
        lock, users = self._turns.get(key, (asyncio.Lock(), 0))
        self._turns[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._turns.pop(key)
            if users > 1:
                self._turns[key] = lock, users - 1


def _stands(job: AnyJob) -> bool:
    """Whether a repeated request is answered with this job. One that was cancelled, or failed for what another time
    may go well, is what a client repeats in order to have it done.
    """
    end = job.end
    return end is None or end.state is JobState.DONE or (end.state is JobState.FAILED and end.code in LASTING)
