"""The arithmetic of a development key (kernels/setup.cuh), through the native module, equals plain ints."""

from functools import cache

import numpy as np
import pytest
from kernels.conftest import known_points, multiple, nasty, same, scalars
from kernels.test_sparse import matrix

from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

TOP = 2**64 - 1
SHARE = 16  # LAGRANGE_SHARE


@pytest.fixture
def native(build):
    return build


def test_settle(native, curve, rng):
    r = CURVES[curve].r
    word = 2**32 - 1
    rows = [
        *([x] * 8 for x in (0, 1, TOP, TOP - 1, 1 << 63, word << 32)),
        *([TOP if i == k else 0 for i in range(8)] for k in range(8)),
        *([0 if i == k else TOP for i in range(8)] for k in range(8)),
        *(
            [(v >> (32 * i)) & word for i in range(8)]
            for v in (r - 1, r, r + 1, 2 * r, 2**256 - 1, 5 * r % 2**256)
        ),
        *([((v >> (32 * i)) & word) << 32 for i in range(8)] for v in nasty(r)),  # 2^32 times the same scalar
        *([rng.getrandbits(rng.choice([1, 31, 32, 33, 63, 64])) for _ in range(8)] for _ in range(2000)),
    ]
    out = np.empty((len(rows), 4), np.uint64)
    native.setup_settle(curve, np.array(rows, np.uint64), out)
    same(out, scalars([sum(x << (32 * i) for i, x in enumerate(row)) % r for row in rows]))


@pytest.mark.parametrize("shape", [(1, 1), (1000, 300), (60, 2)], ids=str)
def test_transposed_product(native, curve, shape, rng):
    """Rows of no and of several entries, columns that repeat, +-1 and the nastiest coefficients and values."""
    r, (n_rows, n_cols) = CURVES[curve].r, shape
    m = matrix(curve, n_rows, n_cols, rng)
    values = [rng.choice([*nasty(r), rng.randrange(r)]) for _ in range(n_rows)]
    once = limbs.from_ints(limbs.from_montgomery(m.table, r), 4)
    sums, out = np.zeros((n_cols, 8), np.uint64), np.empty((n_cols, 4), np.uint64)
    native.setup_terms(curve, m.row_ptr, m.cols, m.coeff, once, scalars(values), sums)
    native.setup_settle(curve, sums, out)
    coefficients = limbs.from_montgomery(once, r)
    expected = [0] * n_cols
    for row, value in enumerate(values):
        for e in range(int(m.row_ptr[row]), int(m.row_ptr[row + 1])):
            expected[m.cols[e]] += coefficients[m.coeff[e]] * value
    same(out, scalars([x % r for x in expected]))


@pytest.mark.parametrize(
    ("n", "threads"), [(1, 1), (1, 128), (16, 1), (17, 2), (257, 17), (1000, 63), (4096, 384)]
)
def test_lagrange(native, curve, n, threads, rng):
    r = CURVES[curve].r
    assert threads * SHARE >= n
    for tau, first, factor in ((rng.randrange(r), 1, rng.randrange(r)), (0, r - 1, 1), (r - 1, 5, r - 1)):
        ratio = CURVES[curve].root_of_unity(5, 13)
        described = limbs.to_montgomery([tau, first, ratio, pow(ratio, threads, r), factor], r)
        out = np.empty((n, 4), np.uint64)
        native.setup_lagrange(curve, described, threads, out)
        points = [first * pow(ratio, i, r) % r for i in range(n)]
        assert tau not in points
        same(out, scalars([factor * x * pow(tau - x, -1, r) % r for x in points]))


@pytest.mark.parametrize(("n", "threads"), [(1, 1), (1, 256), (16, 1), (17, 2), (257, 17), (1000, 512)])
def test_progression(native, curve, n, threads, rng):
    r = CURVES[curve].r
    for first, ratio in ((1, rng.randrange(r)), (rng.randrange(r), r - 1), (0, 5), (r - 1, 1)):
        constants = limbs.to_montgomery([ratio, pow(ratio, threads, r)], r)
        out = np.empty((n, 4), np.uint64)
        native.setup_progression(curve, np.concatenate([scalars([first]), constants]), threads, out)
        same(out, scalars([first * pow(ratio, i, r) % r for i in range(n)]))


@cache
def narrow_table(curve, group):
    """d 2^(8 i) times the generator, at (i << 8) + d."""
    return known_points(curve, group, [d << (8 * i) for i in range(32) for d in range(256)])


@pytest.mark.parametrize(("n", "threads"), [(1, 1), (8, 1), (70, 9), (70, 128)])
def test_multiples(native, curve, group, n, threads, rng):
    """Any 256-bit integers, zeros among them: each takes its own way through the shared inversion."""
    r = CURVES[curve].r
    edges = [0, 0, 1, r - 1, r, r + 1, 2**256 - 1, 255, 256, 0xFF << 248, 1 << 64, 2 * r, 0]
    chosen = (edges + [rng.randrange(r) for _ in range(n)])[:n] if n > 1 else [r - 1]
    rng.shuffle(chosen)
    out = np.full((n, *multiple(curve, group, 1).shape), 7, np.uint64)
    native.setup_multiples(curve, group, narrow_table(curve, group), 8, scalars(chosen), threads, out)
    same(out, np.stack([multiple(curve, group, k % r) for k in chosen]))


def test_windows_of_16_bits(native, curve, group, rng):
    """From a table that holds no more than what these scalars read of it."""
    r = CURVES[curve].r
    chosen = [0, 1, r - 1, 2**256 - 1, 0xFFFF << 240, *(rng.randrange(r) for _ in range(30))]
    digits = {(i, k >> (16 * i) & 0xFFFF) for k in chosen for i in range(16)}
    points = np.zeros((16 << 16, *multiple(curve, group, 1).shape), np.uint64)
    at = [(i << 16) + d for i, d in digits]
    points[at] = known_points(curve, group, [d << (16 * i) for i, d in digits])
    out = np.empty((len(chosen), *points.shape[1:]), np.uint64)
    native.setup_multiples(curve, group, points, 16, scalars(chosen), 7, out)
    same(out, np.stack([multiple(curve, group, k % r) for k in chosen]))


def test_arguments_are_checked(native, curve):
    with pytest.raises(ValueError, match="bits: expected 8 or 16, got 4"):
        native.setup_multiples(
            curve, "g1", known_points(curve, "g1", [1]), 4, scalars([1]), 1, known_points(curve, "g1", [1])
        )
    with pytest.raises(ValueError, match="sums: expected shape"):
        native.setup_settle(curve, np.zeros((1, 7), np.uint64), scalars([1]))
