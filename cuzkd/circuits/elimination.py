"""In which order the rows of a constraint system can be made true, each by one wire that no row after it has.

Problem: values are wanted with A z o B y + (something known) = C rho in every row, random ones where there is a
choice, for millions of rows, of which Gaussian elimination would make dense ones.
Design: a wire that occurs in a single row, in one of the three matrices, can make that row true whatever the others
are: it is the row's pivot, and the row need not be looked at any more. With the row gone, others may be alone in
theirs. So rows are taken away level by level; solved in the opposite order, a level at a time, each finds all but its
pivot known. For every wire are kept the number and the sum of the places of its entries in rows that wait: where the
number is one, the sum is the place. So all levels together cost as much as one look at every entry.
C is tried first: a pivot in C alone asks for nothing else. Rows in which no wire is ever alone are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cuzkd.backend.protocol import U64, SparseMatrix

MAX_LEVELS = 20_000  # what is deeper is left: a level takes a millisecond
SMALL = 64  # rows of a level, below which one of another matrix may be better
BLOCK = 1 << 22  # entries at a time
A, B, C = range(3)

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """Rows, and the place of each one's pivot among the entries of one matrix: A, B or C."""

    matrix: int
    rows: Indices
    pivots: Indices


class _Waiting:
    """The entries of one matrix in rows that wait."""

    def __init__(self, matrix: SparseMatrix, rows: Indices) -> None:
        self._matrix = matrix
        self._count = np.zeros(matrix.n_cols, np.uint32)
        self._place = np.zeros(matrix.n_cols, np.uint64)
        self._invertible = np.asarray(matrix.table.any(axis=1))
        for at in places(matrix, rows):
            np.add.at(self._count, matrix.cols[at], 1)
            np.add.at(self._place, matrix.cols[at], at.astype(np.uint64))
        self._touched = [np.flatnonzero(self._count == 1)]  # wires that may have come to be alone

    def level(self, given_up: NDArray[np.bool_]) -> tuple[Indices, Indices]:
        """All rows with a wire that is alone, but those given up, and the place of one such wire of each."""
        candidates = np.unique(np.concatenate(self._touched))
        alone = candidates[self._count[candidates] == 1]
        self._touched = [alone]
        pivots = self._place[alone]
        pivots = pivots[self._invertible[self._matrix.coeff[pivots]]]
        of_row = np.searchsorted(self._matrix.row_ptr, pivots, side="right") - 1
        rows, first = np.unique(of_row, return_index=True)
        hopeful = ~given_up[rows]
        return rows[hopeful], pivots[first[hopeful]].astype(np.int64)

    def take(self, rows: Indices) -> None:
        """These rows wait no more."""
        for at in places(self._matrix, rows):
            wires = self._matrix.cols[at]
            np.subtract.at(self._count, wires, 1)
            np.subtract.at(self._place, wires, at.astype(np.uint64))
            self._touched.append(wires[self._count[wires] == 1].astype(np.int64))


def order(
    matrices: Sequence[SparseMatrix],
    rows: Indices,
    multiplied: NDArray[np.bool_],
    given_up: NDArray[np.bool_],
) -> tuple[list[Level], Indices]:
    """Levels in the order of solving, and the rows that are left, whose wires are nobody's pivots.

    rows: those that are to be made true. multiplied: of all rows, those whose product is more than nothing; the others
    have pivots in C alone. given_up: of all rows, those that are to be among the rows left.
    """
    waits = np.zeros(len(multiplied), bool)
    waits[rows] = True
    waiting = [_Waiting(m, rows if n == C else rows[multiplied[rows]]) for n, m in enumerate(matrices)]
    levels: list[Level] = []
    while len(levels) < MAX_LEVELS:
        n, (found, pivots) = C, waiting[C].level(given_up)
        if len(found) < SMALL:
            tried = [(n, (found, pivots)), *((n, waiting[n].level(given_up)) for n in (A, B))]
            n, (found, pivots) = max(tried, key=lambda of: len(of[1][0]))
        if len(found) == 0:
            break
        levels.append(Level(n, found, pivots))
        waits[found] = False
        for of, entries in enumerate(waiting):
            entries.take(found if of == C else found[multiplied[found]])
    return levels[::-1], np.flatnonzero(waits)


def wires_of(matrix: SparseMatrix, rows: Indices) -> Indices:
    """The wires that have an entry in some rows."""
    found = np.zeros(matrix.n_cols, bool)
    for at in places(matrix, rows):
        found[matrix.cols[at]] = True
    return np.flatnonzero(found)


def places(matrix: SparseMatrix, rows: Indices) -> Iterator[Indices]:
    """Where the entries of some rows are, block by block."""
    ends = np.cumsum(matrix.row_ptr[rows + 1] - matrix.row_ptr[rows]).astype(np.int64)
    for block in np.split(rows, np.flatnonzero(np.diff(ends // BLOCK)) + 1):
        yield _places(matrix, block)


def _places(matrix: SparseMatrix, rows: Indices) -> Indices:
    begins = matrix.row_ptr[rows].astype(np.int64)
    lengths = matrix.row_ptr[rows + 1].astype(np.int64) - begins
    ends = np.cumsum(lengths)
    return np.repeat(begins - (ends - lengths), lengths) + np.arange(lengths.sum())


def picked(matrix: SparseMatrix, rows: Indices) -> SparseMatrix:
    """Some rows as a matrix of their own."""
    at = _places(matrix, rows)
    row_ptr: U64 = np.zeros(len(rows) + 1, np.uint64)
    row_ptr[1:] = np.cumsum(matrix.row_ptr[rows + 1] - matrix.row_ptr[rows])
    return SparseMatrix(matrix.n_cols, row_ptr, matrix.cols[at], matrix.coeff[at], matrix.table)
