"""The reference backend: the protocol in plain Python ints. The oracle: obvious first, then slow.

Problem: two fast implementations may agree on a wrong answer if nobody says what the right one is.
Design: arrays are decoded at the border, each operation is its definition (curves/), results are encoded again. The
host services of backend/cpu.py are here, too, under the same names and signatures, so that a whole proof, from set-up
to verification, can be made without native code.
Life of data: `upload` copies, so that the caller's vectors are free at once; Run.result() computes.
Speed: a circuit of ten rows takes seconds.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import mul
from typing import Any

import numpy as np

from cuzkd.backend.protocol import U64, KeyArrays, KeyShape, MsmSums, SparseMatrix, Vram, nothing
from cuzkd.curves import limbs
from cuzkd.curves import pairing as int_pairing
from cuzkd.curves import points as groups
from cuzkd.curves.domains import Domain
from cuzkd.curves.fields import Prime, Quadratic
from cuzkd.curves.params import CURVES
from cuzkd.errors import Cancelled, InvalidKey

# -- host services, as in backend/cpu.py -----------------------------------------------------------------------------


def copy_witness(curve: str, raw: Any, out: U64) -> int:
    """n 32-byte little-endian integers into out uint64[n, 4]. Returns the index of the first >= r, or -1."""
    words = np.frombuffer(raw, np.uint8)
    if len(words) != 32 * len(out):
        raise ValueError(f"raw: expected {32 * len(out)} bytes, got {len(words)}")
    out[:] = words.view("<u8").reshape(-1, 4)
    return next((i for i, v in enumerate(limbs.to_ints(out)) if v >= CURVES[curve].r), -1)


def spmv_into(curve: str, matrix: SparseMatrix, z: U64, out: U64, row_begin: int, row_end: int) -> None:
    """Rows [row_begin, row_end) of matrix . z into the same rows of out (Montgomery). z: CANONICAL [n_cols, 4].

    Raises InvalidKey when an index of the matrix is out of bounds.
    """
    if len(z) != matrix.n_cols:
        raise ValueError(f"z: expected {matrix.n_cols} rows, got {len(z)}")
    r = CURVES[curve].r
    values = limbs.to_ints(z)
    once = limbs.from_montgomery(matrix.table, r)
    coefficients = limbs.from_montgomery(limbs.from_ints(once, limbs.FR_LIMBS), r)
    sums = []
    for row in range(row_begin, row_end):
        total = 0
        for k in range(int(matrix.row_ptr[row]), int(matrix.row_ptr[row + 1])):
            wire, index = int(matrix.cols[k]), int(matrix.coeff[k])
            if wire >= matrix.n_cols or index >= len(coefficients):
                raise InvalidKey(f"row {row}: wire {wire} or coefficient {index} is out of bounds")
            total += coefficients[index] * values[wire]
        sums.append(total)
    out[row_begin:row_end] = limbs.to_montgomery(sums, r)


def first_mismatch(curve: str, a: U64, b: U64, c: U64, begin: int, end: int) -> int:
    """First row in [begin, end) with a * b != c, or -1. Montgomery [rows, 4]."""
    r = CURVES[curve].r
    rows = (limbs.from_montgomery(v[begin:end], r) for v in (a, b, c))
    return next((begin + i for i, (x, y, xy) in enumerate(zip(*rows, strict=True)) if x * y % r != xy), -1)


def fixed_base_mul(curve: str, group: str, scalars: U64) -> U64:
    """scalars (CANONICAL [n, 4]) times the group's generator, affine."""
    g = groups.group(curve, group)
    return g.encode([g.mul(k, g.generator) for k in limbs.to_ints(scalars)])


def check_points(curve: str, group: str, points: U64, subgroup: bool = False) -> int:
    """First point with a coordinate >= q, off the curve, or (subgroup) not of order r; -1 when all are good."""
    g = groups.group(curve, group)
    n_coordinates = 2 * g.field.degree
    stored = limbs.to_ints(points)
    for i, point in enumerate(g.decode(points)):
        coordinates = stored[i * n_coordinates : (i + 1) * n_coordinates]
        if max(coordinates) >= g.field.p or not (g.in_subgroup(point) if subgroup else g.on_curve(point)):
            return i
    return -1


def pairing_check(curve: str, g1: U64, g2: U64) -> bool:
    """Is the product of e(g1_i, g2_i) one? Affine [n, 2, L] and [n, 2, 2, L], of order r (unchecked)."""
    pairs = zip(groups.g1(curve).decode(g1), groups.g2(curve).decode(g2), strict=True)
    return int_pairing.pairing_check(curve, pairs)


def pairing(curve: str, p: U64, q: U64) -> U64:
    """e(p, q) for p [2, L], q [2, 2, L], as U64[12, L] CANONICAL; the coefficients of curves/pairing.py."""
    (point,), (twisted,) = groups.g1(curve).decode(p[None]), groups.g2(curve).decode(q[None])
    return limbs.from_ints(int_pairing.pairing(curve, point, twisted), CURVES[curve].fq_limbs)


# -- the backend -----------------------------------------------------------------------------------------------------


class ReferenceKey:
    """The caller's arrays."""

    def __init__(self, arrays: KeyArrays) -> None:
        self.arrays = arrays
        self.resident_bytes = self.host_bytes = arrays.host_bytes
        self.one_at_a_time = False

    def close(self) -> None:
        """Nothing is held."""


class ReferenceUpload:
    """Copies of one partition's vectors."""

    def __init__(self, key: ReferenceKey, a: U64, b: U64, z: U64) -> None:
        self.key, self.a, self.b, self.z = key, a.copy(), b.copy(), z.copy()

    def wait(self) -> None:
        """The copies are made."""


class ReferenceRun:
    """One proof, done when result() is called."""

    def __init__(self, backend: ReferenceBackend, upload: ReferenceUpload) -> None:
        self._backend, self._upload = backend, upload
        self._cancelled = False
        self._sums: MsmSums | None = None

    def cancel(self) -> None:
        self._cancelled = True

    def result(self, device_free: Callable[[], None] = nothing) -> MsmSums:
        if self._sums is None:
            self._sums = self._prove()
        return self._sums

    def _prove(self) -> MsmSums:
        up, key = self._upload, self._upload.key.arrays
        a, b = (np.zeros((key.domain, 4), np.uint64) for _ in range(2))
        a[: len(up.a)], b[: len(up.b)] = up.a, up.b
        h = self._backend.quotient(key.curve, a, b, key.root_family, key.reduction)

        def msm(group: str, bases: U64, scalars: U64) -> U64:
            if self._cancelled:
                raise Cancelled("cancelled while its sums were computed")
            return self._backend.msm(key.curve, group, bases, scalars)

        return MsmSums(
            a_g1=msm("g1", key.a_g1, up.z),
            b_g1=msm("g1", key.b_g1, up.z),
            b_g2=msm("g2", key.b_g2, up.z),
            l_g1=msm("g1", key.l_g1, up.z[key.n_public + 1 :]),
            h_g1=msm("g1", key.h_g1, h),
        )


class ReferenceBackend:
    """`backend.protocol.Backend` in ints. Not in place: vectors have the rows that synthesis makes."""

    name = "reference"
    device = "cpu"
    in_place = False
    scratch_c = False
    takes_pieces = False

    def __init__(self) -> None:
        self.device_name = f"Python {platform.python_version()}"

    def vector_rows(self, key: KeyShape) -> int:
        return key.n_rows or key.domain

    def warm_up(self, curve: str) -> None:
        """Nothing is compiled."""

    def keep_matrices(self, key: ReferenceKey, a: SparseMatrix, b: SparseMatrix) -> bool:
        """Host code makes a and b."""
        return False

    def load_key(self, key: KeyArrays) -> ReferenceKey:
        return ReferenceKey(key)

    def upload(
        self, key: ReferenceKey, a: U64 | None, b: U64 | None, c: U64 | None, z: U64
    ) -> ReferenceUpload:
        if a is None or b is None or c is not None:
            raise ValueError("the reference backend takes a, b and z, and makes c itself")
        rows = self.vector_rows(key.arrays)
        for name, vector, n in (("a", a, rows), ("b", b, rows), ("z", z, key.arrays.n_wires)):
            if vector.shape != (n, 4):
                raise ValueError(f"{name}: expected shape {(n, 4)}, got {vector.shape}")
        return ReferenceUpload(key, a, b, z)

    def launch(self, upload: ReferenceUpload) -> ReferenceRun:
        return ReferenceRun(self, upload)

    def launch_batch(self, uploads: Sequence[ReferenceUpload]) -> list[ReferenceRun]:
        return [self.launch(upload) for upload in uploads]

    def vram(self) -> Vram:
        return Vram()

    def trim(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is held."""

    def field_op(self, curve: str, fld: str, op: str, a: U64, b: U64 | None = None) -> U64:
        c = CURVES[curve]
        p = c.r if fld == "fr" else c.q
        if op == "to_mont":
            return limbs.to_montgomery(limbs.to_ints(a), p).reshape(a.shape)
        if op == "from_mont":
            return limbs.from_ints(limbs.from_montgomery(a, p), a.shape[-1]).reshape(a.shape)
        field: Any = Quadratic(p) if fld == "fq2" else Prime(p)
        unary: dict[str, Callable[[Any], Any]] = {
            "sqr": lambda x: field.mul(x, x),
            "neg": field.neg,
            "inv": field.inv,
        }
        binary: dict[str, Callable[[Any, Any], Any]] = {"add": field.add, "sub": field.sub, "mul": field.mul}
        x = field.pack(limbs.from_montgomery(a, p))
        if op in unary:
            result = [unary[op](v) for v in x]
        else:
            y = field.pack(limbs.from_montgomery(_second(op, b), p))
            result = [binary[op](v, w) for v, w in zip(x, y, strict=True)]
        return limbs.to_montgomery(field.unpack(result), p).reshape(a.shape)

    def point_op(self, curve: str, group: str, op: str, p: U64, q: U64 | None = None) -> U64:
        g = groups.group(curve, group)
        points = g.decode(p)
        if op == "add":
            return g.encode([g.add(x, y) for x, y in zip(points, g.decode(_second(op, q)), strict=True)])
        one = {"double": g.double, "neg": g.neg}[op]
        return g.encode([one(x) for x in points])

    def scalar_mul(self, curve: str, group: str, points: U64, scalars: U64) -> U64:
        g = groups.group(curve, group)
        pairs = zip(limbs.to_ints(scalars), g.decode(points), strict=True)
        return g.encode([g.mul(k, point) for k, point in pairs])

    def ntt(
        self, curve: str, values: U64, root_family: int, *, inverse: bool = False, shift: int | None = None
    ) -> U64:
        domain = Domain(curve, root_family, _log2(len(values)), 1 if shift is None else shift)
        ints = limbs.from_montgomery(values, domain.r)
        return limbs.to_montgomery(domain.interpolate(ints) if inverse else domain.evaluate(ints), domain.r)

    def quotient(self, curve: str, a: U64, b: U64, root_family: int, reduction: str = "circom") -> U64:
        by = {"circom": _values_on_odd_coset, "bellman": _coefficients_over_vanishing}.get(reduction)
        if by is None:
            raise ValueError(f"reduction: expected 'circom' or 'bellman', got '{reduction}'")
        on = Domain(curve, root_family, _log2(len(a)))
        return limbs.from_ints(by(on, *(limbs.from_montgomery(v, on.r) for v in (a, b))), limbs.FR_LIMBS)

    def msm(self, curve: str, group: str, bases: U64, scalars: U64) -> U64:
        g = groups.group(curve, group)
        total: U64 = g.encode([g.msm(g.decode(bases), limbs.to_ints(scalars))])[0]
        return total

    def spmv(self, curve: str, matrix: SparseMatrix, z: U64) -> U64:
        out = np.empty((matrix.n_rows, 4), np.uint64)
        spmv_into(curve, matrix, z, out, 0, matrix.n_rows)
        return out


def _values_on_odd_coset(on: Domain, a: list[int], b: list[int]) -> list[int]:
    """A B - C at w_2n^(2i+1) = w_2n w_n^i: the polynomials are those through the rows, C through their products."""
    r = on.r
    odd = replace(on, shift=CURVES[on.curve].root_of_unity(on.family, on.log_n + 1))
    ab = [x * y % r for x, y in zip(a, b, strict=True)]
    values = (odd.evaluate(on.interpolate(v)) for v in (a, b, ab))
    return [(x * y - z) % r for x, y, z in zip(*values, strict=True)]


def _coefficients_over_vanishing(on: Domain, a: list[int], b: list[int]) -> list[int]:
    """(A B - C)/(X^n - 1). With A B = low + X^n high this is high: low + high is A B modulo X^n - 1, so it has the
    values of A B on the domain, and degree below n: it is C.
    """
    n, r = on.n, on.r
    f, g = on.interpolate(a), on.interpolate(b)
    g.reverse()  # f_i g_j with i + j = n + k: f[k+1:] against g[:n-k-1]
    return [sum(map(mul, f[k + 1 :], g)) % r for k in range(n)]


def _second(op: str, b: U64 | None) -> U64:
    if b is None:
        raise ValueError(f"{op}: expected two operands, got one")
    return b


def _log2(n: int) -> int:
    if n < 1 or n & (n - 1):
        raise ValueError(f"values: expected a power of two of them, got {n}")
    return n.bit_length() - 1
