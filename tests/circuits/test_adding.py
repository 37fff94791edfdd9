"""From the files that people have to a circuit: each combination, what does not go together, and how much it takes."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cuzkd.circuits import builtin, pagecache, registry
from cuzkd.circuits.registry import Registry
from cuzkd.curves.params import CURVES
from cuzkd.errors import AlreadyExists, InvalidInput, InvalidKey, MalformedFile, NotFound
from cuzkd.formats import bellman, bellman_vk, r1cs, snarkjs, zkey
from cuzkd.groth16 import setup

ROUNDS = 40


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """By curve, everything that there may be of the built-in chain: of snarkjs, and of bellman."""
    made = {}
    for curve in CURVES:
        folder = made[curve] = tmp_path_factory.mktemp(curve)
        rows = builtin.constraints(curve, ROUNDS)
        r1cs.write(folder / "c.r1cs", rows)
        key = setup.setup(rows)
        zkey.write(folder / "c.zkey", key)
        (folder / "vkey.json").write_text(snarkjs.vkey_to_json(key.vk))
        key = setup.setup(rows, reduction="bellman")
        bellman.write_params(folder / "c.params", key)
        bellman_vk.write_vk(folder / "c.vk", key)
    return made


@pytest.mark.parametrize("curve", list(CURVES))
def test_a_zkey_with_its_constraints(curve, files, tmp_path):
    folder, circuits = files[curve], Registry(tmp_path)
    alone = circuits.add("alone", zkey=folder / "c.zkey", vkey=folder / "vkey.json")
    both = circuits.add("both", zkey=folder / "c.zkey", r1cs=folder / "c.r1cs")
    assert (alone.constraint_check, both.constraint_check) == ("derived", "checked")
    assert (alone.reduction, alone.root_family) == (both.reduction, both.root_family) == ("circom", 5)
    c, expected = circuits.open("both").key.constraints.c, r1cs.read(folder / "c.r1cs").c
    for field in ("row_ptr", "cols", "coeff", "table"):
        assert np.array_equal(getattr(c, field), getattr(expected, field))
    for name in ("alone", "both"):
        assert circuits.check(name) == circuits.get(name)


@pytest.mark.parametrize("curve", list(CURVES))
def test_parameters_of_bellman(curve, files, tmp_path):
    folder, circuits = files[curve], Registry(tmp_path)
    added = circuits.add("b", params=folder / "c.params", r1cs=folder / "c.r1cs", vkey=folder / "c.vk")
    assert (added.reduction, added.constraint_check, added.source) == ("bellman", "checked", "c.params")
    assert added.root_family == (7 if curve == "bls12_381" else 5)
    assert circuits.check("b") == added
    with pytest.raises(InvalidKey, match="differs from the verification key"):
        circuits.add("c", params=folder / "c.params", r1cs=folder / "c.r1cs", vkey=folder / "vkey.json")


def test_what_does_not_go_together(files, tmp_path):
    folder, circuits = files["bn254"], Registry(tmp_path / "state")
    other = tmp_path / "other.r1cs"
    r1cs.write(other, builtin.constraints("bn254", ROUNDS + 1))
    for known, error, words in (
        ({}, InvalidInput, "circuit c: expected a .zkey or bellman parameters, one of them"),
        ({"zkey": folder / "c.zkey", "params": folder / "c.params"}, InvalidInput, "one of them"),
        ({"params": folder / "c.params"}, InvalidInput, "hold no constraints: expected the .r1cs with them"),
        (
            {"zkey": folder / "c.zkey", "r1cs": other},
            InvalidKey,
            r"c.zkey: n_wires: expected 125 \(other.r1cs\)",
        ),
        ({"zkey": folder / "c.zkey", "r1cs": folder / "none"}, InvalidInput, "none: cannot be opened"),
        ({"zkey": folder / "c.zkey", "vkey": folder / "none"}, InvalidInput, "none: cannot be opened"),
        ({"zkey": folder / "c.zkey", "wasm": folder / "none"}, InvalidInput, "none: cannot be opened"),
        ({"zkey": folder / "c.zkey", "wasm": folder / "c.r1cs"}, MalformedFile, r"expected magic b'.x00asm'"),
    ):
        with pytest.raises(error, match=words):
            circuits.add("c", **known)
    assert not (tmp_path / "state").exists()


def test_one_constraint_that_differs_is_named(files, tmp_path, monkeypatch):
    folder = files["bn254"]
    constants = builtin.round_constants
    changed = lambda curve, n: [k + (i == 7) for i, k in enumerate(constants(curve, n))]  # noqa: E731
    monkeypatch.setattr(builtin, "round_constants", changed)
    r1cs.write(tmp_path / "other.r1cs", builtin.constraints("bn254", ROUNDS))
    with pytest.raises(
        InvalidKey, match=r"c.zkey: constraint 21: its row of A differs from that in other.r1cs"
    ):
        Registry(tmp_path).add("c", zkey=folder / "c.zkey", r1cs=tmp_path / "other.r1cs")
    with pytest.raises(InvalidKey, match=r"c.params: A, B and H do not fit the constraint matrices"):
        Registry(tmp_path).add("c", params=folder / "c.params", r1cs=tmp_path / "other.r1cs")
    assert os.listdir(tmp_path / "circuits") == [".lock"]


# -- witness calculators --

WASM = b"\0asm calculator"


def install(circuits, name, key, wasm=WASM):
    return circuits.install(name, key, "test", calculator=wasm)


def test_a_calculator_comes_back_as_it_was_installed(tmp_path):
    circuits = Registry(tmp_path)
    key = setup.setup(builtin.constraints("bn254", 2))
    without, with_one = circuits.install("without", key, "test"), install(circuits, "with", key)
    assert without.calculator == "" and len(with_one.calculator) == 64
    assert circuits.calculator("with") == WASM
    assert without.digest != with_one.digest  # a circuit is also how its witnesses are made
    with pytest.raises(NotFound, match="circuit without: has no witness calculator"):
        circuits.calculator("without")
    with pytest.raises(NotFound):
        circuits.calculator("nope")
    with pytest.raises(AlreadyExists, match="is there with another key or calculator"):
        install(circuits, "with", key, WASM + b"!")
    assert install(circuits, "with", key) == with_one


@pytest.mark.parametrize("deed", ["change", "cut", "delete", "other", "folder"])
def test_a_calculator_that_was_altered(tmp_path, deed):
    circuits = Registry(tmp_path)
    install(circuits, "c", setup.setup(builtin.constraints("bn254", 2)))
    path = tmp_path / "circuits" / "c" / "calculator.wasm"
    data = path.read_bytes()
    path.unlink()
    if deed == "folder":
        path.mkdir()
    elif deed != "delete":
        path.write_bytes({"change": data[:-1] + b"?", "cut": data[:5], "other": b"something else"}[deed])
    for act in (circuits.calculator, circuits.check):
        with pytest.raises(InvalidKey, match=r"calculator\.wasm"):
            act("c")
    assert circuits.open("c").key.vk is not None  # the key is sound


# -- how it goes in --


def test_progress_is_told(files, tmp_path):
    told = []
    circuits = Registry(tmp_path)
    known = {"zkey": files["bn254"] / "c.zkey", "progress": lambda *known: told.append(known)}
    added = circuits.add("c", **known)
    points = sum(s.nbytes for s in added.sections if s.name in ("a_g1", "b_g1", "b_g2", "l_g1", "h_g1"))
    assert told[-1] == (points, points) and sorted(told) == told
    told.clear()
    circuits.check("c", known["progress"])
    assert told[-1][0] == points


def test_an_add_at_work_is_not_swept_and_keeps_nobody_waiting(files, tmp_path):
    circuits, folder = Registry(tmp_path), files["bn254"]
    others = []

    def meanwhile(done_bytes, total_bytes):
        if not others:
            others.append(circuits.add("other", zkey=folder / "c.zkey"))
            circuits.remove("other")

    circuits.add("c", zkey=folder / "c.zkey", progress=meanwhile)
    assert others and [m.name for m in circuits.list()] == ["c"]
    assert sorted(os.listdir(tmp_path / "circuits")) == [".lock", "c"]


def test_an_add_that_is_killed_leaves_what_the_next_one_sweeps(files, tmp_path):
    script = (
        "import os, sys; from cuzkd.circuits.registry import Registry; "
        "Registry(sys.argv[1]).add('c', zkey=sys.argv[2], progress=lambda *_: os._exit(9))"
    )
    command = [sys.executable, "-c", script, tmp_path, files["bn254"] / "c.zkey"]
    assert subprocess.run(command, check=False, cwd=Path(registry.__file__).parents[2]).returncode == 9
    left = [name for name in os.listdir(tmp_path / "circuits") if name.startswith(".new-")]
    assert len(left) == 1 and not Registry(tmp_path).list()
    Registry(tmp_path).add("c", zkey=files["bn254"] / "c.zkey")
    assert sorted(os.listdir(tmp_path / "circuits")) == [".lock", "c"]


def test_the_lock_is_not_held_while_a_key_is_read(files, tmp_path):
    def try_lock(done_bytes, total_bytes):
        with open(tmp_path / "circuits" / ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    Registry(tmp_path).add("c", zkey=files["bn254"] / "c.zkey", progress=try_lock)


SIZES = r"""
import json, re, sys
from pathlib import Path
from cuzkd.backend import cpu
from cuzkd.circuits.registry import Registry
cpu.set_threads(2)
circuits = Registry(sys.argv[1])
circuits.add("small", zkey=sys.argv[2])
peak = lambda: int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10
before = peak()
added = circuits.add("large", zkey=sys.argv[3])
after = peak()
print(json.dumps({"grown": after - before, "points": circuits.open("large").point_bytes, "rows": added.n_rows}))
"""


def test_memory_of_an_add_grows_with_the_matrices_not_with_the_points(files, tmp_path):
    """A key whose points are mostly of wires in no constraint, 275 MiB of them."""
    from cuzkd.groth16.constraints import from_rows

    n_wires = 900_000
    made = from_rows("bn254", n_wires, 1, [{1: 1, 2: 3}], [{2: 1}], [{3: 1}])
    zkey.write(tmp_path / "large.zkey", setup.setup(made))
    command = [
        sys.executable,
        "-c",
        SIZES,
        tmp_path / "state",
        files["bn254"] / "c.zkey",
        tmp_path / "large.zkey",
    ]
    done = subprocess.run(
        command, cwd=Path(registry.__file__).parents[2], check=True, capture_output=True, text=True
    )
    sizes = json.loads(done.stdout)
    assert sizes["points"] > 270 << 20
    assert sizes["grown"] < 3 * sizes["points"] // 5, sizes


# -- the page cache --


def test_what_the_page_cache_holds(tmp_path):
    path = tmp_path / "file"
    with open(path, "wb") as file:
        file.write(os.urandom(8 << 20))
        file.flush()
        os.fsync(file.fileno())
    assert pagecache.holds(path)
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if pagecache.holds(path):
        pytest.skip("this file system keeps its pages whatever it is advised")
    with open(path, "rb") as file:
        file.seek(4 << 20)
        file.read(1 << 20)
    assert not pagecache.holds(path)
    path.read_bytes()
    assert pagecache.holds(path)


def test_what_cannot_be_looked_at_is_not_in_the_page_cache(tmp_path):
    assert not pagecache.holds(tmp_path / "none") and not pagecache.holds(tmp_path)
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    assert not pagecache.holds(tmp_path / "empty") and not pagecache.holds(tmp_path / "pipe")
    (tmp_path / "tiny").write_bytes(b"x")
    assert pagecache.holds(tmp_path / "tiny")
