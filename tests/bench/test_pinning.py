"""The cost of page-locking: what is registered for a curve, what is said without a device, and sense of sizes."""

import dataclasses
import json

import pytest
from bench.fake_device import Driver, FakeDevice

from cuzkd.backend.cpu import CpuBackend
from cuzkd.bench import pinning, plots
from cuzkd.bench.slabs import Pinning
from cuzkd.errors import Exhausted, InvalidInput, NeverFits
from cuzkd.memory.upstream import PAGE_BYTES

MIB = 1 << 20
SMALL = pinning.Options(making_bytes=MIB, curve_bytes=(2 * MIB, MIB), regions=(1, 3, 30))


@pytest.fixture
def driver():
    return Driver()


def device(driver):
    """host_alloc is told to have taken 2 s and 1 s."""
    return pinning.Device(Pinning(driver.register, driver.unregister), lambda nbytes: (2.0, 1.0))


def test_regions_of_the_curve(driver):
    report = pinning.run(FakeDevice(), SMALL, lambda line: None, device(driver))
    registered = [entry for entry in driver.log if entry[0] == "register"]
    assert len(registered) == 2 + 1 + 2 * (1 + 3 + 30)  # two ways of making, all of it once, the curve
    base, at = registered[2][1], 3
    assert registered[2][2] == 2 * MIB and report.numbers["first"][0]["nbytes"] == 2 * MIB
    for total in (MIB, 2 * MIB):
        for regions in SMALL.regions:
            size = total // regions // PAGE_BYTES * PAGE_BYTES
            part = registered[at : at + regions]
            assert [entry[1:] for entry in part] == [(base + i * size, size) for i in range(regions)]
            at += regions
    assert not driver.ranges
    curve = report.numbers["curve"]
    assert [(p["regions"], p["nbytes"]) for p in curve[:3]] == [
        (1, MIB),
        (3, 85 * 3 * 4096),
        (30, 30 * 32768),
    ]
    assert all(point["register_s"] > 0 and point["unregister_s"] > 0 for point in curve)


def test_a_trace_has_every_call(driver, tmp_path):
    options = dataclasses.replace(SMALL, trace=tmp_path / "trace.json")
    pinning.run(FakeDevice(), options, lambda line: None, device(driver))
    events = json.loads(options.trace.read_text())["traceEvents"]
    drawn = [event["name"] for event in events if event["ph"] == "X"]
    calls = [entry[0] for entry in driver.log]
    assert drawn.count("pin") == calls.count("register") == drawn.count("unpin") > 60


def test_picture_of_the_curve(driver, tmp_path):
    report = pinning.run(FakeDevice(), SMALL, lambda line: None, device(driver))
    (tmp_path / "numbers.json").write_text(report.json())
    plots.draw([tmp_path / "numbers.json"], tmp_path / "curve.svg")
    assert "<svg" in (tmp_path / "curve.svg").read_text()


def test_ways_of_making(driver):
    report = pinning.run(FakeDevice(), SMALL, lambda line: None, device(driver))
    ordinary, huge, allocated = report.numbers["making"]
    assert ["ordinary" in ordinary["way"], "huge" in huge["way"]] == [True, True]
    for made in (ordinary, huge):
        assert min(made[part] for part in ("pages_s", "lock_s", "unlock_s", "free_s")) > 0
    assert (allocated["lock_s"], allocated["free_s"], allocated["pages_s"]) == (2.0, 1.0, None)
    text = report.text()
    assert "cudaHostAlloc" in text and f"{2e3 * 1024:.1f}" in text
    assert json.loads(report.json())["curve"]


def test_without_a_device_it_says_why():
    report = pinning.run(CpuBackend(), SMALL, lambda line: None)
    assert "needs a device" in report.text() and not report.numbers["curve"]
    assert [made["lock_s"] for made in report.numbers["making"]] == [None, None]
    assert all(made["pages_s"] > 0 for made in report.numbers["making"])


def test_a_driver_that_has_no_more_leaves_nothing(driver):
    driver.refuse_after = MIB + MIB // 2
    with pytest.raises(Exhausted):
        pinning.run(FakeDevice(), SMALL, lambda line: None, device(driver))
    assert not driver.ranges


@pytest.mark.parametrize(
    "wrong",
    [
        {"regions": (0,)},
        {"regions": ()},
        {"making_bytes": 0},
        {"curve_bytes": (30 * PAGE_BYTES - 1,)},
    ],
)
def test_sizes_that_cannot_be(wrong):
    with pytest.raises(InvalidInput):
        pinning.run(CpuBackend(), pinning.Options(**(vars(SMALL) | wrong)), lambda line: None)


def test_more_than_the_machine_has(driver):
    with pytest.raises(NeverFits, match=str(1 << 60)):
        pinning.run(CpuBackend(), pinning.Options(making_bytes=1 << 60), lambda line: None)
    options = pinning.Options(making_bytes=MIB, curve_bytes=(1 << 60, MIB), regions=(1,))
    report = pinning.run(FakeDevice(), options, lambda line: None, device(driver))
    assert [point["nbytes"] for point in report.numbers["curve"]] == [MIB]
    assert "left out" in report.text()
