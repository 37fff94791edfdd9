"""Which bytes of which slab are free: best fit over page-aligned ranges, coalesced as they come back.

Pure bookkeeping, no memory is touched here and no lock taken; the pool calls it under its own.

Each free range remembers whose data may still be in it: CLEAN (never leased since it was made or wiped),
one owner, or MIXED after ranges of several owners were joined. That is what decides whether a new owner
must wipe.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cuzkd.memory.budget import Reserved
from cuzkd.memory.upstream import Slab, round_to_pages

CLEAN = "\0clean"
MIXED = "\0mixed"


@dataclass(eq=False)
class Arena:
    """One slab, the reservation that pays for it, and its free ranges (offset -> (nbytes, owner))."""

    slab: Slab
    reservation: Reserved
    free: dict[int, tuple[int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free[0] = (self.slab.nbytes, CLEAN)

    @property
    def free_bytes(self) -> int:
        return sum(nbytes for nbytes, _ in self.free.values())

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
    """A leased part of an arena, whole pages. `before` is the owner whose data may be in it."""

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
        for offset, (room, _) in arena.free.items():
            if room >= size and (best is None or (room, offset) < best[:2]):
                best = (room, offset, arena)
    if best is None:
        return None
    room, offset, arena = best
    _, owner = arena.free.pop(offset)
    if room > size:
        arena.free[offset + size] = (room - size, owner)
    return Range(arena, offset, size, owner)


def give_back(taken: Range, owner: str) -> None:
    """Return a range, now holding data of `owner`, and join it with its free neighbours."""
    free = taken.arena.free
    offset, nbytes = taken.offset, taken.nbytes
    after = free.pop(offset + nbytes, None)
    if after is not None:
        nbytes += after[0]
        owner = _join(owner, after[1])
    for start, (room, theirs) in free.items():
        if start + room == offset:
            del free[start]
            offset, nbytes, owner = start, nbytes + room, _join(owner, theirs)
            break
    free[offset] = (nbytes, owner)


def _join(one: str, other: str) -> str:
    if one in (other, CLEAN):
        return other
    return one if other == CLEAN else MIXED
