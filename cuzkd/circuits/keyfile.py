"""A file of page-aligned arrays: the layout in which prepared keys lie on disk.

Problem: a .zkey has unaligned points and coefficients entry by entry; reading one costs a parse and a copy at
each start of a prover, and a damaged one shows only in proofs that do not verify.
Design: arrays one after another, each at a page boundary, as the backends want them, so that loading is
mapping. The file describes nothing itself: the manifest does, with a digest for each 64 MiB. It is written
under another name, synced, and renamed by the caller with its whole directory; it is never written again.
Life of data: arrays made by `map_arrays` are read-only windows of the map, which lives as long as any of
them; the page cache is shared by all processes. Deleting the file takes nothing from a process that has it
mapped.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cuzkd.circuits.manifest import CHUNK_BYTES, Manifest, SectionEntry
from cuzkd.errors import CuzkdError, InvalidKey
from cuzkd.formats.iden3 import map_file

PAGE = 4096
DTYPES: Mapping[str, np.dtype[Any]] = {"uint64": np.dtype("<u8"), "uint32": np.dtype("<u4")}
# Threads that check digests: hashing lets go of the interpreter, and memory bandwidth, not cores, sets the
# pace.
CHECK_THREADS = 4

Array = NDArray[Any]


@dataclass(frozen=True)
class Written:
    """What `write` has written, for the manifest."""

    sections: tuple[SectionEntry, ...]
    key_bytes: int
    resident_bytes: int
    chunk_digests: tuple[str, ...]


class _ChunkHasher:
    """A file that is written once from front to back, and digested by chunks on the way."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._hash = hashlib.blake2b(digest_size=32)
        self._in_chunk = 0
        self.at = 0
        self.digests: list[str] = []

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            part = view[: CHUNK_BYTES - self._in_chunk]
            self._file.write(part)
            self._hash.update(part)
            self._in_chunk += len(part)
            self.at += len(part)
            if self._in_chunk == CHUNK_BYTES:
                self._end_chunk()
            view = view[len(part) :]

    def finish(self) -> tuple[str, ...]:
        if self._in_chunk:
            self._end_chunk()
        return tuple(self.digests)

    def _end_chunk(self) -> None:
        self.digests.append(self._hash.hexdigest())
        self._hash = hashlib.blake2b(digest_size=32)
        self._in_chunk = 0


def write(path: Path, arrays: Sequence[tuple[str, Array]]) -> Written:
    """Write arrays (uint64 or uint32, any shape) to a new file and sync it."""
    sections: list[SectionEntry] = []
    with open(path, "xb") as file:
        out = _ChunkHasher(file)
        for name, array in arrays:
            out.write(bytes(-out.at % PAGE))
            sections.append(SectionEntry(name, out.at, array.dtype.name, tuple(array.shape)))
            if array.size:
                out.write(np.ascontiguousarray(array).data.cast("B"))
        digests = out.finish()
        file.flush()
        os.fsync(file.fileno())
    resident = sum(array.nbytes for _, array in arrays)
    return Written(tuple(sections), out.at, resident, digests)


def map_arrays(path: Path, manifest: Manifest, *, check_digests: bool = True) -> dict[str, Array]:
    """The arrays of a key file, read-only. Raises InvalidKey when it is not the file that the manifest
    describes.

    check_digests: read all of it and compare. A process that replaces one which has done so may leave it out.
    """
    try:
        size = os.stat(path).st_size
        if size != manifest.key_bytes:
            raise InvalidKey(f"{path}: expected {manifest.key_bytes} bytes by its manifest, found {size}")
        mapped = map_file(path)
    except OSError as error:
        raise InvalidKey(f"{path}: cannot be read: {error.strerror}") from error
    except InvalidKey:
        raise
    except CuzkdError as error:
        raise InvalidKey(str(error)) from error
    whole = memoryview(mapped)
    if len(whole) != manifest.key_bytes:  # replaced between the two looks
        raise InvalidKey(f"{path}: expected {manifest.key_bytes} bytes by its manifest, found {len(whole)}")
    if check_digests:
        _check(whole, path, manifest)
    return {s.name: _window(whole, s, path) for s in manifest.sections}


def _window(whole: memoryview, section: SectionEntry, path: Path) -> Array:
    dtype = DTYPES.get(section.dtype)
    if dtype is None or section.offset % PAGE or min(section.shape, default=0) < 0:
        raise InvalidKey(f"{path}: section {section.name}: not a layout that this version of cuzkd writes")
    nbytes = math.prod(section.shape) * dtype.itemsize
    if section.offset + nbytes > len(whole):
        raise InvalidKey(
            f"{path}: section {section.name}: {nbytes} bytes from byte {section.offset} reach past "
            f"the end, {len(whole)}"
        )
    return np.frombuffer(whole[section.offset : section.offset + nbytes], dtype=dtype).reshape(section.shape)


def _check(whole: memoryview, path: Path, manifest: Manifest) -> None:
    chunk = manifest.chunk_bytes
    if chunk != CHUNK_BYTES or len(manifest.chunk_digests) != -(-len(whole) // chunk):
        raise InvalidKey(f"{path}: {len(manifest.chunk_digests)} digests do not cover {len(whole)} bytes")

    def digest(index: int) -> str:
        return hashlib.blake2b(whole[index * chunk : (index + 1) * chunk], digest_size=32).hexdigest()

    with ThreadPoolExecutor(CHECK_THREADS) as threads:
        found = list(threads.map(digest, range(len(manifest.chunk_digests))))
    for index, (is_, should_be) in enumerate(zip(found, manifest.chunk_digests, strict=True)):
        if is_ != should_be:
            begin, end = index * chunk, min((index + 1) * chunk, len(whole))
            inside = [s.name for s in manifest.sections if s.offset < end and _end(s) > begin]
            raise InvalidKey(
                f"{path}: bytes {begin} to {end} (sections {', '.join(inside)}) were altered: "
                f"expected blake2b {should_be[:16]}..., found {is_[:16]}..."
            )


def _end(section: SectionEntry) -> int:
    return section.offset + math.prod(section.shape) * DTYPES[section.dtype].itemsize
