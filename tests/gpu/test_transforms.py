"""Transforms and quotients by every way that the device has for them, at sizes that would take only one."""

import numpy as np
import pytest
from gpu.conftest import field_elements

from cuzkd.backend.cpu import CpuBackend
from cuzkd.backend.protocol import REDUCTIONS
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

pytestmark = pytest.mark.gpu

HOST = CpuBackend()


@pytest.fixture
def cut(monkeypatch):
    """cut(name): constants of the plan as no card wants them."""
    from cuzkd.backend import cuda_ntt, cuda_twiddles

    def choose(**values):
        for name, value in values.items():
            for module in (cuda_ntt, cuda_twiddles):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, value)

    return choose


SHORT_PASSES = {"LOG_ONE_PASS": 5, "LOG_WIDE": 4, "LOG_LAST": 5}  # three of them from 2^10 on, four from 2^14
SMALL_TILES = {"LOG_TILE": 5, "LOG_LEAST_TILE": 5, "LOG_WINDOW": 1}  # so that a table of 2^6 is enough
CUTS = {
    "as ever": {},
    "fused": {"FUSED_TILES": 0},
    "short passes": SHORT_PASSES,
    "short passes, fused": SHORT_PASSES | {"FUSED_TILES": 0},
    "largest tiles": SHORT_PASSES | {"TILES": 0},
    "windows": SHORT_PASSES | SMALL_TILES,
    "windows, fused": SHORT_PASSES | SMALL_TILES | {"FUSED_TILES": 0},
}


def montgomery(rng, curve, n):
    return field_elements(rng, curve, n)  # any element is the Montgomery form of one


def made(gpu, curve, family=5, table_bytes=0):
    from cuzkd.backend.cuda_ntt import Transforms

    return Transforms(gpu.gpu.compute, curve, family, table_bytes)


def run(gpu, array, work):
    """The array after work(address of it on the device)."""
    lane = gpu.gpu.compute
    with gpu.gpu.guard():
        buffer = lane.put(array)
        work(buffer.address)
        return lane.get(buffer, array.shape)


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("log_n", [0, 1, 2, 3, 6, 9, 11, 12])
def test_quotients(gpu, cut, curve, reduction, how, log_n):
    cut(**CUTS[how])
    rng, n, batch = np.random.default_rng(log_n), 1 << log_n, 1 + log_n % 3
    given = [[montgomery(rng, curve, n) for _ in range(2)] for _ in range(batch)]
    products = [HOST.field_op(curve, "fr", "mul", *pair) for pair in given]
    triples = np.stack([np.stack([*pair, ab]) for pair, ab in zip(given, products, strict=True)])
    expected = np.stack([HOST.quotient(curve, *pair, 5, reduction) for pair in given])
    transforms = made(gpu, curve)
    for with_c in (False, True):
        if not with_c:
            poisoned = triples.copy()
            poisoned[:, 2] = np.uint64(0xFFFFFFFFFFFFFFFF)
        got = run(
            gpu,
            triples if with_c else poisoned,
            lambda at, with_c=with_c: transforms.quotient(at, log_n, reduction, with_c, batch),
        )
        assert np.array_equal(got[:, 0], expected)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_c_that_is_no_product_is_taken_as_it_is(gpu, cut, curve, reduction):
    """Then there is a remainder, and both reductions leave the same of it: what (A B - C)(w_2n^(2i+1)) says."""
    log_n, r = 6, CURVES[curve].r
    rng = np.random.default_rng(1)
    triple = np.stack([montgomery(rng, curve, 1 << log_n) for _ in range(3)])
    odd = CURVES[curve].root_of_unity(5, log_n + 1)
    a, b, c = (HOST.ntt(curve, HOST.ntt(curve, v, 5, inverse=True), 5, shift=odd) for v in triple)
    values = HOST.field_op(curve, "fr", "sub", HOST.field_op(curve, "fr", "mul", a, b), c)
    if reduction == "bellman":
        minus_half = limbs.to_montgomery([pow(-2, -1, r)] * (1 << log_n), r)
        values = HOST.ntt(
            curve, HOST.field_op(curve, "fr", "mul", values, minus_half), 5, inverse=True, shift=odd
        )
    expected = HOST.field_op(curve, "fr", "from_mont", values)
    for how in ("as ever", "short passes, fused"):
        cut(**CUTS[how])
        transforms = made(gpu, curve)
        got = run(gpu, triple, lambda at, t=transforms: t.quotient(at, log_n, reduction, with_c=True))
        assert np.array_equal(got[0], expected)


@pytest.mark.parametrize("how", ["as ever", "short passes", "largest tiles", "windows"])
@pytest.mark.parametrize("log_n", [0, 1, 2, 3, 5, 8, 10, 11, 12])
def test_networks(gpu, cut, curve, how, log_n):
    """Several vectors at once, there and back."""
    cut(**CUTS[how])
    r, n = CURVES[curve].r, 1 << log_n
    rng, transforms = np.random.default_rng(log_n), made(gpu, curve, 7)
    values = np.stack([montgomery(rng, curve, n) for _ in range(2)])
    coefficients = run(gpu, values, lambda at: transforms.down(at, log_n, 2))
    order = [int(f"{k:0{log_n}b}"[::-1], 2) if log_n else 0 for k in range(n)]
    times_n = limbs.to_montgomery([n] * n, r)
    for vector, got in zip(values, coefficients, strict=True):
        expected = HOST.field_op(curve, "fr", "mul", HOST.ntt(curve, vector, 7, inverse=True), times_n)
        assert np.array_equal(got[order], expected)
    again = run(gpu, coefficients, lambda at: transforms.up(at, log_n, 2))
    for vector, got in zip(values, again, strict=True):
        assert np.array_equal(got, HOST.field_op(curve, "fr", "mul", vector, times_n))


@pytest.mark.parametrize(("how", "table_bytes"), [("as ever", 1 << 20), ("windows", 32 << 8)])
def test_domains_come_in_any_order(gpu, cut, curve, how, table_bytes):
    """The table grows with the largest; where it stays behind, it is used as far as it goes."""
    cut(**CUTS[how])
    rng, transforms = np.random.default_rng(0), made(gpu, curve, table_bytes=table_bytes)
    for log_n in (3, 10, 7, 5, 8, 7, 11, 10):
        pair = [montgomery(rng, curve, 1 << log_n) for _ in range(2)]
        triple = np.stack([*pair, pair[0]])
        for reduction in REDUCTIONS:
            got = run(gpu, triple, lambda at, n=log_n, by=reduction: transforms.quotient(at, n, by))
            assert np.array_equal(got[0], HOST.quotient(curve, *pair, 5, reduction))


@pytest.mark.parametrize(("how", "table_bytes"), [("as ever", 1 << 20), ("windows", 0)])
def test_memory_is_what_was_announced(gpu, cut, curve, how, table_bytes):
    """Of a table alone, and of one with windows; quotients take none."""
    cut(**CUTS[how])
    lane = gpu.gpu.compute
    with gpu.gpu.guard():
        buffer = lane.zeros(3 * 32 << 10)
        before = gpu.gpu.memory().used_bytes
        transforms = made(gpu, curve, table_bytes=table_bytes)
        transforms.prepare(10)
        taken = gpu.gpu.memory().used_bytes - before
        assert 0 <= taken - transforms.table_bytes(10) <= 8 << 10, "powers and constants"
        for reduction in REDUCTIONS:
            transforms.quotient(buffer.address, 10, reduction)
        assert gpu.gpu.memory().used_bytes - before == taken
        assert not lane.get(buffer, (1 << 10, 4)).any()
