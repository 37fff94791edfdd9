"""`cuzkd circuits`: every kind of file, what the list tells, checks with exit codes, and who sees progress."""

import io
import json
from pathlib import Path

import pytest

from cuzkd import cli
from cuzkd.circuits import builtin
from cuzkd.formats import bellman, r1cs, zkey
from cuzkd.groth16 import setup

VECTORS = Path(__file__).resolve().parent / "vectors"
NOPUB, PUB100 = VECTORS / "edge_nopub", VECTORS / "edge_pub100"


@pytest.fixture
def run(capsys, tmp_path):
    def run(*argv):
        code = cli.main(["circuits", *map(str, argv), "--state-dir", str(tmp_path / "state")])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rows = builtin.constraints("bls12_381", 4)
    r1cs.write(folder / "c.r1cs", rows)
    zkey.write(folder / "c.zkey", setup.setup(rows))
    bellman.write_params(folder / "c.params", setup.setup(rows, reduction="bellman"))
    return folder


def test_one_constraint_is_one(run):
    code, out, _ = run("add", "one", "--zkey", NOPUB / "circuit.zkey")
    assert code == 0 and "bn254, 1 constraint, 0 public" in out and "proofs alone checked" in out
    code, out, _ = run("add", "many", "--zkey", PUB100 / "circuit.zkey")
    assert code == 0 and "99 constraints, 101 public" in out


def test_every_kind_of_key_is_listed_as_what_it_is(run, files):
    code, plain, _ = run("add", "plain", "--zkey", files / "c.zkey")
    assert code == 0
    code, out, _ = run("add", "full", "--zkey", files / "c.zkey", "--r1cs", files / "c.r1cs")
    assert code == 0 and "witnesses checked row by row" in out
    assert run("add", "bell", "--params", files / "c.params", "--r1cs", files / "c.r1cs")[0] == 0
    code, out, err = run("list")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split() for line in out.splitlines()[2:]}
    assert (
        "C derived: proofs alone checked" in plain
        and "derived" in rows["plain"]
        and "checked" in rows["full"]
        and "checked" in rows["bell"]
    )
    assert all("12" in row and "yes" in row for row in rows.values())  # just written: in memory


def test_files_that_do_not_go_together(run, files, capsys):
    code, _, err = run("add", "x", "--params", files / "c.params")
    assert code == 2 and "expected the .r1cs" in err and err.count("\n") == 1
    for argv in (["add", "x"], ["add", "x", "--zkey", "a", "--params", "b"]):
        with pytest.raises(SystemExit) as left:
            run(*argv)
        assert left.value.code == 2
    capsys.readouterr()


def test_a_key_under_the_wrong_flag(run, files):
    zkey_file, params, rows = (files / f"c.{kind}" for kind in ("zkey", "params", "r1cs"))
    for argv, says in (
        (["--zkey", params], "found a proving key of bellman (.params): use --params"),
        (["--params", zkey_file, "--r1cs", rows], "found a proving key of snarkjs (.zkey): use --zkey"),
        (["--zkey", zkey_file, "--r1cs", params], "found a proving key of bellman (.params): use --params"),
        (["--zkey", zkey_file, "--wasm", rows], "found a constraint system (.r1cs): use --r1cs"),
        (["--zkey", zkey_file, "--vkey", NOPUB / "proof.json"], "expected a verification key, found a proof"),
    ):
        code, out, err = run("add", "x", *argv)
        assert (code, out) == (2, "") and says in err and err.count("\n") == 1


def test_a_state_directory_that_is_not_there_is_not_empty(run, tmp_path, capsys):
    for argv in (["list"], ["check", "--all"]):
        code, out, err = run(*argv)
        assert (code, out) == (2, "") and f"{tmp_path / 'state'}: there is no such folder" in err
    (tmp_path / "state").mkdir()
    assert run("list")[0] == 0
    assert run("check", "--all") == (0, "no circuits\n", "")
    with pytest.raises(SystemExit):
        cli.main(["circuits", "list", "--state-dir", ""])
    assert "expected a folder" in capsys.readouterr().err


def test_a_key_that_is_not_as_long_as_it_was_is_listed_as_a_problem(run, tmp_path):
    for name in ("a", "b", "c"):
        run("add", name, "--zkey", NOPUB / "circuit.zkey")
    home = tmp_path / "state" / "circuits"
    (home / "a" / "key.bin").unlink()
    (home / "b" / "key.bin").write_bytes(b"short")
    code, out, err = run("list")
    assert code == 2 and [line.split()[0] for line in out.splitlines()[2:]] == ["c"]
    assert [line.split(":")[1].strip() for line in err.splitlines()] == ["a", "b"]
    assert err.count("remove the circuit and add it again") == 2
    for name in ("a", "b"):
        code, _, err = run("check", name)
        assert code == 2 and err.count("remove the circuit and add it again") == 1


def test_checking(run, tmp_path):
    for name, folder in (("a", NOPUB), ("b", PUB100), ("c", NOPUB)):
        run("add", name, "--zkey", folder / "circuit.zkey")
    code, out, err = run("check", "--all")
    assert code == 0 and [line.split(":")[0] for line in out.splitlines()] == ["a", "b", "c"] and err == ""
    assert run("check", "b")[0] == 0
    home = tmp_path / "state" / "circuits"
    key = home / "b" / "key.bin"
    data = bytearray(key.read_bytes())
    data[len(data) // 2] ^= 1
    key.write_bytes(data)
    (home / "c" / "manifest.json").write_text("{}")
    code, out, err = run("check", "--all")
    assert code == 2 and out.startswith("a: sound") and out.count("\n") == 1
    assert [line.split(":")[1].strip() for line in err.splitlines()] == ["b", "c"] and "were altered" in err
    code, out, err = run("check", "b")
    assert (code, out) == (2, "") and "key.bin" in err and err.count("\n") == 1
    assert run("check", "nope")[0] == 2
    for argv in (["check"], ["check", "a", "--all"]):
        code, _, err = run(*argv)
        assert code == 2 and "one of them" in err


def test_a_key_that_was_unsound_from_the_beginning_is_found_by_check_too(run, tmp_path):
    """Somebody wrote key and manifest anew, so that digests agree: the points do not."""
    import hashlib

    from cuzkd.circuits import manifest as manifests

    run("add", "a", "--zkey", PUB100 / "circuit.zkey")
    home = tmp_path / "state" / "circuits" / "a"
    record = json.loads((home / "manifest.json").read_text())
    section = next(s for s in record["sections"] if s["name"] == "a_g1")
    data = bytearray((home / "key.bin").read_bytes())
    first = section["offset"]
    data[first : first + 64], data[first + 64 : first + 128] = (
        data[first + 64 : first + 128],
        data[first : first + 64],
    )
    (home / "key.bin").write_bytes(data)
    pages = data[first : first + 4096 * -(-section["shape"][0] * 64 // 4096)]
    section["chunk_digests"] = [hashlib.blake2b(pages, digest_size=32).hexdigest()]
    record["digest"] = manifests.content_digest(record)
    (home / "manifest.json").write_text(json.dumps(record))
    code, _, err = run("check", "a")
    assert code == 2 and "A, B and H do not fit the constraint matrices" in err


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_for_terminals(run, monkeypatch, capsys):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    assert run("add", "seen", "--zkey", PUB100 / "circuit.zkey")[0] == 0
    assert "1/1 MiB of seen checked" in screen.getvalue() and screen.getvalue().endswith("\r\x1b[K")
    monkeypatch.undo()
    code, _, err = run("add", "unseen", "--zkey", PUB100 / "circuit.zkey")
    assert (code, err) == (0, "")
