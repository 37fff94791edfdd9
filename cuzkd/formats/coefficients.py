"""Section 4 of a .zkey, the coefficients, to compressed rows and back.

    u32 n | n x (u32 matrix: 0 = A, 1 = B | u32 row | u32 wire | 32 bytes value)      44 bytes an entry

A value is v * R^2 mod r, little-endian: twice Montgomery, just as `SparseMatrix.table` wants it. There is no
C. After the constraints come n_public + 1 rows that bind the public wires: row n_constraints + s of A is wire
s alone, times 1. The file says nowhere how many constraints there are; these rows tell.

Problem: millions of entries, each of them able to point outside; few distinct values, mostly +1 and -1.
Design: whole-array operations only. Indices and values are checked before anything is built from them; the
row pointer is sized by the largest row, which is below the domain, which section 9's length has borne out.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from cuzkd.backend.protocol import U32, U64, SparseMatrix
from cuzkd.curves import limbs, params
from cuzkd.errors import InvalidKey, MalformedFile

# Packed: 44 bytes, and sections start at multiples of 4, so the values are rarely aligned.
ENTRY = np.dtype([("matrix", "<u4"), ("row", "<u4"), ("wire", "<u4"), ("value", "<u8", (4,))])
COUNT_BYTES = 4
_R = 1 << 256
# Odd multipliers that spread 32 bytes over one word, to sort by words instead of by 32-byte strings (6 times
# faster for a million entries). Nothing relies on them: equal words are compared in full.
_SPREAD = np.array(
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93], dtype=np.uint64
)


def twice_montgomery(curve: str, value: int) -> U64:
    """value * R^2 mod r as four limbs."""
    limbs_of_one: U64 = limbs.to_montgomery([value * _R], params.CURVES[curve].r)[0]
    return limbs_of_one


def read(
    section: memoryview, where: str, curve: str, n_wires: int, n_public: int, domain: int
) -> tuple[SparseMatrix, SparseMatrix]:
    """A and B, each with n_constraints + n_public + 1 rows, sharing one table.

    section: all bytes of section 4. where: file and section, for messages. Raises MalformedFile for an entry
    that points outside or is not reduced, InvalidKey when the public wires are not bound as they must be.
    """
    entries = _entries(section, where)
    for name, limit, what in (("matrix", 2, "matrix"), ("row", domain, "row"), ("wire", n_wires, "wire")):
        _require_below(entries[name], limit, what, where)
    values = np.ascontiguousarray(entries["value"], dtype=np.uint64)
    table, coeff = _table(curve, values, where)

    n_rows = int(entries["row"].max()) + 1
    in_b = entries["matrix"] != 0
    a, b = (
        _compress(entries["row"][which], entries["wire"][which], coeff[which], table, n_rows, n_wires)
        for which in (~in_b, in_b)
    )
    _require_public_rows(a, b, n_public, where)
    return a, b


def write(a: SparseMatrix, b: SparseMatrix) -> bytes:
    """All bytes of section 4 for matrices whose last rows bind the public wires. Entries in order of rows, A
    first.
    """
    n = len(a.cols) + len(b.cols)
    entries = np.empty(n, dtype=ENTRY)
    at = 0
    for index, matrix in enumerate((a, b)):
        part = entries[at : at + len(matrix.cols)]
        part["matrix"] = index
        part["row"] = np.repeat(
            np.arange(matrix.n_rows, dtype=np.uint32), np.diff(matrix.row_ptr).astype(np.int64)
        )
        part["wire"] = matrix.cols
        part["value"] = matrix.table[matrix.coeff]
        at += len(part)
    in_order = np.argsort(entries["row"], kind="stable")
    return struct.pack("<I", n) + entries[in_order].tobytes()


def _entries(section: memoryview, where: str) -> NDArray[np.void]:
    if len(section) < COUNT_BYTES:
        raise MalformedFile(f"{where}: expected a count of {COUNT_BYTES} bytes, found {len(section)} bytes")
    (n,) = struct.unpack_from("<I", section)
    expected = COUNT_BYTES + n * ENTRY.itemsize
    if len(section) != expected:
        raise MalformedFile(f"{where}: expected {expected} bytes ({n} entries), found {len(section)}")
    if n == 0:
        raise InvalidKey(f"{where}: no coefficients; expected at least the rows that bind the public wires")
    return np.frombuffer(section[COUNT_BYTES:], dtype=ENTRY)


def _require_below(column: NDArray[np.uint32], limit: int, what: str, where: str) -> None:
    if int(column.max()) >= limit:
        first = int(np.argmax(column >= limit))
        raise MalformedFile(
            f"{where}: entry {first}: expected a {what} index below {limit}, found {int(column[first])}"
        )


def _distinct(values: U64) -> tuple[U64, NDArray[np.intp]]:
    """The distinct rows of values[n, 4], and for each row its index among them."""
    spread = values @ _SPREAD
    _, first, index = np.unique(spread, return_index=True, return_inverse=True)
    table = values[first]
    if not np.array_equal(table[index], values):  # two values share a word
        as_bytes = values.view("V32").reshape(-1)
        _, first, index = np.unique(as_bytes, return_index=True, return_inverse=True)
        table = values[first]
    return table, index


def _table(curve: str, values: U64, where: str) -> tuple[U64, U32]:
    """The table of SparseMatrix (+1 and -1 first), and for each entry its index in it."""
    found, index = _distinct(values)
    r = params.CURVES[curve].r
    for i, row in enumerate(_not_below(found, r)):
        if row:
            first = int(np.argmax(index == i))
            raise MalformedFile(f"{where}: entry {first}: coefficient is not below r of {curve}")
    units = np.stack([twice_montgomery(curve, 1), twice_montgomery(curve, -1)])
    place = np.full(len(found), -1, dtype=np.int64)
    for i, unit in enumerate(units):
        place[(found == unit).all(axis=1)] = i
    others = place < 0
    place[others] = 2 + np.arange(int(others.sum()))
    return np.concatenate([units, found[others]]), place[index].astype(np.uint32)


def _not_below(values: U64, modulus: int) -> NDArray[np.bool_]:
    """For each row of values[n, 4]: is the number >= modulus?"""
    at_least = np.ones(len(values), dtype=np.bool_)
    for limb in range(4):  # from the lowest: a higher limb overrules
        word = np.uint64((modulus >> (64 * limb)) & (2**64 - 1))
        at_least = (values[:, limb] > word) | ((values[:, limb] == word) & at_least)
    return at_least


def _compress(
    rows: NDArray[np.uint32], wires: NDArray[np.uint32], coeff: U32, table: U64, n_rows: int, n_wires: int
) -> SparseMatrix:
    """Group entries by row; within a row they keep their order."""
    if len(rows) and bool((rows[1:] < rows[:-1]).any()):  # writers emit them in order
        order = np.argsort(rows, kind="stable")
        rows, wires, coeff = rows[order], wires[order], coeff[order]
    row_ptr = np.zeros(n_rows + 1, dtype=np.uint64)
    row_ptr[1:] = np.cumsum(np.bincount(rows, minlength=n_rows))
    return SparseMatrix(n_wires, row_ptr, np.ascontiguousarray(wires, dtype=np.uint32), coeff, table)


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
