"""Vector arithmetic (kernels/cpu/lanes.hpp) equals plain ints, carries at their maxima included.

Each law runs over the emulated instructions, on any machine, and in the slow set over the real ones where the processor
has them.
Limbs are given as they are, so that tests reach values no caller produces.
"""

import ctypes
import itertools
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cuzkd.backend import native
from cuzkd.curves.params import CURVES

HERE = Path(__file__).parent
HEADERS = HERE.parents[1] / "cuzkd" / "kernels"  # in the source tree: an installed package has no cpu/
# The last one because g++ 12 sees uninitialized values in its own header (bug 105593).
REAL = [
    "-mbmi2",
    "-madx",
    "-mavx512f",
    "-mavx512dq",
    "-mavx512vl",
    "-mavx512bw",
    "-mavx512ifma",
    "-DCUZKD_IFMA=1",
    "-Wno-maybe-uninitialized",
    "-Wno-uninitialized",
]
FLAGS = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden"]
BUILDS = {"emulated": ["-DCUZKD_EMULATE_VEC8=1"], "real": REAL}
# The real instructions run in every test of the build ifma, too; here only what no caller produces is added.
EACH_BUILD = ["emulated", pytest.param("real", marks=pytest.mark.slow)]
FIELDS = ["bn254 fq", "bn254 fr", "bls12_381 fq", "bls12_381 fr"]
LOW52 = (1 << 52) - 1


@pytest.fixture(scope="session", params=EACH_BUILD)
def library(request, tmp_path_factory):
    if request.param == "real" and "ifma" not in native.usable():
        pytest.skip("this processor has no AVX-512 IFMA")
    out = tmp_path_factory.mktemp("lanes") / "probe.so"
    flags = [*FLAGS, *BUILDS[request.param]]
    subprocess.run(["g++", *flags, f"-I{HEADERS}", str(HERE / "lanes_probe.cpp"), "-o", str(out)], check=True)
    return ctypes.CDLL(str(out))


class Probe:
    """One field's vectors: ints in and out, eight lanes a group."""

    def __init__(self, library, field):
        curve, fld = field.split()
        self.library, self.field = library, field
        self.p = CURVES[curve].r if fld == "fr" else CURVES[curve].q
        self.n_words = -(-self.p.bit_length() // 64)
        self.n_limbs = -(-(self.p.bit_length() + 5) // 52)
        self.bits = 52 * self.n_limbs
        self.r = 1 << self.bits

    def call(self, op, a, b, out):
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        words = ctypes.POINTER(ctypes.c_uint64)
        groups = max(1, len(a))
        pointers = [array.ctypes.data_as(words) for array in (a, b, out)]
        wrong = self.library.probe(op.encode(), self.field.encode(), *pointers, ctypes.c_size_t(groups))
        assert not wrong, f"no operation {op}"
        return out

    def limbs(self, values):
        """Ints, their number a multiple of 8 -> [groups, limbs, 8]; the top limb has whatever is left."""
        rows = [
            [value >> 52 * i & LOW52 for i in range(self.n_limbs - 1)] + [value >> 52 * (self.n_limbs - 1)]
            for value in values
        ]
        return np.ascontiguousarray(np.array(rows, np.uint64).reshape(-1, 8, self.n_limbs).transpose(0, 2, 1))

    def ints(self, limbs, tidy=True):
        """The way back; `tidy`: every limb must be below 2^52."""
        rows = limbs.transpose(0, 2, 1).reshape(-1, self.n_limbs)
        assert not tidy or (rows >> np.uint64(52) == 0).all()
        return [sum(int(limb) << 52 * i for i, limb in enumerate(row)) for row in rows]

    def __call__(self, op, x, y=None):
        """Values of op lane by lane; x, y: ints below R of any number."""
        n = len(x)
        pad = [0] * (-n % 8)
        a = self.limbs(list(x) + pad)
        b = self.limbs(list(y if y is not None else x) + pad)
        return self.ints(self.call(op, a, b, np.zeros_like(a)))[:n]


@pytest.fixture(params=FIELDS)
def probe(request, library):
    return Probe(library, request.param)


def below(probe, bound, rng):
    """Values below `bound`: near its ends, near multiples of p and of limbs, limbs of all ones and of all zeros."""
    p, top = probe.p, bound - 1
    values = {0, 1, 2, top, top - 1, bound // 2}
    values |= {k * p + d for k in range(8) for d in (-2, -1, 0, 1, 2)}
    values |= {(1 << 52 * i) + d for i in range(1, probe.n_limbs) for d in (-1, 0, 1)}
    values |= {top >> 52 * i << 52 * i for i in range(probe.n_limbs)}
    values |= {top >> 52 * i << 52 * i | ((1 << 52 * i) - 1) for i in range(probe.n_limbs)}
    values |= {(top >> 52 * i << 52 * i) - 1 for i in range(probe.n_limbs)}
    values |= {rng.randrange(bound) for _ in range(40)}
    return sorted(value for value in values if 0 <= value < bound)


def pairs(values, rng, most=2500):
    every = list(itertools.product(values, values))
    chosen = every if len(every) <= most else rng.sample(every, most)
    return [a for a, _ in chosen], [b for _, b in chosen]


@pytest.fixture
def rng():
    return random.Random(20261130)


def expect_product(probe, got, products):
    """got = product/R mod p, at least product/R and below product/R + p."""
    inverse = pow(probe.r, -1, probe.p)
    for value, product in zip(got, products, strict=True):
        assert value % probe.p == product * inverse % probe.p
        assert product <= value * probe.r < product + probe.p * probe.r


@pytest.mark.parametrize("bound", ["2p", "8p", "any limbs"])
def test_products(probe, bound, rng):
    """Also far outside the field: only the result must fit into the limbs."""
    bound = {"2p": 2 * probe.p, "8p": 8 * probe.p, "any limbs": probe.r - probe.p}[bound]
    x, y = pairs(below(probe, bound, rng), rng)
    expect_product(probe, probe("mul", x, y), [a * b for a, b in zip(x, y, strict=True)])
    expect_product(probe, probe("sqr", x), [a * a for a in x])


def test_sums_and_differences_of_products(probe, rng):
    x, y = pairs(below(probe, 5 * probe.p, rng), rng)
    sums = [a * a + b * b for a, b in zip(x, y, strict=True)]
    expect_product(probe, probe("mul_add", x, y), sums)
    differences = [a * a - b * b for a, b in zip(x, y, strict=True)]
    got = probe("mul_sub", x, y)
    expect_product(probe, [value - probe.p for value in got], differences)


def test_sums_and_differences(probe, rng):
    x, y = pairs(below(probe, 8 * probe.p, rng), rng)
    assert probe("add", x, y) == [a + b for a, b in zip(x, y, strict=True)]
    y = [b % (7 * probe.p) for b in y]
    assert probe("sub", x, y) == [a - b + 7 * probe.p for a, b in zip(x, y, strict=True)]


def loosened(probe, values, rng):
    """The same values with limbs of either sign, far outside [0, 2^52), as [groups, limbs, 8]."""
    limbs = probe.limbs(values).astype(np.int64)
    for i in range(probe.n_limbs - 1):
        lent = np.array(
            [rng.choice([0, 1, -1, 127, -127, rng.randrange(-128, 128)]) for _ in range(limbs[:, 0].size)]
        )
        lent = lent.reshape(limbs[:, 0].shape)
        limbs[:, i] += lent << 52
        limbs[:, i + 1] -= lent
    return limbs.view(np.uint64)


@pytest.mark.parametrize("op", ["carried", "reduced"])
def test_carries(probe, op, rng):
    p, bound = probe.p, probe.r if op == "carried" else 8 * probe.p
    for _ in range(4):
        values = below(probe, bound, rng)
        values += [0] * (-len(values) % 8)
        a = loosened(probe, values, rng)
        got = probe.ints(probe.call(op, a, a, np.zeros_like(a)))
        if op == "carried":
            assert got == values
        else:
            assert all((g - v) % p == 0 and 100 * g < 101 * p for g, v in zip(got, values, strict=True))


def test_canonical(probe, rng):
    x = below(probe, 2 * probe.p, rng)
    assert probe("canonical", x) == [value % probe.p for value in x]


def test_shifts(probe, rng):
    shift = probe.bits - 64 * probe.n_words
    for op, by in (("shl", shift), ("shl2", 2)):
        x = below(probe, probe.r >> by, rng)
        assert probe(op, x) == [value << by for value in x]


def test_zeros(probe, rng):
    """Multiples of p among values whose lowest limb is that of a multiple."""
    p = probe.p
    x = below(probe, 8 * p, rng)
    x += [(k * p & LOW52) + (rng.randrange(8 * p) >> 52 << 52) for k in range(8)]
    x = [value for value in x if value < 8 * p]
    x += [0] * (-len(x) % 8)
    a = probe.limbs(x)
    mask = probe.call("is_zero", a, a, np.zeros_like(a))[:, 0].reshape(-1)
    assert mask.tolist() == [(1 << 64) - 1 if value % p == 0 else 0 for value in x]


def test_select(probe, rng):
    x, y = [rng.randrange(probe.p) for _ in range(16)], [rng.randrange(probe.p) for _ in range(16)]
    expected = [a if 0xA5 >> k % 8 & 1 else b for k, (a, b) in enumerate(zip(x, y, strict=True))]
    assert probe("select", x, y) == expected


class Probe2(Probe):
    """The quadratic extension: pairs of ints in and out."""

    def __call__(self, op, x, y=None):
        n = len(x)
        pad = [(0, 0)] * (-n % 8)

        def both(values):
            return np.stack([self.limbs([v[c] for v in [*values, *pad]]) for c in (0, 1)], axis=1)

        a, b = both(x), both(x if y is None else y)
        out = self.call(op, a, b, np.zeros_like(a))
        if op == "is_zero":
            return out[:, 0, 0].reshape(-1)[:n].tolist()
        return list(zip(*(self.ints(out[:, c]) for c in (0, 1)), strict=True))[:n]


@pytest.fixture(params=["bn254 fq2", "bls12_381 fq2"])
def probe2(request, library):
    probe = Probe2(library, request.param.removesuffix("2"))
    probe.field = request.param
    return probe


@pytest.mark.parametrize("bound", [2, 4])
def test_products_of_the_extension(probe2, bound, rng):
    """Right modulo p, and as small as sums of points need them: products below 3 p, squares below 2 p."""
    p, inverse = probe2.p, pow(probe2.r, -1, probe2.p)
    x, y = (list(zip(*pairs(below(probe2, bound * p, rng), rng, 1200), strict=True)) for _ in range(2))
    for got, (a0, a1), (b0, b1) in zip(probe2("mul", x, y), x, y, strict=True):
        assert [v % p for v in got] == [(a0 * b0 - a1 * b1) * inverse % p, (a0 * b1 + a1 * b0) * inverse % p]
        assert max(got) < 3 * p
    for got, (a0, a1) in zip(probe2("sqr", x), x, strict=True):
        assert [v % p for v in got] == [(a0 * a0 - a1 * a1) * inverse % p, 2 * a0 * a1 * inverse % p]
        assert max(got) < 2 * p


def test_zeros_of_the_extension(probe2, rng):
    p = probe2.p
    values = [0, p, 3 * p, 1, p + 1, p << 1 | 1, rng.randrange(p)]
    x = list(itertools.product(values, values))
    expected = [(1 << 64) - 1 if a % p == b % p == 0 else 0 for a, b in x]
    assert probe2("is_zero", x) == expected


def words(values, n):
    return np.array([[value >> 64 * i & (1 << 64) - 1 for i in range(n)] for value in values], np.uint64)


def test_rows_in_and_out(probe, rng):
    values = below(probe, 1 << 64 * probe.n_words, rng)
    values += [0] * (-len(values) % 8)
    rows = words(values, probe.n_words).reshape(-1, 8, probe.n_words)
    limbs = np.zeros((len(rows), probe.n_limbs, 8), np.uint64)
    assert probe.ints(probe.call("gather", rows, rows, limbs)) == values
    back = probe.call("scatter", limbs, limbs, np.zeros_like(rows))
    assert np.array_equal(back, rows)


def test_constants(probe, rng):
    """x 2^(64 N) in memory -> x R in all lanes; 1 is R mod p."""
    p, n = probe.p, probe.n_words
    x = [0, 1, p - 1] + [rng.randrange(p) for _ in range(20)]
    rows = words([value * (1 << 64 * n) % p for value in x], n).reshape(-1, 1, n)
    got = probe.ints(probe.call("constant", rows, rows, np.zeros((len(x), probe.n_limbs, 8), np.uint64)))
    assert got == [value * probe.r % p for value in x for _ in range(8)]
    one = probe.call("one", rows[:0], rows[:0], np.zeros((1, probe.n_limbs, 8), np.uint64))
    assert probe.ints(one) == [probe.r % p] * 8
