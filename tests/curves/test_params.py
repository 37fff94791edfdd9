"""The data sheets against other people's, and against the orders of the groups themselves."""

import pytest
from curves.conftest import py_ecc_of

from cuzkd.curves import points
from cuzkd.curves.params import CURVES, ROOT_FAMILIES


def test_equals_py_ecc(curve):
    c, library = CURVES[curve], py_ecc_of(curve)
    assert (c.q, c.r) == (library.field_modulus, library.curve_order)
    assert c.b == int(library.b)
    assert c.g1 == tuple(int(x) for x in library.G1)
    assert c.g2 == tuple(tuple(int(x) for x in coordinate.coeffs) for coordinate in library.G2)
    assert c.b2 == tuple(int(x) for x in library.b2.coeffs)


def test_generators_have_order_r(curve, group):
    g = points.group(curve, group)
    assert g.on_curve(g.generator) and g.in_subgroup(g.generator)


def test_cofactors(curve, group, rng):
    """Any point of the curve, times its cofactor, is in the subgroup; without it (where it is not 1), hardly ever."""
    g = points.group(curve, group)
    point = any_point(g, rng)
    assert g.on_curve(point)
    assert g.in_subgroup(point) == (g.cofactor == 1)
    assert g.in_subgroup(g._times(g.cofactor, point))


def any_point(g, rng):
    """A random point of the curve, found by trying x: q = 3 mod 4, roots are powers."""
    p, f = g.field.p, g.field
    while True:
        x = rng.randrange(p) if f.degree == 1 else (rng.randrange(p), rng.randrange(p))
        square = f.add(f.mul(f.mul(x, x), x), g.b)
        y = root(f, square)
        if f.mul(y, y) == square:
            return x, y


def root(f, a):
    """A square root of a, if it has one, else something else (Adj and Rodriguez-Henriquez, algorithm 9, for Fp2)."""
    if f.degree == 1:
        return pow(a, (f.p + 1) // 4, f.p)
    a1 = f.pow(a, (f.p - 3) // 4)
    alpha, x0 = f.mul(a1, f.mul(a1, a)), f.mul(a1, a)
    if alpha == (f.p - 1, 0):
        return f.mul((0, 1), x0)
    return f.mul(f.pow(f.add((1, 0), alpha), (f.p - 1) // 2), x0)


def test_roots_of_unity(curve):
    c = CURVES[curve]
    assert c.two_adicity == {"bn254": 28, "bls12_381": 32}[curve]
    for family in ROOT_FAMILIES:
        for log_n in (1, 2, c.two_adicity):
            w = c.root_of_unity(family, log_n)
            assert pow(w, 1 << log_n, c.r) == 1 and pow(w, 1 << (log_n - 1), c.r) == c.r - 1
        assert c.root_of_unity(family, 0) == 1


def test_published_roots():
    """ffjavascript's for bn128 (Fr.w of the largest domain); blstrs's ROOT_OF_UNITY, which is of bellman's family."""
    bn, bls = CURVES["bn254"], CURVES["bls12_381"]
    assert bn.root_of_unity(5, 28) == 0x2A3C09F0A58A7E8500E0A7EB8EF62ABC402D111E41112ED49BD61B6E725B19F0
    assert bls.root_of_unity(7, 32) == 0x16A2A19EDFE81F20D09B681922C813B4B63683508C2280B93829971F439F0D2B
    assert bls.root_of_unity(5, 32) != bls.root_of_unity(7, 32)


@pytest.mark.parametrize(("family", "log_n"), [(2, 4), (3, 4), (5, -1), (5, 33)])
def test_no_such_root(curve, family, log_n):
    with pytest.raises(ValueError, match="expected"):
        CURVES[curve].root_of_unity(family, log_n)
