"""PinnedVec: rows appended block by block, straight into leased memory.

A producer asks for the next k rows and writes into them; there is no staging copy. One that knows its length
leases exactly: the vec never moves, and running over it is a mistake, refused. One that does not know starts
from a guess and says where a larger lease comes from: then the vec moves there, to at least twice the room,
with one copy of what was written, and counts it. What the producer learned it keeps (hints.py), and does not
guess again.

Life: made over a lease -> extend, extend, ... [-> a larger lease, the old one ended] -> finish (the array of
what was written; the vec holds nothing more).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cuzkd.errors import LeaseRevoked
from cuzkd.memory.lease import Lease


class PinnedVec:
    """capacity_rows: rows that there is room for. rows: written so far. moves: times that it ran over."""

    def __init__(
        self,
        lease: Lease,
        row_shape: tuple[int, ...] = (4,),
        dtype: DTypeLike = np.uint64,
        *,
        capacity_rows: int,
        larger: Callable[[int], Lease] | None = None,
    ) -> None:
        """capacity_rows rows of row_shape and dtype must fit into the lease.

        larger(nbytes): another lease of so many bytes, which is the caller's from then on; the vec ends the one that
        it leaves. None: the capacity is all there is.
        """
        self.capacity_rows = capacity_rows
        self.rows = 0
        self.moves = 0
        self._lease = lease
        self._row_shape, self._dtype = row_shape, np.dtype(dtype)
        self._larger = larger
        self._array: NDArray[Any] | None = self._over(lease, capacity_rows)

    def extend(self, k: int) -> NDArray[Any]:
        """The next k rows, to be written by the caller: [k, *row_shape], whatever was in memory before.

        Where the vec may move, blocks handed out before must be dropped by then: LeaseRevoked if one is not.
        """
        needed = self.rows + k
        if k < 0 or (needed > self.capacity_rows and self._larger is None):
            raise ValueError(f"{k} rows asked after {self.rows} of {self.capacity_rows}")
        if needed > self.capacity_rows and self._larger is not None:
            self._move(self._larger, max(needed, 2 * self.capacity_rows))
        block = self._whole()[self.rows : needed]
        self.rows = needed
        return block

    def finish(self) -> NDArray[Any]:
        """The rows so far. The vec lets go of its memory: the lease can end once this array is dropped."""
        done = self._whole()[: self.rows]
        self._array = None
        return done

    def _move(self, larger: Callable[[int], Lease], capacity_rows: int) -> None:
        lease = larger(capacity_rows * self._dtype.itemsize * int(np.prod(self._row_shape)))
        array = self._over(lease, capacity_rows)
        array[: self.rows] = self._whole()[: self.rows]
        self._array = array
        left, self._lease = self._lease, lease
        self.capacity_rows = capacity_rows
        self.moves += 1
        left.release()

    def _over(self, lease: Lease, rows: int) -> NDArray[Any]:
        return lease.array(self._dtype, (rows, *self._row_shape))

    def _whole(self) -> NDArray[Any]:
        if self._array is None:
            raise LeaseRevoked("this vector was finished")
        return self._array
