"""The oracle against definitions that it does not use itself: closed forms, long division, products by hand."""

import random

import numpy as np
import pytest

from cuzkd.backend import reference
from cuzkd.backend.protocol import KeyArrays, SparseMatrix
from cuzkd.backend.reference import ReferenceBackend
from cuzkd.curves import domains, limbs, points
from cuzkd.curves.domains import Domain
from cuzkd.curves.params import CURVES, ROOT_FAMILIES
from cuzkd.errors import InvalidKey

BACKEND = ReferenceBackend()


@pytest.fixture
def rng():
    return random.Random(3)


def scalars(values):
    return limbs.from_ints(values, 4)


@pytest.mark.parametrize("family", ROOT_FAMILIES)
@pytest.mark.parametrize("log_n", [0, 1, 3])
def test_quotient_is_that_of_a_long_division(curve, family, log_n, rng):
    """A B - C = H Z with Z = X^n - 1, and Z is -2 on the odd coset: h_i = -2 H(w_2n^(2i+1)). Polynomials by hand."""
    r, n = CURVES[curve].r, 1 << log_n
    rows = [[rng.randrange(r) for _ in range(n)] for _ in range(2)]
    rows.append([x * y % r for x, y in zip(*rows, strict=True)])
    a, b, c = (Domain(curve, family, log_n).interpolate_naive(values) for values in rows)
    product = [0] * (2 * n)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            product[i + j] += x * y
    for i, x in enumerate(c):
        product[i] -= x
    h = [x % r for x in product[n:]]  # X^n = 1 + Z: the quotient is the upper half, and the rest vanishes
    assert all((low + high) % r == 0 for low, high in zip(product[:n], h, strict=True))
    w = CURVES[curve].root_of_unity(family, log_n + 1)
    expected = [-2 * domains.horner(h, pow(w, 2 * i + 1, r), r) % r for i in range(n)]
    got = BACKEND.quotient(curve, *(limbs.to_montgomery(v, r) for v in rows[:2]), family)
    assert limbs.to_ints(got) == expected


@pytest.mark.parametrize("group", ["g1", "g2"])
def test_msm_of_known_points(curve, group, rng):
    """sum k (k G) = (sum of squares) G; with 0, 1, r - 1, equal and opposite points, infinity; nothing at all."""
    g = points.group(curve, group)
    ks = [0, 1, g.r - 1, 5, 5, g.r - 5, rng.randrange(g.r)]
    bases = reference.fixed_base_mul(curve, group, scalars(ks))
    assert not bases[0].any()
    total = BACKEND.msm(curve, group, bases, scalars(ks))
    assert np.array_equal(total, g.encode([g.mul(sum(k * k for k in ks), g.generator)])[0])
    assert not BACKEND.msm(curve, group, bases[:0], scalars([])).any()
    products = BACKEND.scalar_mul(curve, group, bases, scalars(ks))
    assert np.array_equal(
        products, reference.fixed_base_mul(curve, group, scalars([k * k % g.r for k in ks]))
    )


@pytest.mark.parametrize("group", ["g1", "g2"])
def test_point_operations(curve, group):
    known = reference.fixed_base_mul(curve, group, scalars(list(range(12))))
    p, q = known[[0, 0, 3, 3, 4]], known[[0, 2, 0, 3, 5]]
    assert np.array_equal(BACKEND.point_op(curve, group, "add", p, q), known[[0, 2, 3, 6, 9]])
    assert np.array_equal(BACKEND.point_op(curve, group, "double", p), known[[0, 0, 6, 6, 8]])
    minus = BACKEND.point_op(curve, group, "neg", p)
    assert not BACKEND.point_op(curve, group, "add", p, minus).any()
    with pytest.raises(ValueError, match="two operands"):
        BACKEND.point_op(curve, group, "add", p)


@pytest.mark.parametrize("fld", ["fr", "fq", "fq2"])
def test_field_operations(curve, fld, rng):
    c = CURVES[curve]
    p = c.r if fld == "fr" else c.q
    n, degree = 6, 2 if fld == "fq2" else 1
    ints = [[rng.choice([0, 1, p - 1, rng.randrange(p)]) for _ in range(n * degree)] for _ in range(2)]
    shape = (n, degree, -1) if degree == 2 else (n, -1)
    canonical = [limbs.from_ints(v, limbs.limbs_of(p)) for v in ints]
    canonical = [v.reshape(*shape[:-1], v.shape[-1]) for v in canonical]
    a, b = (BACKEND.field_op(curve, fld, "to_mont", v) for v in canonical)

    def op(name, *operands):
        return BACKEND.field_op(curve, fld, name, *operands)

    assert np.array_equal(op("from_mont", a), canonical[0])
    assert np.array_equal(op("sub", op("add", a, b), b), a)
    assert np.array_equal(op("sqr", a), op("mul", a, a))
    assert np.array_equal(op("mul", a, b), op("mul", b, a))
    assert np.array_equal(op("add", a, op("neg", a)), np.zeros_like(a))
    assert np.array_equal(op("mul", op("mul", a, op("inv", a)), a), a)
    assert not op("inv", np.zeros_like(a)).any()
    if degree == 1:
        products = [x * y % p for x, y in zip(*ints, strict=True)]
        assert limbs.to_ints(op("from_mont", op("mul", a, b))) == products
    with pytest.raises(ValueError, match="two operands"):
        op("mul", a)


def test_ntt_is_the_definition(curve, rng):
    r = CURVES[curve].r
    values = [rng.randrange(r) for _ in range(8)]
    array = limbs.to_montgomery(values, r)
    for shift in (None, 7):
        domain = Domain(curve, 5, 3, shift or 1)
        forward = BACKEND.ntt(curve, array, 5, shift=shift)
        assert limbs.from_montgomery(forward, r) == domain.evaluate_naive(values)
        assert np.array_equal(BACKEND.ntt(curve, forward, 5, inverse=True, shift=shift), array)
    with pytest.raises(ValueError, match="power of two"):
        BACKEND.ntt(curve, array[:7], 5)


def small_matrix(curve):
    """[[5 z0 - z2], [], [z1]]"""
    r = CURVES[curve].r
    table = limbs.from_ints([(v << 512) % r for v in (1, -1, 5)], 4)
    cols, coeff = np.array([0, 2, 1], np.uint32), np.array([2, 1, 0], np.uint32)
    return SparseMatrix(3, np.array([0, 2, 2, 3], np.uint64), cols, coeff, table)


def test_rows(curve):
    r, matrix = CURVES[curve].r, small_matrix(curve)
    z = scalars([1, r - 1, 7])
    assert limbs.from_montgomery(BACKEND.spmv(curve, matrix, z), r) == [r - 2, 0, r - 1]
    out = np.full((3, 4), 9, np.uint64)
    reference.spmv_into(curve, matrix, z, out, 1, 2)
    assert out.tolist() == [[9] * 4, [0] * 4, [9] * 4]
    with pytest.raises(ValueError, match="expected 3 rows"):
        reference.spmv_into(curve, matrix, z[:2], out, 0, 3)
    outside = SparseMatrix(3, matrix.row_ptr, matrix.cols + np.uint32(1), matrix.coeff, matrix.table)
    with pytest.raises(InvalidKey, match=r"row 0: .* out of bounds"):
        reference.spmv_into(curve, outside, z, out, 0, 3)


def test_first_mismatch(curve):
    r = CURVES[curve].r
    a, b, c = (limbs.to_montgomery(v, r) for v in ([2, 3, 4], [5, 6, 7], [10, 18, 28]))
    assert reference.first_mismatch(curve, a, b, c, 0, 3) == -1
    c[1, 0] ^= np.uint64(1)
    assert reference.first_mismatch(curve, a, b, c, 0, 3) == 1
    assert reference.first_mismatch(curve, a, b, c, 2, 3) == -1


def test_copy_witness(curve):
    r = CURVES[curve].r
    values = [0, 1, r - 1, r, 5]
    raw, out = b"".join(v.to_bytes(32, "little") for v in values), np.empty((5, 4), np.uint64)
    assert reference.copy_witness(curve, raw, out) == 3
    assert reference.copy_witness(curve, raw[:96], out[:3]) == -1
    assert limbs.to_ints(out[:3]) == values[:3]
    with pytest.raises(ValueError, match="expected 96 bytes, got 95"):
        reference.copy_witness(curve, raw[:95], out[:3])


@pytest.mark.parametrize("group", ["g1", "g2"])
def test_check_points(curve, group):
    good = reference.fixed_base_mul(curve, group, scalars([1, 0, 3]))
    assert reference.check_points(curve, group, good, subgroup=True) == -1
    off, unreduced = good.copy(), good.copy()
    off.reshape(3, -1)[2, 0] ^= np.uint64(1)
    x = limbs.to_ints(good)[0] + CURVES[curve].q
    unreduced.reshape(-1, good.shape[-1])[0] = limbs.from_ints([x], good.shape[-1])[0]
    assert reference.check_points(curve, group, off) == 2
    assert reference.check_points(curve, group, unreduced) == 0


def random_key(curve, rng):
    """3 rows in a domain of 4, 3 wires, one public; points with no further meaning."""

    def some(group, n):
        return reference.fixed_base_mul(curve, group, scalars([rng.randrange(9) for _ in range(n)]))

    return KeyArrays(
        curve=curve, root_family=5, reduction="circom", log_domain=2, n_wires=3, n_public=1, n_rows=3,
        a_g1=some("g1", 3), b_g1=some("g1", 3), b_g2=some("g2", 3), l_g1=some("g1", 1), h_g1=some("g1", 4),
    )  # fmt: skip


def test_uploads_are_copies(curve, rng):
    """The caller may wipe its vectors after upload(), and rows past those made count as zero."""
    key, r = random_key(curve, rng), CURVES[curve].r
    a, b = (limbs.to_montgomery([rng.randrange(r) for _ in range(3)], r) for _ in range(2))
    z = scalars([1, 5, r - 1])
    full = [np.concatenate([v, np.zeros((1, 4), np.uint64)]) for v in (a, b)]
    h = BACKEND.quotient(curve, *full, 5)
    expected = BACKEND.msm(curve, "g1", key.h_g1, h), BACKEND.msm(curve, "g2", key.b_g2, z)
    private = BACKEND.msm(curve, "g1", key.l_g1, z[2:])
    assert BACKEND.vector_rows(key) == 3 and not BACKEND.in_place and not BACKEND.scratch_c
    upload = BACKEND.upload(BACKEND.load_key(key), a, b, None, z)
    upload.wait()
    for vector in (a, b, z):
        vector[:] = 0
    run = BACKEND.launch(upload)
    sums = run.result()
    assert np.array_equal(sums.h_g1, expected[0]) and np.array_equal(sums.b_g2, expected[1])
    assert np.array_equal(sums.l_g1, private) and run.result() is sums and sums.h2d_bytes == 0


def test_wrong_vectors(curve, rng):
    key = BACKEND.load_key(random_key(curve, rng))
    rows, z = np.zeros((3, 4), np.uint64), np.zeros((3, 4), np.uint64)
    for args, message in (
        ((rows[:2], rows, None, z), "a: expected"),
        ((rows, rows[:2], None, z), "b: expected"),
        ((rows, rows, None, z[:2]), "z: expected"),
        ((rows, rows, rows, z), "makes c itself"),
    ):
        with pytest.raises(ValueError, match=message):
            BACKEND.upload(key, *args)
