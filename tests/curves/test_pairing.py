"""The pairing in plain ints equals py_ecc's, and is bilinear."""

from curves.conftest import py_ecc_of

from cuzkd.curves import pairing, points
from cuzkd.curves.params import CURVES


def test_equals_py_ecc(curve):
    from py_ecc import optimized_bls12_381, optimized_bn128

    c, library = CURVES[curve], {"bn254": optimized_bn128, "bls12_381": optimized_bls12_381}[curve]
    g1, g2 = points.g1(curve), points.g2(curve)
    ours = pairing.pairing(curve, g1.mul(5, c.g1), g2.mul(7, c.g2))
    theirs = library.pairing(library.multiply(library.G2, 7), library.multiply(library.G1, 5))
    assert ours == [int(x) for x in theirs.coeffs]


def test_bilinear_and_of_order_r(curve, rng):
    c = CURVES[curve]
    g1, g2 = points.g1(curve), points.g2(curve)
    x, y = rng.randrange(c.r), rng.randrange(c.r)
    base = pairing.pairing(curve, c.g1, c.g2)
    assert base != pairing.ONE and pairing.power(c, base, c.r) == pairing.ONE
    assert pairing.pairing(curve, g1.mul(x, c.g1), g2.mul(y, c.g2)) == pairing.power(c, base, x * y % c.r)


def test_products(curve):
    """e(6 P, Q) e(-3 P, 2 Q) = 1; with the factors exchanged, or one left out, it is not."""
    c = CURVES[curve]
    g1, g2 = points.g1(curve), points.g2(curve)
    p, q = [g1.mul(k, c.g1) for k in (6, -3)], [g2.mul(k, c.g2) for k in (1, 2)]
    assert pairing.pairing_check(curve, zip(p, q, strict=True))
    assert not pairing.pairing_check(curve, zip(p, q[::-1], strict=True))
    assert not pairing.pairing_check(curve, [(p[0], q[0])])


def test_infinity(curve):
    c = CURVES[curve]
    for p, q in ((None, c.g2), (c.g1, None), (None, None)):
        assert pairing.pairing(curve, p, q) == pairing.ONE
    assert pairing.pairing_check(curve, [])


def test_field(curve, rng):
    """mul is that of py_ecc's Fq12: same modulus polynomial, same order of coefficients."""
    c, library = CURVES[curve], py_ecc_of(curve)
    a, b = ([rng.randrange(c.q) for _ in range(12)] for _ in range(2))
    theirs = library.FQ12(a) * library.FQ12(b)
    assert pairing.mul(c, a, b) == [int(x) for x in theirs.coeffs]
