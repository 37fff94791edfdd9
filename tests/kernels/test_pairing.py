"""The pairing equals py_ecc's and our own in plain ints; it is bilinear; a product as verification makes it."""

import numpy as np
import pytest
from kernels.conftest import known_points

from cuzkd.backend import cpu, reference
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES


@pytest.mark.parametrize(("a", "b"), [(1, 1), (5, 7)])
def test_equals_py_ecc(curve, a, b):
    from py_ecc import optimized_bls12_381, optimized_bn128

    library = {"bn254": optimized_bn128, "bls12_381": optimized_bls12_381}[curve]
    theirs = library.pairing(library.multiply(library.G2, b), library.multiply(library.G1, a))
    ours = cpu.pairing(curve, known_points(curve, "g1", [a])[0], known_points(curve, "g2", [b])[0])
    assert limbs.to_ints(ours) == [int(c) for c in theirs.coeffs]


def test_equals_plain_ints_with_infinity(curve):
    p, q = known_points(curve, "g1", [3, 0]), known_points(curve, "g2", [4, 0])
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert np.array_equal(cpu.pairing(curve, p[i], q[j]), reference.pairing(curve, p[i], q[j]))


def test_bilinear(curve, rng):
    r = CURVES[curve].r
    x, y = rng.randrange(r), rng.randrange(r)
    g1 = known_points(curve, "g1", [x, 1, x * y])
    g2 = known_points(curve, "g2", [y, x * y, 1])
    values = [cpu.pairing(curve, p, q) for p, q in zip(g1, g2, strict=True)]
    assert np.array_equal(values[0], values[1]) and np.array_equal(values[0], values[2])
    assert not np.array_equal(values[0], cpu.pairing(curve, g1[1], g2[2]))


@pytest.mark.usefixtures("build")
def test_products(curve, rng):
    """A random equation sum x_i y_i = 0 of four pairings, as in verification, and every way to break it."""
    r = CURVES[curve].r
    x, y = [rng.randrange(1, r) for _ in range(4)], [rng.randrange(1, r) for _ in range(3)]
    y.append(-sum(a * b for a, b in zip(x, y, strict=False)) * pow(x[3], -1, r) % r)
    g1, g2 = known_points(curve, "g1", x), known_points(curve, "g2", y)
    assert cpu.pairing_check(curve, g1, g2)
    for i in range(4):
        other = g1.copy()
        other[i] = known_points(curve, "g1", [x[i] + 1])[0]
        assert not cpu.pairing_check(curve, other, g2)
        assert not cpu.pairing_check(curve, np.delete(g1, i, 0), np.delete(g2, i, 0))
    assert cpu.pairing_check(curve, g1[::-1].copy(), g2[::-1].copy())


def test_edges(curve):
    p, q = known_points(curve, "g1", [1, -1, 0]), known_points(curve, "g2", [1, -1, 0])
    assert cpu.pairing_check(curve, p[:0], q[:0])
    assert cpu.pairing_check(curve, p[2:], q[:1]) and cpu.pairing_check(curve, p[:1], q[2:])
    assert not cpu.pairing_check(curve, p[:1], q[:1])
    assert cpu.pairing_check(curve, p[:2], q[[0, 0]])  # e(P, Q) e(-P, Q) = 1, the same Q twice
    assert cpu.pairing_check(curve, p[[0, 0]], q[:2])
    with pytest.raises(ValueError, match=r"g2: expected shape \[2, 2, 2"):
        cpu.pairing_check(curve, p[:2], q[:1])
