"""PinnedVec: rows appended block by block, straight into leased memory.

A producer asks for the next k rows and writes into them; there is no staging copy and no growing
reallocation. Its capacity was leased exactly, so running over it is a mistake of the producer and refused.

Life: made over a lease -> extend, extend, ... -> finish (the array of what was written; the vec holds
nothing more).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cuzkd.errors import LeaseRevoked
from cuzkd.memory.lease import Lease


class PinnedVec:
    def __init__(
        self,
        lease: Lease,
        row_shape: tuple[int, ...] = (4,),
        dtype: DTypeLike = np.uint64,
        *,
        capacity_rows: int,
    ) -> None:
        """capacity_rows rows of row_shape and dtype must fit into the lease."""
        self.capacity_rows = capacity_rows
        self.rows = 0
        self._array: NDArray[Any] | None = lease.array(dtype, (capacity_rows, *row_shape))

    def extend(self, k: int) -> NDArray[Any]:
        """The next k rows, to be written by the caller: [k, *row_shape], whatever was in memory before."""
        if self.rows + k > self.capacity_rows or k < 0:
            raise ValueError(f"{k} rows asked after {self.rows} of {self.capacity_rows}")
        block = self._whole()[self.rows : self.rows + k]
        self.rows += k
        return block

    def finish(self) -> NDArray[Any]:
        """The rows so far. The vec lets go of its memory: the lease can end once this array is dropped."""
        done = self._whole()[: self.rows]
        self._array = None
        return done

    def _whole(self) -> NDArray[Any]:
        if self._array is None:
            raise LeaseRevoked("this vector was finished")
        return self._array
