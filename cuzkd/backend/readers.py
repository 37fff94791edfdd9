"""The bulk of foreign files, taken apart by native code: points of bellman's files, constraints of an .r1cs,
coefficients of a .zkey.

Problem: gigabytes of points in another form, hundreds of megabytes of constraints of no fixed length, and all of it
may lie. Whole-array operations are too slow for the first and cannot express the second.
Design: `kernels/_readers`, a module of its own that trusts no byte (tests/fuzz drives its headers), with threads and
without the GIL. This file gives it arrays and turns what it finds into our errors.
Life: arrays in, arrays out; nothing is kept.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from cuzkd.backend.protocol import U64, SparseMatrix
from cuzkd.errors import MalformedFile

_native: Any = importlib.import_module("cuzkd.kernels._readers")
COEFFICIENT_BYTES = 44  # of an entry in a .zkey


def decode_points(curve: str, group: str, raw: Any, out: U64) -> tuple[int, str] | None:
    """Uncompressed points of bellman's files into out uint64[n, *point], Montgomery, infinity all zero.

    raw: a buffer of n points: coordinates big-endian and canonical, G2 as x.c1 x.c0 y.c1 y.c0, flags in the top bits of
    a point's first byte. None when all are decoded, else the index of the first bad point and what is wrong with it;
    `out` is then partly written. Whether points are on their curve is not looked at: `backend.cpu.check_points`.
    Raises ValueError for lengths that do not fit.
    """
    bad: tuple[int, str] | None = _native.decode_points(curve, group, np.frombuffer(raw, np.uint8), out)
    return bad


def encode_points(curve: str, group: str, points: U64) -> bytes:
    """The inverse of decode_points: points uint64[n, *point], Montgomery, infinity all zero."""
    encoded: bytes = _native.encode_points(curve, group, points)
    return encoded


def r1cs_matrices(
    curve: str,
    blocks: Callable[[], Iterator[memoryview]],
    size: int,
    n_wires: int,
    n_constraints: int,
    n_bound: int,
    where: str,
) -> tuple[SparseMatrix, SparseMatrix, SparseMatrix]:
    """A, B, C from section 2 of an .r1cs, with `n_bound` rows after the constraints: row n_constraints + s of A is
    wire s times 1, and those of B and C are empty.

    blocks: begins a reading of the section's `size` bytes, cut anywhere; it is called twice. Rows are in normal form:
    wires ascend, duplicates are summed, zeros are left out. Memory: 24 bytes a row, 8 a term that is not zero, 32 a
    coefficient that is distinct (thrice, with the table that finds it), and a block. where: file and section, for
    messages. Raises MalformedFile, naming constraint and matrix, before anything of a lying size is allocated.
    """
    shape = (curve, size, n_wires, n_constraints)
    with _errors(where), ThreadPoolExecutor(3) as threads:
        counter = _native.R1csCount(*shape)
        for block in blocks():
            counter.feed(np.frombuffer(block, np.uint8))
        counts = counter.finish()

        n_bounds = (n_bound, 0, 0)
        row_ptrs = [np.empty(n_constraints + n_bound + 1, np.uint64) for _ in counts]
        entries = [
            [np.empty(n + bound, np.uint32) for _ in ("wires", "coefficients")]
            for n, bound in zip(counts, n_bounds, strict=True)
        ]
        rows = [
            _native.R1csRows(
                *shape, index, row_ptrs[index][: n_constraints + 1], *(e[:n] for e in entries[index])
            )
            for index, n in enumerate(counts)
        ]
        for block in blocks():
            data = np.frombuffer(block, np.uint8)
            list(threads.map(lambda matrix, data=data: matrix.feed(data), rows))

        def finish(index: int) -> SparseMatrix:
            bound, row_ptr, (cols, coeff) = n_bounds[index], row_ptrs[index], entries[index]
            n, table = rows[index].finish()
            row_ptr[n_constraints:] = n
            row_ptr[n_constraints : n_constraints + bound + 1] += np.arange(bound + 1, dtype=np.uint64)
            cols[n : n + bound] = np.arange(bound)
            coeff[n : n + bound] = 0  # +1
            values = np.frombuffer(table, "<u8").astype(np.uint64).reshape(-1, 4)
            return SparseMatrix(n_wires, row_ptr, cols[: n + bound], coeff[: n + bound], values)

        return finish(0), finish(1), finish(2)


def zkey_matrices(
    curve: str, blocks: Callable[[], Iterator[memoryview]], n_wires: int, domain: int, where: str
) -> tuple[SparseMatrix, SparseMatrix]:
    """A and B from the entries in section 4 of a .zkey, each with as many rows as the largest row index says.

    blocks: begins a reading of all entries, whole ones in each block; it is called twice. Entries may come in any
    order; within a row they keep theirs. where: file and section, for messages. Raises MalformedFile, naming the entry,
    for an index or a coefficient out of bounds (rows: below `domain`), or when the second reading differs.
    """
    entries = _native.Coefficients(curve)
    counts = np.zeros((2, domain), np.uint64)

    def each_block(use: Callable[..., None], *arguments: Any) -> None:
        first = 0
        for block in blocks():
            use(np.frombuffer(block, np.uint8), first, n_wires, *arguments)
            first += len(block) // COEFFICIENT_BYTES

    with _errors(where):
        each_block(entries.count, counts)
        used = np.flatnonzero(counts.any(axis=0))
        n_rows = int(used[-1]) + 1 if len(used) else 0
        row_ptr = np.zeros((2, n_rows + 1), np.uint64)
        np.cumsum(counts[:, :n_rows], axis=1, out=row_ptr[:, 1:])
        del counts
        (cols_a, coeff_a), (cols_b, coeff_b) = (
            (np.empty(int(n), np.uint32), np.empty(int(n), np.uint32)) for n in row_ptr[:, -1]
        )
        following = row_ptr[:, :-1].copy()
        each_block(entries.place, following, cols_a, coeff_a, cols_b, coeff_b)
    if not np.array_equal(following, row_ptr[:, 1:]):
        raise MalformedFile(f"{where}: the file changes while it is read")
    table = np.frombuffer(entries.distinct(), "<u8").astype(np.uint64).reshape(-1, 4)
    a = SparseMatrix(n_wires, row_ptr[0], cols_a, coeff_a, table)
    return a, SparseMatrix(n_wires, row_ptr[1], cols_b, coeff_b, table)


@contextmanager
def _errors(where: str) -> Iterator[None]:
    try:
        yield
    except _native.Malformed as error:
        raise MalformedFile(f"{where}: {error}") from None
