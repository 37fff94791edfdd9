"""The canary tells a device that computes wrongly from one that does not, and says so before anybody relies on it."""

import dataclasses

import pytest

from cuzkd.backend import cpu
from cuzkd.engine import faults
from cuzkd.engine.prover import canary as canaries
from cuzkd.engine.prover.canary import Canary
from cuzkd.errors import DeviceFault, Exhausted

CURVES = ["bn254", "bls12_381"]


class Wrong(cpu.CpuBackend):
    """One bit of one sum is wrong, or the launch raises."""

    error = None
    launched = 0

    def launch(self, upload):
        self.launched += 1
        if self.error:
            raise self.error
        run = super().launch(upload)
        sums = run.result()
        wrong = sums.h_g1.copy()
        wrong[0, 0] ^= 1
        run.result = lambda: dataclasses.replace(sums, h_g1=wrong)
        return run


@pytest.mark.parametrize("curve", CURVES)
def test_a_right_device_sings(curve):
    canary = Canary(cpu.CpuBackend())
    assert canary.sings(curve) and canary.sings(curve)


@pytest.mark.parametrize("error", [None, DeviceFault("lost"), RuntimeError("an illegal address")])
def test_a_wrong_device_does_not_and_the_test_says_why(error):
    backend = Wrong()
    backend.error = error
    canary = Canary(backend)
    assert not canary.sings("bn254")
    for _ in range(2):  # a failed one is asked again
        with pytest.raises(DeviceFault, match=error.args[0] if error else "does not verify"):
            canary.test("bn254")


def test_no_memory_is_no_fault():
    backend = Wrong()
    backend.error = MemoryError("full")
    with pytest.raises(Exhausted):
        Canary(backend).sings("bn254")


def test_one_test_for_each_curve(monkeypatch):
    sung = []
    monkeypatch.setattr(Canary, "_sing", lambda self, curve: sung.append(curve))
    canary = Canary(cpu.CpuBackend())
    assert canary.test_all(CURVES) > 0
    canary.test("bn254")
    canary.test_all(CURVES)
    assert sung == CURVES
    canary.sings("bn254")
    assert sung == [*CURVES, "bn254"]


@pytest.mark.parametrize("action", ["flip", "fault"])
def test_planned_faults(action):
    canary = Canary(cpu.CpuBackend(), faults.load(f"{action}:selftest:1"))
    if action == "flip":
        assert not canary.sings("bn254")
    else:
        with pytest.raises(DeviceFault, match="planned"):
            canary.test("bn254")
    canary.test("bn254")


def test_its_key_is_kept_and_a_damaged_copy_is_made_again(tmp_path, monkeypatch):
    made = []
    setup = canaries.setup.setup
    monkeypatch.setattr(canaries.setup, "setup", lambda constraints: made.append(1) or setup(constraints))
    folder = tmp_path / "canary"
    for count in (1, 1):
        Canary(cpu.CpuBackend(), folder=folder).test("bn254")
        assert len(made) == count
    (place,) = folder.iterdir()
    assert sorted(path.name for path in place.iterdir()) == ["key.bin", "manifest.json"]

    def flip(name, at):
        raw = bytearray((place / name).read_bytes())
        raw[at] ^= 1
        (place / name).write_bytes(raw)

    for count, damage in enumerate(
        (
            lambda: flip("key.bin", 100),
            lambda: flip("key.bin", -5000),
            lambda: flip("manifest.json", 30),
            (place / "manifest.json").unlink,
            lambda: (place / "key.bin").write_bytes(b""),
        ),
        start=2,
    ):
        damage()
        Canary(cpu.CpuBackend(), folder=folder).test("bn254")
        assert len(made) == count
    Canary(cpu.CpuBackend(), folder=folder).test("bn254")
    assert len(made) == count and list(folder.iterdir()) == [place]


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path):
    (tmp_path / "canary").write_text("in the way")
    Canary(cpu.CpuBackend(), folder=tmp_path / "canary").test("bls12_381")
