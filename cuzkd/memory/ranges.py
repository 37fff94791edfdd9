"""Which bytes of which slab are free, and which of those are dirty: best fit over page-aligned ranges, coalesced as
they come back.

Pure bookkeeping, no memory is touched here and no lock taken; the pool calls it under its own.

What is free and whose data may lie there are two lists: free ranges are joined with their neighbours whoever had them,
while each dirty range (`Arena.dirt`, all of them inside free ones) remembers its owner. That is what decides whether a
new owner must wipe, and what there is to wipe when nobody wants anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from cuzkd.memory.budget import Reserved
from cuzkd.memory.upstream import Slab, round_to_pages

CLEAN = "\0clean"  # never leased since it was made or wiped
MIXED = "\0mixed"  # of several owners


@dataclass(eq=False)
class Arena:
    """One slab, the reservation that pays for it, its free ranges (offset -> bytes), and the dirty ones of these
    (offset -> bytes, owner).
    """

    slab: Slab
    reservation: Reserved
    free: dict[int, int] = field(default_factory=dict)
    dirt: dict[int, tuple[int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free[0] = self.slab.nbytes

    @property
    def free_bytes(self) -> int:
        return sum(self.free.values())

    @property
    def dirty_bytes(self) -> int:
        return sum(nbytes for nbytes, _ in self.dirt.values())

    @property
    def idle(self) -> bool:
        """Nothing of it is leased or quarantined."""
        return self.free_bytes == self.slab.nbytes

    @property
    def nbytes(self) -> int:
        return self.slab.nbytes

    def close(self) -> None:
        """Its memory, and then what paid for it, go back."""
        try:
            self.slab.close()
        finally:
            self.reservation.release()


@dataclass(frozen=True)
class Range:
    """A part of an arena that is not free, whole pages. `before` is the owner whose data may be in it."""

    arena: Arena
    offset: int
    nbytes: int
    before: str


def carve(arenas: list[Arena], nbytes: int) -> Range | None:
    """Take the smallest free range that holds nbytes (rounded up to pages); among equals the lowest. None:
    no such.
    """
    size = round_to_pages(max(nbytes, 1))
    best: tuple[int, int, Arena] | None = None
    for arena in arenas:
        for offset, room in arena.free.items():
            if room >= size and (best is None or (room, offset) < best[:2]):
                best = (room, offset, arena)
    return None if best is None else _take(best[2], best[1], best[1], size)


def carve_dirty(arenas: list[Arena], most: int) -> Range | None:
    """Take a dirty range, or the first `most` bytes of it (whole pages). None: everything that is free is clean."""
    for arena in arenas:
        for offset, (nbytes, _) in arena.dirt.items():
            start = next(at for at, room in arena.free.items() if at <= offset < at + room)
            return _take(arena, start, offset, min(nbytes, most))
    return None


def give_back(taken: Range, owner: str) -> None:
    """Return a range, now holding data of `owner` (or CLEAN), and join it with its free neighbours."""
    free, dirt = taken.arena.free, taken.arena.dirt
    offset, nbytes = taken.offset, taken.nbytes
    nbytes += free.pop(offset + nbytes, 0)
    for start, room in free.items():
        if start + room == offset:
            del free[start]
            offset, nbytes = start, nbytes + room
            break
    free[offset] = nbytes
    if owner == CLEAN:
        return
    offset, nbytes = taken.offset, taken.nbytes
    after = dirt.get(offset + nbytes)
    if after is not None and after[1] == owner:
        del dirt[offset + nbytes]
        nbytes += after[0]
    for start, (room, theirs) in dirt.items():
        if start + room == offset and theirs == owner:
            del dirt[start]
            offset, nbytes = start, nbytes + room
            break
    dirt[offset] = nbytes, owner


def idle_one(arenas: list[Arena], nbytes: int) -> Arena | None:
    """An arena that is idle: the smallest of nbytes and more, else the largest."""
    idle = [arena for arena in arenas if arena.idle]
    enough = [arena for arena in idle if arena.nbytes >= nbytes]
    size = attrgetter("nbytes")
    return min(enough, key=size) if enough else max(idle, key=size, default=None)


def _take(arena: Arena, start: int, offset: int, nbytes: int) -> Range:
    """[offset, offset + nbytes) of the free range that begins at start."""
    room = arena.free.pop(start)
    if offset > start:
        arena.free[start] = offset - start
    if rest := start + room - offset - nbytes:
        arena.free[offset + nbytes] = rest
    owners = set(_cut(arena.dirt, offset, offset + nbytes))
    before = owners.pop() if len(owners) == 1 else MIXED if owners else CLEAN
    return Range(arena, offset, nbytes, before)


def _cut(dirt: dict[int, tuple[int, str]], begin: int, end: int) -> Iterator[str]:
    """Take [begin, end) out of the dirty ranges; whose they were."""
    for start, (nbytes, owner) in list(dirt.items()):
        stop = start + nbytes
        if start < end and stop > begin:
            del dirt[start]
            if start < begin:
                dirt[start] = begin - start, owner
            if stop > end:
                dirt[end] = stop - end, owner
            yield owner
