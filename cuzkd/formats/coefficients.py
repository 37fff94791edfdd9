"""Section 4 of a .zkey, the coefficients, to compressed rows and back.

    u32 n | n x (u32 matrix: 0 = A, 1 = B | u32 row | u32 wire | 32 bytes value)      44 bytes an entry

A value is v * R^2 mod r, little-endian: twice Montgomery, just as `SparseMatrix.table` wants it. There is no
C. After the constraints come n_public + 1 rows that bind the public wires: row n_constraints + s of A is wire
s alone, times 1. The file says nowhere how many constraints there are; these rows tell.

Problem: millions of entries, each of them able to point outside; few distinct values, mostly +1 and -1.
Design: entries pass in blocks, twice, through native code, which checks and counts them, then puts them in place; the
counts of rows are sized by the domain, which section 9's length has borne out. Written by blocks of rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np

from cuzkd.backend import readers
from cuzkd.backend.protocol import U64, SparseMatrix
from cuzkd.curves import limbs, params
from cuzkd.errors import InvalidKey, MalformedFile

ENTRY = np.dtype([("matrix", "<u4"), ("row", "<u4"), ("wire", "<u4"), ("value", "<u8", (4,))])
COUNT_BYTES = 4
ENTRIES_AT_ONCE = 1 << 18
_ROWS_AT_ONCE = 1 << 16
_R = 1 << 256

Part = Callable[[int, int], memoryview]  # (begin, nbytes) -> those bytes of the section


def twice_montgomery(curve: str, value: int) -> U64:
    """value * R^2 mod r as four limbs."""
    limbs_of_one: U64 = limbs.to_montgomery([value * _R], params.CURVES[curve].r)[0]
    return limbs_of_one


def read(
    part: Part, nbytes: int, where: str, curve: str, n_wires: int, n_public: int, domain: int
) -> tuple[SparseMatrix, SparseMatrix]:
    """A and B, each with n_constraints + n_public + 1 rows, sharing one table.

    part, nbytes: section 4, read piece by piece, and its length. where: file and section, for messages. Raises
    MalformedFile for an entry that points outside or is not reduced, InvalidKey when the public wires are not bound
    as they must be.
    """
    n = _count(part, nbytes, where)

    def blocks() -> Iterator[memoryview]:
        for begin in range(0, n, ENTRIES_AT_ONCE):
            size = min(ENTRIES_AT_ONCE, n - begin) * ENTRY.itemsize
            yield part(COUNT_BYTES + begin * ENTRY.itemsize, size)

    a, b = readers.zkey_matrices(curve, blocks, n_wires, domain, where)
    _require_public_rows(a, b, n_public, where)
    return a, b


def write(a: SparseMatrix, b: SparseMatrix) -> Iterator[bytes]:
    """Section 4 in pieces, for matrices whose last rows bind the public wires. Entries in order of rows, A first."""
    yield struct.pack("<I", len(a.cols) + len(b.cols))
    for begin in range(0, a.n_rows, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, a.n_rows)
        parts = [_entries(index, matrix, begin, end) for index, matrix in enumerate((a, b))]
        entries = np.concatenate(parts)
        yield entries[np.argsort(entries["row"], kind="stable")].tobytes()


def _entries(
    index: int, matrix: SparseMatrix, begin: int, end: int
) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """The entries of some rows of A (index 0) or B (1)."""
    pointer = matrix.row_ptr[begin : end + 1].astype(np.int64)
    used = slice(pointer[0], pointer[-1])
    entries = np.empty(used.stop - used.start, dtype=ENTRY)
    entries["matrix"] = index
    entries["row"] = np.repeat(np.arange(begin, end, dtype=np.uint32), np.diff(pointer))
    entries["wire"] = matrix.cols[used]
    entries["value"] = matrix.table[matrix.coeff[used]]
    return entries


def _count(part: Part, nbytes: int, where: str) -> int:
    """The number of entries, which the section's length bears out."""
    if nbytes < COUNT_BYTES:
        raise MalformedFile(f"{where}: expected a count of {COUNT_BYTES} bytes, found {nbytes} bytes")
    n = int.from_bytes(part(0, COUNT_BYTES), "little")
    expected = COUNT_BYTES + n * ENTRY.itemsize
    if nbytes != expected:
        raise MalformedFile(f"{where}: expected {expected} bytes ({n} entries), found {nbytes}")
    if n == 0:
        raise InvalidKey(f"{where}: no coefficients; expected at least the rows that bind the public wires")
    return n


def _require_public_rows(a: SparseMatrix, b: SparseMatrix, n_public: int, where: str) -> None:
    n_bound = n_public + 1
    n_constraints = a.n_rows - n_bound
    if n_constraints < 0:
        raise InvalidKey(
            f"{where}: expected at least {n_bound} rows ({n_public} public values), found {a.n_rows}"
        )
    begin = int(a.row_ptr[n_constraints])
    bound = (
        np.array_equal(a.row_ptr[n_constraints:], begin + np.arange(n_bound + 1, dtype=np.uint64))
        and np.array_equal(a.cols[begin:], np.arange(n_bound, dtype=np.uint32))
        and not a.coeff[begin:].any()
        and int(b.row_ptr[n_constraints]) == len(b.cols)
    )
    if not bound:
        raise InvalidKey(
            f"{where}: the last {n_bound} rows do not bind the constant and the {n_public} public wires: "
            f"expected row {n_constraints} + s of A to be wire s times 1, and those rows of B to be empty"
        )
