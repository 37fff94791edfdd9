"""Transforms eight lanes wide (kernels/cpu/transform_lanes.hpp) equal the definition and the portable build.

Their products and reductions (kernels/cpu/factor.hpp) equal plain ints for every value that fits into the limbs. All
over emulated instructions and, in the slow set and where the processor has them, over real ones.
"""

import ctypes
import subprocess

import numpy as np
import pytest
from kernels.conftest import nasty, same
from kernels.test_lanes import BUILDS, EACH_BUILD, HEADERS, HERE, LOW52

from cuzkd.backend import cpu, native
from cuzkd.backend.protocol import REDUCTIONS
from cuzkd.backend.reference import ReferenceBackend
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES, ROOT_FAMILIES

N_LIMBS = 5
R = 1 << 52 * N_LIMBS
REFERENCE = ReferenceBackend()


@pytest.fixture(scope="module", params=EACH_BUILD)
def library(request, tmp_path_factory):
    if request.param == "real" and "ifma" not in native.usable():
        pytest.skip("this processor has no AVX-512 IFMA")
    out = tmp_path_factory.mktemp("transform") / "probe.so"
    flags = [
        "-std=c++17",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
    ]
    source = str(HERE / "transform_probe.cpp")
    subprocess.run(
        ["g++", *flags, *BUILDS[request.param], f"-I{HEADERS}", source, "-o", str(out)], check=True
    )
    return ctypes.CDLL(str(out))


@pytest.fixture
def portable(monkeypatch):
    monkeypatch.setattr(cpu, "_native", native.load("portable"))
    return cpu.CpuBackend()


def pointer(array):
    assert array.dtype == np.uint64 and array.flags.c_contiguous
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64))


# -- products with factors known beforehand --


def loose(values, rng):
    """Ints below R as [groups, limbs, 8]: the same numbers modulo R, in limbs of either sign with rubbish on top."""
    rows = np.array([[value >> 52 * i & LOW52 for i in range(N_LIMBS)] for value in values], np.int64)
    for i in range(N_LIMBS):
        lent = np.array([rng.choice([0, 1, -1, rng.randrange(-200, 200)]) for _ in values], np.int64)
        rows[:, i] += lent << 52
        if i + 1 < N_LIMBS:
            rows[:, i + 1] -= lent
    return np.ascontiguousarray(rows.reshape(-1, 8, N_LIMBS).transpose(0, 2, 1)).view(np.uint64)


def ints(array):
    """The way back; every limb must be below 2^52."""
    assert (array >> np.uint64(52) == 0).all()
    rows = array.transpose(0, 2, 1).reshape(-1, N_LIMBS)
    return [sum(int(limb) << 52 * i for i, limb in enumerate(row)) for row in rows]


def any_limbs(p, rng):
    """Values below R: near its ends, near multiples of p and of limbs, limbs of all ones and of all zeros."""
    values = {0, 1, 2, R - 1, R - 2, R // 2, R // p * p, R // p * p - 1}
    values |= {k * p + d for k in range(R // p) for d in (-1, 0, 1)}
    values |= {(1 << 52 * i) + d for i in range(1, N_LIMBS) for d in (-1, 0, 1)}
    values |= {R - (1 << 52 * i) + d for i in range(1, N_LIMBS) for d in (-1, 0, 1)}
    values |= {rng.randrange(R) >> rng.randrange(1, 260) for _ in range(100)}
    values |= {rng.randrange(R) for _ in range(100)}
    values = sorted(value for value in values if 0 <= value < R)
    return values + [0] * (-len(values) % 8)


def call(library, op, curve, values, w, rng):
    array = loose(values, rng)
    out = np.zeros_like(array)
    factor = limbs.to_montgomery([w], CURVES[curve].r)
    wrong = library.product(
        op.encode(), curve.encode(), *map(pointer, (array, factor, out)), ctypes.c_size_t(len(array))
    )
    assert not wrong, f"no operation {op}"
    return ints(out)


def test_products_with_factors(library, curve, rng):
    """x w mod p, below 2 p while x is below 34 p, and in any case below (1 + x/R) p and a trifle."""
    p = CURVES[curve].r
    values = any_limbs(p, rng)
    for w in {*nasty(p), *(rng.randrange(p) for _ in range(20))}:
        for x, product in zip(values, call(library, "times", curve, values, w, rng), strict=True):
            assert product % p == x * w % p
            assert product * R < (R + x) * p + (R * p >> 40)


def test_reductions(library, curve, rng):
    p = CURVES[curve].r
    values = any_limbs(p, rng)
    for x, rest in zip(values, call(library, "reduced", curve, values, 1, rng), strict=True):
        assert rest % p == x % p and rest < p + (p >> 40)
    assert call(library, "canonical", curve, values, 1, rng) == [x % p for x in values]


# -- transforms --


def vector(curve, n, rng):
    r = CURVES[curve].r
    return limbs.to_montgomery((nasty(r) * n)[: n // 2] + [rng.randrange(r) for _ in range(n - n // 2)], r)


@pytest.mark.parametrize("log_n", [6, 7, 8])
@pytest.mark.parametrize("family", ROOT_FAMILIES)
def test_transforms_equal_the_definition(library, curve, log_n, family, rng):
    x, r = vector(curve, 1 << log_n, rng), CURVES[curve].r
    for inverse in (False, True):
        out, scale = x.copy(), limbs.to_montgomery([pow(1 << log_n, -1, r) if inverse else 1], r)
        assert not library.transform(curve.encode(), pointer(out), log_n, family, inverse, pointer(scale))
        same(out, REFERENCE.ntt(curve, x, family, inverse=inverse))


@pytest.mark.parametrize("op", ["down", "up"])
def test_the_longest_networks(library, portable, curve, op, rng):
    """14 layers, as for 2^28, of values from p to 2 p: lane by lane a transform, one end in reversed order."""
    r, n = CURVES[curve].r, 1 << 14
    lanes = [vector(curve, n, rng) for _ in range(6)]
    lanes += [np.zeros((n, 4), np.uint64), limbs.to_montgomery([-pow(2, -256, r) % r] * n, r)]
    x = np.ascontiguousarray(np.stack(lanes, axis=1))
    assert not library.network(op.encode(), curve.encode(), pointer(x), ctypes.c_uint64(5))
    places = np.array([int(f"{i:014b}"[::-1], 2) for i in range(n)])
    for lane, before in enumerate(lanes):
        if op == "up":
            same(x[:, lane], portable.ntt(curve, before[places], 5))
        else:
            times_n = limbs.to_montgomery([n] * n, r)
            coefficients = portable.ntt(curve, before, 5, inverse=True)
            same(x[places, lane], portable.field_op(curve, "fr", "mul", coefficients, times_n))


@pytest.mark.parametrize("log_n", range(6, 14))
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_quotients_equal_the_portable_ones(library, portable, curve, log_n, reduction, rng):
    a, b = vector(curve, 1 << log_n, rng), vector(curve, 1 << log_n, rng)
    h, y, z = a.copy(), b.copy(), np.empty_like(a)
    assert not library.quotient(
        reduction.encode(), curve.encode(), *map(pointer, (h, y, z)), log_n, ctypes.c_uint64(5)
    )
    same(h, portable.quotient(curve, a, b, 5, reduction))


@pytest.mark.parametrize("least", [False, True], ids=["largest", "alternating"])
@pytest.mark.parametrize("log_n", [7, 12])
def test_quotients_of_the_largest_values(library, portable, curve, log_n, least, rng):
    """All sums and differences at their extremes."""
    r, n = CURVES[curve].r, 1 << log_n
    a = limbs.to_montgomery([0 if least and i & 1 else -pow(2, -256, r) % r for i in range(n)], r)
    assert limbs.to_ints(a[:1]) == [r - 1]
    for reduction in REDUCTIONS:
        h, y, z = a.copy(), a.copy(), np.empty_like(a)
        assert not library.quotient(
            reduction.encode(), curve.encode(), *map(pointer, (h, y, z)), log_n, ctypes.c_uint64(7)
        )
        same(h, portable.quotient(curve, a, a, 7, reduction))
