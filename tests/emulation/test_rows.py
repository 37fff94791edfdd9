"""The GPU's field arithmetic on the host: its rows of words are right for plain ints, carries at their worst included.

What the GPU's compiler makes of the same source is counted by tests/gpu/test_counts.py; here it is g++, with the carry
flag of ptx.hpp, which also ends the process where a carry would be lost.
"""

import ctypes
import functools
import itertools
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from kernels.conftest import nasty

from cuzkd.backend import nvrtc
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

HERE = Path(__file__).parent
WAYS = {
    "by words": (),
    "by halves": ("-DCUZKD_HALVES_FROM=8",),
    "by summed doubles": ("-DCUZKD_DOUBLES_FROM=8", "-DCUZKD_DOUBLES_CHAINED=false"),
    "by chained doubles": ("-DCUZKD_DOUBLES_FROM=8", "-DCUZKD_DOUBLES_CHAINED=true"),
    "by both": ("-DCUZKD_SOME_DOUBLES_FROM=8",),
}
# By number in rows.cpp.
OPS = ("add", "sub", "mul", "times", "sqr", "mul_add", "mul_sub", "neg", "to_canonical", "inv")


class Rows:
    """rows.cpp for one curve: lists of ints in and out."""

    def __init__(self, curve, path):
        self._library = ctypes.CDLL(str(path))
        self.modulus = {"fr": CURVES[curve].r, "fq": CURVES[curve].q}

    def words(self, fld):
        return limbs.limbs_of(self.modulus[fld])

    def _call(self, name, n, *arguments):
        pointers = [None if a is None else a.ctypes.data_as(ctypes.c_void_p) for a in arguments]
        function = self._library[name]
        function.restype = None
        return function, [*pointers, ctypes.c_size_t(n)]

    def op(self, fld, name, *columns):
        """Columns of ints, or of pairs for fq2."""
        base = fld.removesuffix("2")
        n, words = len(columns[0]), self.words(base)
        arrays = [limbs.from_ints(_flat(column), words) for column in columns]
        out = np.full_like(arrays[0], 0x25)
        function, arguments = self._call(f"op_{fld}", n, *arrays, *[None] * (4 - len(arrays)), out)
        function(ctypes.c_int(OPS.index(name)), *arguments)
        values = limbs.to_ints(out)
        return list(zip(values[::2], values[1::2], strict=True)) if fld == "fq2" else values

    def wide(self, fld, x, y=None):
        arrays = [None if v is None else limbs.from_ints(v, self.words(fld)) for v in (x, y)]
        out = np.full((len(x), 2 * self.words(fld)), 0x25, np.uint64)
        function, arguments = self._call(f"wide_{fld}", len(x), *arrays, out)
        function(*arguments)
        return limbs.to_ints(out)

    def redc(self, fld, t):
        array = limbs.from_ints(t, 2 * self.words(fld))
        out = np.full((len(t), self.words(fld)), 0x25, np.uint64)
        function, arguments = self._call(f"redc_{fld}", len(t), array, out)
        function(*arguments)
        return limbs.to_ints(out)


def _flat(column):
    return [c for pair in column for c in pair] if isinstance(column[0], tuple) else list(column)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return functools.cache(functools.partial(build, tmp_path_factory))


@pytest.fixture(params=[(curve, how) for how in WAYS for curve in CURVES], ids=" ".join)
def rows(request, built):
    """With every way of a product."""
    return built(*request.param)


@pytest.fixture(params=list(CURVES))
def any_rows(request, built):
    """Where products do not matter."""
    return built(request.param, next(iter(WAYS)))


def build(tmp_path_factory, curve, how):
    path = tmp_path_factory.mktemp("rows") / "rows.so"
    defines = [
        f"-DCUZKD_CURVE={nvrtc.CURVE_TYPES[curve]}",
        *WAYS[how],
        f'-DCUZKD_EMULATE_PTX="{HERE / "ptx.hpp"}"',
    ]
    flags = ["-std=c++17", "-O0", "-Wall", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{nvrtc.KERNELS}"]
    subprocess.run(["g++", *flags, *defines, str(HERE / "rows.cpp"), "-o", str(path)], check=True)
    return Rows(curve, path)


@pytest.fixture(params=["fr", "fq"])
def fld(request):
    return request.param


@pytest.fixture
def rng():
    return random.Random(20261130)


def carry_words(n_words):
    """Integers of 32-bit words that make carries run: all ones, single words, alternating ones."""
    bits, one = 32 * n_words, (1 << 32) - 1
    patterns = [0, 1, (1 << bits) - 1, (1 << bits) - 2, 1 << (bits - 1), (1 << (bits // 2)) - 1]
    patterns += [one << (32 * i) for i in range(n_words)]
    patterns += [((1 << bits) - 1) ^ (one << (32 * i)) for i in range(n_words)]
    patterns += [int("ffffffff00000000" * (n_words // 2), 16), int("00000000ffffffff" * (n_words // 2), 16)]
    patterns += [int("80000000" * n_words, 16), int("00000001" * n_words, 16)]
    return patterns


def below(p, rng, n=300):
    """Values of a field, with those whose product has a low word of zero or all ones, as the reduction's traps."""
    shaped = [v for v in carry_words(2 * limbs.limbs_of(p)) if v < p]
    return nasty(p) + shaped + [p - v for v in shaped if v] + [rng.randrange(p) for _ in range(n)]


def test_sums_and_differences(any_rows, fld, rng):
    rows, p = any_rows, any_rows.modulus[fld]
    pairs = list(itertools.product(below(p, rng, 30), repeat=2))
    x, y = ([pair[k] for pair in pairs] for k in (0, 1))
    assert rows.op(fld, "add", x, y) == [(a + b) % p for a, b in pairs]
    assert rows.op(fld, "sub", x, y) == [(a - b) % p for a, b in pairs]
    assert rows.op(fld, "neg", x) == [-a % p for a in x]


def test_products(rows, fld, rng):
    p = rows.modulus[fld]
    pairs = list(itertools.product(below(p, rng, 10), repeat=2))
    back = pow(1 << (64 * rows.words(fld)), -1, p)
    x, y = ([pair[k] for pair in pairs] for k in (0, 1))
    assert rows.op(fld, "mul", x, y) == [a * b * back % p for a, b in pairs]
    assert rows.op(fld, "times", x, y) == [a * b * back % p for a, b in pairs]
    z, w = x[::-1], y[1:] + y[:1]
    products = [a * b * back for a, b in pairs]
    others = [a * b * back for a, b in zip(z, w, strict=True)]
    assert rows.op(fld, "mul_add", x, y, z, w) == [(a + b) % p for a, b in zip(products, others, strict=True)]
    assert rows.op(fld, "mul_sub", x, y, z, w) == [(a - b) % p for a, b in zip(products, others, strict=True)]


def test_two_products_at_their_largest(rows, fld, rng):
    p = rows.modulus[fld]
    back = pow(1 << (64 * rows.words(fld)), -1, p)
    large = [p - 1, p - 2, p - (1 << 32), p - (1 << 64), p >> 32 << 32, p - rng.randrange(1 << 40)]
    columns = list(zip(*itertools.product(large, repeat=4), strict=True))
    expected = [(a * b + c * d) * back % p for a, b, c, d in zip(*columns, strict=True)]
    assert rows.op(fld, "mul_add", *columns) == expected


def test_squares(rows, fld, rng):
    p = rows.modulus[fld]
    values = below(p, rng, 2000)
    back = pow(1 << (64 * rows.words(fld)), -1, p)
    assert rows.op(fld, "sqr", values) == [v * v * back % p for v in values]
    assert rows.op(fld, "to_canonical", values) == [v * back % p for v in values]


def test_unreduced_products_of_any_words(rows, fld, rng):
    n = rows.words(fld)
    values = carry_words(2 * n) + [rng.randrange(1 << (64 * n)) for _ in range(10)]
    pairs = list(itertools.product(values, repeat=2))
    x, y = ([pair[k] for pair in pairs] for k in (0, 1))
    assert rows.wide(fld, x, y) == [a * b for a, b in pairs]
    assert rows.wide(fld, values) == [a * a for a in values]


def test_reduction(rows, fld, rng):
    """Up to the last value below p R; low words of zero and all ones, alone and in a row."""
    p, n = rows.modulus[fld], rows.words(fld)
    radix = 1 << (64 * n)
    back = pow(radix, -1, p)
    values = [v for v in carry_words(4 * n) if v < p * radix]
    values += [p * radix - 1 - v for v in values]
    values += [high * radix + low for high in (0, 1, p - 1) for low in carry_words(2 * n)]
    values += [rng.randrange(p * radix) for _ in range(2000)]
    assert rows.redc(fld, values) == [v * back % p for v in values]


def test_quadratic_extension(rows, rng):
    p = rows.modulus["fq"]
    back = pow(1 << (64 * rows.words("fq")), -1, p)
    short = [0, 1, p - 1, (p + 1) // 2, p - (1 << 64), int("80000000" * (2 * rows.words("fq")), 16) % p]
    elements = list(itertools.product(short, repeat=2))
    elements += [(rng.randrange(p), rng.randrange(p)) for _ in range(15)]
    pairs = list(itertools.product(elements, repeat=2))
    x, y = ([pair[k] for pair in pairs] for k in (0, 1))

    def product(a, b):
        return (a[0] * b[0] - a[1] * b[1]) * back % p, (a[0] * b[1] + a[1] * b[0]) * back % p

    assert rows.op("fq2", "mul", x, y) == [product(a, b) for a, b in pairs]
    assert rows.op("fq2", "sqr", elements) == [product(a, a) for a in elements]
    radix = pow(back, -1, p)
    inverses = rows.op("fq2", "inv", elements)
    assert [product(a, b) for a, b in zip(elements, inverses, strict=True)] == [
        (radix if any(a) else 0, 0) for a in elements
    ]


def test_inverses(any_rows, fld, rng):
    rows, p = any_rows, any_rows.modulus[fld]
    radix_squared = pow(1 << (64 * rows.words(fld)), 2, p)
    values = below(p, rng, 50)
    expected = [pow(v, -1, p) * radix_squared % p if v else 0 for v in values]
    assert rows.op(fld, "inv", values) == expected
