"""Quotients by divsteps, in the processor's and in the GPU's width, equal those of plain ints.

The probe is built with checks: a signed number that outgrows its word ends it.
"""

import itertools
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from kernels.conftest import nasty

import cuzkd.kernels
from cuzkd.curves.params import CURVES

HEADERS = Path(cuzkd.kernels.__file__).parent
PROBE = Path(__file__).with_name("inverse_probe.cpp")
FIELDS = {
    f"{curve}.{name}": getattr(CURVES[curve], of)
    for curve in CURVES
    for name, of in (("fr", "r"), ("fq", "q"))
}


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    built = tmp_path_factory.mktemp("inverse") / "probe"
    checks = ["-fsanitize=signed-integer-overflow,shift-exponent", "-fsanitize-undefined-trap-on-error"]
    subprocess.run(
        ["g++", "-std=c++17", "-O1", *checks, f"-I{HEADERS}", str(PROBE), "-o", str(built)], check=True
    )

    def divide(name, bits, pairs):
        asked = "".join(f"{name} {bits} {x:x} {y:x}\n" for x, y in pairs)
        answered = subprocess.run([str(built)], input=asked, capture_output=True, text=True, check=True)
        return [int(line, 16) for line in answered.stdout.split()]

    return divide


def awkward(p):
    """Where divsteps begin or end early or late, or limbs are all zeros or all ones in either width."""
    values = set(nasty(p)) | set(range(70)) | {p - k for k in range(1, 70)}
    for width in (30, 62, 64):
        for k in range(width, p.bit_length(), width):
            values |= {1 << k, (1 << k) - 1, (1 << k) + 1, p - (1 << k), p >> k << k, p & ((1 << k) - 1)}
    values |= {pow(2, k, p) for k in range(-400, 900, 13)}
    fibonacci = [1, 2]  # neighbours of the same ratio everywhere: Euclid's longest way
    while fibonacci[-1] < p:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    values |= {x * pow(y, -1, p) % p for x, y in itertools.pairwise(fibonacci)}
    return sorted(v % p for v in values)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("bits", [30, 62])
def test_quotients(probe, name, bits):
    p, rng = FIELDS[name], random.Random(20261130)
    pairs = [(x, y) for y in awkward(p) for x in (1, p - 1, rng.randrange(p))]
    pairs += [(0, 5 % p), (0, 0), (1, 0), (p - 1, 0)]
    pairs += [(rng.randrange(p), rng.randrange(p)) for _ in range(2000)]
    expected = [x * pow(y, -1, p) % p if y else 0 for x, y in pairs]
    assert probe(name, bits, pairs) == expected
