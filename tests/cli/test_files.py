"""`inspect`, `export`, and `verify` of every spelling."""

import json
from pathlib import Path

import pytest

from cuzkd import cli
from cuzkd.formats import proof_bytes, snarkjs

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
MERKLE, BLS, POLKA = VECTORS / "merkle_1k", VECTORS / "merkle_1k_bls12381", VECTORS / "polka_porep_2kib"
SAPLING = VECTORS / "sapling_output" / "sapling-output.params"


def run(capsys, *argv):
    code = cli.main([str(arg) for arg in argv])
    out, err = capsys.readouterr()
    return code, out, err


def exported(capsys, tmp_path, source, to, *more):
    out = tmp_path / f"{source.parent.name} {source.name} {to}"
    assert run(capsys, "export", source, "--to", to, "--out", out, *more) == (0, "", "")
    return out


# -- inspect -------------------------------------------------------------------------------------------------


def test_inspect_for_people(capsys):
    code, out, err = run(capsys, "inspect", MERKLE / "circuit.zkey", MERKLE / "circuit.wtns")
    assert (code, err) == (0, "")
    assert "constraints             3,016" in out and "gamma is the generator  yes" in out
    assert "B2 points" in out and "larger" in out and "%" in out


def test_inspect_for_programs(capsys, tmp_path):
    (tmp_path / "cut").write_bytes((MERKLE / "circuit.zkey").read_bytes()[:5000])
    code, out, err = run(capsys, "inspect", "--json", MERKLE / "vkey.json", tmp_path / "cut", "--points")
    good, broken = json.loads(out)
    assert code == 2 and good["problem"] == "" and good["facts"]["points checked"] is True
    assert broken["problem"] in err and broken["facts"]["wires"] == 3023
    assert err.startswith("cuzkd: ") and err.count("\n") == 1


def test_inspect_shows_what_it_could_and_then_why_not(capsys, tmp_path):
    (tmp_path / "cut").write_bytes(SAPLING.read_bytes()[:5000])
    code, out, err = run(capsys, "inspect", tmp_path / "cut")
    assert code == 2 and "of these bytes there are" in out
    assert "BROKEN OFF" in out and "claims 8191 points" in err and "claims" not in out  # said once
    code, out, err = run(capsys, "inspect", tmp_path / "nothing")
    assert (code, out) == (2, "") and "cannot be opened" in err


def test_inspect_warns(capsys, tmp_path):
    from cuzkd.circuits import builtin
    from cuzkd.formats import r1cs, zkey
    from cuzkd.groth16 import setup

    zkey.write(tmp_path / "x", setup.setup(builtin.constraints("bn254", 3)))
    code, out, _ = run(capsys, "inspect", tmp_path / "x")
    assert code == 0 and "WARNING: INSECURE" in out
    r1cs.write(tmp_path / "rows", builtin.constraints("bn254", 3))
    assert run(capsys, "setup", "--r1cs", tmp_path / "rows", "--params", tmp_path / "y")[0] == 0
    code, out, _ = run(capsys, "inspect", tmp_path / "y")
    assert code == 0 and "WARNING: INSECURE" in out


def test_inspect_claims_nothing_of_json_that_nobody_knows(capsys, tmp_path):
    (tmp_path / "x").write_text('{"a": 1}')
    code, out, err = run(capsys, "inspect", tmp_path / "x")
    assert (code, err) == (0, "") and "JSON object; as inputs of a circuit" in out
    (tmp_path / "x").write_text('{"a": 1.5}')
    code, out, err = run(capsys, "inspect", tmp_path / "x")
    assert (
        code == 2 and "BROKEN" not in out and "no inputs of a circuit: signal a" in err and "bls" not in err
    )


# -- export --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [MERKLE, BLS], ids=lambda folder: folder.name)
def test_a_proof_there_and_back(capsys, tmp_path, folder):
    data = exported(capsys, tmp_path, folder / "proof.json", "bytes")
    assert data.stat().st_size in proof_bytes.LENGTHS.values()
    assert exported(capsys, tmp_path, data, "json").read_text() == (folder / "proof.json").read_text()
    code, out, _ = run(capsys, "export", data, "--to", "json")
    assert code == 0 and out == (folder / "proof.json").read_text() + "\n"


@pytest.mark.parametrize("folder", [MERKLE, BLS], ids=lambda folder: folder.name)
def test_a_key_as_snarkjs_has_it(capsys, tmp_path, folder):
    """From the .zkey, and by way of a .vk."""
    expected = (folder / "vkey.json").read_text()
    vk = exported(capsys, tmp_path, folder / "circuit.zkey", "vk")
    assert exported(capsys, tmp_path, folder / "circuit.zkey", "vkey").read_text() == expected
    assert exported(capsys, tmp_path, vk, "vkey").read_text() == expected
    assert exported(capsys, tmp_path, vk, "vk").read_bytes() == vk.read_bytes()


def test_call_data(capsys):
    public = ["--public", MERKLE / "public.json"]
    code, out, _ = run(capsys, "export", MERKLE / "proof.json", "--to", "calldata", *public)
    assert code == 0
    a, b, c, values = json.loads(f"[{out}]")
    record = json.loads((MERKLE / "proof.json").read_text())
    assert [int(x, 16) for x in a] == [int(x) for x in record["pi_a"][:2]]
    assert int(b[0][0], 16) == int(record["pi_b"][0][1]) and int(c[1], 16) == int(record["pi_c"][1])
    assert [int(x, 16) for x in values] == snarkjs.read_publics(MERKLE / "public.json", "bn254")
    code, out, err = run(capsys, "export", MERKLE / "proof.json", "--to", "calldata")
    assert code == 2 and "--public" in err


@pytest.mark.parametrize(
    ("source", "to", "says"),
    [
        (MERKLE / "proof.json", "bytes", "--out"),
        (MERKLE / "vkey.json", "vk", "beta_g1"),
        (MERKLE / "circuit.wtns", "json", "found a witness"),
        (MERKLE / "proof.json", "vkey", "expected a verification key, found a proof"),
        (MERKLE / "nothing", "json", "cannot be opened"),
    ],
)
def test_what_cannot_be_exported(capsys, source, to, says):
    code, out, err = run(capsys, "export", source, "--to", to)
    assert (code, out) == (2, "") and says in err and err.count("\n") == 1


# -- verify --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [MERKLE, BLS], ids=lambda folder: folder.name)
def test_verify_takes_every_spelling(capsys, tmp_path, folder):
    keys = [
        folder / "vkey.json",
        folder / "circuit.zkey",
        exported(capsys, tmp_path, folder / "circuit.zkey", "vk"),
    ]
    proofs = [folder / "proof.json", exported(capsys, tmp_path, folder / "proof.json", "bytes")]
    for key in keys:
        for proof in proofs:
            argv = ["verify", "--vkey", key, "--proof", proof, "--public"]
            assert run(capsys, *argv, folder / "public.json") == (0, "valid\n", "")
            publics = json.loads((folder / "public.json").read_text())
            (tmp_path / "other").write_text(json.dumps([str(int(publics[0]) + 1), *publics[1:]]))
            assert run(capsys, *argv, tmp_path / "other")[0] == 1


def test_verify_a_proof_of_replication(capsys):
    """A compressed key, and bytes, as polka-storage has them."""
    argv = ["--vkey", POLKA / "porep.vk", "--proof", POLKA / "proof.bin", "--public", POLKA / "public.json"]
    assert run(capsys, "verify", *argv) == (0, "valid\n", "")


def test_verify_with_a_key_of_another_curve(capsys, tmp_path):
    proof = exported(capsys, tmp_path, MERKLE / "proof.json", "bytes")
    argv = ["--vkey", BLS / "circuit.zkey", "--proof", proof, "--public", BLS / "public.json"]
    code, out, err = run(capsys, "verify", *argv)
    assert (code, out) == (2, "") and "expected 192 bytes" in err


@pytest.mark.parametrize(
    ("vkey", "proof", "public", "says"),
    [
        ("vkey.json", "vkey.json", "public.json", "vkey.json: expected a proof, found a verification key"),
        ("proof.json", "proof.json", "public.json", "proof.json: expected a verification key, found a proof"),
        ("vkey.json", "public.json", "public.json", "public.json: expected a proof, found public values"),
        ("vkey.json", "proof.json", "proof.json", "proof.json: expected public values, found a proof"),
        ("vkey.json", "proof.json", "circuit.wtns", "circuit.wtns: expected public values, found a witness"),
    ],
)
def test_files_mixed_up(capsys, vkey, proof, public, says):
    argv = ["--vkey", MERKLE / vkey, "--proof", MERKLE / proof, "--public", MERKLE / public]
    code, out, err = run(capsys, "verify", *argv)
    assert (code, out) == (2, "") and says in err and err.count("\n") == 1


def test_a_number_without_end_is_no_lesson_in_python(capsys, tmp_path):
    (tmp_path / "x").write_text("[" + "9" * 100_000 + "]")
    argv = ["--vkey", MERKLE / "vkey.json", "--proof", MERKLE / "proof.json", "--public", tmp_path / "x"]
    code, _, err = run(capsys, "verify", *argv)
    assert code == 2 and "too many digits" in err and "sys." not in err
