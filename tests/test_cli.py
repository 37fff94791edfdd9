"""The command line without a daemon: exit codes, one-line errors, circuits, verification."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import cuzkd
from cuzkd import cli, errors
from cuzkd.cli import codes
from cuzkd.client import Client

VECTORS = Path(__file__).resolve().parent / "vectors"
MERKLE = VECTORS / "merkle_1k"
PROOF = MERKLE / "proof.json"


def run(capsys, *argv):
    code = cli.main([str(arg) for arg in argv])
    out, err = capsys.readouterr()
    return code, out, err


def verify_args(folder, **other):
    files = {name: folder / f"{name}.json" for name in ("vkey", "proof", "public")} | other
    return ["verify", "--vkey", files["vkey"], "--proof", files["proof"], "--public", files["public"]]


@pytest.mark.parametrize("name", ["merkle_1k", "merkle_1k_bls12381", "edge_nopub", "edge_pub100"])
def test_verify_takes_what_snarkjs_made(capsys, name):
    assert run(capsys, *verify_args(VECTORS / name)) == (0, "valid\n", "")


def test_verify_refuses_another_statement(capsys, tmp_path):
    publics = json.loads((MERKLE / "public.json").read_text())
    publics[0] = str(int(publics[0]) + 1)
    other = tmp_path / "public.json"
    other.write_text(json.dumps(publics))
    code, out, _ = run(capsys, *verify_args(MERKLE, public=other))
    assert code == 1 and out.startswith("INVALID")


def test_verify_refuses_a_changed_proof(capsys, tmp_path):
    proof = json.loads((MERKLE / "proof.json").read_text())
    proof["pi_c"] = proof["pi_a"]
    other = tmp_path / "proof.json"
    other.write_text(json.dumps(proof))
    code, out, _ = run(capsys, *verify_args(MERKLE, proof=other))
    assert code == 1 and out.startswith("INVALID")


@pytest.mark.parametrize("which", ["vkey", "proof", "public"])
@pytest.mark.parametrize("content", [None, "", "{}", "[1", "\x00\xff", '{"protocol": "plonk"}'])
def test_verify_with_nonsense_is_one_line(capsys, tmp_path, which, content):
    other = tmp_path / "x.json"
    if content is not None:
        other.write_text(content)
    code, out, err = run(capsys, *verify_args(MERKLE, **{which: other}))
    assert code == 2 and out == ""
    assert err.startswith("cuzkd: ") and err.count("\n") == 1 and "x.json" in err


def test_circuits_add_list_remove(capsys, tmp_path):
    state = ["--state-dir", tmp_path / "state"]
    zkey = ["--zkey", MERKLE / "circuit.zkey"]
    code, out, _ = run(capsys, "circuits", "add", "merkle", *zkey, "--vkey", MERKLE / "vkey.json", *state)
    assert code == 0 and "bn254" in out and "3,0" in out
    code, out, _ = run(capsys, "circuits", "list", *state)
    assert code == 0 and "merkle" in out
    code, _, err = run(
        capsys, "circuits", "add", "merkle", "--zkey", VECTORS / "edge_nopub" / "circuit.zkey", *state
    )
    assert code == 2 and "merkle" in err
    code, _, err = run(
        capsys, "circuits", "add", "other", *zkey, "--vkey", VECTORS / "edge_pub100" / "vkey.json", *state
    )
    assert code == 2 and err.count("\n") == 1
    assert run(capsys, "circuits", "remove", "merkle", *state)[0] == 0
    code, _, err = run(capsys, "circuits", "remove", "merkle", *state)
    assert code == 2 and "merkle" in err


@pytest.mark.parametrize("name", ["../x", "a;touch x", "", "x" * 200])
def test_a_bad_name_touches_nothing(capsys, tmp_path, name):
    state = tmp_path / "state"
    code, _, err = run(
        capsys, "circuits", "add", name, "--zkey", MERKLE / "circuit.zkey", "--state-dir", state
    )
    assert code == 2 and err.count("\n") == 1
    assert not state.exists() or not [p for p in state.rglob("*") if p.suffix == ".json"]


def test_no_daemon(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("cuzkd.cli.proofs.START_PATIENCE_S", 0.2)
    address = ["--address", f"unix://{tmp_path}/none.sock"]
    code, _, err = run(capsys, "status", *address)
    assert code == 3 and "no daemon answers" in err and err.count("\n") == 1
    witness = ["--witness", MERKLE / "circuit.wtns"]
    code, _, err = run(capsys, "prove", "merkle", *witness, "--out", tmp_path / "out", *address)
    assert code == 3 and err.count("\n") == 1


def test_settings_that_are_wrong_are_exit_code_2(capsys, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[daemon]\nlisen = 1\n")
    code, _, err = run(capsys, "serve", "--config", file)
    assert code == 2 and "daemon.lisen" in err and err.count("\n") == 1


def test_a_native_build_that_is_none_ends_the_daemon_before_it_starts(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("CUZKD_NATIVE", "avx2")
    code, out, err = run(capsys, "serve", "--state-dir", tmp_path / "state")
    assert (code, out) == (2, "") and "ifma, adx, portable, got 'avx2'" in err and err.count("\n") == 1
    assert not (tmp_path / "state").exists()


def test_places_that_cannot_be_are_one_line(capsys, tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    zkey = ["--zkey", MERKLE / "circuit.zkey"]
    for argv in (
        ["circuits", "list", "--state-dir", file],
        ["circuits", "add", "x", *zkey, "--state-dir", file],
    ):
        code, out, err = run(capsys, *argv)
        assert (code, out) == (2, "")
        assert err.startswith(f"cuzkd: {file}") and err.count("\n") == 1, err


def test_a_witness_that_is_a_folder_is_refused_before_anything_is_sent(tmp_path):
    with Client(f"unix://{tmp_path}/nobody") as client, pytest.raises(errors.InvalidInput, match="regular"):
        client.submit("x", [tmp_path])


def test_usage_errors_are_argparse_s(capsys):
    for argv in ([], ["prove"], ["demo", "--partitions", "0"], ["serve", "--policy", "gpu"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(argv)
        assert caught.value.code == 2
        assert "usage: cuzkd" in capsys.readouterr().err


def test_settings_on_the_command_line_that_mean_nothing(capsys, tmp_path):
    code, _, err = run(capsys, "serve", "--state-dir", "", "--listen", f"unix://{tmp_path}/s")
    assert code == 2 and "daemon.state_dir: expected a folder" in err and err.count("\n") == 1
    for metrics in ("foo", "unix:///x", ":1", "host:"):
        code, _, err = run(capsys, "serve", "--metrics", metrics, "--listen", f"unix://{tmp_path}/s")
        assert code == 2 and "daemon.metrics: expected HOST:PORT" in err and err.count("\n") == 1


def test_help_tells_defaults(capsys):
    for argv, told in (
        (["serve"], ["cuzkd.sock", "(default: info)", "who computes (default: prefer"]),
        (["status"], ["default: unix:///run/cuzkd/cuzkd.sock"]),
        (["demo"], ["who computes"]),
        (["bench", "prove"], ["4,096 65,536", "who computes"]),
    ):
        with pytest.raises(SystemExit):
            cli.main([*argv, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert all(words in text for words in told), text


def test_files_that_a_daemon_cannot_be_reached_with(capsys, tmp_path):
    address = ["--address", f"unix://{tmp_path}/none.sock"]
    for argv, says in (
        (["--ca", tmp_path / "ca", "--token-file", tmp_path / "t"], f"--ca {tmp_path}/ca: No such file"),
        (["--ca", PROOF, "--token-file", tmp_path / "t"], f"--token-file {tmp_path}/t: No such file"),
    ):
        code, _, err = run(capsys, "status", *address, *argv)
        assert code == 2 and says in err and "Errno" not in err
    argv = ["prove", "x", *address, "--witness", MERKLE / "circuit.wtns", "--out", PROOF]
    code, _, err = run(capsys, *argv)
    assert code == 2 and f"--out {PROOF}: is a file, expected a folder" in err


def test_a_token_file_of_a_client_holds_one_token(tmp_path):
    from cuzkd.cli import access

    ca, file = tmp_path / "ca", tmp_path / "t"
    ca.write_bytes(b"PEM")
    for text in ("0123456789abcdef\n", "alice 0123456789abcdef"):
        file.write_text(text)
        assert access._access(ca, file).token == "0123456789abcdef"
    for text in ("", "a b c", "alice 0123456789abcdef\nbob 0123456789abcdeg"):
        file.write_text(text)
        with pytest.raises(errors.InvalidInput, match="expected one line"):
            access._access(ca, file)


def test_a_partition_is_called_by_its_file():
    from cuzkd.cli import proofs

    files = [Path("good.wtns"), Path("bad.wtns")]
    for number, expected in ((1, "partition 1 (bad.wtns): no"), (7, "partition 7: no")):
        with pytest.raises(errors.InvalidWitness) as caught, proofs._files_named(files):
            raise errors.InvalidWitness(f"job x: partition {number}: no")
        assert str(caught.value) == f"job x: {expected}"
    assert proofs._where("cpu", "cpu") == "cpu" and proofs._where("cuda", "0") == "cuda 0"


def test_every_error_class_has_a_code():
    for kind in errors.BY_CODE.values():
        assert codes.exit_code(kind("x")) in (codes.NO, codes.WRONG_INPUT, codes.NOT_NOW, codes.INTERNAL)
    assert codes.exit_code(errors.InvalidWitness("x")) == codes.WRONG_INPUT
    assert codes.exit_code(errors.UnsatisfiedWitness("x")) == codes.NO
    assert codes.exit_code(errors.Exhausted("x")) == codes.NOT_NOW
    assert codes.exit_code(errors.DeadlineExceeded("x")) == codes.NOT_NOW
    assert codes.exit_code(errors.DeviceFault("x")) == codes.INTERNAL


def test_as_a_process():
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cuzkd.cli", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"cuzkd {cuzkd.__version__}\n", "")
