"""Goals, small ones: what is measured is checked, and what is wrong or does not fit is told."""

import json

import numpy as np
import pytest

from cuzkd.backend.cpu import CpuBackend
from cuzkd.bench import goals, micro, trials
from cuzkd.bench.goals import Found, Goal
from cuzkd.errors import Exhausted, InvalidInput

SMALL = [
    Goal(part, curve, group, n, 0, 1e6, 1e-9)
    for curve in ("bn254", "bls12_381")
    for part, group, n in (("sums", "g1", 64), ("sums", "g2", 32), ("transforms", "", 64), ("rows", "", 1500))
]


def measured(backend=None, **fields):
    said = []
    report = goals.run(backend or CpuBackend(), micro.Options(rounds=2, **fields), said.append, SMALL)
    return report, json.loads(report.json())["goals"]


def test_results_are_right():
    report, numbers = measured()
    assert len(numbers) == len(SMALL) and all(number["equal"] for number in numbers)
    assert all(len(number["seconds"]) == 2 and number["best_ms"] > 0 for number in numbers)
    rows = report.tables[0].rows
    assert [row[0] for row in rows][:3] == [
        "bn254, sum in G1, 2^6",
        "bn254, sum in G2, 2^5",
        "bn254, transform, 2^6",
    ]
    assert all(row[-2:] == ("must", "equal") for row in rows)


def test_wrong_results_are_told():
    class Wrong(CpuBackend):
        def msm(self, *args):
            return np.zeros_like(super().msm(*args))

        def ntt(self, *args, **how):
            return super().ntt(*args, **how)[::-1]

        def spmv(self, *args):
            return super().spmv(*args) + np.uint64(1)

    report, numbers = measured(Wrong())
    assert not any(number["equal"] for number in numbers)
    assert all(row[-1] == "DIFFERS" for row in report.tables[0].rows)


def test_one_that_finds_no_memory_does_not_keep_the_others():
    class Full(CpuBackend):
        def msm(self, *args):
            raise Exhausted("device memory: full")

    report, numbers = measured(Full())
    assert {number["part"] for number in numbers} == {"transforms", "rows"}
    assert sum("sum in G1, 2^6: device memory: full" in note for note in report.notes) == 2


def test_some_of_them():
    _, numbers = measured(parts=("sums", "rows"), curves=("bn254",), log_sizes=(6, 11))
    assert [(number["part"], number["n"]) for number in numbers] == [("sums", 64), ("rows", 1500)]
    with pytest.raises(InvalidInput, match="none has"):
        measured(log_sizes=(3,))


def test_tables_count_where_they_are_faster():
    goal = Goal("sums", "bn254", "g1", 64, 3, 2, 1)
    plain, tabled = Found((0.003, 0.003), True), Found((0.003,), True, (0.0005,), (0.1,), 1 << 30)
    assert goals._row(goal, plain)[1:] == ("3 (3)", "-", "-", "3", "2", "1", "1.50 of must", "equal")
    assert goals._row(goal, tabled)[1:4] == ("3 (3)", "0.5 (0.5)", "100 (100), 1.00")
    assert goals._row(goal, tabled)[-2] == "target"


def test_the_check_of_a_sum_is_its_own():
    """By plain sums of the points, not by the multi-scalar sum."""
    for curve in ("bn254", "bls12_381"):
        bench = trials.of(CpuBackend())
        points = CpuBackend().scalar_mul(
            curve, "g1", bench._bases(curve, "g1", 3), trials.scalars(curve, 3, "random")
        )
        total = points[:1]
        for i in (1, 2):
            total = CpuBackend().point_op(curve, "g1", "add", total, points[i : i + 1])
        assert np.array_equal(goals._expected(curve, "g1", 3), total[0])
