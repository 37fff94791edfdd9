"""The registry: sound keys go in whole and come out the same; others are refused in words and leave nothing behind."""

import errno
import os
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from cuzkd.backend import cpu
from cuzkd.circuits import builtin, registry, unchanged
from cuzkd.circuits.registry import Registry
from cuzkd.curves import params
from cuzkd.errors import AlreadyExists, Exhausted, InvalidInput, InvalidKey, MalformedFile, NotFound
from cuzkd.formats import affine, zkey
from cuzkd.groth16 import prover, setup

VECTORS = Path(__file__).parent.parent / "vectors"
CURVES = list(params.CURVES)


def same_key(p, q):
    parts = [
        (p.vk, q.vk),
        (p.arrays, q.arrays),
        (p.constraints.a, q.constraints.a),
        (p.constraints.b, q.constraints.b),
    ]
    if p.constraints.c is not None:
        parts.append((p.constraints.c, q.constraints.c))
    assert (p.constraints.c is None) == (q.constraints.c is None)
    assert np.array_equal(p.beta_g1, q.beta_g1) and np.array_equal(p.delta_g1, q.delta_g1)
    for a, b in parts:
        assert type(a) is type(b)
        for field in fields(a):
            assert np.array_equal(getattr(a, field.name), getattr(b, field.name)), field.name
    return True


def leftovers(state_dir):
    return sorted(e for e in os.listdir(Path(state_dir) / "circuits") if e != ".lock")


@pytest.mark.parametrize(
    ("name", "n_constraints", "n_public", "n_wires"),
    [
        ("edge_nopub", 1, 0, 3),
        ("edge_pub100", 99, 101, 201),
        ("merkle_1k", 3016, 3, 3023),
        ("merkle_1k_bls12381", 3016, 3, 3023),
    ],
)
def test_real_keys_go_in_and_come_out(name, n_constraints, n_public, n_wires, tmp_path):
    folder = VECTORS / name
    circuits = Registry(tmp_path)
    assert list(circuits.list()) == []
    manifest = circuits.add(name, zkey=folder / "circuit.zkey", vkey=folder / "vkey.json")
    assert (manifest.n_constraints, manifest.n_public, manifest.n_wires) == (n_constraints, n_public, n_wires)
    assert manifest.constraint_check == "derived" and manifest.source == "circuit.zkey"
    assert circuits.get(name) == manifest and list(circuits.list()) == [manifest]
    circuit = circuits.open(name)
    assert circuit.manifest == manifest
    assert same_key(circuit.key, zkey.read(folder / "circuit.zkey"))
    assert (
        circuit.head_bytes + circuit.point_bytes
        == manifest.key_bytes
        == (tmp_path / "circuits" / name / "key.bin").stat().st_size
    )
    assert leftovers(tmp_path) == [name]


@pytest.mark.parametrize("curve", CURVES)
def test_a_prepared_builtin_proves(curve, tmp_path):
    """All the way: C known, arrays read-only."""
    made = setup.setup(builtin.constraints(curve, 5))
    manifest = Registry(tmp_path).install("chain", made, source="built in")
    assert manifest.constraint_check == "checked"
    key = Registry(tmp_path).open("chain").key
    assert same_key(key, made)
    words = b"".join(v.to_bytes(32, "little") for v in builtin.witness(curve, 5, 4711))
    prover.prove(cpu.CpuBackend(), key, np.frombuffer(words, "<u8").reshape(-1, 4))  # verifies


def test_the_same_again_changes_nothing_another_is_refused(tmp_path):
    circuits = Registry(tmp_path)
    first = circuits.add("c", zkey=VECTORS / "edge_nopub" / "circuit.zkey")
    before = (tmp_path / "circuits" / "c" / "manifest.json").stat().st_ino
    assert circuits.add("c", zkey=VECTORS / "edge_nopub" / "circuit.zkey") == first
    with pytest.raises(AlreadyExists, match="circuit c: is there with another key"):
        circuits.add("c", zkey=VECTORS / "edge_pub100" / "circuit.zkey")
    assert (tmp_path / "circuits" / "c" / "manifest.json").stat().st_ino == before
    assert circuits.get("c") == first and leftovers(tmp_path) == ["c"]
    # the same key under another name has the same digest
    assert circuits.add("d", zkey=VECTORS / "edge_nopub" / "circuit.zkey").digest == first.digest


def test_removing(tmp_path):
    circuits = Registry(tmp_path)
    for name in ("a", "b"):
        circuits.add(name, zkey=VECTORS / "edge_pub100" / "circuit.zkey")
    opened = circuits.open("a").key
    unread = circuits.open("a")
    circuits.remove("a")
    assert [m.name for m in circuits.list()] == ["b"] and leftovers(tmp_path) == ["b"]
    with pytest.raises(NotFound, match="circuit a"):
        circuits.get("a")
    with pytest.raises(NotFound, match="circuit a"):
        circuits.remove("a")
    assert same_key(opened, circuits.open("b").key)  # who has read it keeps it
    with pytest.raises(InvalidKey, match=r"key\.bin: cannot be read: No such file"):
        _ = unread.key
    circuits.add("a", zkey=VECTORS / "edge_nopub" / "circuit.zkey")
    assert circuits.get("a").n_wires == 3


@pytest.mark.parametrize("name", ["../x", "a/b", "", "x" * 10_000, ".new-1"])
def test_names_are_no_paths(name, tmp_path):
    circuits = Registry(tmp_path / "state")
    for act in (
        circuits.get,
        circuits.open,
        circuits.remove,
        lambda n: circuits.add(n, zkey=VECTORS / "none"),
    ):
        with pytest.raises(InvalidInput, match="circuit name"):
            act(name)
    assert not list(tmp_path.iterdir())


def test_missing_and_cut_keys(tmp_path):
    circuits = Registry(tmp_path / "state")
    with pytest.raises(InvalidInput, match=r"none\.zkey: cannot be opened"):
        circuits.add("c", zkey=tmp_path / "none.zkey")
    data = (VECTORS / "edge_pub100" / "circuit.zkey").read_bytes()
    (tmp_path / "cut.zkey").write_bytes(data[:-1])
    with pytest.raises(MalformedFile, match=r"section 10 \(contributions\)"):
        circuits.add("c", zkey=tmp_path / "cut.zkey")
    assert not (tmp_path / "state").exists()


def test_another_circuits_verification_key(tmp_path):
    circuits = Registry(tmp_path)
    key = VECTORS / "merkle_1k" / "circuit.zkey"
    with pytest.raises(InvalidKey, match=r"circuit.zkey: expected 101 public values .* found 3"):
        circuits.add("c", zkey=key, vkey=VECTORS / "edge_pub100" / "vkey.json")
    with pytest.raises(InvalidKey, match=r"expected a key over bls12_381 .* found bn254"):
        circuits.add("c", zkey=key, vkey=VECTORS / "merkle_1k_bls12381" / "vkey.json")
    text = (VECTORS / "merkle_1k" / "vkey.json").read_text()
    (tmp_path / "vkey.json").write_text(text.replace('"7', '"6', 1))
    with pytest.raises(InvalidKey, match="differs from the verification key: they are not of one set-up"):
        circuits.add("c", zkey=key, vkey=tmp_path / "vkey.json")


def small(curve):
    return setup.setup(builtin.constraints(curve, 2))


def refuse(key, words, tmp_path):
    with pytest.raises(InvalidKey, match=words) as error:
        Registry(tmp_path).install("c", key, source="my.zkey")
    assert "my.zkey" in str(error.value)
    assert not (tmp_path / "circuits").exists() or leftovers(tmp_path) == []


@pytest.mark.parametrize("curve", CURVES)
def test_keys_without_phase_2(curve, tmp_path):
    key = small(curve)
    refuse(replace(key, vk=replace(key.vk, delta_g2=key.vk.gamma_g2)), "gamma_g2 equals delta_g2", tmp_path)
    for field in ("alpha_g1", "beta_g2", "gamma_g2", "delta_g2"):
        vk = replace(key.vk, **{field: np.zeros_like(getattr(key.vk, field))})
        refuse(replace(key, vk=vk), f"{field} is the point at infinity", tmp_path)
    refuse(replace(key, delta_g1=np.zeros_like(key.delta_g1)), "delta_g1 is the point at infinity", tmp_path)


@pytest.mark.parametrize("curve", CURVES)
def test_keys_that_disagree_with_themselves(curve, tmp_path):
    key = small(curve)
    refuse(replace(key, delta_g1=key.beta_g1), "delta1 and delta2 are not the same multiple", tmp_path)
    refuse(replace(key, beta_g1=key.delta_g1), "beta1 and beta2 are not the same multiple", tmp_path)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize(
    ("field", "name"), [("a_g1", "A"), ("b_g1", "B1"), ("b_g2", "B2"), ("l_g1", "C"), ("h_g1", "H")]
)
def test_a_point_off_the_curve(curve, field, name, tmp_path):
    key = small(curve)
    points = getattr(key.arrays, field).copy()
    index = len(points) - 1
    points.reshape(len(points), -1)[index, 0] ^= 1
    words = rf"my.zkey: {name}: point {index} of {len(points)}: expected a point of the r-subgroup of g"
    refuse(replace(key, arrays=replace(key.arrays, **{field: points})), words, tmp_path)


@pytest.mark.parametrize("curve", CURVES)
def test_a_coordinate_that_is_not_reduced(curve, tmp_path):
    key = small(curve)
    points = key.arrays.a_g1.copy()
    points[3, 1, :] = 2**64 - 1
    refuse(replace(key, arrays=replace(key.arrays, a_g1=points)), "A: point 3", tmp_path)


def outside_g2(curve):
    """A point of the twist outside the subgroup: almost any x will do."""
    c = params.CURVES[curve]
    for x in range(1, 100):
        y = affine.fq2_sqrt(affine.g2_right_side(curve, (x, 1)), c.q)
        if y is not None:
            return affine.g2_to_array(curve, ((x, 1), y))
    raise AssertionError


@pytest.mark.parametrize("curve", CURVES)
def test_a_point_outside_the_subgroup(curve, tmp_path):
    key = small(curve)
    bad = outside_g2(curve)
    assert cpu.check_points(curve, "g2", bad[None]) == -1
    refuse(
        replace(key, vk=replace(key.vk, beta_g2=bad)),
        "beta2: point 0 of 1: expected a point of the r-subgroup",
        tmp_path,
    )


def test_a_damaged_circuit_harms_no_other(tmp_path):
    circuits = Registry(tmp_path)
    for name in ("good", "bad", "worse", "swapped"):
        circuits.add(name, zkey=VECTORS / "edge_pub100" / "circuit.zkey")
    home = tmp_path / "circuits"
    (home / "bad" / "manifest.json").write_text("{")
    (home / "worse" / "manifest.json").unlink()
    shutil.copy(home / "good" / "manifest.json", home / "swapped" / "manifest.json")
    assert [m.name for m in circuits.list()] == ["good"]
    problems = circuits.problems()
    assert list(problems) == ["bad", "swapped", "worse"]
    assert "is not JSON" in str(problems["bad"]) and "is missing" in str(problems["worse"])
    assert "describes the circuit 'good', not 'swapped'" in str(problems["swapped"])
    with pytest.raises(InvalidKey, match="is not JSON"):
        circuits.open("bad")
    for name in problems:
        circuits.remove(name)
    assert not circuits.problems()


@pytest.mark.parametrize("what", ["manifest.json", "key.bin"])
@pytest.mark.parametrize("deed", ["pipe", "folder", "empty", "huge", "binary", "nowhere", "endless"])
def test_what_is_no_file_of_ours_is_refused_at_once(what, deed, tmp_path):
    """And nothing of it is read, however much there is."""
    circuits = Registry(tmp_path)
    circuits.add("c", zkey=VECTORS / "edge_nopub" / "circuit.zkey")
    path = tmp_path / "circuits" / "c" / what
    path.unlink()
    if deed == "huge":
        path.touch()
        os.truncate(path, 1 << 40)
    elif deed == "nowhere":
        path.symlink_to(tmp_path / "nowhere")
    elif deed == "endless":
        path.symlink_to("/dev/zero")
    elif deed == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    else:
        {"pipe": os.mkfifo, "folder": os.mkdir, "empty": Path.touch}[deed](path)
    with pytest.raises(InvalidKey, match=what):
        _ = circuits.open("c").key
    if what == "manifest.json":
        assert list(circuits.problems()) == ["c"] and not circuits.list()
    circuits.remove("c")
    assert leftovers(tmp_path) == []


def test_a_damaged_key_is_not_opened(tmp_path):
    circuits = Registry(tmp_path)
    circuits.add("c", zkey=VECTORS / "merkle_1k" / "circuit.zkey")
    path = tmp_path / "circuits" / "c" / "key.bin"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1  # in H
    path.write_bytes(data)
    with pytest.raises(InvalidKey, match=r"key.bin: .*h_g1\) were altered"):
        _ = circuits.open("c").key
    with pytest.raises(InvalidKey, match=r"key.bin: .*h_g1\) were altered"):
        circuits.check("c")
    path.write_bytes(data[:-4096])
    with pytest.raises(InvalidKey, match="bytes by its manifest, found"):
        _ = circuits.open("c").key


def test_what_a_killed_add_left_is_swept(tmp_path):
    circuits = Registry(tmp_path)
    for name in (".new-1", ".old-1"):
        (tmp_path / "circuits" / name).mkdir(parents=True)
        (tmp_path / "circuits" / name / "key.bin").write_bytes(b"half")
    assert list(circuits.list()) == []
    circuits.add("c", zkey=VECTORS / "edge_nopub" / "circuit.zkey")
    assert leftovers(tmp_path) == ["c"]


@pytest.mark.parametrize("what", ["file", "pipe", "link to a folder", "dangling link", "empty folder"])
@pytest.mark.parametrize("name", ["c", ".old-1", ".new-1"])
def test_whatever_has_a_name_can_be_removed_and_nothing_is_followed(what, name, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"x")
    circuits = Registry(tmp_path / "state")
    circuits.add("good", zkey=VECTORS / "edge_nopub" / "circuit.zkey")
    path = tmp_path / "state" / "circuits" / name
    {
        "file": lambda: path.write_bytes(b"x"),
        "pipe": lambda: os.mkfifo(path),
        "link to a folder": lambda: path.symlink_to(outside),
        "dangling link": lambda: path.symlink_to("nowhere"),
        "empty folder": path.mkdir,
    }[what]()
    assert [m.name for m in circuits.list()] == ["good"]
    if name == "c":
        assert "remove the circuit" in str(circuits.problems()["c"])
        with pytest.raises(InvalidKey, match="is missing; remove the circuit"):
            circuits.add("c", zkey=VECTORS / "edge_nopub" / "circuit.zkey")
        circuits.remove("c")
        with pytest.raises(NotFound):
            circuits.remove("c")
    else:
        assert not circuits.problems()
        circuits.add("good", zkey=VECTORS / "edge_nopub" / "circuit.zkey")  # sweeps
    assert leftovers(tmp_path / "state") == ["good"]
    assert (outside / "precious").read_bytes() == b"x"


@pytest.mark.parametrize("file", ["key.bin", "calculator.wasm", "manifest.json", ".new-"])
def test_a_full_disk_is_not_now_and_names_the_file(file, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full_of(descriptor):
        if file in os.readlink(f"/proc/self/fd/{descriptor}").rsplit("/", 1)[-1]:
            full()

    key = zkey.read(VECTORS / "edge_nopub" / "circuit.zkey")
    if file == ".new-":
        monkeypatch.setattr(Path, "mkdir", lambda path, **_: full() if file in path.name else os.mkdir(path))
    else:
        monkeypatch.setattr(os, "fsync", full_of)
    with pytest.raises(Exhausted, match=rf"{file}.*: cannot be written.*: No space left"):
        Registry(tmp_path / "state").install("c", key, "x", calculator=b"\0asm")
    monkeypatch.undo()
    assert leftovers(tmp_path / "state") == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_out_of_descriptors_is_not_now_and_no_fault_of_the_key(number, tmp_path, monkeypatch):
    state = tmp_path / "state"
    Registry(state).install("c", zkey.read(VECTORS / "edge_nopub" / "circuit.zkey"), "x", calculator=b"\0asm")
    opened = Registry(state).open("c")

    def none_left(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", none_left)
    monkeypatch.setattr(os, "scandir", none_left)
    circuits = Registry(state)
    for ask in (
        lambda: circuits.get("c"),
        lambda: circuits.calculator("c"),
        circuits.list,
        circuits.problems,
        lambda: opened.key,
    ):
        with pytest.raises(Exhausted, match=r"Too many open files.*try again later"):
            ask()
    monkeypatch.undo()
    assert not circuits.problems() and circuits.open("c").key.vk.curve


def test_looking_up_loads_no_native_code(tmp_path):
    """The front process lists circuits; it must not have the native module in it."""
    Registry(tmp_path).add("c", zkey=VECTORS / "edge_nopub" / "circuit.zkey")
    script = (
        "import sys; from cuzkd.circuits.registry import Registry; r = Registry(sys.argv[1]); "
        "assert r.get('c') == r.list()[0] and not r.problems(); "
        "assert not [m for m in sys.modules if 'native' in m and 'cuzkd' in m], 'native code was loaded'"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], check=True, cwd=Path(registry.__file__).parents[2]
    )


def test_a_manifest_is_parsed_again_only_when_its_file_has_changed(tmp_path, monkeypatch):
    parsed = []
    from_json = registry.manifests.from_json
    monkeypatch.setattr(
        registry.manifests, "from_json", lambda text, where: parsed.append(where) or from_json(text, where)
    )
    circuits = Registry(tmp_path)
    circuits.install("c", setup.setup(builtin.constraints("bn254", 2)), source="test")

    def looks(times):
        parsed.clear()
        found = [circuits.get("c") for _ in range(times)]
        return len(parsed), found[-1]

    assert looks(3)[0] == 3, "it could be changed within the same tick of the clock"
    monkeypatch.setattr(unchanged, "SETTLED_S", -1.0)
    count, found = looks(3)
    assert count == 1 and looks(3) == (0, found) and list(circuits.list()) == [found]
    path = circuits.directory / "c" / registry.MANIFEST
    text = path.read_text()
    path.write_text(text.replace('"test"', '"tents"'))
    os.utime(path, ns=(0, 0))  # whatever it says of itself
    count, changed = looks(2)
    assert count == 1 and (changed.source, found.source) == ("tents", "test")
    path.write_text("{")
    for _ in range(2):
        with pytest.raises(InvalidKey):
            circuits.get("c")
    path.write_text(text)
    assert looks(2) == (1, found)
    circuits.remove("c")
    with pytest.raises(NotFound):
        circuits.get("c")
    circuits.install("c", setup.setup(builtin.constraints("bn254", 3)), source="test")
    assert looks(2)[1].n_constraints != found.n_constraints
