"""Points equal those of plain ints and of py_ecc and py-arkworks, exceptional cases first."""

import itertools

import numpy as np
import pytest
from kernels.conftest import known_points, multiple, same, scalars

from cuzkd.backend import cpu, reference
from cuzkd.curves import limbs
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
