"""A file of page-aligned arrays: the layout in which prepared keys lie on disk.

Problem: a .zkey has unaligned points and coefficients entry by entry; reading one costs a parse at each start of a
prover, and a damaged one shows only in proofs that do not verify. And a mapped file is not ours: who shortens it
kills the process that has it mapped, and who writes into it changes what is proved, after every check.
Design: arrays one after another, each in whole pages, as the backends want them. The file describes nothing itself:
the manifest does, with digests of every 64 MiB of each array. Reading fills memory of our own, several chunks at a
time, and the digest is taken of what was read. From then on the file may be shortened, replaced or deleted.
Life of data: written once, front to back, under another name, and synced; the caller renames the directory that it
is in. `KeyFile` opens it; an array that was read is memory of its own, which lives as long as the array.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import queue
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuzkd.backend.ahead import ahead
from cuzkd.circuits.manifest import CHUNK_BYTES, PAGE, Manifest, SectionEntry
from cuzkd.errors import SCARCE, Exhausted, InvalidKey
from cuzkd.memory.upstream import map_pages

DTYPES: Mapping[str, np.dtype[Any]] = {"uint64": np.dtype("<u8"), "uint32": np.dtype("<u4")}
# Reading is copying and hashing, 0.5 GB/s a thread; beyond these the memory sets the pace.
READ_THREADS = 16

Array = NDArray[Any]
Memory = Callable[[int], memoryview]
Into = Callable[[str, int, memoryview], None]


class Writer:
    """Writes a key file. A block for `with`: leaving it syncs the file, or removes it after an error.

    Raises Exhausted where the disk takes no more, FileExistsError when there is such a file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "xb")  # noqa: SIM115  (open as long as this is)
        self._sections: list[SectionEntry] = []
        self._at = 0

    def array(self, name: str, array: Array) -> None:
        """Append an array, uint64 or uint32."""
        self.blocks(name, array.dtype.name, array.shape, [array])

    def blocks(self, name: str, dtype: str, shape: tuple[int, ...], blocks: Iterable[Array]) -> None:
        """Append an array that comes in blocks along its first axis, which must make up the shape."""
        digests = _ChunkDigests()
        entry = SectionEntry(name, self._at, dtype, shape, ())
        nbytes = 0
        for block in blocks:
            if block.dtype != DTYPES[dtype] or block.shape[1:] != shape[1:]:
                raise ValueError(f"{name}: a block is {block.dtype}{block.shape}, expected {dtype}{shape}")
            if block.size:
                self._write(np.ascontiguousarray(block).data.cast("B"), digests)
            nbytes += block.nbytes
        if nbytes != entry.nbytes:
            raise ValueError(f"{name}: its blocks have {nbytes} bytes, expected {entry.nbytes} for {shape}")
        self._write(bytes(-nbytes % PAGE), digests)
        self._sections.append(SectionEntry(name, entry.offset, dtype, shape, digests.finish()))

    def finish(self) -> tuple[tuple[SectionEntry, ...], int]:
        """The table of what was written, and the length of the file, for the manifest. Synced on return."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._full(error) from error
        return tuple(self._sections), self._at

    def _write(self, data: bytes | memoryview, digests: _ChunkDigests) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise self._full(error) from error
        digests.update(data)
        self._at += len(data)

    def _full(self, error: OSError) -> Exhausted:
        return Exhausted(f"{self._path}: cannot be written after {self._at} bytes: {error.strerror}")

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.suppress(OSError):  # what is buffered after an error
            self._file.close()
        if kind is not None:
            self._path.unlink(missing_ok=True)


class _ChunkDigests:
    """Digests of each CHUNK_BYTES of what passes."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=32)
        self._in_chunk = 0
        self._done: list[str] = []

    def update(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            part = view[: CHUNK_BYTES - self._in_chunk]
            self._hash.update(part)
            self._in_chunk += len(part)
            if self._in_chunk == CHUNK_BYTES:
                self._end_chunk()
            view = view[len(part) :]

    def finish(self) -> tuple[str, ...]:
        if self._in_chunk:
            self._end_chunk()
        return tuple(self._done)

    def _end_chunk(self) -> None:
        self._done.append(self._hash.hexdigest())
        self._hash = hashlib.blake2b(digest_size=32)
        self._in_chunk = 0


@dataclass(frozen=True)
class _Chunk:
    """Part of a section, and where in memory it goes."""

    section: SectionEntry
    index: int
    into: memoryview


class KeyFile:
    """A key file that is open, and described by a manifest. A block for `with`.

    Raises Exhausted when no file can be opened just now, InvalidKey when this one cannot or has another length than
    the manifest says; reading raises it for what is not, byte for byte, what the manifest describes. Of the name `path`
    nothing is wanted after opening.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self._sections = {section.name: section for section in manifest.sections}
        try:
            # O_NONBLOCK: opening a pipe that nobody writes to must not hang.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in SCARCE:
                raise Exhausted(f"{path}: cannot be opened now: {error.strerror}; try again later") from error
            raise InvalidKey(f"{path}: cannot be read: {error.strerror}") from error
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != manifest.key_bytes:
            self.close()
            found = status.st_size if stat.S_ISREG(status.st_mode) else "something that is no file"
            raise InvalidKey(f"{path}: expected {manifest.key_bytes} bytes by its manifest, found {found}")

    def names(self) -> set[str]:
        return set(self._sections)

    def read(self, names: Iterable[str]) -> dict[str, Array]:
        """Arrays by name, read-only, each in pages of its own. Raises InvalidKey, and Exhausted where there is no
        memory.
        """
        sections = [self._sections[name] for name in names]
        memory = {section.name: _pages(section.page_bytes) for section in sections}
        chunks = [
            _Chunk(section, index, memory[section.name][begin : begin + CHUNK_BYTES])
            for section in sections
            for index, begin in enumerate(range(0, section.page_bytes, CHUNK_BYTES))
        ]
        threads = min(READ_THREADS, len(os.sched_getaffinity(0)), len(chunks))
        if threads > 1 and any(section.page_bytes >= CHUNK_BYTES // 16 for section in sections):
            with ThreadPoolExecutor(threads) as pool:
                try:
                    list(pool.map(self._read, chunks))
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        else:  # threads would cost more than they save
            for chunk in chunks:
                self._read(chunk)
        return {section.name: _array(section, memory[section.name]) for section in sections}

    def pour(self, names: Iterable[str], memory: Memory, into: Into) -> None:
        """Read arrays piece by piece, in no order: into(name, first byte, bytes), called by several threads at once.
        The bytes are good for as long as the call. memory(bytes): what pieces are read into, asked for once a thread.

        Raises InvalidKey, what `memory` and `into` raise, and Exhausted where there is no memory.
        """
        pieces = [
            (section, index)
            for section in map(self._sections.__getitem__, names)
            for index in range(-(-section.page_bytes // CHUNK_BYTES))
        ]
        most = max((min(CHUNK_BYTES, section.page_bytes) for section, _ in pieces), default=0)
        threads = min(READ_THREADS, len(os.sched_getaffinity(0)), len(pieces))
        free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        for _ in range(threads):
            free.put(memory(most))

        def carry(piece: tuple[SectionEntry, int]) -> None:
            section, index = piece
            begin = index * CHUNK_BYTES
            buffer = free.get()
            try:
                self._read(_Chunk(section, index, buffer[: min(CHUNK_BYTES, section.page_bytes - begin)]))
                into(section.name, begin, buffer[: min(CHUNK_BYTES, section.nbytes - begin)])
            finally:
                free.put(buffer)

        if pieces:
            for _ in ahead(carry, pieces, threads):
                pass

    def blocks(self, name: str) -> Iterator[Array]:
        """One array in blocks along its first axis, of about CHUNK_BYTES: in bounded memory, as long as it may be."""
        section = self._sections[name]
        row_bytes = section.nbytes // max(section.shape[0], 1)
        begun = b""  # a row that goes on in the next chunk
        for index, begin in enumerate(range(0, section.page_bytes, CHUNK_BYTES)):
            into = _pages(min(CHUNK_BYTES, section.page_bytes - begin))
            self._read(_Chunk(section, index, into))
            data = into[: section.nbytes - begin]
            rest = row_bytes - len(begun) if begun else 0
            if begun:
                yield _rows(section, begun + bytes(data[:rest]))
            end = len(data) - (len(data) - rest) % row_bytes
            yield _rows(section, data[rest:end])
            begun = bytes(data[end:])

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> KeyFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, chunk: _Chunk) -> None:
        section = chunk.section
        begin = section.offset + chunk.index * CHUNK_BYTES
        end = begin + len(chunk.into)
        at = 0
        while at < len(chunk.into):
            try:
                n = os.preadv(self._descriptor, [chunk.into[at:]], begin + at)
            except OSError as error:
                raise InvalidKey(
                    f"{self.path}: section {section.name}: byte {begin + at} cannot be read: {error.strerror}"
                ) from error
            if n == 0:
                raise InvalidKey(
                    f"{self.path}: ends at byte {begin + at}, in section {section.name}: it was shortened"
                )
            at += n
        found, expected = (
            hashlib.blake2b(chunk.into, digest_size=32).hexdigest(),
            section.chunk_digests[chunk.index],
        )
        if found != expected:
            raise InvalidKey(
                f"{self.path}: bytes {begin} to {end} (section {section.name}) were altered: "
                f"expected blake2b {expected[:16]}..., found {found[:16]}..."
            )


def _pages(nbytes: int) -> memoryview:
    """Memory of our own, in huge pages where it is large and the kernel has them. It goes with its last view."""
    mapping, slab = map_pages(nbytes)
    with contextlib.suppress(OSError):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return slab.view[:nbytes]


def _array(section: SectionEntry, memory: memoryview) -> Array:
    return _rows(section, memory[: section.nbytes]).reshape(section.shape)


def _rows(section: SectionEntry, data: bytes | memoryview) -> Array:
    """[any number, *rest of the shape], read-only."""
    view = memoryview(data).toreadonly()
    return np.frombuffer(view, DTYPES[section.dtype]).reshape(-1, *section.shape[1:])
