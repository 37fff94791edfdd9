"""The comparison as a whole on a fake device; the arithmetic of one run by hand; kept slabs; the bus's counters."""

import ctypes
import json
import time
from types import SimpleNamespace

import pytest
from bench.fake_device import FakeDevice

from cuzkd.backend.cpu import CpuBackend
from cuzkd.backend.protocol import Span
from cuzkd.bench import pcie, transfer
from cuzkd.bench.measured import Slabs, alone_table, in_flight_table, measured
from cuzkd.bench.pcie import Sample, Samples
from cuzkd.bench.pipeline import Record, Run
from cuzkd.bench.regimes import REGIMES
from cuzkd.bench.report import GIB
from cuzkd.bench.slabs import KeptPages, Pinning
from cuzkd.errors import Exhausted, InvalidInput, NeverFits
from cuzkd.memory.upstream import FailingUpstream, PagesUpstream, RegisteringUpstream

SMALL = transfer.Options(curve="bn254", n_constraints=1024, alone=1, partitions=3, in_flight=2)


def quiet(line):
    pass


def device(backend, bare_s=1e-3):
    driver = backend.driver
    return transfer.Device(
        Pinning(driver.register, driver.unregister), closable, lambda at, n, repeats: [2 * bare_s, bare_s]
    )


def closable():
    return SimpleNamespace(close=lambda: None)


def with_options(**changed):
    return transfer.Options(**(vars(SMALL) | changed))


# -- the whole -----------------------------------------------------------------------------------------------


def test_every_regime_is_run_alone_and_in_flight(tmp_path):
    backend = FakeDevice()
    options = with_options(traces=tmp_path / "traces", log=tmp_path / "log")
    report = transfer.run(backend, options, quiet, device(backend))
    found = report.numbers["regimes"]
    assert [(m["regime"], m["in_flight"], m["partitions"]) for m in found] == [
        (name, *run) for name in REGIMES for run in ((1, 1), (2, 3))
    ]
    assert [json.loads(line) for line in options.log.read_text().splitlines()] == json.loads(
        json.dumps(found)
    )
    assert not backend.driver.ranges and not report.numbers["failed"]
    # Slabs for two partitions and a staging buffer, whatever the number of regimes.
    assert report.numbers["pages"]["bytes"] == 3 * report.numbers["lease_bytes"]
    assert report.numbers["bare_bytes_s"] == report.numbers["lease_bytes"] / 1e-3
    for m in found:
        assert (m["pin_s"] > 0) == (m["unpin_s"] > 0) == m["regime"].startswith("register")
        assert (m["stage_s"] > 0) == (m["regime"].startswith("staged-") and m["regime"][7:] != "overlapped")
        assert m["of_bare"] == m["h2d_bytes"] / m["h2d_s"] / report.numbers["bare_bytes_s"]
        assert m["slabs"]["seconds"] > 0 and 0 < m["busy"] <= 1
        assert m["slabs"]["nbytes"] == report.numbers["lease_bytes"] * (3 if m["stage_s"] else 2)
    for name in options.traced:
        events = json.loads((options.traces / f"{name}.json").read_text())["traceEvents"]
        shown = {event["args"]["partition"] for event in events if event["ph"] == "X"}
        assert len(shown) == 3 and all(one.startswith("partition ") for one in shown)
    text, markdown = report.text(), report.markdown()
    assert all(name in text and f"| {name} |" in markdown for name in REGIMES)
    assert "INSECURE" in text and "No counters of the bus" in text


def test_a_regime_without_room_is_told_and_the_others_go_on():
    backend = FakeDevice()
    spread = device(backend)
    backend.driver.refuse_after = 600_000  # the bare copy, and slabs for no more than one partition
    options = with_options(n_constraints=4000, regimes=("zero-copy", "pageable"))
    report = transfer.run(backend, options, quiet, spread)
    assert [m["regime"] for m in report.numbers["regimes"]] == ["pageable", "pageable"]
    assert "zero-copy could not be run" in report.text()
    assert not backend.driver.ranges


def test_without_a_device_it_says_so_and_shows_the_host():
    report = transfer.run(CpuBackend(), with_options(regimes=("staged-1", "staged-all", "pageable")), quiet)
    text = report.text()
    assert "Transfers need a device" in text and "synthesis" in text and "pageable" not in text
    assert set(report.numbers["staging_s"]) == {"staged-1", "staged-all"}
    assert min(report.numbers["staging_s"].values()) > 0 and min(report.numbers["host_s"].values()) > 0
    assert "regimes" not in report.numbers


@pytest.mark.parametrize(
    "wrong",
    [
        {"regimes": ("pageable", "hope")},
        {"regimes": ()},
        {"alone": 0, "partitions": 0},
        {"in_flight": 1},
        {"partitions": -1},
        {"distinct": 0},
        {"traced": ("zero-copy", "hope")},
    ],
)
def test_options_that_make_no_sense(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        transfer.run(CpuBackend(), with_options(**wrong), quiet)


def test_more_in_flight_than_memory():
    backend = FakeDevice()
    with pytest.raises(NeverFits, match="GiB of vectors"):
        transfer.run(backend, with_options(in_flight=1 << 40), quiet, device(backend))


# -- one run by hand -----------------------------------------------------------------------------------------


def run_of(*partitions):
    """Each a list of (phase, row, begin, seconds); it took 1000 bytes across."""
    records = [
        Record(number, tuple(Span(*span) for span in spans), b"", (), 1000)
        for number, spans in enumerate(partitions)
    ]
    return Run(tuple(records), 0.0, 12.0, None, 0)


def test_arithmetic():
    first = [
        ("pin", "synthesis-0", 0.0, 6.5),  # a wait for leases, not a registration
        ("synthesis", "synthesis-0", 0.0, 1.0),
        ("pin", "gpu-scheduler", 1.0, 0.5),
        ("stage_copy", "gpu-scheduler", 1.5, 0.25),
        ("h2d", "copy", 2.0, 0.5),
        ("gpu_wait", "gpu-scheduler", 2.0, 0.25),
        ("msm_h", "compute", 2.5, 3.5),
        ("verify", "finaliser-0", 6.0, 1.0),
    ]
    second = [
        ("synthesis", "synthesis-0", 1.0, 3.0),
        ("h2d", "copy", 5.5, 1.5),  # the last second with no kernel beside it
        ("msm_h", "compute", 7.0, 2.5),
        ("verify", "finaliser-0", 9.5, 1.0),
        ("unpin", "finaliser-0", 10.5, 0.5),
    ]
    samples = Samples([Sample(2.1, 2.2, 700.0), Sample(5.6, 5.7, 900.0), Sample(6.9, 7.1, 5.0)])
    m = measured("register-all", 2, run_of(first, second), Slabs(2 * GIB, 0.2), 2000.0, samples)
    assert (m.pin_s, m.stage_s, m.unpin_s, m.h2d_s) == (0.25, 0.125, 0.25, 1.0)
    assert m.way_s == 1.625 and m.h2d_bytes_s == 1000.0 and m.of_bare == 0.5
    assert m.synthesis_s == 2.0 and m.gpu_wait_s == 0.125
    assert m.each_s == 11.0 - 7.0
    assert m.busy == pytest.approx(6 / 7) and m.exposed == pytest.approx(1 / 7)
    assert m.pcie_bytes_s == 800.0
    assert m.slabs.ms_per_gib == pytest.approx(100)
    alone = measured("register-all", 1, run_of(first), Slabs(GIB, 0.1), 2000.0, Samples())
    assert alone.each_s == 12.0 and alone.synthesis_s == 1.0 and alone.pcie_bytes_s is None
    assert alone_table("", [alone, m]).rows[0][-1] == "12.000"
    (row,) = in_flight_table("", [alone, m]).rows
    assert "2.00x" in row and "14.29%" in row and "85.7%" in row


# -- slabs that are kept -------------------------------------------------------------------------------------


def test_slabs_go_from_user_to_user():
    upstream = FailingUpstream(PagesUpstream(), good=2)
    kept = KeptPages(upstream)
    one, two = kept.make(5000), kept.make(8192)
    assert one.nbytes == two.nbytes == 8192 and one.address != two.address
    assert kept.in_use()[0] == kept.bytes_made == 16384
    one.view[0] = 7
    one.close()
    one.close()
    again = kept.make(8000)
    assert again.address == one.address and again.view[0] == 7
    with pytest.raises(Exhausted):
        kept.make(4096)  # of another size: a new one, and there are no more
    nbytes, seconds = kept.in_use()
    assert nbytes == 16384 and seconds == kept.made_s > 0
    again.close()
    two.close()
    assert kept.in_use() == (0, 0)
    kept.close()
    with pytest.raises(ValueError, match="released"):
        again.view[0] = 1


def test_kept_slabs_are_unlocked_before_they_are_kept():
    driver = FakeDevice().driver
    kept = KeptPages(PagesUpstream())
    slab = RegisteringUpstream(kept, driver.register, driver.unregister).make(4096)
    assert list(driver.ranges) == [slab.address]
    slab.close()
    assert not driver.ranges
    kept.close()


# -- the bus -------------------------------------------------------------------------------------------------


class Library:
    """NVML for one card. refuse: a function that answers with an error."""

    def __init__(self, refuse=""):
        self.refuse = refuse
        self.reads = 0

    def nvmlInit_v2(self):
        return self._answer("nvmlInit_v2")

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        assert uuid.value == b"GPU-1"
        handle._obj.value = 42
        return self._answer("nvmlDeviceGetHandleByUUID")

    def nvmlDeviceGetPcieThroughput(self, handle, counter, value):
        assert (handle.value, counter.value) == (42, 1) and isinstance(value._obj, ctypes.c_uint)
        self.reads += 1
        value._obj.value = 50_000_000
        time.sleep(0.001)
        return self._answer("nvmlDeviceGetPcieThroughput")

    def _answer(self, name):
        return 3 if name == self.refuse else 0


def test_samples_of_a_block():
    library = Library()
    with pcie.watched("GPU-1", library) as samples:
        began = time.monotonic()
        while library.reads < 5:
            time.sleep(0.001)
        ended = time.monotonic()
    reads = library.reads
    assert samples.during([(began, ended)]) == 50e9 and not samples.why_none
    assert samples.during([(ended + 1, ended + 2)]) is None
    assert all(sample.begin_s <= sample.end_s for sample in samples.taken)
    assert library.reads == reads == len(samples.taken) + 1  # the first is a try


@pytest.mark.parametrize("name", ["nvmlInit_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetPcieThroughput"])
def test_a_library_that_refuses_is_named(name):
    with pcie.watched("GPU-1", Library(name)) as samples:
        pass
    assert name in samples.why_none and not samples.taken


def test_a_machine_without_the_library(monkeypatch):
    monkeypatch.setattr(pcie, "LIBRARY", "libno-such-thing.so.1")
    with pcie.watched("GPU-1") as samples:
        pass
    assert "libno-such-thing" in samples.why_none
