"""Arrangements of the same proofs: what is launched how, what is verified, and what is said."""

import json
from dataclasses import replace

import numpy as np
import pytest
from bench.fake_device import FakeDevice

from cuzkd.backend.cpu import CpuBackend
from cuzkd.bench import batch
from cuzkd.bench.batch import Options
from cuzkd.errors import DeviceFault, InvalidInput

N = 1100


class SetDevice(FakeDevice):
    """Launch sets, proved one after the other. log: how many each launch had."""

    def __init__(self):
        super().__init__()
        self.log = []

    def launch(self, upload):
        self.log.append(1)
        return super().launch(upload)

    def launch_batch(self, uploads):
        self.log.append(len(uploads))
        return [FakeDevice.launch(self, upload) for upload in uploads]


def options(**more):
    return Options(**({"curve": "bn254", "sizes": (N,), "rounds": 2} | more))


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
def test_on_the_processor_there_are_singles_alone(curve):
    said = []
    report = batch.run(CpuBackend(), options(curve=curve, rounds=3), said.append)
    (size,) = json.loads(report.json())["sizes"]
    assert (size["n_constraints"], size["log_domain"]) == (N, 11)
    assert set(size["arrangements"]) == {"singles"}
    singles = size["arrangements"]["singles"]
    assert len(singles["wall_s"]) == 3 and singles["ratio"] == 1
    assert all(0 < busy <= wall for busy, wall in zip(singles["busy_s"], singles["wall_s"], strict=True))
    assert "Launch sets need a device" in report.text() and "INSECURE" in report.markdown()
    assert len(said) == 1


def test_without_a_size_the_processor_takes_the_smallest():
    report = batch.run(CpuBackend(), options(sizes=(), rounds=2, seconds=0), print)
    assert [size["n_constraints"] for size in report.numbers["sizes"]] == [batch.SIZES[0]]


def test_a_device_takes_turns():
    backend = SetDevice()
    report = batch.run(backend, options(sizes=(N, 2 * N)), print)
    # Two singles, two queued, one set; a round that is not counted, and two that are; two sizes.
    assert backend.log == [1, 1, 1, 1, 2] * 3 * 2
    assert [table.rows[2][0] for table in report.tables] == ["set of 2"] * 2
    small, large = json.loads(report.json())["sizes"]
    assert (small["n_constraints"], large["n_constraints"]) == (N, 2 * N)
    for one in large["arrangements"].values():
        assert len(one["wall_s"]) == len(one["busy_s"]) == 2
    ratio = small["arrangements"]["set of 2"]["ratio"]
    expected = (small["arrangements"][name]["wall"]["median"] for name in ("singles", "set of 2"))
    assert ratio == pytest.approx(next(expected) / next(expected))
    assert str(batch.CLAIMED) in report.text()


def test_uploads_are_two_partitions_and_made_anew_for_every_arrangement():
    backend = SetDevice()
    batch.run(backend, options(), print)
    at = [one.extents[0][0] for one in backend.arrived]
    assert len(set(at)) == 2 and at == at[:2] * 9
    assert all(len(one.extents) == 3 for one in backend.arrived)  # z, a, b: a device makes c


def test_time_ends_a_size_but_not_before_the_rounds_that_a_spread_needs():
    backend = SetDevice()
    report = batch.run(backend, options(rounds=50, seconds=0), print)
    assert len(report.numbers["sizes"][0]["arrangements"]["singles"]["wall_s"]) == batch.MIN_ROUNDS
    with pytest.raises(InvalidInput, match="rounds: expected at least 2, got 1"):
        batch.run(backend, options(rounds=1), print)


def test_sums_of_another_partition_are_found():
    class Swapping(SetDevice):
        def launch_batch(self, uploads):
            return super().launch_batch(uploads)[::-1]

    with pytest.raises(DeviceFault, match="does not verify"):
        batch.run(Swapping(), options(), print)


@pytest.mark.parametrize("name", batch.SUMS)
def test_a_sum_that_changes_later_is_found(name):
    class Wearing(SetDevice):
        def launch_batch(self, uploads):
            runs = super().launch_batch(uploads)
            if self.log.count(2) == 3:
                sums = runs[1].result()
                wrong = getattr(sums, name) ^ np.uint64(1)
                runs[1].result = lambda: replace(sums, **{name: wrong})
            return runs

    backend = Wearing()
    with pytest.raises(DeviceFault, match=f"{name} differs"):
        batch.run(backend, options(), print)
    assert backend.log.count(2) == 3
