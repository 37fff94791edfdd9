"""Do the points A, B and H of a key belong to these constraint matrices? A test without a witness and without C.

Problem: a key of another circuit with the same counts, H made with other roots of unity, or a mixed-up file has all
its points on the curve and makes proofs that never verify; every witness is then blamed for it.

Design: take scalars z for wires of A and one wire t of B such that no row has both t in B and a wire of z in A.
Then a = A z and b = B e_t have a o b = 0 in every row, so C has no part in it, whatever it is, and the polynomials
satisfy u v = h Z. With h as a prover makes it, and the points of the key,

    e(sum z_i A_i, B2_t) = e(sum h_j H_j, delta_2)

holds for a key of these matrices, and, z being random, for hardly any other: it takes all wires of z, their points,
the matrix, the roots and all of H to be right. Almost every wire of A may have a part when t occurs in few rows; a
second t takes in those that the first one leaves out. The same with the roles of A and B exchanged. Every test has
its own random scalars, so all of them are one equation: the left sides multiplied, the h added.

Wires that no test reaches are counted (`untested`): in a circuit of one constraint there may be some. L and IC are
tested where C is known (assignments.py).

Life: `Fit(...)` picks wires and makes the h, in memory of some vectors as long as the domain. Whoever reads the
points makes the sums (checks.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cuzkd.backend.protocol import U64, KeyShape, SparseMatrix
from cuzkd.circuits.elimination import wires_of
from cuzkd.groth16 import hosts
from cuzkd.groth16.constraints import Constraints

ROUNDS = 2
SAMPLED = 512  # entries of a matrix among which t is looked for
LIGHT = 64  # rows in which a wire t that is worth more than a look may occur
SEARCH_BLOCK = 1 << 24  # entries that are looked at at a time
SCALAR_BYTES = 16  # random ones: a key that does not fit passes with probability 2^-128

Wires = NDArray[np.int64]


@dataclass(frozen=True)
class Side:
    """The tests of one matrix. scalars: random for every wire, narrow (see `widened`). round: uint8[n_wires], the test
    that a wire has its part in, as many as there are tests for none. partners: the wire t of each test, in the other
    matrix.
    """

    scalars: U64
    round: NDArray[np.uint8]
    partners: Sequence[int]

    @property
    def untested(self) -> int:
        return int((self.round >= len(self.partners)).sum())


class Fit:
    """a: tests of A, with partners in B; b: of B, in A. h: by root family, the scalars of H, CANONICAL [domain, 4]."""

    def __init__(self, constraints: Constraints, shape: KeyShape, families: Sequence[int]) -> None:
        self.a = _side(constraints.a, constraints.b)
        self.b = _side(constraints.b, constraints.a)
        products = Products(shape, families)
        for number, t in enumerate(self.a.partners):
            products.add(products.column(constraints.a, self.a, number), products.unit(constraints.b, t))
        for number, t in enumerate(self.b.partners):
            products.add(products.unit(constraints.a, t), products.column(constraints.b, self.b, number))
        self.h = products.h


class Products:
    """h: by root family, that of all products added so far."""

    def __init__(self, shape: KeyShape, families: Sequence[int]) -> None:
        self._shape = shape
        self.h = {family: np.zeros((shape.domain, 4), np.uint64) for family in families}

    def add(self, a: U64, b: U64) -> None:
        """That of a o b. Montgomery [domain, 4]."""
        shape = self._shape
        for family, sum_ in self.h.items():
            h = hosts.best().backend.quotient(shape.curve, a, b, family, shape.reduction)
            self.h[family] = hosts.best().backend.field_op(shape.curve, "fr", "add", sum_, h)

    def of(self, matrix: SparseMatrix, z: U64) -> U64:
        """matrix z in Montgomery form, filled up to the domain with zeros. Raises InvalidKey, as spmv_into."""
        out = np.zeros((self._shape.domain, 4), np.uint64)
        hosts.best().services.spmv_into(self._shape.curve, matrix, z, out, 0, matrix.n_rows)
        return out

    def column(self, matrix: SparseMatrix, side: Side, number: int) -> U64:
        z = widened(side.scalars)
        z[side.round != number] = 0
        return self.of(matrix, z)

    def unit(self, matrix: SparseMatrix, wire: int) -> U64:
        z = np.zeros((matrix.n_cols, 4), np.uint64)
        z[wire, 0] = 1
        return self.of(matrix, z)


def random_scalars(n: int) -> U64:
    """uint64[n, SCALAR_BYTES / 8]: there is one for every wire, and memory is short."""
    return np.frombuffer(bytearray(secrets.token_bytes(n * SCALAR_BYTES)), np.uint64).reshape(n, -1)


def widened(scalars: U64) -> U64:
    """CANONICAL [n, 4] of those that are narrower. A copy."""
    out = np.zeros((len(scalars), 4), np.uint64)
    out[:, : scalars.shape[1]] = scalars
    return out


def _side(mine: SparseMatrix, other: SparseMatrix) -> Side:
    tests = _partners(mine, other)
    rounds = np.zeros(mine.n_cols, np.uint8)
    left: Wires | None = None
    for number, (_, met) in enumerate(tests):
        left = met if left is None else np.intersect1d(left, met)
        rounds[left] = number + 1
    return Side(random_scalars(mine.n_cols), rounds, [wire for wire, _ in tests])


def _partners(mine: SparseMatrix, other: SparseMatrix) -> list[tuple[int, Wires]]:
    """Up to ROUNDS wires t of `other`, each with the wires of `mine` in rows where t is: the first t meets few of
    them, the next few of those that were met so far. None when `other` is empty.
    """
    n = len(other.cols)
    if n == 0:
        return []
    sample = np.random.default_rng().integers(0, n, SAMPLED) if n > SAMPLED else np.arange(n)
    candidates = np.unique(other.cols[sample]).astype(np.int64)
    counts = _occurrences(other, candidates)
    order = np.argsort(counts, kind="stable")[:LIGHT]
    light = candidates[order][(counts[order] <= LIGHT) | (np.arange(len(order)) == 0)]
    met = {wire: wires_of(mine, rows) for wire, rows in _rows_with(other, light).items()}
    tests = [min(met.items(), key=lambda item: len(item[1]))]
    while len(tests) < ROUNDS and len(left := _common(tests)):
        best = min(met.items(), key=lambda item: len(np.intersect1d(left, item[1])))
        if len(np.intersect1d(left, best[1])) == len(left):
            break
        tests.append(best)
    return tests


def _common(tests: Sequence[tuple[int, Wires]]) -> Wires:
    common = tests[0][1]
    for _, met in tests[1:]:
        common = np.intersect1d(common, met)
    return common


def _occurrences(matrix: SparseMatrix, wires: Wires) -> NDArray[np.int64]:
    """How many entries each of some wires has."""
    number = np.zeros(matrix.n_cols, np.uint16)
    number[wires] = np.arange(1, len(wires) + 1)
    counts = np.zeros(len(wires) + 1, np.int64)
    for begin in range(0, len(matrix.cols), SEARCH_BLOCK):
        counts += np.bincount(number[matrix.cols[begin : begin + SEARCH_BLOCK]], minlength=len(counts))
    return counts[1:]


def _rows_with(matrix: SparseMatrix, wires: Wires) -> dict[int, Wires]:
    """The rows in which each of some wires has an entry."""
    wanted = np.zeros(matrix.n_cols, bool)
    wanted[wires] = True
    places = [
        begin + np.flatnonzero(wanted[matrix.cols[begin : begin + SEARCH_BLOCK]])
        for begin in range(0, len(matrix.cols), SEARCH_BLOCK)
    ]
    at = np.concatenate(places)
    rows = np.searchsorted(matrix.row_ptr, at.astype(np.uint64), side="right") - 1
    found = matrix.cols[at]
    return {int(wire): rows[found == wire] for wire in wires}
