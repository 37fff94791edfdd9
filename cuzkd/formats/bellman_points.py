"""Lists of points in bellman's files: a u32 count, then uncompressed points, all big-endian.

A point is x y, in G2 x.c1 x.c0 y.c1 y.c0, canonical: circom's files are little-endian, Montgomery, and put c0 first.
The bits that q leaves free at the top of the first byte are flags: 0x80 compressed, 0x40 infinity, and 0x20 (the larger
y) on BLS12-381. Infinity has no place in bellman's lists. snarkjs, which writes such files, too, spells it as zeros,
without the flag.

Design: counts are compared with the file's length before anything is read or allocated. Decoding is native
(`backend.readers`), a block at a time; that points lie on their curves is checked elsewhere, but for single ones.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from cuzkd.backend import readers
from cuzkd.backend.protocol import U64
from cuzkd.errors import MalformedFile
from cuzkd.formats import affine
from cuzkd.formats.files import RawFile

COUNT = struct.Struct(">I")
BLOCK_POINTS = 1 << 15  # read at once: 6 MB in G2
INFINITY = 0x40
AT_INFINITY = "is the point at infinity, which has no place here"


def point_bytes(curve: str, group: str) -> int:
    """Bytes of an uncompressed point."""
    return (16 if group == "g1" else 32) * affine.limbs(curve)


def empty(curve: str, group: str, n: int) -> U64:
    """An array for n points, not initialised."""
    point = (2, affine.limbs(curve)) if group == "g1" else (2, 2, affine.limbs(curve))
    return np.empty((n, *point), np.uint64)


def cut(file: RawFile, at: int, nbytes: int, what: str) -> memoryview:
    """Bytes of a file; MalformedFile when it ends before."""
    if file.size - at < nbytes:
        raise MalformedFile(
            f"{file.path}: {what}: expected {nbytes} bytes from byte {at}, but the file ends at byte {file.size}: "
            "file is cut"
        )
    return file.read(at, nbytes)


def read_count(file: RawFile, at: int, name: str, size: int) -> int:
    """The u32 at `at`, if the file holds that many elements of `size` bytes behind it. Raises MalformedFile."""
    (n,) = COUNT.unpack(cut(file, at, COUNT.size, f"count of {name}"))
    left = file.size - at - COUNT.size
    if n * size > left:
        raise MalformedFile(
            f"{file.path}: {name}: the count at byte {at} claims {n} points, {n * size} bytes, but the file ends after "
            f"{left}: file is cut or the count is wrong"
        )
    return int(n)


@dataclass(frozen=True)
class PointList:
    """A list of n points of an open file, its count checked. begin, end: where its points lie."""

    file: RawFile
    name: str
    curve: str
    group: str
    begin: int
    n: int

    @classmethod
    def at(cls, file: RawFile, at: int, name: str, curve: str, group: str) -> PointList:
        """The list whose count stands at byte `at`. Raises MalformedFile."""
        n = read_count(file, at, name, point_bytes(curve, group))
        return cls(file, name, curve, group, at + COUNT.size, n)

    @property
    def end(self) -> int:
        return self.begin + self.n * point_bytes(self.curve, self.group)

    def read(self, first: int, n: int) -> U64:
        """Points [first, first + n). MalformedFile for a flag out of place, a coordinate not below q, infinity."""
        size = point_bytes(self.curve, self.group)
        out = empty(self.curve, self.group, n)
        bad = readers.decode_points(
            self.curve, self.group, self.file.read(self.begin + first * size, n * size), out
        )
        if bad is not None:
            raise self._malformed(first + bad[0], bad[1])
        if (i := first_true(infinite(out))) >= 0:
            raise self._malformed(first + i, AT_INFINITY)
        return out

    def read_places(self, first: int, n: int) -> U64:
        """As `read`, but infinity is allowed, all zero in what is returned. In the file it is its flag, or, as snarkjs
        writes it, zeros.
        """
        size = point_bytes(self.curve, self.group)
        raw = np.frombuffer(self.file.read(self.begin + first * size, n * size), np.uint8).reshape(n, size)
        blank: NDArray[np.bool_] = raw[:, -1] == 0  # a byte of each, and the others only where that is zero
        blank[blank] = (raw[blank, 0] & ~np.uint8(INFINITY) == 0) & ~raw[blank, 1:].any(axis=1)
        found = empty(self.curve, self.group, n - int(np.count_nonzero(blank)))
        bad = readers.decode_points(self.curve, self.group, np.ascontiguousarray(raw[~blank]), found)
        if bad is not None:
            raise self._malformed(first + int(np.flatnonzero(~blank)[bad[0]]), bad[1])
        out = empty(self.curve, self.group, n)
        out[blank] = 0
        out[~blank] = found
        return out

    def load(self) -> U64:
        """All of them, block by block: a file may be long and hold nothing."""
        starts = range(0, self.n, BLOCK_POINTS)
        blocks = [self.read(first, min(BLOCK_POINTS, self.n - first)) for first in starts]
        return np.concatenate([empty(self.curve, self.group, 0), *blocks])

    def _malformed(self, index: int, problem: str) -> MalformedFile:
        return MalformedFile(f"{self.file.path}: {self.name}: point {index} of {self.n}: {problem}")


def single(raw: memoryview, curve: str, group: str) -> U64 | str:
    """A point that must be finite and on its curve, or what is wrong with it."""
    out = empty(curve, group, 1)
    bad = readers.decode_points(curve, group, raw, out)
    if bad is not None:
        return bad[1]
    if not out.any():
        return AT_INFINITY
    point = out[0]
    if group == "g1":
        problem = affine.g1_problem(curve, affine.g1_from_array(curve, point))
    else:
        problem = affine.g2_problem(curve, affine.g2_from_array(curve, point))
    return problem or point


def first_true(mask: NDArray[np.bool_]) -> int:
    """Index of the first True, or -1."""
    return int(np.argmax(mask)) if mask.any() else -1


def infinite(points: U64) -> NDArray[np.bool_]:
    """For each point: is it infinity? One word of each is read, and the others only where that is zero."""
    flat = points.reshape(len(points), prod(points.shape[1:]))
    zero: NDArray[np.bool_] = flat[:, 0] == 0
    zero[zero] = ~flat[zero].any(axis=1)
    return zero
