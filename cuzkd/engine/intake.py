"""From a request's payloads to spool files of ours, or back to nothing.

Problem. A request may bring bytes, uploads and paths, fail half-way, repeat an earlier one, or lose its
client while the disk is at work; no file may be left behind, none be used twice, and the event loop must not
wait for the disk. Design. `gather` makes or finds one file per payload, in threads. Nothing is taken until
`claim`, which does not wait and therefore cannot be overtaken. Whatever is not claimed is discarded; uploads
then stay open for another try. Life. gather -> claim -> (the job) -> remove, or gather -> discard.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cuzkd.engine.job import Payload, ServerPath, SpoolFile, UploadRef, WitnessBytes
from cuzkd.engine.spool import Spool
from cuzkd.engine.uploads import Uploads
from cuzkd.errors import InvalidInput

Result = TypeVar("Result")


@dataclass(frozen=True)
class Gathered:
    """One file per partition. upload_ids: of those that are uploads. content: digest over all of the job."""

    files: tuple[SpoolFile, ...]
    upload_ids: tuple[str, ...]
    ours: tuple[SpoolFile, ...]  # made for this request alone
    content: bytes


class Intake:
    """Owned by the engine's loop."""

    def __init__(self, spool: Spool, uploads: Uploads, clock: Callable[[], float]) -> None:
        self._spool = spool
        self._uploads = uploads
        self._clock = clock
        self._arriving = 0
        self._at_work: set[asyncio.Future[Any]] = set()

    async def upload(self, size_bytes: int, chunks: AsyncIterator[bytes]) -> str:
        """Stream a file to the spool; its id. Raises InvalidInput when its size is another one, Exhausted."""
        self._uploads.require_room(self._arriving)
        incoming = self._spool.create(size_bytes)
        self._arriving += 1
        try:
            async for chunk in chunks:
                await self._to_end(functools.partial(incoming.write, chunk))
            file = await self._to_end(incoming.commit, self._remove_result)
            upload_id = self._uploads.add(file, self._clock())
        finally:
            self._arriving -= 1
            incoming.close()
        return upload_id

    async def gather(self, circuit_digest: str, payloads: Sequence[Payload]) -> Gathered:
        """Every payload as a synced file. Raises InvalidInput, NotFound, Exhausted; then nothing is left."""
        upload_ids = tuple(payload.upload_id for payload in payloads if isinstance(payload, UploadRef))
        if len(set(upload_ids)) < len(upload_ids):
            raise InvalidInput("partitions: two of them name the same upload; each needs its own")
        files: list[SpoolFile] = []
        ours: list[SpoolFile] = []
        try:
            for payload in payloads:
                if isinstance(payload, UploadRef):
                    files.append(self._uploads.find(payload.upload_id))
                else:
                    ours.append(await self._make(payload))
                    files.append(ours[-1])
        except BaseException:
            self.remove(ours)
            raise
        content = self._spool.combine([circuit_digest.encode(), *(file.digest for file in files)])
        return Gathered(tuple(files), upload_ids, tuple(ours), content)

    def require_free(self, gathered: Gathered) -> None:
        """Raises NotFound when another job has taken one of the uploads meanwhile."""
        for upload_id in gathered.upload_ids:
            self._uploads.require_free(upload_id)

    def claim(self, gathered: Gathered) -> None:
        """All files are the job's from now on. Raises NotFound, having taken nothing."""
        self.require_free(gathered)
        for upload_id in gathered.upload_ids:
            self._uploads.take(upload_id)

    def discard(self, gathered: Gathered) -> None:
        self.remove(gathered.ours)

    def expire(self) -> None:
        """Remove uploads that nobody wants."""
        self.remove(self._uploads.expire(self._clock()))

    def remove(self, files: Iterable[SpoolFile]) -> None:
        """Unlink in a thread: for a large file that takes a while."""
        files = tuple(files)
        if files:
            self._track(asyncio.ensure_future(asyncio.to_thread(self._remove_now, files)))

    async def settle(self) -> None:
        """Wait until the disk has done all that it was asked to do."""
        while self._at_work:
            await asyncio.wait(self._at_work)

    def _remove_now(self, files: Sequence[SpoolFile]) -> None:
        for file in files:
            self._spool.remove(file)

    async def _make(self, payload: WitnessBytes | ServerPath) -> SpoolFile:
        if isinstance(payload, WitnessBytes):
            work = asyncio.ensure_future(asyncio.to_thread(self._spool.write, payload.data))
        else:
            work = asyncio.ensure_future(asyncio.to_thread(self._spool.copy, payload.path))
        self._track(work)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:  # the client is gone, the thread is not: what it makes is for nobody
            work.add_done_callback(self._remove_result)
            raise

    def _remove_result(self, work: asyncio.Future[SpoolFile]) -> None:
        if not work.cancelled() and work.exception() is None:
            self.remove([work.result()])

    def _track(self, work: asyncio.Future[Any]) -> None:
        self._at_work.add(work)
        work.add_done_callback(self._at_work.discard)

    async def _to_end(
        self, step: Callable[[], Result], unwanted: Callable[[asyncio.Future[Result]], object] | None = None
    ) -> Result:
        """Run a step of the disk in a thread, and wait for it even when cancelled meanwhile: then `unwanted`
        is given what has come of it.
        """
        work = asyncio.ensure_future(asyncio.to_thread(step))
        self._track(work)
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
