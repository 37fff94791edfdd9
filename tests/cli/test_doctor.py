"""`cuzkd doctor` on machines of all kinds: their /proc and /sys are folders made here, their devices stand-ins."""

import json
import resource
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cuzkd import cli
from cuzkd.backend import select
from cuzkd.backend.cpu import CpuBackend
from cuzkd.cli import doctor
from cuzkd.engine.prover import canary
from cuzkd.errors import DeviceFault, Exhausted, Unavailable

CPUINFO = "processor\t: 0\nmodel name\t: A Processor\nflags\t\t: fpu {}\n\nprocessor\t: 1\n"
DRIVER = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC version: 12\n"
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(canary, "N_ROUNDS", 5)


@pytest.fixture
def no_device(monkeypatch):
    load = select.load

    def fail(name):
        if name == "cuda":
            raise Unavailable("backend cuda needs cupy")
        return load(name)

    monkeypatch.setattr(select, "load", fail)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def root(tmp_path):
    """A machine without a card, in good order."""
    write(tmp_path / "proc/cpuinfo", CPUINFO.format("bmi2 adx"))
    write(tmp_path / "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    return tmp_path


def found(root, policy="prefer"):
    return {finding.check: finding for finding in doctor.examine(policy, root)}


def test_a_machine_without_a_card(root, no_device):
    told = found(root)
    assert list(told) == [
        "processor",
        "huge pages",
        "device",
        "memlock",
        "proof, cpu, bn254",
        "proof, cpu, bls12_381",
    ]
    levels = {check: finding.level for check, finding in told.items() if check != "processor"}
    assert levels.pop("device") == "warning" and set(levels.values()) == {"OK"}
    assert "--policy cpu" in told["device"].remedy
    assert all(bool(finding.remedy) == (finding.level != "OK") for finding in told.values())
    assert found(root, "require")["device"].level == "problem"
    assert "device" not in found(root, "cpu")


@pytest.mark.parametrize("policy", ["prefer", "require"])
def test_a_card_that_does_not_answer(root, no_device, policy):
    card = root / "sys/bus/pci/devices/0000:3b:00.0"
    write(card / "vendor", "0x10de\n")
    write(card / "class", "0x040300\n")  # the sound of its connector
    assert found(root)["device"].level == "warning"
    write(card / "class", "0x030200\n")
    device = found(root, policy)["device"]
    assert device.level == "problem" and device.found.startswith("1 card, but no driver")
    assert "install NVIDIA's driver" in device.remedy
    write(root / "proc/driver/nvidia/version", DRIVER)
    device = found(root, policy)["device"]
    assert device.level == "problem"
    assert device.found == "driver 570.86.15, but backend cuda needs cupy"


def test_a_slow_build_of_the_native_module(root):
    slow, fast = (
        SimpleNamespace(_native=SimpleNamespace(__name__=f"cuzkd.kernels.{n}"))
        for n in ("_native", "_native_adx")
    )
    finding = doctor._processor(slow, root)
    assert finding.level == "warning" and "A Processor" in finding.found and "bmi2 adx" in finding.found
    assert doctor._processor(fast, root).level == "OK"
    write(root / "proc/cpuinfo", CPUINFO.format("bmi2"))
    assert doctor._processor(slow, root).level == "OK"  # it has no better one
    (root / "proc/cpuinfo").unlink()
    assert "of unknown name" in doctor._processor(slow, root).found


@pytest.mark.parametrize(
    ("text", "says"), [("always madvise [never]\n", "never"), (None, "the kernel has none")]
)
def test_no_huge_pages(root, text, says):
    setting = root / "sys/kernel/mm/transparent_hugepage/enabled"
    if text is None:
        setting.unlink()
    else:
        setting.write_text(text)
    finding = doctor._huge_pages(root)
    assert (finding.level, finding.found) == ("warning", says) and "echo madvise" in finding.remedy


def test_a_limit_of_locked_memory_matters_beside_a_device(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (8 << 20, 8 << 20))
    assert doctor._memlock(False).level == "OK" and doctor._memlock(True).level == "warning"
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    assert doctor._memlock(True).level == "OK"


class Wrong(CpuBackend):
    """Its sums are those of another witness."""

    name = "wrong"

    def launch(self, upload):
        sums = super().launch(upload).result()
        return SimpleNamespace(result=lambda: replace(sums, a_g1=sums.l_g1), cancel=lambda: None)


def test_a_device_that_computes_wrongly():
    told = list(doctor._canary(Wrong()))
    assert [(f.check, f.level) for f in told] == [
        (f"proof, wrong, {curve}", "problem") for curve in ("bn254", "bls12_381")
    ]
    assert all(f.level == "OK" for f in doctor._canary(CpuBackend()))


def test_a_device_without_memory_for_a_proof_is_not_called_broken():
    class Full(CpuBackend):
        def load_key(self, key):
            raise Exhausted("device memory: full")

    told = list(doctor._canary(Full()))
    assert [f.level for f in told] == ["warning"] * 2 and told[0].found == "not tried: device memory: full"


def test_a_damaged_cupy(root, monkeypatch):
    def fail(name):
        raise AttributeError("numpy has no such thing")

    load = select.load
    monkeypatch.setattr(select, "load", lambda name: fail(name) if name == "cuda" else load(name))
    write(root / "proc/driver/nvidia/version", DRIVER)
    device = found(root)["device"]
    assert device.level == "problem" and "no such thing" in device.found


@pytest.mark.parametrize(("free", "level"), [(60, "OK"), (50, "OK"), (49, "warning")])
def test_memory_that_others_hold(root, free, level):
    vram = SimpleNamespace(free_bytes=free << 30, total_bytes=100 << 30, used_bytes=(100 - free) << 30)
    assert doctor._device_memory(SimpleNamespace(vram=lambda: vram), root).level == level


def test_a_check_of_the_device_that_fails_is_told_and_the_others_go_on(root, monkeypatch):
    def fail(*_):
        raise DeviceFault("CUDA: status 700")

    monkeypatch.setattr(doctor, "_versions", lambda *_: doctor.Finding("versions", "OK", "new"))
    monkeypatch.setattr(doctor, "_kernels", lambda *_: doctor.Finding("kernels", "OK", "there"))
    monkeypatch.setattr(doctor, "_bandwidth", lambda *_: doctor.Finding("bandwidth", "OK", "much"))
    gpu = SimpleNamespace(name="a card", uuid="GPU-1", cubins=SimpleNamespace(arch="sm_90"))
    told = list(doctor._device(SimpleNamespace(gpu=gpu, vram=fail), root))
    assert [(f.check, f.level) for f in told] == [
        ("device", "OK"), ("versions", "OK"), ("device memory", "problem"), ("kernels", "OK"), ("bandwidth", "OK"),
    ]  # fmt: skip
    assert told[2].found == "CUDA: status 700"


def test_the_command(capsys, no_device):
    assert cli.main(["doctor", "--policy", "require"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("problem  device: ") for line in lines) and "1 problem" in lines[-1]
    assert cli.main(["doctor", "--policy", "require", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["healthy"] and [f["check"] for f in told["findings"] if f["level"] == "problem"] == [
        "device"
    ]
    assert cli.main(["doctor", "--policy", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["healthy"]


def test_a_native_module_that_does_not_load(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cuzkd.backend.cpu", None)
    monkeypatch.delattr("cuzkd.backend.cpu")
    (finding,) = doctor.examine("cpu")
    assert (finding.check, finding.level) == ("processor", "problem") and "does not load" in finding.found
