"""Backends under the laws of this folder, and the inputs that break arithmetic: random ones and nasty ones.

`backend` runs every law over each build of the CPU backend that this processor can run and, with `pytest -m gpu`, over
CUDA. What is right is said by curves/ and backend/reference.py.
"""

import random

import numpy as np
import pytest

from cuzkd.backend import cpu, native
from cuzkd.curves import limbs
from cuzkd.curves import points as groups
from cuzkd.curves.params import CURVES


@pytest.fixture(scope="session")
def cuda_backend():
    from cuzkd.backend.cuda import CudaBackend

    backend = CudaBackend()
    yield backend
    backend.close()


@pytest.fixture(params=list(native.BUILDS))
def build(request, monkeypatch):
    """Each build of the native module in turn, in the place of this processor's; the module itself."""
    if request.param not in native.usable():
        pytest.skip(f"this processor lacks {', '.join(native.missing_flags(request.param))}")
    monkeypatch.setattr(cpu, "_native", native.load(request.param))
    return cpu._native


@pytest.fixture(params=[*native.BUILDS, pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request, monkeypatch):
    if request.param == "cuda":
        return request.getfixturevalue("cuda_backend")
    if request.param not in native.usable():
        pytest.skip(f"this processor lacks {', '.join(native.missing_flags(request.param))}")
    monkeypatch.setattr(cpu, "_native", native.load(request.param))
    return cpu.CpuBackend()


@pytest.fixture
def rng():
    return random.Random(20261129)


def nasty(p):
    """Values of a field at which carries, reductions and special cases sit."""
    n = 64 * limbs.limbs_of(p)
    return [
        0, 1, 2, p - 1, p - 2, (p - 1) // 2, (p + 1) // 2, (1 << n) % p, pow(1 << n, -1, p), (1 << 64) - 1, 1
        << 64, (1 << (n - 65)) - 1, p >> 64 << 64, p - (1 << 64), int("80000000" * (n // 64), 16) % p,
    ]  # fmt: skip


def scalars(values):
    """Ints below r as CANONICAL uint64[n, 4]."""
    return limbs.from_ints(values, limbs.FR_LIMBS)


def known_points(curve, group, logs):
    """Multiples of the generator with known logarithms (mod r), natively; test_points.py checks that it is right."""
    return cpu.fixed_base_mul(curve, group, scalars([k % CURVES[curve].r for k in logs]))


def multiple(curve, group, k):
    """k times the generator in plain ints, as an array [2, L] or [2, 2, L]."""
    g = groups.group(curve, group)
    return g.encode([g.mul(k, g.generator)])[0]


def same(got, expected):
    __tracebackhide__ = True
    assert got.shape == expected.shape and got.dtype == np.uint64
    wrong = np.flatnonzero((got != expected).reshape(len(got), got[0].size if len(got) else 0).any(axis=1))
    assert not len(wrong), f"{len(wrong)} of {len(got)} differ, first {wrong[0]}"
