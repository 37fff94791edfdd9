"""`cuzkd warmup`: what is compiled, and for whom, with a compiler that writes down what it is asked."""

import sys

import pytest

from cuzkd import cli
from cuzkd.backend import nvrtc
from cuzkd.circuits import builtin
from cuzkd.circuits.registry import Registry
from cuzkd.groth16 import setup


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """(module, architecture) of every compilation."""
    calls = []

    def compile_module(module, arch):
        calls.append((module, arch))
        return b"code"

    monkeypatch.setattr(nvrtc, "version", lambda: (12, 9))
    monkeypatch.setattr(nvrtc, "compile_module", compile_module)
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "cache"))
    return calls


def modules(*curves):
    return {module for curve in curves for module in nvrtc.proving_modules(curve)}


def test_both_curves_for_each_architecture_once(asked, capsys, tmp_path):
    assert cli.main(["warmup", "--arch", "sm_80", "sm_90"]) == 0
    wanted = modules("bn254", "bls12_381")
    assert set(asked) == {(module, arch) for module in wanted for arch in ("sm_80", "sm_90")}
    assert len(asked) == 2 * len(wanted) == len(list((tmp_path / "cache").iterdir()))
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["sm_80", "sm_90"]
    assert f"{len(wanted)} modules compiled" in said[0] and str(tmp_path / "cache") in said[0]

    asked.clear()
    assert cli.main(["warmup", "--arch", "sm_90"]) == 0
    assert asked == [] and f"{len(wanted)} were there" in capsys.readouterr().out


def test_what_benches_run_too(asked):
    assert cli.main(["warmup", "--arch", "sm_90", "--all"]) == 0
    assert {module for module, _ in asked} == set(nvrtc.all_modules())


def test_curves_of_the_installed_circuits(asked, tmp_path):
    key = setup.setup(builtin.constraints("bls12_381", 1))
    Registry(tmp_path / "state").install("c", key, source="built in")
    assert cli.main(["warmup", "--arch", "sm_90", "--state-dir", str(tmp_path / "state")]) == 0
    assert {module for module, _ in asked} == modules("bls12_381")


def test_what_cannot_be_done(asked, capsys, monkeypatch, tmp_path):
    assert cli.main(["warmup", "--arch", "sm_90", "--state-dir", str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "cuzkd.backend.cuda_probe", raising=False)
    assert cli.main(["warmup"]) == 3
    assert "--arch" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        cli.main(["warmup", "--arch", "90"])
    assert asked == []
