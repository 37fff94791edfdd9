"""The stream on the CPU backend, from the command line to files, and what its pipeline does with errors."""

import json

import pytest

from cuzkd import cli
from cuzkd.backend.cpu import CpuBackend
from cuzkd.bench import pipeline, subject
from cuzkd.curves.params import CURVES
from cuzkd.engine.job import PHASES
from cuzkd.errors import InvalidInput, InvalidWitness
from cuzkd.formats import snarkjs
from cuzkd.groth16 import verifier

N = 1100


@pytest.fixture(scope="module", params=["bn254", "bls12_381"])
def bed(request, tmp_path_factory):
    with subject.make(request.param, N, CpuBackend(), tmp_path_factory.mktemp("witnesses")) as made:
        yield made


def test_every_partition_is_another_and_comes_back_once(bed):
    with pipeline.opened(bed) as prover:
        assert prover.prewarm(3) > 0  # two ready, one at work
        first, second = prover.run(4, in_flight=2), prover.run(3)
        stats = prover.workers.pool.stats()
    assert [r.number for r in first.records] == [0, 1, 2, 3] and [r.number for r in second.records] == [
        4,
        5,
        6,
    ]
    assert len({record.publics for record in (*first.records, *second.records)}) == 7
    assert stats.leased_bytes == 0 and stats.slabs_made_on_job_path == 0 < stats.slabs
    for record in first.records:
        assert {"witness", "synthesis", "msm_h", "verify"} <= set(record.seconds) <= set(PHASES)
        assert all(first.began_s <= s.begin_s <= s.begin_s + s.seconds <= first.ended_s for s in record.spans)


def test_an_error_ends_the_run_and_not_the_pipeline(bed):
    r = CURVES[bed.key.vk.curve].r
    with pipeline.opened(bed) as prover:
        path = bed.witness(1)
        whole = path.read_bytes()
        path.write_bytes(whole[:-32] + r.to_bytes(32, "little"))
        try:
            with pytest.raises(InvalidWitness, match="not below the order"):
                prover.run(3, in_flight=1)
        finally:
            path.write_bytes(whole)
        assert len(prover.run(2).records) == 2
        with pytest.raises(InvalidInput, match="at least 1"):
            prover.run(0)


def test_from_the_command_line_to_files(tmp_path, capsys):
    out = {name: tmp_path / name for name in ("numbers.json", "section.md", "trace.json", "proofs")}
    arguments = ["--constraints", "1_200", "--curve", "bn254", "--partitions", "2", "--backend", "cpu"]
    files = ["--json", out["numbers.json"], "--markdown", out["section.md"], "--timeline", out["trace.json"]]
    code = cli.main(
        ["bench", "porep", *arguments, *map(str, files), "--dir", str(tmp_path), "--out", str(out["proofs"])]
    )
    printed = capsys.readouterr().out
    assert code == 0 and "INSECURE" in printed and "Verified: 3 of 3" in printed
    numbers = json.loads(out["numbers.json"].read_text())
    assert numbers["machine"]["backend"] == "cpu" and 0 < numbers["busy"] <= 1
    assert numbers["planned_bytes"]["pinned"] >= numbers["peak_bytes"]["pinned"] > 0
    assert out["section.md"].read_text().count("| msm_h |") == 1
    assert any(e["name"] == "msm_b_g2" for e in json.loads(out["trace.json"].read_text())["traceEvents"])
    vk = snarkjs.read_vkey(out["proofs"] / "verification_key.json")
    for proof in sorted(out["proofs"].glob("proof_*.json")):
        publics = snarkjs.read_publics(out["proofs"] / proof.name.replace("proof", "public"), vk.curve)
        assert verifier.verify(vk, snarkjs.read_proof(proof, vk.curve), publics)
    assert not list(tmp_path.glob("cuzkd-bench-*"))  # witness files are gone


def test_wrong_arguments(tmp_path, capsys):
    assert cli.main(["bench", "porep", "--constraints", "12", "--backend", "cpu"]) == 2
    assert "1024" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["bench", "porep", "--constraints", "many"])


def test_pictures(tmp_path, capsys):
    trace = tmp_path / "zero-copy.json"
    arguments = ["--constraints", "1024", "--curve", "bn254", "--partitions", "2", "--backend", "cpu"]
    assert cli.main(["bench", "porep", *arguments, "--timeline", str(trace)]) == 0
    picture = tmp_path / "picture.svg"
    assert cli.main(["bench", "plot", str(trace), str(trace), "--out", str(picture)]) == 0
    assert "<svg" in picture.read_text()
    trace.write_text("[]")
    assert cli.main(["bench", "plot", str(trace), "--out", str(picture)]) == 2
    assert str(trace) in capsys.readouterr().err
