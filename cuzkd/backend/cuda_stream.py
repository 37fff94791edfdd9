"""Points of a key that does not fit the device: they pass through it chunk by chunk, beside the sums.

Problem: the points of a key for 2^27 constraints are 75 GB, those of smaller cards 24; what a proof works on besides is
21. The bus brings 50 GB in a second, and the sums over them take longer.
Design: a sum over chunks is the sum of their sums. So the scalars of the quotient, and those of the witness, are cut
into chunks of as many as have their points in one of three buffers (`Conveyor`), and each chunk is a multi-scalar sum
like any other, over a slice of the scalars (cuda_msm.py knows nothing of it). While one is summed, the next crosses,
and the one after it waits for the buffer of the one before. Queries that do fit lie in device memory, and are walked
in the same chunks where they share the witness with others.
On the smallest cards the witness itself waits in host memory until the quotient has left room for it (`Parking`).
Life of the data: page-locked arrays of the key (cuda_key.py) -> buffer -> sums of its chunk, which the host adds up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from cuzkd.backend.cuda_device import Buffer, Lane
from cuzkd.backend.protocol import U64, KeyShape
from cuzkd.errors import Exhausted

SLOTS = 3
ALIGNED = 256  # bytes; where a query's points begin in a buffer
OVER_H = ("h_g1",)
OVER_Z = ("b_g2", "b_g1", "a_g1", "l_g1")  # the longest to combine first: that hides behind the others


@dataclass(frozen=True)
class Piece:
    """Points first .. first + count of a query; scalar i of the chunk goes with the (i - skip)th of them."""

    query: str
    first: int
    count: int
    skip: int


@dataclass(frozen=True)
class Chunk:
    """Scalars begin .. begin + count of the quotient or the witness, and the points that go with them."""

    over_h: bool
    begin: int
    count: int
    pieces: tuple[Piece, ...]


def point_bytes(shape: KeyShape, query: str) -> int:
    return 8 * prod(shape.shape_of(query)[1:])


def chunks(shape: KeyShape, streamed: Sequence[str], slot_bytes: int) -> Iterator[Chunk]:
    """All of a proof: over the quotient, then over the witness. A chunk's points of streamed queries fit slot_bytes."""
    for over_h, queries, total in ((True, OVER_H, shape.domain), (False, OVER_Z, shape.n_wires)):
        passing = [point_bytes(shape, query) for query in queries if query in streamed]
        room = slot_bytes - ALIGNED * len(passing)
        most = max(1, room // sum(passing)) if passing else total
        for begin in range(0, total, most):
            end = min(begin + most, total)
            pieces = (_piece(shape, query, begin, end) for query in queries)
            yield Chunk(over_h, begin, end - begin, tuple(piece for piece in pieces if piece.count))


def _piece(shape: KeyShape, query: str, begin: int, end: int) -> Piece:
    before = shape.n_public + 1 if query == "l_g1" else 0  # scalars without a point
    first = max(begin - before, 0)
    return Piece(query, first, max(end - before - first, 0), max(before - begin, 0))


class Parking:
    """Page-locked host memory in which one witness waits, where the device has no room for it before the quotient is
    made.

    array: uint64[n_wires, 4].
    """

    def __init__(self, array: U64) -> None:
        self.array = array
        self._free = threading.Lock()

    def park(self, z: U64) -> Parked:
        """A copy of z; Exhausted while another one is there."""
        if not self._free.acquire(blocking=False):
            raise Exhausted(
                "the device has room for one upload at a time, and another has not been proved yet"
            )
        self.array[...] = z
        return Parked(self.array, self._free.release)


class Parked:
    """A witness in its Parking; gives that back with its last reference."""

    def __init__(self, array: U64, leave: Callable[[], None]) -> None:
        self.array = array
        self._leave = leave

    def __del__(self) -> None:
        self._leave()


class Conveyor:
    """Buffers that points pass through, in turn.

    slots: SLOTS of them, for work on the compute lane; whatever worked there before is enqueued.
    """

    def __init__(self, keys: Lane, compute: Lane, slots: Sequence[Buffer]) -> None:
        self._keys, self._compute, self._slots = keys, compute, slots
        self._free: list[Any] = [compute.event()] * len(slots)
        self._turn = 0

    def bring(self, arrays: Mapping[str, U64]) -> tuple[dict[str, Buffer], int, Any]:
        """Enqueue copies of these into the next buffer: where each will be, the buffer's number, and the event that all
        are there.
        """
        number = self._turn % len(self._slots)
        self._turn += 1
        self._keys.wait(self._free[number])
        at, there = 0, {}
        for name, array in arrays.items():
            there[name] = self._slots[number].slice(at, array.nbytes)
            self._keys.copy_in(there[name].address, array)
            at += -(-array.nbytes // ALIGNED) * ALIGNED
        return there, number, self._keys.event()

    def release(self, number: int) -> None:
        """What is enqueued on the compute lane by now is all that works in this buffer."""
        self._free[number] = self._compute.event()
