"""The points of a development key, made on the device from secrets that somebody knows. INSECURE: see groth16/setup.py.

Problem: a key of 130 million wires is 76 GB of points on BLS12-381, each a multiple of a generator: hours of a
processor, and another while to carry them over.
Design: everything but the matrices stays on the device, and the points are written where proofs will read them.

    lagrange     L_j(tau), and the values behind H of the circom reduction: 16 to an inversion
    progression  those behind H of the bellman reduction, powers of tau
    add_terms    A^T L: a thread per entry adds coefficient * L_row to its wire, eight 32-bit words to eight 64-bit
                 sums. Atomic additions of integers: any order will do, so nothing is sorted or transposed
    mix          beta u + alpha v + w, over delta for the private wires
    multiples    sixteen additions a point, from a table of the generator's multiples by windows of 16 bits; the same
                 kernel makes it from one by windows of 8 bits, which the host makes

Life of the data: a matrix crosses in pieces of CHUNK_ENTRIES and is gone; L and the sums (64 bytes a wire) go back
before the first point is made; u, v, w (32 bytes a wire each) as soon as their points are. The most that is held is
the key, one set of scalars and two tables of 0.1 to 0.2 GB. Scalars are CANONICAL all along.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuzkd.backend import cpu, nvrtc
from cuzkd.backend.cuda import CudaBackend, CudaKey
from cuzkd.backend.cuda_device import Buffer, Lane, blocks
from cuzkd.backend.cuda_rows import require_rows
from cuzkd.backend.protocol import U64, KeyShape, SparseMatrix
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput, InvalidKey

FR_BYTES = 32
SUM_BYTES = 64  # of a wire: COLUMNS in kernels/setup.cuh
CHUNK_ENTRIES = 1 << 26  # of a matrix on the device at a time: half a gigabyte
MAX_ENTRIES = 1 << 32  # of a matrix: more could overflow a sum
LAGRANGE_SHARE, POINTS_SHARE = 16, 8  # items of a thread: kernels/setup.cuh
PROGRESSION_SHARE = 64
NARROW, WIDE = 8, 16  # bits of a window


def make_key(
    backend: CudaBackend,
    shape: KeyShape,
    matrices: Sequence[SparseMatrix],
    *,
    tau: int,
    alpha: int,
    beta: int,
    delta: int,
) -> tuple[U64, CudaKey]:
    """The INSECURE key of these secrets, resident, and the points `ic` of its verifying key, [n_public + 1, 2, Lq].

    matrices: A, B, C. The secrets are plain ints in [1, r), tau^(2 domain) is not 1, and gamma is 1: the caller looks.
    InvalidKey when an index of a matrix is out of bounds, Exhausted when the device has too little memory left.
    """
    curve, n, n_ic = shape.curve, shape.n_wires, shape.n_public + 1
    device, lane, r = backend.gpu, backend.gpu.compute, CURVES[curve].r
    with device.guard():
        device.load(nvrtc.setup_modules(curve))
        device.free_unused()
        scalars = _Scalars(lane, shape)
        u, v, w = scalars.columns(matrices, tau)
        secrets = lane.put(limbs.to_montgomery([beta, alpha, pow(delta, -1, r)], r))
        scalars.launch("mix", n, u, v, w, secrets, np.uint64(n_ic), np.uint64(n))
        device.free_unused()

        g1, g2 = _Multiples(lane, curve, "g1"), _Multiples(lane, curve, "g2")
        bases = {"a_g1": g1.of(u.address, n)}
        del u
        bases |= {"b_g1": g1.of(v.address, n), "b_g2": g2.of(v.address, n)}
        del v
        ic = lane.get(g1.of(w.address, n_ic), (n_ic, 2, CURVES[curve].fq_limbs))
        bases["l_g1"] = g1.of(w.address + FR_BYTES * n_ic, n - n_ic)
        del w
        h = scalars.quotient_basis(tau, delta)
        bases["h_g1"] = g1.of(h.address, shape.domain)
        lane.synchronize()
        del h, g1, g2, secrets
        device.free_unused()
        return ic, CudaKey(device, shape, bases)


class _Scalars:
    """The scalars of a key's points; every Buffer that comes back holds CANONICAL elements of Fr."""

    def __init__(self, lane: Lane, shape: KeyShape) -> None:
        self._lane = lane
        self._shape = shape
        self._curve = CURVES[shape.curve]
        self._module = nvrtc.Module("setup", shape.curve)

    def launch(self, name: str, n: int, *args: object) -> None:
        """One thread for each of n items."""
        self._lane.launch(self._module, name, blocks(n, 256), 256, *args)

    def columns(self, matrices: Sequence[SparseMatrix], tau: int) -> list[Buffer]:
        """u, v, w of every wire: what each matrix has in the wire's column, as a polynomial, at tau."""
        values = self.lagrange(tau)
        sums = self._lane.scratch(SUM_BYTES * self._shape.n_wires)
        return [self.transposed_product(matrix, values, sums) for matrix in matrices]

    def lagrange(self, tau: int) -> Buffer:
        """L_j(tau) over the key's domain, for each row j of the matrices."""
        shape, r = self._shape, self._curve.r
        root = self._curve.root_of_unity(shape.root_family, shape.log_domain)
        factor = (pow(tau, shape.domain, r) - 1) * pow(shape.domain, -1, r)
        return self._lagrange(tau, 1, root, factor, shape.n_rows or shape.domain)

    def quotient_basis(self, tau: int, delta: int) -> Buffer:
        """What the scalars of the H sum stand for, at tau and over delta: see groth16/setup.py. [domain]"""
        by = {"circom": self._lagrange_of_double, "bellman": self._vanishing_powers}
        return by[self._shape.reduction](tau, delta)

    def _vanishing_powers(self, tau: int, delta: int) -> Buffer:
        """tau^i (tau^n - 1)/delta, and zero in the last place."""
        r, n = self._curve.r, self._shape.domain
        grid = blocks(n, 256 * PROGRESSION_SHARE)
        first = (pow(tau, n, r) - 1) * pow(delta, -1, r) % r
        constants = limbs.to_montgomery([tau, pow(tau, 256 * grid, r)], r)
        described = np.concatenate([limbs.from_ints([first], limbs.FR_LIMBS), constants])
        out = self._lane.scratch(FR_BYTES * n)
        self._lane.launch(
            self._module, "progression", grid, 256, self._lane.put(described), np.uint64(n), out
        )
        self._lane.clear(out.address + FR_BYTES * (n - 1), FR_BYTES)
        return out

    def _lagrange_of_double(self, tau: int, delta: int) -> Buffer:
        """L'_(2i+1)(tau)/delta, i < domain, over the domain of twice the size."""
        shape, r, n = self._shape, self._curve.r, 2 * self._shape.domain
        root = self._curve.root_of_unity(shape.root_family, shape.log_domain + 1)
        factor = (pow(tau, n, r) - 1) * pow(n * delta, -1, r)
        return self._lagrange(tau, root, root * root, factor, shape.domain)

    def _lagrange(self, tau: int, first: int, ratio: int, factor: int, n: int) -> Buffer:
        """factor x_i / (tau - x_i) at x_i = first ratio^i, i < n."""
        r, grid = self._curve.r, blocks(n, 128 * LAGRANGE_SHARE)
        described = limbs.to_montgomery([tau, first, ratio, pow(ratio, 128 * grid, r), factor], r)
        out = self._lane.scratch(FR_BYTES * n)
        self._lane.launch(self._module, "lagrange", grid, 128, self._lane.put(described), np.uint64(n), out)
        return out

    def transposed_product(self, matrix: SparseMatrix, values: Buffer, sums: Buffer) -> Buffer:
        """matrix^T . values, [n_cols]. sums: working space, SUM_BYTES * n_cols."""
        require_rows(matrix)  # or kernels would read beyond their arrays
        if len(matrix.cols) > MAX_ENTRIES:
            raise InvalidInput(f"matrix: expected at most {MAX_ENTRIES} entries, got {len(matrix.cols)}")
        lane, n = self._lane, matrix.n_cols
        lane.clear(sums.address, SUM_BYTES * n)
        once = cpu.CpuBackend().field_op(
            self._curve.name, "fr", "from_mont", np.ascontiguousarray(matrix.table)
        )
        table = lane.put(once)  # Montgomery: SparseMatrix holds them twice so
        for begin in range(0, len(matrix.cols), CHUNK_ENTRIES):
            cols, coeff = (part[begin : begin + CHUNK_ENTRIES] for part in (matrix.cols, matrix.coeff))
            if cols.max() >= n or coeff.max() >= len(matrix.table):
                raise InvalidKey(f"matrix entries {begin} to {begin + len(cols)}: an index is out of bounds")
            first, last = rows_of(matrix.row_ptr, begin, begin + len(cols))
            row_ptr = lane.put(matrix.row_ptr[first : last + 1])
            entries = (lane.put(cols), lane.put(coeff), np.uint64(begin), np.uint32(len(cols)))
            at = np.uint64(values.address + FR_BYTES * first)
            self.launch("add_terms", len(cols), row_ptr, np.uint64(last - first), *entries, table, at, sums)
        out = lane.scratch(FR_BYTES * n)
        self.launch("settle_wires", n, sums, np.uint64(n), out)
        return out


class _Multiples:
    """Multiples of a group's generator, by a table in device memory."""

    def __init__(self, lane: Lane, curve: str, group: str) -> None:
        self._lane = lane
        self._module = nvrtc.Module("multiples", curve, group=group)
        self._point_bytes = 16 * CURVES[curve].fq_limbs * (1 if group == "g1" else 2)
        r, size = CURVES[curve].r, 1 << NARROW
        digits = [(d << (NARROW * i)) % r for i in range(256 // NARROW) for d in range(size)]
        points = cpu.fixed_base_mul(curve, group, limbs.from_ints(digits, limbs.FR_LIMBS))
        self._table, self._bits = lane.put(points), NARROW
        scalars = lane.put(window_scalars(WIDE))
        self._table, self._bits = self.of(scalars.address, scalars.nbytes // FR_BYTES), WIDE

    def of(self, scalars: int, n: int) -> Buffer:
        """The points of n scalars (any 256-bit integers) at a device address, affine."""
        out = self._lane.scratch(self._point_bytes * n)
        grid = blocks(n, 128 * POINTS_SHARE)
        args = (self._table, self._bits, np.uint64(scalars), np.uint64(n), out)
        self._lane.launch(self._module, "multiples", grid, 128, *args)
        return out


def window_scalars(bits: int) -> U64:
    """d 2^(bits i) for each window i and digit d, plain: the scalars of a table by windows of `bits` bits."""
    out = np.zeros((256 // bits, 1 << bits, limbs.FR_LIMBS), np.uint64)
    digits = np.arange(1 << bits, dtype=np.uint64)
    for i, window in enumerate(out):
        at = bits * i
        window[:, at // 64] = digits << np.uint64(at % 64)
    return out.reshape(-1, limbs.FR_LIMBS)


def rows_of(row_ptr: U64, begin: int, end: int) -> tuple[int, int]:
    """The rows [first, last) that hold entries [begin, end), begin < end: the first and the last one hold some."""
    first = np.searchsorted(row_ptr, np.uint64(begin), side="right") - 1
    return int(first), int(np.searchsorted(row_ptr, np.uint64(end), side="left"))
