"""Small operations: that what is timed is what is said, on every backend; and options that mean nothing."""

import json
import statistics

import numpy as np
import pytest

from cuzkd.backend.cpu import CpuBackend
from cuzkd.bench import micro, trials
from cuzkd.bench.micro import Options
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput


@pytest.mark.parametrize("curve", CURVES)
def test_operands_are_below_the_modulus_and_fill_it(curve):
    for modulus in (CURVES[curve].r, CURVES[curve].q):
        values = limbs.to_ints(trials.elements(modulus, 1000))
        assert all(value < modulus for value in values)
        assert max(values) > modulus // 2 and len(set(values)) == 1000
    assert set(trials.scalars(curve, 100, "bits")[:, 0].tolist()) == {0, 1}
    assert not trials.scalars(curve, 100, "bytes")[:, 1:].any()


@pytest.mark.parametrize("curve", CURVES)
def test_what_is_timed_is_the_operation(curve):
    """Recorded calls, with their arguments, against plain ints."""

    class Watched(CpuBackend):
        def msm(self, curve, group, bases, scalars):
            self.found = bases, scalars, super().msm(curve, group, bases, scalars)
            return self.found[2]

        def field_op(self, curve, fld, op, a, b=None):
            self.found = a, b, super().field_op(curve, fld, op, a, b)
            return self.found[2]

    backend = Watched()
    bench = trials.of(backend)
    assert bench.sum(curve, "g1", 5, "random")() > 0
    bases, scalars, total = backend.found
    # The bases are the generator times the same scalars: their sum is the generator times the sum of squares.
    squares = sum(x * x for x in limbs.to_ints(scalars)) % CURVES[curve].r
    from cuzkd.backend import cpu

    expected = cpu.fixed_base_mul(curve, "g1", limbs.from_ints([squares], 4))[0]
    assert len(bases) == 5 and np.array_equal(total, expected)
    assert bench.product(curve, "fq", 7)() > 0
    a, b, product = backend.found
    q = CURVES[curve].q
    inverse = pow(1 << 64 * a.shape[1], -1, q)
    expected = [x * y * inverse % q for x, y in zip(limbs.to_ints(a), limbs.to_ints(b), strict=True)]
    assert limbs.to_ints(product) == expected


def test_every_part_of_every_curve_has_its_cells():
    said = []
    report = micro.run(CpuBackend(), Options(log_sizes=(10, 4), rounds=2), said.append)
    numbers = json.loads(report.json())
    cells = numbers["cells"]
    assert {cell["part"] for cell in cells} == set(micro.PARTS)
    for part in micro.PARTS:
        for curve in CURVES:
            sizes = {c["log_size"] for c in cells if c["part"] == part and c["curve"] == curve}
            assert sizes == ({10} if part == "rows" else {4, 10})  # the circuit has 2^10 rows at least
            assert f"{curve}: {part}" in said
    assert all(cell["median_s"] == statistics.median(cell["seconds"]) > 0 for cell in cells)
    assert all(len(cell["seconds"]) == 2 for cell in cells)
    assert {c["what"] for c in cells if c["part"] == "quotient"} == {"circom", "bellman"}
    assert {c["what"] for c in cells if c["part"] == "sums"} == {
        "g1, random", "g1, bits", "g2, random", "g2, bits"
    }  # fmt: skip
    assert len(report.tables) == len(micro.PARTS)
    assert report.markdown().count("| bn254, ") == report.markdown().count("| bls12_381, ") > 10


def test_of_long_trials_there_are_fewer_but_enough(monkeypatch):
    monkeypatch.setattr(micro, "PATIENCE_S", 0.0)
    calls = []
    assert len(micro._timed(lambda: calls.append(1) or 1.0, 50)) == micro.MIN_ROUNDS
    assert len(calls) == micro.MIN_ROUNDS + 1


def test_a_size_without_the_part_has_a_dash():
    options = Options(curves=["bn254"], log_sizes=(4, 10), parts=["rows"], rounds=2)
    report = micro.run(CpuBackend(), options, print)
    assert report.tables[0].head == ("", "2^10")
    mixed = [
        micro.Cell("sums", "bn254", "g1", 4, 16, (1.0, 2.0)),
        micro.Cell("sums", "bn254", "g2", 5, 32, (1.0, 1.0)),
    ]
    table = micro._table("sums", mixed)
    assert table.rows == [["bn254, g1", "1500 (1000)", "-"], ["bn254, g2", "-", "1000 (1000)"]]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"parts": ["sums", "sum"]}, "expected some of .*got sum$"),
        ({"rounds": 1}, "at least 2, got 1"),
        ({"log_sizes": (10, 29)}, "0 to 28, got 10 29"),
    ],
)
def test_options_that_mean_nothing(wrong, says):
    with pytest.raises(InvalidInput, match=says):
        micro.run(CpuBackend(), Options(**wrong), print)


def test_rows_that_no_circuit_has_are_told():
    report = micro.run(CpuBackend(), Options(("bn254",), (4, 8), ("rows",), 2), print)
    assert report.tables == [] and "Rows: none measured" in report.text()
    report = micro.run(CpuBackend(), Options(("bn254",), (10,), ("rows",), 2), print)
    assert len(report.tables) == 1 and "none measured" not in report.text()
