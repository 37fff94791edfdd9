"""Where output goes: streams that are full, closed or narrow, and what lies already where a file is to be."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cuzkd import cli
from cuzkd.errors import InvalidInput
from cuzkd.formats.files import written_whole

MERKLE = Path(__file__).resolve().parent.parent / "vectors" / "merkle_1k"
PROOF = MERKLE / "proof.json"
VERIFY = [
    "verify",
    *("--vkey", MERKLE / "vkey.json", "--proof", PROOF, "--public", MERKLE / "public.json"),
]  # fmt: skip


def run(capsys, *argv):
    code = cli.main([str(arg) for arg in argv])
    out, err = capsys.readouterr()
    return code, out, err


def shell(line, *argv, **env):
    """A command line of which standard output and error are where `line` says."""
    command = [sys.executable, "-P", "-m", "cuzkd.cli", *map(str, argv)]
    return subprocess.run(
        ["bash", "-c", f'"$@" {line}', "bash", *command],
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""} | env,
    )


# -- streams -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "argv", [VERIFY, ["inspect", PROOF], ["export", PROOF, "--to", "json"]], ids=lambda a: a[0]
)
def test_a_full_output_is_no_answer(argv, unbuffered):
    done = shell(">/dev/full", *argv, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 3
    assert done.stderr == b"cuzkd: output cannot be written: No space left on device\n"


def test_closed_and_full_streams_do_not_change_an_answer():
    assert (done := shell(">&-", *VERIFY)).returncode == 0 and done.stderr == b""
    assert shell("2>&-", *VERIFY).stdout == b"valid\n"
    assert shell("2>/dev/full", "verify", *VERIFY[1:-1], MERKLE / "nothing").returncode == 2


@pytest.mark.parametrize("argv", [["--help"], ["inspect", MERKLE / "circuit.zkey"]], ids=lambda a: a[0])
def test_output_of_any_encoding(argv):
    done = shell("", *argv, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == shell("", *argv, PYTHONIOENCODING="utf-8").stdout


def test_a_name_that_is_not_of_the_encoding(tmp_path):
    (tmp_path / "é.json").write_bytes(PROOF.read_bytes())
    done = shell("", "inspect", tmp_path / "é.json", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and rb"\xe9.json: proof" in done.stdout


def test_a_fault_of_ours_is_not_the_answer_no(capsys, monkeypatch):
    from cuzkd.groth16 import verifier

    monkeypatch.setattr(verifier, "verify", lambda *_: 1 / 0)
    code, out, err = run(capsys, *VERIFY)
    assert (code, out) == (4, "") and "ZeroDivisionError" in err


# -- files ---------------------------------------------------------------------------------------------------


def written(path, data=b"new"):
    with written_whole(path) as file:
        file.write(data)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("folder/target")
    (tmp_path / "dangling").symlink_to("folder/other")
    written(tmp_path / "link")
    written(tmp_path / "dangling")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "dangling").is_symlink()
    assert {p.name: p.read_bytes() for p in (tmp_path / "folder").iterdir()} == {
        "target": b"new",
        "other": b"new",
    }


@pytest.mark.parametrize(
    ("place", "says"), [("", "is a folder"), ("pipe", "no regular file"), ("no/x", "no folder")]
)
def test_what_is_no_file_is_not_replaced(tmp_path, place, says):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match=f"{tmp_path}.*{says}"):
        written(tmp_path / place)
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"] and (tmp_path / "pipe").is_fifo()


def test_a_file_that_cannot_be_written_is_called_by_its_own_name(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as caught:
        written(tmp_path / "x")
    assert caught.value.filename == str(tmp_path / "x") and not list(tmp_path.iterdir())


def test_what_is_being_written_has_a_name_that_nobody_could_have_taken(tmp_path):
    """Neither a link nor a file of somebody's, nor two writers at once, get mixed up."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    (tmp_path / "x.part").symlink_to(precious)
    with written_whole(tmp_path / "x") as one, written_whole(tmp_path / "x") as other:
        one.write(b"one")
        other.write(b"other")
    assert (tmp_path / "x").read_bytes() == b"one" and precious.read_bytes() == b"mine"


def test_export_overwrites_what_it_is_told_to(capsys, tmp_path):
    out = tmp_path / "x.json"
    out.write_text("mine")
    argv = ["export", PROOF, "--to", "json", "--out", out]
    code, _, err = run(capsys, *argv)
    assert code == 2 and f"{out}: is there already: --force" in err and out.read_text() == "mine"
    assert run(capsys, *argv, "--force") == (0, "", "")
    assert out.read_bytes() == PROOF.read_bytes()
    code, _, err = run(capsys, "export", out, *argv[2:], "--force")
    assert code == 2 and "named twice" in err


def test_export_into_a_pipe(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    assert run(capsys, "export", PROOF, "--to", "json", "--out", tmp_path / "pipe") == (0, "", "")
    reader.join(60)
    assert read == [PROOF.read_bytes()] and (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_export_to_standard_output(name):
    assert len(shell("| cat", "export", PROOF, "--to", "bytes", "--out", name).stdout) == 256


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("/dev/full", "cuzkd: /dev/full: No space left on device"),
        (".", "is a folder"),
        ("", "is a folder"),
        ("/dev/null/no/x", "cuzkd: /dev/null/no/x: there is no folder /dev/null/no"),
    ],
)
def test_export_to_places_that_take_nothing(capsys, out, says):
    code, stdout, err = run(capsys, "export", PROOF, "--to", "json", "--out", out)
    assert (code, stdout) == (2, "") and says in err and err.count("\n") == 1
    assert Path("/dev/full").is_char_device()


def test_setup_replaces_no_pipe(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    argv = ["setup", "--r1cs", tmp_path / "x.r1cs", "--zkey", tmp_path / "pipe", "--force"]
    code, _, err = run(capsys, *argv)
    assert code == 2 and "no regular file" in err and (tmp_path / "pipe").is_fifo()
