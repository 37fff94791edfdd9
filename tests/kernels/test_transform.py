"""Transforms against their definition, at all small sizes, and by random-point evaluation at larger ones."""

import numpy as np
import pytest
from kernels.conftest import nasty, same

from cuzkd.backend import cpu
from cuzkd.backend.protocol import REDUCTIONS
from cuzkd.backend.reference import ReferenceBackend
from cuzkd.curves import limbs
from cuzkd.curves.domains import horner
from cuzkd.curves.params import CURVES, ROOT_FAMILIES

REFERENCE = ReferenceBackend()


def values(curve, n, rng):
    r = CURVES[curve].r
    return limbs.to_montgomery((nasty(r) * n)[: n // 2] + [rng.randrange(r) for _ in range(n - n // 2)], r)


@pytest.mark.parametrize("log_n", range(7))
@pytest.mark.parametrize("family", ROOT_FAMILIES)
@pytest.mark.parametrize("shift", [None, 1, 7, -1], ids=str)
def test_equals_the_definition(backend, curve, log_n, family, shift, rng):
    by = shift if shift != -1 else CURVES[curve].r - 1
    x = values(curve, 1 << log_n, rng)
    before = x.copy()
    for inverse in (False, True):
        got = backend.ntt(curve, x, family, inverse=inverse, shift=by)
        same(got, REFERENCE.ntt(curve, x, family, inverse=inverse, shift=by))
    same(x, before)


@pytest.mark.parametrize("log_n", [10, 11, 12, 13, 14])
def test_large(backend, curve, log_n, rng):
    """There and back, and one value by Horner's rule."""
    r, n = CURVES[curve].r, 1 << log_n
    x = values(curve, n, rng)
    y = backend.ntt(curve, x, 5)
    same(backend.ntt(curve, y, 5, inverse=True), x)
    at = rng.randrange(n)
    point = pow(CURVES[curve].root_of_unity(5, log_n), at, r)
    expected = horner(limbs.from_montgomery(x, r), point, r)
    assert limbs.from_montgomery(y[at : at + 1], r) == [expected]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("log_n", [*range(7), 9, 12])
@pytest.mark.parametrize("family", ROOT_FAMILIES)
def test_quotient_equals_the_definition(backend, curve, log_n, family, reduction, rng):
    a, b = values(curve, 1 << log_n, rng), values(curve, 1 << log_n, rng)
    before = a.copy(), b.copy()
    same(backend.quotient(curve, a, b, family, reduction), REFERENCE.quotient(curve, a, b, family, reduction))
    same(a, before[0])
    same(b, before[1])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("log_n", [0, 1, 2, 5])
def test_quotient_of_plain_vectors(backend, curve, log_n, reduction, rng):
    """Constants divide without rest, and one row alone does not; the last coefficient is always zero."""
    n = 1 << log_n
    zeros, ones = np.zeros((n, 4), np.uint64), limbs.to_montgomery([1] * n, CURVES[curve].r)
    one_row = zeros.copy()
    one_row[n // 2] = ones[0]
    for a, b in ((zeros, zeros), (zeros, ones), (ones, ones), (one_row, ones), (one_row, one_row)):
        h = backend.quotient(curve, a, b, 7, reduction)
        same(h, REFERENCE.quotient(curve, a, b, 7, reduction))
        assert h.any() == (a is one_row and b is one_row and n > 1)
        assert reduction == "circom" or not h[-1].any()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("log_n", [10, 11, 13])
def test_quotient_for_any_number_of_threads(curve, log_n, threads, rng):
    """The quotient as a polynomial, at a random point: A B - C = (x^n - 1) q, and x^n - 1 = -2 on the odd coset. Both
    reductions say the same.
    """
    r, n = CURVES[curve].r, 1 << log_n
    a, b = values(curve, n, rng), values(curve, n, rng)
    backend = cpu.CpuBackend()
    width = cpu.threads()
    try:
        cpu.set_threads(threads)
        h = limbs.to_ints(backend.quotient(curve, a, b, 5))
        coefficients = limbs.to_ints(backend.quotient(curve, a, b, 5, "bellman"))
        # Coefficients of h from its values on the odd coset w_2n <w>.
        odd = CURVES[curve].root_of_unity(5, log_n + 1)
        h_coefficients = backend.ntt(curve, limbs.to_montgomery(h, r), 5, inverse=True, shift=odd)
        ab = backend.field_op(curve, "fr", "mul", a, b)
        polynomials = [limbs.from_montgomery(backend.ntt(curve, v, 5, inverse=True), r) for v in (a, b, ab)]
    finally:
        cpu.set_threads(width)
    x = rng.randrange(r)
    value_a, value_b, value_c = (horner(p, x, r) for p in polynomials)
    # On the coset A B - C = Z q with Z = -2, so h = -2 q there and, of degree below n, everywhere.
    quotient = (value_a * value_b - value_c) * pow(pow(x, n, r) - 1, -1, r) % r
    assert horner(limbs.from_montgomery(h_coefficients, r), x, r) == -2 * quotient % r
    assert horner(coefficients, x, r) == quotient and coefficients[-1] == 0


def test_wrong_sizes_and_roots_are_refused():
    backend = cpu.CpuBackend()
    with pytest.raises(ValueError, match=r"2\^k rows, got 3"):
        backend.ntt("bn254", np.zeros((3, 4), np.uint64), 5)
    with pytest.raises(ValueError, match="not a quadratic non-residue"):
        backend.ntt("bn254", np.zeros((4, 4), np.uint64), 4)
    with pytest.raises(ValueError, match=r"2\^k rows, got 0"):
        backend.quotient("bn254", np.zeros((0, 4), np.uint64), np.zeros((0, 4), np.uint64), 5)


def test_unknown_reductions_are_refused(backend):
    one = np.zeros((1, 4), np.uint64)
    for by in (backend, REFERENCE):
        with pytest.raises(ValueError, match="reduction: expected"):
            by.quotient("bn254", one, one, 5, "libsnark")
