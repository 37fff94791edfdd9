"""The group law against py_ecc and py_arkworks, and its exceptional cases."""

import numpy as np
import pytest
from curves.conftest import py_ecc_of
from curves.test_params import any_point

from cuzkd.curves import limbs, points
from cuzkd.curves.fields import Quadratic
from cuzkd.curves.params import CURVES


def of_py_ecc(point, group):
    """py_ecc's affine point as ours."""
    if point is None:
        return None
    return tuple(int(v) if group == "g1" else tuple(int(c) for c in v.coeffs) for v in point)


def test_equals_py_ecc(curve, group, rng):
    library, g = py_ecc_of(curve), points.group(curve, group)
    theirs = library.G1 if group == "g1" else library.G2
    for k in (2, 3, 1000003, rng.randrange(g.r)):
        assert g.mul(k, g.generator) == of_py_ecc(library.multiply(theirs, k), group)
    a, b = library.multiply(theirs, 5), library.multiply(theirs, 11)
    ours = [of_py_ecc(p, group) for p in (a, b)]
    assert g.add(*ours) == of_py_ecc(library.add(a, b), group)
    assert g.double(ours[0]) == of_py_ecc(library.double(a), group)
    assert g.neg(ours[1]) == of_py_ecc(library.neg(b), group)


def test_equals_py_arkworks(group, rng):
    import py_arkworks_bls12381 as arkworks

    g = points.group("bls12_381", group)
    theirs = arkworks.G1Point() if group == "g1" else arkworks.G2Point()
    scalars = [rng.randrange(g.r) for _ in range(3)]
    total = theirs * arkworks.Scalar(scalars[0])
    for k in scalars[1:]:
        total = total + theirs * arkworks.Scalar(k)
    sum_ours = g.msm([g.generator] * 3, scalars)
    x, y = (v if group == "g1" else v[1] << 384 | v[0] for v in sum_ours)
    n = 48 * g.field.degree
    data = bytearray(x.to_bytes(n, "big"))
    larger = (y >> 384 if group == "g2" and y >> 384 else y) > (g.field.p - 1) // 2
    data[0] |= 0x80 | (0x20 if larger else 0)
    assert bytes(total.to_compressed_bytes()) == bytes(data)


def test_exceptional_cases(curve, group):
    g = points.group(curve, group)
    p = g.mul(9, g.generator)
    assert g.add(None, None) is None and g.double(None) is None and g.neg(None) is None
    assert g.add(p, None) == p == g.add(None, p)
    assert g.add(p, g.neg(p)) is None
    assert g.add(p, p) == g.double(p) == g.mul(18, g.generator)
    assert g.mul(0, p) is None and g.mul(g.r, p) is None and g.mul(5, None) is None
    assert g.mul(-1, p) == g.neg(p) == g.mul(g.r - 1, p)
    assert g.msm([], []) is None
    assert g.msm([p, g.neg(p), None], [4, 4, 9]) is None
    with pytest.raises(ValueError):
        g.msm([p], [1, 2])


def test_laws(curve, group, rng):
    g = points.group(curve, group)
    x, y = rng.randrange(g.r), rng.randrange(g.r)
    p, q = g.mul(x, g.generator), g.mul(y, g.generator)
    assert g.add(p, q) == g.add(q, p) == g.mul(x + y, g.generator)
    assert g.mul(x, q) == g.mul(x * y, g.generator)


def test_membership(curve, group, rng):
    g = points.group(curve, group)
    x, y = g.generator
    assert g.on_curve(None) and g.in_subgroup(None)
    assert not g.on_curve((x, g.field.add(y, g.field.one))) and not g.in_subgroup((y, x))
    stranger = any_point(g, rng)
    assert g.on_curve(stranger) and g.in_subgroup(stranger) == (g.cofactor == 1)


def test_arrays(curve, group):
    g = points.group(curve, group)
    some = [g.generator, None, g.mul(3, g.generator)]
    array = g.encode(some)
    n = CURVES[curve].fq_limbs
    assert array.shape == ((3, 2, n) if group == "g1" else (3, 2, 2, n)) and array.dtype == np.uint64
    assert not array[1].any() and g.decode(array) == some
    first = g.generator[0] if group == "g1" else g.generator[0][0]
    assert limbs.from_montgomery(array[:1].reshape(-1, n), g.field.p)[0] == first
    empty = g.encode([])
    assert empty.shape == (0, *array.shape[1:]) and g.decode(empty) == []


def test_quadratic_field(curve, rng):
    f = Quadratic(CURVES[curve].q)
    a = rng.randrange(f.p), rng.randrange(f.p)
    assert f.mul(a, f.inv(a)) == f.one and f.inv(f.zero) == f.zero
    assert f.pow(a, f.p) == f.conj(a) and f.pow(a, 0) == f.one
    assert f.mul((0, 1), (0, 1)) == (f.p - 1, 0)


def test_unknown_group(curve):
    with pytest.raises(ValueError, match="g1 or g2"):
        points.group(curve, "g3")
