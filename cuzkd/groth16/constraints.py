"""A rank-1 constraint system as three sparse matrices: (A z) o (B z) = C z.

z is the witness: wire 0 is the constant 1, wires 1 .. n_public are public, the rest private. After the circuit's
own constraints come n_public + 1 rows that bind the public wires, as circom's and bellman's provers append them: row
n_constraints + s of A is wire s times 1, and B and C are empty there.

Problem: coefficients repeat (a million entries, often a dozen values), and most are +1 or -1.
Design: `SparseMatrix` keeps each distinct value once. C is None where a key file carries none (.zkey): then only the
verification of the finished proof can tell a bad witness.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cuzkd.backend.protocol import SparseMatrix
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput, InvalidKey

Row = Mapping[int, int]  # wire -> coefficient, any integer


@dataclass(frozen=True)
class Constraints:
    """a, b, c: matrices of n_rows rows over n_wires wires, the rows that bind the public wires included.

    Raises InvalidKey when made from matrices of different shapes. Entries are not looked at: readers check indices at
    their border, and the native product checks them again.
    """

    curve: str
    n_public: int
    a: SparseMatrix
    b: SparseMatrix
    c: SparseMatrix | None

    def __post_init__(self) -> None:
        if self.curve not in CURVES:
            raise InvalidKey(f"curve: expected one of {', '.join(CURVES)}, got '{self.curve}'")
        expected = (self.a.n_rows, self.a.n_cols)
        for name, matrix in (("B", self.b), ("C", self.c)):
            if matrix is not None and (matrix.n_rows, matrix.n_cols) != expected:
                shape = (matrix.n_rows, matrix.n_cols)
                raise InvalidKey(f"matrix {name}: expected {expected} rows and wires as in A, got {shape}")
        if not 0 <= self.n_public < self.n_wires:
            raise InvalidKey(
                f"n_public: expected 0 <= n_public < n_wires = {self.n_wires}, got {self.n_public}"
            )
        if self.n_constraints < 0:
            raise InvalidKey(f"matrix A: expected at least {self.n_public + 1} rows, got {self.n_rows}")

    @property
    def n_wires(self) -> int:
        return self.a.n_cols

    @property
    def n_rows(self) -> int:
        return self.a.n_rows

    @property
    def n_constraints(self) -> int:
        """The circuit's own, without the rows that bind the public wires."""
        return self.n_rows - self.n_public - 1

    def log_domain(self, reduction: str) -> int:
        """Of new keys: the least 2^k rows that hold n_rows, but never 1 for circom.

        circom's own rule is 2^(floor(log2(n_constraints + n_public)) + 1), and log2(0) is 0 there.
        """
        return max((self.n_rows - 1).bit_length(), 1 if reduction == "circom" else 0)

    def digest(self) -> str:
        """Hex blake2b-256 of everything above: equal digests, equal systems as they are stored."""
        h = hashlib.blake2b(digest_size=32)
        h.update(f"{self.curve} {self.n_public} {self.n_wires} {self.n_rows}".encode())
        for matrix in (self.a, self.b, self.c):
            for array in () if matrix is None else (matrix.row_ptr, matrix.cols, matrix.coeff, matrix.table):
                h.update(len(array).to_bytes(8, "little"))
                h.update(np.ascontiguousarray(array).data)
        return h.hexdigest()


def from_rows(
    curve: str, n_wires: int, n_public: int, a: Sequence[Row], b: Sequence[Row], c: Sequence[Row]
) -> Constraints:
    """Build from one mapping per constraint and matrix; adds the rows that bind the public wires.

    Raises InvalidInput for a wire that does not exist or rows that do not pair up.
    """
    if not len(a) == len(b) == len(c):
        raise InvalidInput(f"rows: A has {len(a)}, B {len(b)}, C {len(c)}; expected as many of each")
    if not 0 <= n_public < n_wires:
        raise InvalidInput(f"n_public: expected 0 <= n_public < n_wires = {n_wires}, got {n_public}")
    binding: list[Row] = [{wire: 1} for wire in range(n_public + 1)]
    empty: list[Row] = [{}] * (n_public + 1)
    matrices = (
        _matrix(curve, name, n_wires, rows)
        for name, rows in (("A", [*a, *binding]), ("B", [*b, *empty]), ("C", [*c, *empty]))
    )
    return Constraints(curve, n_public, *matrices)


def _matrix(curve: str, name: str, n_wires: int, rows: Sequence[Row]) -> SparseMatrix:
    r = CURVES[curve].r
    index = {1: 0, r - 1: 1}
    row_ptr, cols, coeff = [0], [], []
    for number, row in enumerate(rows):
        for wire, value in row.items():
            if not 0 <= wire < n_wires:
                raise InvalidInput(f"{name}: row {number}: expected a wire below {n_wires}, got {wire}")
            if value % r:
                cols.append(wire)
                coeff.append(index.setdefault(value % r, len(index)))
        row_ptr.append(len(cols))
    table = b"".join(((value << 512) % r).to_bytes(32, "little") for value in index)
    return SparseMatrix(
        n_wires,
        np.array(row_ptr, np.uint64),
        np.array(cols, np.uint32),
        np.array(coeff, np.uint32),
        np.frombuffer(table, "<u8").astype(np.uint64).reshape(-1, 4),
    )
