"""Vectors in ordinary memory, by a producer that does not know how long they will be: the way that ours replaced.

Memory comes as a plain vector gets it: mapped when it is asked for, its pages made as they are written, unmapped
when it is given back. Rows are appended until a vector runs over its lease; then it moves to one of at least twice the
size, with a copy (memory/vec.py). With hints the producer remembers how long a circuit's vectors turned out, and leases
just that the next time.

Life: Growth() -> partial(OrdinarySynthesis, growth) in the place of the daemon's Synthesis, over a pool of
OrdinaryPages -> growth.moves tells how often vectors ran over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cuzkd.engine.prover.partition import Partition
from cuzkd.engine.prover.synthesis import FR_BYTES, Synthesis
from cuzkd.memory.hints import CapacityHints
from cuzkd.memory.lease import Lease
from cuzkd.memory.upstream import Slab, map_pages
from cuzkd.memory.vec import PinnedVec

START_ROWS = 1 << 12
EVERYTHING = 1 << 62


class OrdinaryPages:
    """An upstream: private pages, neither touched nor asked to be huge nor locked."""

    name = "ordinary pages"

    def make(self, nbytes: int) -> Slab:
        return map_pages(nbytes)[1]


@dataclass
class Growth:
    """hints: rows that a circuit's vectors needed; None: nothing is learned. moves: how often one ran over, so far."""

    hints: CapacityHints | None = None
    moves: int = 0


class OrdinarySynthesis(Synthesis):
    """See the module docstring."""

    def __init__(self, growth: Growth, *parts: Any) -> None:
        """parts: what Synthesis takes; its pool is one of OrdinaryPages."""
        super().__init__(*parts)
        self._growth = growth

    def run(self, partition: Partition) -> None:
        super().run(partition)
        a = partition.made.a
        if self._growth.hints is not None and a is not None:
            self._growth.hints.learn(partition.digest, len(a))

    def lease(self, partition: Partition, sizes: Sequence[int]) -> None:
        """z has a length that its file tells; the others begin with the rows learned, or a few."""
        known = None if self._growth.hints is None else self._growth.hints.get(partition.digest)
        rows = START_ROWS if known is None else known
        self._give_back()
        super().lease(partition, [sizes[0], *[rows * FR_BYTES] * len(sizes[1:])])

    def vec(self, partition: Partition, number: int, rows: int) -> PinnedVec:
        """`rows` is what the producer does not know."""

        def larger(nbytes: int) -> Lease:
            self._growth.moves += 1
            self._give_back()
            lease = partition.leases[number] = self._pool.lease(nbytes, owner=partition.digest)
            return lease

        lease = partition.leases[number]
        return PinnedVec(lease, capacity_rows=lease.nbytes // FR_BYTES, larger=larger)

    def _give_back(self) -> None:
        """What lies idle in the pool goes back to the operating system: ordinary memory is not kept."""
        self._pool.trim(EVERYTHING)
