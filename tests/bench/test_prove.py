"""Proofs of files, of added circuits and of synthetic ones; what is counted; who is compared with."""

import json
import lzma
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench.fake_device import FakeDevice

from cuzkd import cli
from cuzkd.backend import cpu
from cuzkd.backend.cpu import CpuBackend
from cuzkd.bench import prove, rival, sources, subject
from cuzkd.bench.sources import Options
from cuzkd.circuits.registry import Registry
from cuzkd.errors import DeviceFault, InvalidInput, InvalidWitness
from cuzkd.formats import proof_bytes, snarkjs

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
NOPUB, BLS = VECTORS / "edge_nopub", VECTORS / "merkle_1k_bls12381"


def options(**given):
    return Options(**({"rounds": 2, "stream": 2, "compare": False} | given))


def of_files(folder, **more):
    return options(zkey=folder / "circuit.zkey", witness=folder / "circuit.wtns", **more)


@pytest.mark.parametrize("backend", [CpuBackend, FakeDevice])
@pytest.mark.parametrize("folder", [NOPUB, BLS], ids=lambda folder: folder.name)
def test_a_key_in_a_file(backend, folder):
    said = []
    report = prove.run(backend(), of_files(folder), said.append)
    (found,) = json.loads(report.json())["circuits"]
    assert found["name"] == folder.name and "open" in said[0] and "load" in said[0]
    assert len(found["each_s"]) == len(found["verify_s"]) == len(found["phases_s"]) == 2
    assert all(0 < verify < each for each, verify in zip(found["each_s"], found["verify_s"], strict=True))
    for each, phases in zip(found["each_s"], found["phases_s"], strict=True):
        assert {"witness", "synthesis", "msm_b_g2", "assembly", "verify"} < phases.keys()
        assert max(phases.values()) < each
    assert found["first_s"] > 0 and found["stream_s"] > 0
    assert found["first_bytes"] > 1 << 20 and found["host_bytes"] > 1 << 20
    assert found["rival_s"] == found["single_s"] == [] and found["ratio"] is found["gain"] is None
    assert "Verified here once more: 5 of 5" in report.text() and "groth16py" not in report.text()


def test_a_folder_of_fixtures(tmp_path):
    shutil.copytree(NOPUB, tmp_path / "a" / "deep")
    shutil.copy(VECTORS / "edge_pub100" / "circuit.zkey", tmp_path / "other.zkey")
    shutil.copy(VECTORS / "edge_pub100" / "circuit.wtns", tmp_path / "other.wtns")
    (tmp_path / "alone.zkey").touch()
    report = prove.run(CpuBackend(), options(fixtures=tmp_path), print)
    assert [circuit["name"] for circuit in report.numbers["circuits"]] == ["deep", "other"]
    assert (
        [row[0] for row in report.tables[0].rows]
        == [row[0] for row in report.tables[1].rows]
        == ["deep", "other"]
    )


def test_with_one_thread(monkeypatch):
    """After those of all; then the pool is as wide as before."""
    width, widths, result = cpu.threads(), [], cpu.CpuRun.result
    cpu.set_threads(3)
    try:
        monkeypatch.setattr(cpu.CpuRun, "result", lambda run, *_: widths.append(cpu.threads()) or result(run))
        report = prove.run(CpuBackend(), of_files(NOPUB, one_thread=True), print)
        assert cpu.threads() == 3
    finally:
        cpu.set_threads(width)
    assert widths == [3] * (1 + 2 + 2) + [1] * (1 + 2)
    (circuit,) = report.numbers["circuits"]
    assert len(circuit["single_s"]) == 2
    assert circuit["gain"] == pytest.approx(sum(circuit["single_s"]) / sum(circuit["each_s"]))
    assert report.tables[0].head[-2:] == ["1 thread, ms", "gain"]


def test_one_thread_of_a_device():
    with pytest.raises(InvalidInput, match="--one-thread: expected with the processor, not with"):
        prove.run(FakeDevice(), of_files(NOPUB, one_thread=True), print)


def test_an_added_circuit(tmp_path):
    Registry(tmp_path).add("mine", zkey=NOPUB / "circuit.zkey")
    given = options(circuit="mine", state_dir=tmp_path, witness=NOPUB / "circuit.wtns")
    (circuit,) = prove.run(CpuBackend(), given, print).numbers["circuits"]
    assert (circuit["name"], circuit["n_wires"], circuit["log_domain"]) == ("mine", 3, 1)


def test_parameters_of_bellman(tmp_path):
    folder = VECTORS / "sapling_output"
    system = tmp_path / "circuit.r1cs"
    system.write_bytes(lzma.decompress((folder / "circuit.r1cs.xz").read_bytes()))
    files = {"params": folder / "sapling-output.params", "r1cs": system, "witness": folder / "circuit.wtns"}
    report = prove.run(CpuBackend(), options(**files), print)
    (circuit,) = report.numbers["circuits"]
    assert (circuit["name"], circuit["curve"], circuit["log_domain"]) == ("sapling-output", "bls12_381", 13)
    assert "5 of 5" in report.text() and "INSECURE" not in report.text()


def test_nothing_given_is_synthetic(tmp_path):
    report = prove.run(CpuBackend(), options(sizes=(1100,), curve="bn254"), print)
    (circuit,) = report.numbers["circuits"]
    assert circuit["n_constraints"] == 1100 and "INSECURE" in report.text()


def test_the_command(capsys, tmp_path):
    argv = ["bench", "prove", "--backend", "cpu", "--rounds", "2", "--stream", "1", "--no-compare"]
    files = ["--zkey", NOPUB / "circuit.zkey", "--witness", NOPUB / "circuit.wtns"]
    written = ["--json", tmp_path / "numbers.json", "--markdown", tmp_path / "section.md"]
    assert cli.main([str(arg) for arg in argv + files + written]) == 0
    assert "edge_nopub" in capsys.readouterr().out
    assert json.loads((tmp_path / "numbers.json").read_text())["bench"] == "prove"
    assert "| edge_nopub | bn254 |" in (tmp_path / "section.md").read_text()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"witness": NOPUB / "circuit.wtns"}, "--witness: expected with --zkey or --params or --circuit"),
        ({"r1cs": NOPUB / "circuit.r1cs"}, "--r1cs: expected with --params"),
        ({"state_dir": NOPUB}, "--state-dir: expected with --circuit"),
        ({"fixtures": NOPUB, "sizes": (1024,)}, "--sizes: .* without --fixtures"),
        ({"fixtures": NOPUB / "nope"}, "--fixtures .*nope: there is no such folder"),
        ({"sizes": (2048, 4)}, "--sizes: expected at least 1024, got 4"),
        ({"rounds": 1}, "--rounds: expected at least 2, got 1"),
    ],
)
def test_options_that_would_be_forgotten(given, says):
    with pytest.raises(InvalidInput, match=says):
        sources.sources(options(**given))


def test_tables_fit_a_terminal():
    report = prove.run(CpuBackend(), of_files(BLS), print)
    assert max(len(line) for table in report.tables for line in table.text().splitlines()) <= 120


# -- who is compared with ------------------------------------------------------------------------------------


class Other:
    """Speaks as groth16py does, and knows one proof. log: what it was asked."""

    def __init__(self, folder):
        self.data = proof_bytes.encode(snarkjs.read_proof(folder / "proof.json", "bn254"))
        self.log = []

    def import_zkey(self, path):
        self.log.append(path)
        return ("a key", "matrices")

    def prove_wtns(self, key, path):
        assert key == "a key"
        self.log.append(path)
        return self.data


def test_another_takes_turns(monkeypatch):
    other = Other(VECTORS / "edge_pub100")
    monkeypatch.setattr(rival, "installed", lambda: other)
    report = prove.run(CpuBackend(), of_files(VECTORS / "edge_pub100", compare=True), print)
    (circuit,) = report.numbers["circuits"]
    assert [Path(asked).name for asked in other.log] == ["circuit.zkey", "circuit.wtns", "circuit.wtns"]
    assert len(circuit["rival_s"]) == 2
    own = sorted(e - v for e, v in zip(circuit["each_s"], circuit["verify_s"], strict=True))
    assert circuit["ratio"] == pytest.approx(sum(own) / sum(circuit["rival_s"]))
    assert report.tables[0].head[-1] == "ratio" and "Ratio" in report.text()


def test_nobody_is_compared_on_a_curve_that_he_has_not(monkeypatch):
    other = Other(VECTORS / "edge_pub100")
    monkeypatch.setattr(rival, "installed", lambda: other)
    report = prove.run(CpuBackend(), of_files(BLS, compare=True), print)
    assert other.log == [] and report.tables[0].head[-1] != "ratio"


def test_a_wrong_proof_of_another_ends_it(monkeypatch):
    monkeypatch.setattr(rival, "installed", lambda: Other(VECTORS / "merkle_1k"))
    with pytest.raises(InvalidInput, match="groth16py's proof does not verify"):
        prove.run(CpuBackend(), of_files(VECTORS / "edge_pub100", compare=True), print)


def test_the_real_one_if_it_is_here():
    if rival.installed() is None:
        pytest.skip("groth16py is not installed")
    report = prove.run(CpuBackend(), of_files(VECTORS / "edge_pub100", compare=True), print)
    assert all(seconds > 0 for seconds in report.numbers["circuits"][0]["rival_s"])


# -- what goes wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"zkey": Path("a.zkey")}, "--witness"),
        ({"circuit": "x", "witness": Path("a.wtns")}, "--state-dir"),
        ({"zkey": Path("a"), "circuit": "x"}, "one of"),
        ({"params": Path("a"), "witness": Path("b")}, "--r1cs"),
        ({"fixtures": Path("/nonexistent")}, "no .zkey"),
        ({"rounds": 1}, "at least 2, got 1"),
    ],
)
def test_options_that_mean_nothing(given, says):
    with pytest.raises(InvalidInput, match=says):
        prove.run(CpuBackend(), options(**given), print)


def test_a_witness_of_another_circuit():
    files = options(zkey=NOPUB / "circuit.zkey", witness=VECTORS / "edge_pub100" / "circuit.wtns")
    with pytest.raises(InvalidWitness, match="expected 3 values"):
        prove.run(CpuBackend(), files, print)


def test_a_proof_that_is_told_verified_and_is_not(monkeypatch):
    monkeypatch.setattr(subject, "verifier", SimpleNamespace(verify=lambda *args: False))
    with pytest.raises(DeviceFault, match="does not verify"):
        prove.run(CpuBackend(), of_files(NOPUB), print)
