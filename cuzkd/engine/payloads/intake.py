"""From a request's payloads to spool files of ours, or back to nothing.

Problem. A request may bring bytes, uploads, paths and inputs, fail half-way, repeat an earlier one, or lose its
client while the disk is at work; no file may be left behind, none be used twice, and the event loop must not
wait for the disk. Design. `gather` makes or finds one file per payload, in threads; from then on the content is
known; `content` finds out the same without making anything, for a request that may be a repeated one. `calculate` puts
witnesses in the place of inputs (engine/calculators). Uploads are not taken until `claim`, which does not wait and
therefore cannot be overtaken. Whatever does not become a job is discarded; uploads then stay open for another try.
Life. gather [-> calculate] -> claim -> (the job) -> remove, or -> discard.
"""

from __future__ import annotations

import asyncio
import functools
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import structlog

from cuzkd.circuits.manifest import Manifest
from cuzkd.engine.faults import NoFaults
from cuzkd.engine.job import InputJson, Payload, ServerPath, SpoolFile, UploadRef, WitnessBytes
from cuzkd.engine.journal.journal import Journal
from cuzkd.engine.journal.rows import Upload
from cuzkd.engine.payloads.calculators import Calculators
from cuzkd.engine.payloads.spool import Chunk, Incoming, Spool
from cuzkd.engine.payloads.uploads import Uploads
from cuzkd.engine.stats import Event, WitnessCalculated
from cuzkd.errors import CuzkdError, Exhausted, InvalidInput
from cuzkd.formats import wtns

log = structlog.get_logger()

AT_A_TIME = 4  # chunks of an upload for one turn of a thread, each about a millisecond of work
FEW = 16  # uploads at once; of more than that each has one chunk in memory

Result = TypeVar("Result")


@dataclass(frozen=True)
class Gathered:
    """One file per partition. uploads: those that are. content: digest over all of the job, with inputs as they
    came; contents: of circuit and payload, by partition. inputs: indexes of files that are input JSON still.
    """

    files: tuple[SpoolFile, ...]
    uploads: tuple[Upload, ...]
    ours: tuple[SpoolFile, ...]  # made for this request alone
    content: bytes
    contents: tuple[bytes, ...]
    inputs: tuple[int, ...] = ()


class Intake:
    """Owned by the engine's loop."""

    def __init__(
        self,
        spool: Spool,
        uploads: Uploads,
        calculators: Calculators,
        journal: Journal,
        faults: NoFaults,
        publish: Callable[[Event], None],
        clock: Callable[[], float],
    ) -> None:
        self._spool = spool
        self._uploads = uploads
        self._calculators = calculators
        self._journal = journal
        self._faults = faults
        self._publish = publish
        self._clock = clock
        self._arriving = 0
        self._left: list[SpoolFile] = []  # could not be removed
        self._at_work: set[asyncio.Future[Any]] = set()

    async def upload(self, size_bytes: int, chunks: AsyncIterator[Chunk], owner: str) -> str:
        """Stream a file to the spool; its id, once a crash cannot make us forget it. Raises InvalidInput when its size
        is another one, Exhausted.
        """
        self._uploads.require_room(self._arriving)
        incoming = self._spool.create(size_bytes)
        self._arriving += 1
        try:
            await self._take_in(incoming, chunks)
            file = await self._to_end(incoming.commit, self._remove_result)
            upload = Upload(str(uuid.uuid4()), file, owner, self._clock() + self._uploads.expiry_s)
            try:
                await self._journal.upload(upload)
            except BaseException as error:
                if not isinstance(error, CuzkdError):  # the client has gone, and the row may be there
                    self._journal.forget_uploads([upload.upload_id])
                self.remove([file])
                raise
            self._uploads.add(upload)
        finally:
            self._arriving -= 1
            incoming.close()
        return upload.upload_id

    async def _take_in(self, incoming: Incoming, chunks: AsyncIterator[Chunk]) -> None:
        """Write what comes, several chunks at a time while the next ones arrive. No thread is at it when this ends."""
        writing: asyncio.Future[None] | None = None
        pieces: list[Chunk] = []
        try:
            async for chunk in chunks:
                pieces.append(chunk)
                if len(pieces) < (AT_A_TIME if self._arriving <= FEW else 1):
                    continue
                if writing is not None:
                    await asyncio.shield(writing)
                writing, pieces = self._in_thread(functools.partial(incoming.write_all, pieces)), []
            if writing is not None:
                await asyncio.shield(writing)
            writing = self._in_thread(functools.partial(incoming.write_all, pieces))
            await asyncio.shield(writing)
        finally:
            if writing is not None:
                writing.add_done_callback(_heed)
                await asyncio.wait([writing])

    def restore(self, uploads: Iterable[Upload]) -> None:
        """Those that earlier runs of the daemon have left."""
        for upload in uploads:
            self._uploads.add(upload)

    async def trouble(self, file: SpoolFile, give_up: Callable[[], bool]) -> str:
        """What is wrong with a job's file, "" when it is what it was. Raises as Spool.trouble does."""
        return await self._to_end(functools.partial(self._spool.trouble, file, give_up))

    def require_possible(self, manifest: Manifest, payloads: Sequence[Payload], owner: str) -> None:
        """What is known without reading anything. Raises InvalidInput, NotFound, Unsupported."""
        upload_ids = [payload.upload_id for payload in payloads if isinstance(payload, UploadRef)]
        if len(set(upload_ids)) < len(upload_ids):
            raise InvalidInput("partitions: two of them name the same upload; each needs its own")
        for upload_id in upload_ids:
            self._uploads.find(upload_id, owner)
        for payload in payloads:
            if isinstance(payload, InputJson):
                self._calculators.require_possible(manifest)
                self._calculators.require_size(len(payload.data))

    async def content(self, circuit: str, payloads: Sequence[Payload], owner: str) -> bytes:
        """What `gather` would find out, without making a file; also of uploads that a known job has taken. circuit: its
        digest. Raises InvalidInput, NotFound, Exhausted.
        """
        digests = [await self._digest(payload, owner) for payload in payloads]
        return self._contents(circuit, payloads, digests)[0]

    async def gather(self, manifest: Manifest, payloads: Sequence[Payload], owner: str) -> Gathered:
        """Every payload as a synced file. Raises InvalidInput, NotFound, Exhausted, Unsupported; then nothing is
        left.
        """
        self.require_possible(manifest, payloads, owner)
        files: list[SpoolFile] = []
        ours: list[SpoolFile] = []
        uploads: list[Upload] = []
        try:
            for payload in payloads:
                if isinstance(payload, UploadRef):
                    uploads.append(self._uploads.find(payload.upload_id, owner))
                    files.append(uploads[-1].file)
                else:
                    ours.append(await self._make(payload))
                    files.append(ours[-1])
        except BaseException:
            self.remove(ours)
            raise
        content, contents = self._contents(manifest.digest, payloads, [file.digest for file in files])
        inputs = tuple(index for index, payload in enumerate(payloads) if isinstance(payload, InputJson))
        return Gathered(tuple(files), tuple(uploads), tuple(ours), content, contents, inputs)

    def _contents(
        self, circuit: str, payloads: Sequence[Payload], digests: Sequence[bytes]
    ) -> tuple[bytes, tuple[bytes, ...]]:
        """Of the job, and of each partition."""
        kinds = [b"inputs" if isinstance(payload, InputJson) else b"witness" for payload in payloads]
        key = circuit.encode()
        each = tuple(self._spool.combine([key, *pair]) for pair in zip(kinds, digests, strict=True))
        return self._spool.combine([key, *each]), each

    async def _digest(self, payload: Payload, owner: str) -> bytes:
        match payload:
            case UploadRef():
                return self._uploads.digest(payload.upload_id, owner)
            case ServerPath():
                return await self._to_end(functools.partial(self._spool.digest_of, payload.path))
            case _:
                return await self._to_end(functools.partial(self._spool.digest, payload.data))

    async def calculate(self, manifest: Manifest, gathered: Gathered) -> Gathered:
        """Witnesses in the place of inputs, whose files are removed. As many at once as one circuit may have.

        Raises what Calculators.calculate does, naming the partition, for the first that fails; then nothing has
        changed.
        """
        made: dict[int, SpoolFile] = {}
        left = iter(gathered.inputs)

        async def one_after_the_other() -> None:
            for index in left:
                made[index] = await self._witness(manifest, gathered.files[index], index)

        n_lanes = min(self._calculators.share, len(gathered.inputs))
        lanes = [asyncio.ensure_future(one_after_the_other()) for _ in range(n_lanes)]
        try:
            await asyncio.gather(*lanes)
        except BaseException:
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)
            self.remove(made.values())
            raise
        used = [gathered.files[index] for index in gathered.inputs]
        self.remove(used)
        files = tuple(made.get(index, file) for index, file in enumerate(gathered.files))
        ours = (*(file for file in gathered.ours if file not in used), *made.values())
        return replace(gathered, files=files, ours=ours, inputs=())

    async def _witness(self, manifest: Manifest, inputs: SpoolFile, index: int) -> SpoolFile:
        """The witness file of one input file."""
        path = self._spool.place(
            len(wtns.head(manifest.curve, manifest.n_wires)) + manifest.n_wires * wtns.N8
        )
        try:
            took = await self._calculators.calculate(manifest, inputs.path, path)
            adopt = functools.partial(self._spool.adopt, path)
            file = await self._to_end(adopt, self._remove_result)
        except BaseException as error:
            self.remove([replace(inputs, path=path)])
            if not isinstance(error, CuzkdError):
                raise
            log.info("witness_not_calculated", circuit=manifest.name, code=error.code, message=str(error))
            self._publish(WitnessCalculated(manifest.name, error.code, {}))
            raise type(error)(f"partition {index}: {error}") from None
        log.info(
            "witness_calculated", circuit=manifest.name, **{k: round(s, 6) for k, s in asdict(took).items()}
        )
        phases = {
            "calculation_wait": took.wait_s,
            "calculation_compile": took.compile_s,
            "calculation": took.calculate_s,
        }
        self._publish(WitnessCalculated(manifest.name, "", phases))
        return file

    def claim(self, gathered: Gathered, job_id: str) -> None:
        """All files are this job's from now on. Raises NotFound, having taken nothing, when another one has taken one
        of the uploads meanwhile.
        """
        self._uploads.take(gathered.uploads, job_id)

    def give_back(self, gathered: Gathered, job_id: str) -> None:
        """Claimed, and the job does not exist after all: uploads wait for another one, the rest is removed."""
        self._uploads.give_back(gathered.uploads, job_id)
        self.remove(gathered.ours)

    def discard(self, gathered: Gathered) -> None:
        """Not claimed: uploads stay as they are."""
        self.remove(gathered.ours)

    def expire(self) -> None:
        """Remove uploads that nobody wants, and what could not be removed before."""
        if self._left:
            left, self._left = self._left, []
            self._track(asyncio.ensure_future(self._remove(left, again=True)))
        over = self._uploads.expire(self._clock())
        if over:
            self._journal.forget_uploads([upload.upload_id for upload in over])
            self.remove([upload.file for upload in over])

    def forget(self, job_ids: Iterable[str]) -> None:
        """Nobody can repeat these jobs any more."""
        self._uploads.forget(job_ids)

    def remove(self, files: Iterable[SpoolFile]) -> None:
        """Unlink in a thread: for a large file that takes a while. What cannot be removed is tried again by expire."""
        files = tuple(files)
        if files:
            self._track(asyncio.ensure_future(self._remove(files)))

    async def settle(self) -> None:
        """Wait until the disk has done all that it was asked to do."""
        while self._at_work:
            await asyncio.wait(self._at_work)

    async def _remove(self, files: Sequence[SpoolFile], again: bool = False) -> None:
        """again: it was said before that they are left."""
        left = await asyncio.to_thread(self._remove_now, files)
        self._left += [file for file, _ in left]
        for file, error in () if again else left:
            log.error("payload_not_removed", file=file.path, error=os.strerror(error.errno or 0))

    def _remove_now(self, files: Sequence[SpoolFile]) -> list[tuple[SpoolFile, OSError]]:
        """Returns those that are left, and why."""
        left = []
        for file in files:
            try:
                self._spool.remove(file)
            except OSError as error:
                left.append((file, error))
        self._faults.at("removed")
        return left

    async def _make(self, payload: WitnessBytes | ServerPath | InputJson) -> SpoolFile:
        if isinstance(payload, ServerPath):
            work = asyncio.ensure_future(asyncio.to_thread(self._spool.copy, payload.path))
        else:
            work = asyncio.ensure_future(asyncio.to_thread(self._spool.write, payload.data))
        self._track(work)
        try:
            return await asyncio.shield(work)
        except MemoryError:
            raise Exhausted("payload: out of memory while it was written; try again later") from None
        except asyncio.CancelledError:  # the client is gone, the thread is not: what it makes is for nobody
            work.add_done_callback(self._remove_result)
            raise

    def _remove_result(self, work: asyncio.Future[SpoolFile]) -> None:
        if not work.cancelled() and work.exception() is None:
            self.remove([work.result()])

    def _in_thread(self, step: Callable[[], Result]) -> asyncio.Future[Result]:
        work = asyncio.ensure_future(asyncio.to_thread(step))
        self._track(work)
        return work

    def _track(self, work: asyncio.Future[Any]) -> None:
        self._at_work.add(work)
        work.add_done_callback(self._at_work.discard)

    async def _to_end(
        self, step: Callable[[], Result], unwanted: Callable[[asyncio.Future[Result]], object] | None = None
    ) -> Result:
        """Run a step of the disk in a thread, and wait for it even when cancelled meanwhile: then `unwanted`
        is given what has come of it.
        """
        work = self._in_thread(step)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(unwanted or _heed)
            await asyncio.wait([work])
            raise


def _heed(work: asyncio.Future[Any]) -> None:
    """Look at the error of work that nobody waits for any more: asyncio need not complain of it."""
    if not work.cancelled():
        work.exception()
