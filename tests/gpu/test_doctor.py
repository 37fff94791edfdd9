"""`cuzkd doctor` beside a device."""

import pytest

from cuzkd.backend import nvrtc
from cuzkd.cli import doctor
from cuzkd.engine.prover import canary

pytestmark = pytest.mark.gpu


def test_every_check_of_a_device(monkeypatch):
    monkeypatch.setattr(canary, "N_ROUNDS", 5)
    monkeypatch.setattr(doctor, "COPIED_BYTES", 1 << 20)
    told = {finding.check: finding for finding in doctor.examine("require")}
    assert {check for check, finding in told.items() if finding.level == "problem"} == set()
    assert {"device", "versions", "device memory", "kernels", "bandwidth", "proof, cuda, bn254"} <= set(told)
    n_modules = len(nvrtc.proving_modules("bn254")) + len(nvrtc.proving_modules("bls12_381"))
    assert f"of {n_modules} are compiled" in told["kernels"].found


def test_a_driver_too_old_for_the_compiler(gpu, monkeypatch, tmp_path):
    from cuzkd.backend import cuda_probe

    monkeypatch.setattr(cuda_probe, "cuda_version", lambda: (nvrtc.version()[0] - 1, 9))
    finding = doctor._versions(gpu, tmp_path)
    assert finding.level == "problem" and "a newer driver" in finding.remedy


def test_kernels_that_are_not_compiled(gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu.gpu, "cubins", nvrtc.CubinCache(gpu.gpu.cubins.arch, tmp_path))
    finding = doctor._kernels(gpu, tmp_path)
    assert finding.level == "warning" and finding.found.startswith("0 of ") and "warmup" in finding.remedy
