"""Constraint matrices in device memory, and their products with a witness that is there already.

Problem: a and b are 8.6 GB at 2^27 rows, the witness that they follow from is 4.
Design: the matrices stay beside the key, compressed by row as in backend.protocol.SparseMatrix, and one kernel
writes A z and B z where the transforms want them. Indices are checked on the host once: a kernel would read
beyond its arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuzkd import errors
from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Buffer, Lane, blocks
from cuzkd.backend.protocol import SparseMatrix

Put = Callable[[Sequence[np.ndarray[Any, Any]]], list[Buffer]]


@dataclass(frozen=True)
class DeviceMatrix:
    """A SparseMatrix on the device. parts: row_ptr, cols, coeff, table."""

    curve: str
    n_rows: int
    n_cols: int
    parts: tuple[Buffer, ...]

    @classmethod
    def of(cls, curve: str, matrix: SparseMatrix, put: Put) -> DeviceMatrix:
        """put: how its arrays get there. InvalidKey when an index is out of bounds."""
        require_sound(matrix)
        parts = put([matrix.row_ptr, matrix.cols, matrix.coeff, matrix.table])
        return cls(curve, matrix.n_rows, matrix.n_cols, tuple(parts))

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def multiply(self, lane: Lane, z: Buffer, out: int) -> None:
        """matrix . z to the device address `out`: z CANONICAL [n_cols, 4] -> Montgomery [n_rows, 4]."""
        module = nvrtc.Module("rows", self.curve)
        ends = (np.uint64(out), np.uint64(self.n_rows))
        lane.launch(module, "sparse_rows", blocks(self.n_rows, 128), 128, *self.parts, z, *ends)


def require_rows(matrix: SparseMatrix) -> None:
    """InvalidKey where the rows do not fit the entries."""
    rows = matrix.row_ptr
    counts = rows[0] == 0 and rows[-1] == len(matrix.cols) == len(matrix.coeff)
    if not counts or (rows[1:] < rows[:-1]).any():
        raise errors.InvalidKey(
            f"matrix of {matrix.n_rows} rows and {matrix.n_cols} columns: its rows do not fit its entries"
        )


def require_sound(matrix: SparseMatrix) -> None:
    """InvalidKey where the rows do not fit the entries, or an index is out of bounds."""
    require_rows(matrix)
    rows = matrix.row_ptr
    wrong = np.flatnonzero((matrix.cols >= matrix.n_cols) | (matrix.coeff >= len(matrix.table)))
    if len(wrong):
        row = int(np.searchsorted(rows, wrong[0], side="right")) - 1
        raise errors.InvalidKey(f"matrix row {row}: an index of entry {wrong[0]} is out of bounds")
