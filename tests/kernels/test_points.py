"""Points equal those of plain ints and of py_ecc and py-arkworks, exceptional cases first."""

import itertools

import numpy as np
import pytest
from kernels.conftest import known_points, multiple, same, scalars

from cuzkd.backend import cpu, reference
from cuzkd.curves import limbs
from cuzkd.curves import points as groups
from cuzkd.curves.params import CURVES

REFERENCE = reference.ReferenceBackend()
LOGS = [0, 1, 2, 3, -1, -2, 5, 12345678901234567890]  # infinity, equal, opposite, double-of-the-other ...


def test_fixed_base_products_equal_plain_ints(curve, group, rng):
    r = CURVES[curve].r
    logs = [0, 1, 2, 255, 256, r - 1, r - 2, (r - 1) // 2, 1 << 200, rng.randrange(r)]
    same(known_points(curve, group, logs), np.stack([multiple(curve, group, k) for k in logs]))


def test_fixed_base_products_of_many(curve, group, rng):
    """More than a block of threads: k G + (r - k) G is infinity."""
    r = CURVES[curve].r
    logs = [rng.randrange(r) for _ in range(600)]
    p, q = known_points(curve, group, logs), known_points(curve, group, [-k for k in logs])
    assert not cpu.CpuBackend().point_op(curve, group, "add", p, q).any()


@pytest.mark.parametrize("op", ["add", "double", "neg"])
def test_operations(backend, curve, group, op):
    pairs = list(itertools.product(LOGS, LOGS))
    p, q = (known_points(curve, group, [pair[k] for pair in pairs]) for k in (0, 1))
    second = q if op == "add" else None
    same(backend.point_op(curve, group, op, p, second), REFERENCE.point_op(curve, group, op, p, second))


def test_scalar_products(backend, curve, group, rng):
    r = CURVES[curve].r
    logs = [0, 1, 7, -3, rng.randrange(r)]
    by = [0, 1, 2, r - 1, rng.randrange(r)]
    pairs = list(itertools.product(logs, by))
    points = known_points(curve, group, [k for k, _ in pairs])
    got = backend.scalar_mul(curve, group, points, scalars([s for _, s in pairs]))
    same(got, known_points(curve, group, [k * s for k, s in pairs]))


def test_checks_find_the_first_bad_point(curve, group):
    points = known_points(curve, group, range(2000))
    assert cpu.check_points(curve, group, points) == -1
    moved = points.copy()
    moved[[900, 1500]] += np.uint64(1)  # the limbs of another x and y
    assert cpu.check_points(curve, group, moved) == 900
    q = limbs.from_ints([CURVES[curve].q], CURVES[curve].fq_limbs)
    for row in (0, 1, 1999):
        unreduced = points.copy()
        unreduced[row].reshape(-1, q.shape[1])[-1] = q[0]  # y = q, which is 0 in disguise
        assert cpu.check_points(curve, group, unreduced) == row


def outside_the_subgroup(curve, group):
    """A point of the curve whose order is not r, or None on bn254's G1, which has none."""
    g = groups.group(curve, group)
    if g.cofactor == 1:
        return None
    c = CURVES[curve]
    for x in range(1, 1000):
        if group == "g1":
            square = (x**3 + c.b) % c.q
            y = pow(square, (c.q + 1) // 4, c.q)
            point = (x, y)
        else:
            # x in Fq2 with a y: norm trick for q = 3 mod 4.
            a, b = ((x**3 + c.b2[0]) % c.q, c.b2[1])
            root = pow((a * a + b * b) % c.q, (c.q + 1) // 4, c.q)
            half = (a + root) * pow(2, -1, c.q) % c.q
            y0 = pow(half, (c.q + 1) // 4, c.q)
            if y0 == 0:
                continue
            point = ((x, 0), (y0, b * pow(2 * y0, -1, c.q) % c.q))
        if g.on_curve(point):
            return g.encode([point])[0]
    raise AssertionError("no point found")


def test_checks_find_points_of_another_order(curve, group):
    points = known_points(curve, group, range(20))
    assert cpu.check_points(curve, group, points, subgroup=True) == -1
    stranger = outside_the_subgroup(curve, group)
    if stranger is None:
        assert curve == "bn254" and group == "g1"
        return
    points[13] = stranger
    assert cpu.check_points(curve, group, points) == -1
    assert cpu.check_points(curve, group, points, subgroup=True) == 13


def test_generators_and_multiples_equal_py_ecc(group):
    from py_ecc import optimized_bls12_381, optimized_bn128

    for curve, library in (("bn254", optimized_bn128), ("bls12_381", optimized_bls12_381)):
        generator = library.G1 if group == "g1" else library.G2
        for k in (1, 2, 1000003):
            x, y = library.normalize(library.multiply(generator, k))
            numbers = [int(x), int(y)] if group == "g1" else [int(c) for v in (x, y) for c in v.coeffs]
            got = cpu.fixed_base_mul(curve, group, scalars([k]))
            assert limbs.from_montgomery(got, CURVES[curve].q) == numbers


def test_sums_equal_py_arkworks(rng):
    from py_arkworks_bls12381 import G1Point, Scalar

    r = CURVES["bls12_381"].r
    logs, by = ([rng.randrange(r) for _ in range(20)] for _ in range(2))
    theirs = G1Point.identity()
    for k, s in zip(logs, by, strict=True):
        theirs = theirs + G1Point() * Scalar(k) * Scalar(s)
    ours = cpu.CpuBackend().msm("bls12_381", "g1", known_points("bls12_381", "g1", logs), scalars(by))
    x, y = limbs.from_montgomery(ours, CURVES["bls12_381"].q)
    compressed = bytearray(x.to_bytes(48, "big"))
    compressed[0] |= 0x80 | (0x20 if y > CURVES["bls12_381"].q // 2 else 0)
    assert bytes(theirs.to_compressed_bytes()) == bytes(compressed)
