"""Products with known factors, by the portable loops and by the GPU's rows on the host: right for plain ints."""

import ctypes
import itertools
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulation.test_rows import below

from cuzkd.backend import nvrtc
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

HERE = Path(__file__).parent
WAYS = {"portable": (), "rows": (f'-DCUZKD_EMULATE_PTX="{HERE / "ptx.hpp"}"',)}


class Factors:
    """factors.cpp for one field: lists of ints in and out."""

    def __init__(self, modulus, path):
        self._library = ctypes.CDLL(str(path))
        self.p, self.words = modulus, limbs.limbs_of(modulus)
        self.r = 1 << (64 * self.words)
        self.has_rows = hasattr(self._library, "quotients")

    def call(self, name, width, *arrays):
        n = len(arrays[0])
        out = np.full((n, width * self.words), 0x25, np.uint64)
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*arrays, out)]
        function = self._library[name]
        function.restype = None
        function(*pointers, ctypes.c_size_t(n))
        return out

    def make(self, plain):
        return self.call("make", 2, limbs.from_ints([w * self.r % self.p for w in plain], self.words))


@pytest.fixture(
    scope="module",
    params=list(itertools.product(CURVES, ("Fr", "Fq"), WAYS)),
    ids=" ".join,
)
def factors(request, tmp_path_factory):
    curve, fld, how = request.param
    path = tmp_path_factory.mktemp("factors") / "factors.so"
    defines = [f"-DCUZKD_CURVE={nvrtc.CURVE_TYPES[curve]}", f"-DCUZKD_FIELD={fld}", *WAYS[how]]
    flags = ["-std=c++17", "-O1", "-Wall", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{nvrtc.KERNELS}"]
    subprocess.run(["g++", *flags, *defines, str(HERE / "factors.cpp"), "-o", str(path)], check=True)
    return Factors(CURVES[curve].r if fld == "Fr" else CURVES[curve].q, path)


@pytest.fixture
def pairs(factors):
    """(x, w) where carries run, and where x w is just above and below a multiple of p."""
    p, rng = factors.p, random.Random(20261130)
    found = list(itertools.product(below(p, rng, 40), repeat=2))
    for w in [1, 2, p - 1, p // 2, *(rng.randrange(1, p) for _ in range(300))]:
        inverse = pow(w, -1, p)
        found += [(k * inverse % p, w) for k in (1, 2, p - 1, p - 2)]
    return found


def test_a_factor_and_its_quotient(factors):
    plain = below(factors.p, random.Random(1))
    made = factors.make(plain)
    assert limbs.to_ints(np.ascontiguousarray(made[:, : factors.words])) == plain
    expected = [w * factors.r // factors.p for w in plain]
    assert limbs.to_ints(np.ascontiguousarray(made[:, factors.words :])) == expected


def test_products(factors, pairs):
    x, w = zip(*pairs, strict=True)
    got = factors.call("times", 1, factors.make(w), limbs.from_ints(x, factors.words))
    assert limbs.to_ints(got) == [a * b % factors.p for a, b in pairs]


def test_quotients_are_short_by_one_at_most(factors, pairs):
    if not factors.has_rows:
        pytest.skip("those of the portable loops are exact")
    x, w = zip(*pairs, strict=True)
    got = limbs.to_ints(factors.call("quotients", 1, factors.make(w), limbs.from_ints(x, factors.words)))
    short = [a * (b * factors.r // factors.p) // factors.r - q for (a, b), q in zip(pairs, got, strict=True)]
    assert set(short) <= {0, 1}
