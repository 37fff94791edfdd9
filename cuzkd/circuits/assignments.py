"""Do L, IC and C of a key belong to its constraint matrices? One equation without a witness, where C is known.

Problem: a wrong L or IC, or a C that is not the key's, leaves A, B and H as they should be (fits.py), and makes proofs
that never verify.

Design: each of the three factors of a row may have values of its own for the wires, z, y and rho, and a sum of two
products does as well as one. Where in every row

    A z1 o B y1 + A z2 o B y2 = C rho,

the h of both products added, and w the polynomial of C rho at tau, satisfy

    e(<z1, A>, <y1, B2>) e(<z2, A>, <y2, B2>) = e([w]_1, G2) e(<h, H>, delta_2)

and L and IC, being made of beta u_i + alpha v_i + w_i, have the same w:

    e(<rho, L>, delta_2) e(<rho, IC>, gamma_2) = e(<rho, A>, beta_2) e(alpha_1, <rho, B2>) e([w]_1, G2).

Without [w]_1 both are one equation of points of the key. A witness is such an assignment (z1 = y1 = rho, z2 = 0), and
others are easily had: all is random but a pivot for each row (elimination.py). Most rows have one in C. Where a bit is
kept a bit, C is empty, but the row has a pivot in z2: that is what the second product is for. So hardly a row is left,
and a key that satisfies the equation makes true proofs of every witness, but with negligible probability.

Rows that are left are made 0 = 0: z is zero for the wires that they have in A, and rho for those in C. Of those wires
L and IC are not tested, nor of any other whose rho comes out as zero: they are counted (`untested`). Where no row is
left, these are wires that are zero in every witness.

Life: made before the points are read, in memory of some vectors as long as the domain and some as there are wires.
Whoever reads the points makes the sums of them (checks.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cuzkd.backend.protocol import U64, KeyShape, SparseMatrix
from cuzkd.circuits.elimination import A, B, C, Indices, Level, order, picked, wires_of
from cuzkd.circuits.fits import Products, random_scalars, widened
from cuzkd.groth16 import hosts
from cuzkd.groth16.constraints import Constraints

ROWS = 1 << 20  # that are solved at a time
TRIES = 10  # after them all rows are left


@dataclass(frozen=True)
class Assignment:
    """z, y: for A and for B in each product, one or two of them; rho: for C. Each has a scalar for every wire, perhaps
    narrow (see `fits.widened`). h: by root family, the scalars of H, CANONICAL [domain, 4].
    """

    z: Sequence[U64]
    y: Sequence[U64]
    rho: U64
    h: dict[int, U64]

    @property
    def untested(self) -> int:
        """Wires whose L or IC has no part."""
        return int((~self.rho.any(axis=1)).sum())


def assign(constraints: Constraints, shape: KeyShape, families: Sequence[int], y: U64) -> Assignment:
    """y: random scalars for y1. Raises ValueError where C is not known, InvalidKey as spmv_into."""
    if constraints.c is None:
        raise ValueError("constraints: expected C, found none")
    matrices = (constraints.a, constraints.b, constraints.c)
    in_a, in_b, in_c = (np.diff(matrix.row_ptr) > 0 for matrix in matrices)
    multiplied = in_a & in_b
    rows = np.flatnonzero(multiplied | in_c)
    given_up = np.zeros(constraints.n_rows, bool)
    for tries in itertools.count(1):
        levels, left = order(matrices, rows, multiplied, given_up)
        solver = _Solver(shape.curve, matrices, y, levels, left, left[multiplied[left]])
        for level in levels:
            solver.solve(level)
        wrong = solver.wrong()
        if not wrong.any():
            break
        # A pivot is of no use where the other factor is zero, because rows left have all its wires, for instance.
        given_up |= wrong | (tries == TRIES)
    products = Products(shape, families)
    for z_, y_ in zip(solver.z, solver.y, strict=True):
        products.add(products.of(constraints.a, widened(z_)), products.of(constraints.b, widened(y_)))
    return Assignment(solver.z, solver.y, solver.rho, products.h)


class _Solver:
    """Random values, made to satisfy level by level. z[1] and y[1] are there when there are pivots in A or B.

    empty_c, empty_a: rows in which C rho, and A z, are to be zero.
    """

    def __init__(
        self,
        curve: str,
        matrices: Sequence[SparseMatrix],
        y: U64,
        levels: Sequence[Level],
        empty_c: Indices,
        empty_a: Indices,
    ) -> None:
        self._curve, self._matrices = curve, matrices
        n_wires = matrices[C].n_cols
        self.z, self.y, self.rho = [random_scalars(n_wires)], [y], widened(random_scalars(n_wires))
        if any(level.matrix != C for level in levels):
            self.z.append(widened(random_scalars(n_wires)))
            self.y.append(widened(random_scalars(n_wires)))
        self.rho[wires_of(matrices[C], empty_c)] = 0
        for z in self.z:
            z[wires_of(matrices[A], empty_a)] = 0
        factors = self._product(matrices[A], widened(self.z[0])), self._product(matrices[B], widened(y))
        self._first = self._op("mul", *factors)
        # Coefficients are twice Montgomery. The inverse of zero is zero.
        self._inverses = [self._op("inv", self._op("from_mont", matrix.table)) for matrix in matrices]

    def solve(self, level: Level) -> None:
        """Give the pivots values such that these rows are true."""
        matrix, inverses = self._matrices[level.matrix], self._inverses[level.matrix]
        values = self.rho if level.matrix == C else (self.z, self.y)[level.matrix][1]
        for begin in range(0, len(level.rows), ROWS):
            rows, pivots = (array[begin : begin + ROWS] for array in (level.rows, level.pivots))
            values[matrix.cols[pivots]] = 0
            parts = [picked(matrix, rows) for matrix in self._matrices]
            missing, factors = self._missing(parts, np.ascontiguousarray(self._first[rows]))
            value = self._op("mul", missing, inverses[matrix.coeff[pivots]])
            if level.matrix == C:
                value = self._op("neg", value)
            else:
                value = self._op("mul", value, self._op("inv", factors[B if level.matrix == A else A]))
            values[matrix.cols[pivots]] = self._op("from_mont", value)

    def wrong(self) -> NDArray[np.bool_]:
        """Which rows are not true."""
        return np.asarray(self._missing(self._matrices, self._first)[0].any(axis=1))

    def _missing(self, matrices: Sequence[SparseMatrix], first: U64) -> tuple[U64, Sequence[U64]]:
        """C rho without both products, and the factors of the second one, if there is one. first: the first one."""
        missing = self._op("sub", self._product(matrices[C], self.rho), first)
        if len(self.z) == 1:
            return missing, ()
        factors = self._product(matrices[A], self.z[1]), self._product(matrices[B], self.y[1])
        return self._op("sub", missing, self._op("mul", *factors)), factors

    def _product(self, matrix: SparseMatrix, values: U64) -> U64:
        out = np.empty((matrix.n_rows, 4), np.uint64)
        hosts.best().services.spmv_into(self._curve, matrix, values, out, 0, matrix.n_rows)
        return out

    def _op(self, op: str, a: U64, b: U64 | None = None) -> U64:
        return hosts.best().backend.field_op(self._curve, "fr", op, a, b)
