"""Sums of points that are doubled so and so often, which the host makes of what a device leaves."""

import importlib

import numpy as np
import pytest
from kernels.conftest import known_points, multiple, same

from cuzkd.backend import cpu
from cuzkd.curves.params import CURVES


@pytest.fixture(params=["as chosen", "portable"])
def native(request, monkeypatch):
    if request.param == "portable":
        monkeypatch.setattr(cpu, "_native", importlib.import_module("cuzkd.kernels._native"))


TIMES = {
    "none": [],
    "one": [7],
    "not doubled": [0, 0, 0],
    "as a sum leaves them": [*(c + e for c in (0, 9, 18) for e in (0, *range(8))), 0],
    "in any order": [5, 300, 0, 5, 41, 300, 1],
}


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("logs", ["random", "equal, opposite, none"])
def test_sums(native, curve, group, kind, logs, rng):
    times, r = TIMES[kind], CURVES[curve].r
    by = [rng.randrange(r) if logs == "random" else rng.choice([0, 1, -1]) for _ in times]
    points = known_points(curve, group, by)
    got = cpu.sum_of_doublings(curve, group, points, np.array(times, np.uint32))
    total = sum(k << t for k, t in zip(by, times, strict=True)) % r
    same(got[None], multiple(curve, group, total)[None])


def test_as_many_times_as_points(native):
    with pytest.raises(ValueError, match="points: expected shape"):
        cpu.sum_of_doublings("bn254", "g1", known_points("bn254", "g1", [1, 2]), np.zeros(3, np.uint32))
