"""Chains of products in registers, which are measured, end where those of plain ints end: both ways of a product."""

import random

import pytest

from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

pytest.importorskip("cupy")
from cuzkd.backend import cuda_ops

pytestmark = pytest.mark.gpu

ROUNDS, BLOCKS = 3, 2


def end(kernel, x, y, p):
    for _ in range(ROUNDS):
        x = {"squares": x * x, "inverses": pow(x, -1, p) + y}.get(kernel, x * y) % p
    return x


@pytest.mark.parametrize("curve", list(CURVES))
@pytest.mark.parametrize("fld", ["fr", "fq"])
@pytest.mark.parametrize("kernel", cuda_ops.CHAINS)
def test_chains(gpu, curve, fld, kernel):
    p, rng = CURVES[curve].r if fld == "fr" else CURVES[curve].q, random.Random(20261130)
    n = cuda_ops.CHAIN_THREADS * BLOCKS
    values = [rng.randrange(1, p) for _ in range(2 * n)]
    values[:4] = values[n : n + 4] = [1, p - 1, p - 2, (p - 1) // 2]
    lane = gpu.gpu.compute
    with gpu.gpu.guard():
        array = limbs.to_montgomery(values, p)
        there = lane.put(array)
        cuda_ops.chain(lane, curve, fld, kernel, there, BLOCKS, ROUNDS)
        got = limbs.from_montgomery(lane.get(there, array.shape), p)
    assert got[:n] == [end(kernel, x, y, p) for x, y in zip(values[:n], values[n:], strict=True)]
    assert got[n:] == values[n:]
