"""Sparse rows times a witness equal plain ints; wrong indices are found before they are used."""

from dataclasses import replace

import numpy as np
import pytest
from kernels.conftest import nasty, same, scalars

from cuzkd.backend import cpu
from cuzkd.backend.protocol import SparseMatrix
from cuzkd.backend.reference import ReferenceBackend
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidKey

REFERENCE = ReferenceBackend()


def matrix(curve, n_rows, n_cols, rng):
    """Random rows of 0 to 6 entries, half of them +-1, with duplicate columns and empty rows."""
    r = CURVES[curve].r
    coefficients = [1, r - 1, *(v for v in nasty(r) if v not in (1, r - 1))]
    counts = [rng.choice([0, 1, 1, 2, 3, 6]) for _ in range(n_rows)]
    nnz = sum(counts)
    choose = [0, 1] * len(coefficients) + list(range(2, len(coefficients)))
    return SparseMatrix(
        n_cols=n_cols,
        row_ptr=np.array([0, *np.cumsum(counts)], np.uint64),
        cols=np.array([rng.randrange(n_cols) for _ in range(nnz)], np.uint32),
        coeff=np.array([rng.choice(choose) for _ in range(nnz)], np.uint32),
        table=limbs.to_montgomery([v << 256 for v in coefficients], r),
    )


def witness(curve, n, rng):
    r = CURVES[curve].r
    return scalars([1, *(rng.choice([0, 1, r - 1, rng.randrange(r)]) for _ in range(n - 1))])


@pytest.mark.parametrize(("n_rows", "n_cols"), [(0, 1), (1, 1), (7, 3), (1000, 300)])
def test_equals_plain_ints(backend, curve, n_rows, n_cols, rng):
    m, z = matrix(curve, n_rows, n_cols, rng), witness(curve, n_cols, rng)
    same(backend.spmv(curve, m, z), REFERENCE.spmv(curve, m, z))


@pytest.mark.parametrize("n_table", [2, 40])
def test_values_around_the_limits_of_the_short_way(backend, curve, rng, n_table):
    """Small and large values, sums of units that are few, many, negative and large, with and without coefficients in
    Montgomery form (few rows do not pay for them).
    """
    r = CURVES[curve].r
    edges = [0, 1, 2, 2**24 - 1, 2**24, 2**64 - 1, 2**64, 2**64 + 1, 2**128, 2**192, r - 1, rng.randrange(r)]
    z = scalars([1, *edges, *(rng.choice(edges) for _ in range(500))])
    rows = [[(wire, k)] for wire in range(1, len(edges) + 1) for k in range(n_table)]
    rows += [[(2, 0)] * n for n in range(12)] + [[(2, 1)] * n for n in range(12)]
    rows += [
        [(4, 0)] * 3000,
        [(4, 1)] * 3000,
        [(4, 0)] * 500 + [(4, 1)] * 500,
        [(11, 0), (2, 0)],
        [(11, 1), (3, 1)],
    ]
    rows += [
        [(rng.randrange(len(z)), rng.randrange(n_table)) for _ in range(rng.randrange(200))]
        for _ in range(200)
    ]
    m = SparseMatrix(
        n_cols=len(z),
        row_ptr=np.cumsum([0, *map(len, rows)]).astype(np.uint64),
        cols=np.array([wire for row in rows for wire, _ in row], np.uint32),
        coeff=np.array([k for row in rows for _, k in row], np.uint32),
        table=limbs.to_montgomery([v << 256 for v in [1, r - 1, *range(2, n_table)]], r),
    )
    same(backend.spmv(curve, m, z), REFERENCE.spmv(curve, m, z))
    few = replace(
        m, row_ptr=m.row_ptr[: n_table * 2 + 1], cols=m.cols[: n_table * 2], coeff=m.coeff[: n_table * 2]
    )
    same(backend.spmv(curve, few, z), REFERENCE.spmv(curve, few, z))


def test_every_entry_a_product_equals_plain_ints(curve, rng):
    """What benches compare the daemon's rows with is as right as they are."""
    m, z = matrix(curve, 1000, 300, rng), witness(curve, 300, rng)
    out = np.full((1000, 4), 7, np.uint64)
    cpu.spmv_into(curve, m, z, out, 100, 1000, short_rows=False)
    same(out[100:], REFERENCE.spmv(curve, m, z)[100:])
    assert (out[:100] == 7).all()
    with pytest.raises(InvalidKey, match="row 999"):
        wrong = replace(m, row_ptr=np.append(m.row_ptr[:-1], np.uint64(len(m.cols) + 1)))
        cpu.spmv_into(curve, wrong, z, out, 0, 1000, short_rows=False)


def test_a_block_of_rows_leaves_the_others_alone(curve, rng):
    m, z = matrix(curve, 500, 100, rng), witness(curve, 100, rng)
    out = np.full((600, 4), 7, np.uint64)
    cpu.spmv_into(curve, m, z, out, 100, 450)
    same(out[100:450], REFERENCE.spmv(curve, m, z)[100:450])
    assert (out[:100] == 7).all() and (out[450:] == 7).all()
    for begin, end in ((0, 501), (450, 100)):
        with pytest.raises(ValueError, match="expected a range within"):
            cpu.spmv_into(curve, m, z, out, begin, end)


def test_indices_out_of_bounds_are_refused(backend, curve, rng):
    m, z = matrix(curve, 40, 10, rng), witness(curve, 10, rng)
    last = len(m.cols) - 1
    row = int(np.searchsorted(m.row_ptr, last, side="right")) - 1

    def changed(name, at, value):
        array = getattr(m, name).copy()
        array[at] = value
        return replace(m, **{name: array})

    for bad in (
        changed("cols", last, 10),
        changed("coeff", last, len(m.table)),
        changed("cols", last, 2**32 - 1),
    ):
        with pytest.raises(InvalidKey, match=f"row {row}"):
            backend.spmv(curve, bad, z)
    for bad in (
        changed("row_ptr", 40, last + 2),
        changed("row_ptr", 20, 2**63),
        changed("row_ptr", 0, 2**64 - 1),
    ):
        with pytest.raises(InvalidKey):
            backend.spmv(curve, bad, z)
    with pytest.raises(ValueError, match="z: expected 10 rows, got 9"):
        backend.spmv(curve, m, z[:9])


def test_first_mismatch(curve, rng):
    r = CURVES[curve].r
    x, y = ([rng.randrange(r) for _ in range(5000)] for _ in range(2))
    a, b = limbs.to_montgomery(x, r), limbs.to_montgomery(y, r)
    c = limbs.to_montgomery([u * v for u, v in zip(x, y, strict=True)], r)
    assert cpu.first_mismatch(curve, a, b, c, 0, 5000) == -1
    assert cpu.first_mismatch(curve, a, b, c, 5, 5) == -1
    c[[1234, 4000], 0] ^= np.uint64(1)
    assert cpu.first_mismatch(curve, a, b, c, 0, 5000) == 1234
    assert cpu.first_mismatch(curve, a, b, c, 1235, 5000) == 4000
    assert cpu.first_mismatch(curve, a, b, c, 1235, 4000) == -1
    with pytest.raises(ValueError, match=r"rows 0 \.\. 5001"):
        cpu.first_mismatch(curve, a, b, c, 0, 5001)


def test_copy_witness(curve, rng):
    r = CURVES[curve].r
    ints = [0, 1, r - 1, *(rng.randrange(r) for _ in range(9000))]
    out = np.empty((len(ints), 4), np.uint64)
    raw = b"x" + scalars(ints).tobytes()
    assert cpu.copy_witness(curve, memoryview(raw)[1:], out) == -1  # at an odd address
    assert limbs.to_ints(out) == ints
    for bad in (r, 2**256 - 1):
        ints[8000], ints[8500] = bad, bad
        assert cpu.copy_witness(curve, scalars(ints).tobytes(), out) == 8000
    with pytest.raises(ValueError, match="raw: expected shape"):
        cpu.copy_witness(curve, raw, out)
