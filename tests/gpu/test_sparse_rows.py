"""Sparse rows on the device equal the processor's: rows of every length, coefficients and values of every kind."""

import numpy as np
import pytest
from gpu.conftest import field_elements

from cuzkd import errors
from cuzkd.backend.cpu import CpuBackend
from cuzkd.backend.protocol import SparseMatrix
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

pytestmark = pytest.mark.gpu

CURVE = ("bn254", "bls12_381")


def values(curve, n, seed):
    """A witness: bits, small numbers to both sides of 2^24, and large ones, each often."""
    rng = np.random.default_rng(seed)
    r = CURVES[curve].r
    edges = [2, 3, 2**24 - 1, 2**24, 2**32, 2**64 - 1, 2**64, 2**192, r - 1, r // 2]
    kinds = rng.integers(0, 4, n)
    out = field_elements(rng, curve, n, 0.6)
    rare = limbs.from_ints(edges, limbs.FR_LIMBS)[rng.integers(0, len(edges), n)]
    out[kinds == 3] = rare[kinds == 3]
    out[0] = (1, 0, 0, 0)
    return out


def matrix(curve, counts, n_cols, n_table, seed, units=0.6):
    """Rows of so many entries each, over a table of +1, -1 and others."""
    rng = np.random.default_rng(seed)
    r = CURVES[curve].r
    nnz = int(sum(counts))
    table = [1, r - 1, *(pow(3, i + 1, r) for i in range(n_table - 2))]
    coeff = rng.integers(0, n_table, nnz)
    coeff[rng.random(nnz) < units] %= 2
    return SparseMatrix(
        n_cols=n_cols,
        row_ptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64),
        cols=rng.integers(0, n_cols, nnz).astype(np.uint32),
        coeff=coeff.astype(np.uint32),
        table=limbs.to_montgomery([(v << 256) % r for v in table], r),
    )


def same(gpu, curve, m, seed):
    z = values(curve, m.n_cols, seed)
    assert np.array_equal(gpu.spmv(curve, m, z), CpuBackend().spmv(curve, m, z))


@pytest.mark.parametrize("curve", CURVE)
def test_rows_of_every_length(gpu, curve):
    """Among them those that a thread sums, and a warp; in every place of their group, and whole groups of either."""
    rng = np.random.default_rng(1)
    lengths = [0, 1, 2, 3, 15, 16, 17, 18, 31, 32, 33, 64, 65, 200]
    for n_rows in (1, 31, 32, 33, 127, 128, 129, 700):
        same(gpu, curve, matrix(curve, rng.choice(lengths, n_rows), 300, 40, n_rows), n_rows)
    for length in (0, 1, 16, 17):
        same(gpu, curve, matrix(curve, [length] * 70, 33, 40, length), length)


@pytest.mark.parametrize("n_table", [2, 3, 256, 257, 66_000])
def test_coefficients_of_every_width(gpu, n_table):
    rng = np.random.default_rng(2)
    m = matrix("bn254", rng.integers(0, 6, 300), 100, n_table, 3)
    m.coeff[:3] = (0, 1, n_table - 1)
    same(gpu, "bn254", m, 4)


def test_groups_longer_than_their_ends_can_say(gpu):
    """A row of 70,000 entries, and one whose end falls on the last number that is measured; short rows behind both."""
    for longest in (70_000, 0xFFFF, 0xFFFE, 0xFFFD, 0xFFFF - 7):
        counts = [3, 0, longest - 3, 2, 0, 5, *[1] * 40]
        same(gpu, "bls12_381", matrix("bls12_381", counts, 50, 7, 5), 6)


@pytest.mark.parametrize("curve", CURVE)
def test_sums_that_are_looked_up_and_beyond(gpu, curve):
    """Rows of ones alone, up to forty, of either sign."""
    m = matrix(curve, [n for n in range(41) for _ in "+-"], 40, 2, 1)
    for row in range(m.n_rows):
        m.coeff[int(m.row_ptr[row]) : int(m.row_ptr[row + 1])] = row % 2
    z = np.zeros((40, 4), np.uint64)
    z[:, 0] = 1
    assert np.array_equal(gpu.spmv(curve, m, z), CpuBackend().spmv(curve, m, z))


def test_blocks_that_are_packed_one_by_one(gpu, monkeypatch):
    from cuzkd.backend import cuda_rows

    monkeypatch.setattr(cuda_rows, "BLOCK_ROWS", 64)
    rng = np.random.default_rng(7)
    m = matrix("bn254", rng.choice([0, 1, 2, 5, 40], 1000), 300, 500, 8)
    same(gpu, "bn254", m, 9)
    m.cols[2000] = 300
    with pytest.raises(errors.InvalidKey, match="an index of entry 2000 is out of bounds"):
        gpu.spmv("bn254", m, values("bn254", 300, 9))


def test_no_rows_and_no_entries(gpu):
    for counts in ([], [0], [0] * 100):
        same(gpu, "bn254", matrix("bn254", counts, 3, 2, 1), 2)
