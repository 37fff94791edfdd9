"""Key files: what is written is read again, into memory of our own; any other file under that name is refused."""

import hashlib
import json
import os
import threading
from dataclasses import asdict, replace

import numpy as np
import pytest

from cuzkd.circuits import keyfile
from cuzkd.circuits import manifest as manifests
from cuzkd.circuits.keyfile import KeyFile
from cuzkd.errors import Exhausted, InvalidKey

RNG = np.random.default_rng(7)
ARRAYS = [
    ("points", RNG.integers(0, 2**63, size=(700, 2, 4), dtype=np.uint64)),
    ("nothing", np.zeros((0, 2, 4), dtype=np.uint64)),
    ("cols", RNG.integers(0, 2**32, size=5001, dtype=np.uint32)),
    ("one", np.array([[1, 2, 3, 4]], dtype=np.uint64)),
]
NAMES = [name for name, _ in ARRAYS]


@pytest.fixture
def chunk(monkeypatch):
    """Chunks of 10,000 bytes: several in a small array, and no row ends with one. Threads for all of them."""
    for module in (keyfile, manifests):
        monkeypatch.setattr(module, "CHUNK_BYTES", 10_000)
    return 10_000


def written(path):
    with keyfile.Writer(path) as out:
        for name, array in ARRAYS:
            out.array(name, array)
        sections, key_bytes = out.finish()
    return manifests.make(
        name="c", curve="bn254", n_constraints=1, n_public=0, n_wires=3, log_domain=1, root_family=5,
        reduction="circom", constraint_check="derived", n_coefficients=3, key_bytes=key_bytes,
        sections=sections, calculator="", source="test",
    )  # fmt: skip


def read(path, manifest, names=NAMES):
    with KeyFile(path, manifest) as file:
        return file.read(names)


def test_what_is_written_is_read(tmp_path, chunk):
    manifest = written(tmp_path / "k")
    data = (tmp_path / "k").read_bytes()
    assert manifest.key_bytes == len(data) == sum(s.page_bytes for s in manifest.sections)
    for section in manifest.sections:
        pages = data[section.offset : section.offset + section.page_bytes]
        assert section.chunk_digests == tuple(
            hashlib.blake2b(pages[i : i + chunk], digest_size=32).hexdigest()
            for i in range(0, len(pages), chunk)
        )
    found = read(tmp_path / "k", manifest)
    assert list(found) == NAMES
    for name, array in ARRAYS:
        assert np.array_equal(found[name], array) and found[name].dtype == array.dtype
        assert not found[name].flags.writeable and found[name].ctypes.data % manifests.PAGE == 0


def test_blocks_are_the_array(tmp_path, chunk):
    manifest = written(tmp_path / "k")
    with KeyFile(tmp_path / "k", manifest) as file:
        for name, array in ARRAYS:
            blocks = list(file.blocks(name))
            assert all(block.shape[1:] == array.shape[1:] for block in blocks)
            assert np.array_equal(np.concatenate([array[:0], *blocks]), array)
            assert all(block.nbytes <= chunk for block in blocks)


def test_blocks_are_written_as_an_array_is(tmp_path, chunk):
    array = ARRAYS[0][1]
    with keyfile.Writer(tmp_path / "whole") as out:
        out.array("p", array)
        whole = out.finish()
    with keyfile.Writer(tmp_path / "blocks") as out:
        out.blocks("p", "uint64", array.shape, (array[i : i + 33] for i in range(0, len(array), 33)))
        assert out.finish() == whole
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "blocks").read_bytes()
    for blocks in ([array[1:]], [array, array[:1]], [array.astype(np.uint32)], [array[:, :1]]):
        with pytest.raises(ValueError, match="p: "), keyfile.Writer(tmp_path / "wrong") as out:
            out.blocks("p", "uint64", array.shape, blocks)
        assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize("deed", ["shorten", "overwrite", "replace", "delete"])
def test_what_was_read_stays(tmp_path, deed):
    path = tmp_path / "k"
    found = read(path, written(path))
    if deed == "shorten":
        os.truncate(path, 0)
    elif deed == "overwrite":
        with open(path, "r+b") as file:
            file.write(b"\xff" * path.stat().st_size)
    elif deed == "replace":
        (tmp_path / "other").write_bytes(b"other")
        os.replace(tmp_path / "other", path)
    else:
        path.unlink()
    for name, array in ARRAYS:
        assert np.array_equal(found[name], array)


def test_a_file_that_is_shortened_while_it_is_read(tmp_path, chunk):
    manifest = written(tmp_path / "k")
    with KeyFile(tmp_path / "k", manifest) as file:
        os.truncate(tmp_path / "k", 8192)
        with pytest.raises(InvalidKey, match=r"ends at byte \d+, in section points: it was shortened"):
            file.read(NAMES)
        with pytest.raises(InvalidKey, match="it was shortened"):
            list(file.blocks("points"))


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "k").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        written(tmp_path / "k")
    assert (tmp_path / "k").read_bytes() == b"mine"


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keyfile.os, "fsync", full)
    with pytest.raises(Exhausted, match=r"k: cannot be written after \d+ bytes: No space left on device"):
        written(tmp_path / "k")
    assert not (tmp_path / "k").exists()


@pytest.mark.parametrize("cut", [1, 4096, None])
def test_a_cut_file_is_refused(tmp_path, cut):
    manifest = written(tmp_path / "k")
    data = (tmp_path / "k").read_bytes()
    (tmp_path / "k").write_bytes(data[: -cut if cut else 0])
    with pytest.raises(InvalidKey, match=f"expected {len(data)} bytes by its manifest, found"):
        read(tmp_path / "k", manifest)


def test_a_longer_or_missing_file_or_none_is_refused(tmp_path):
    path = tmp_path / "k"
    manifest = written(path)
    with open(path, "ab") as file:
        file.write(b"x")
    with pytest.raises(InvalidKey, match="bytes by its manifest"):
        read(path, manifest)
    path.unlink()
    with pytest.raises(InvalidKey, match="cannot be read: No such file"):
        read(path, manifest)
    for make in (os.mkfifo, os.mkdir):
        make(path)
        with pytest.raises(InvalidKey, match="found something that is no file"):
            read(path, manifest)
        path.rmdir() if path.is_dir() else path.unlink()


def test_every_byte_is_under_a_digest(tmp_path, chunk):
    """Also those that fill the last page of an array. What is wrong is named with its place."""
    path = tmp_path / "k"
    manifest = written(path)
    data = path.read_bytes()
    for at in [*RNG.integers(0, len(data), 40).tolist(), 0, len(data) - 1]:
        changed = bytearray(data)
        changed[at] ^= 4
        path.write_bytes(changed)
        section = next(s for s in manifest.sections if s.offset <= at < s.offset + s.page_bytes)
        begin = section.offset + (at - section.offset) // chunk * chunk
        words = rf"bytes {begin} to \d+ \(section {section.name}\) were altered"
        with pytest.raises(InvalidKey, match=words):
            read(path, manifest)
        with KeyFile(path, manifest) as file, pytest.raises(InvalidKey, match=words):
            for name in NAMES:
                list(file.blocks(name))


def test_reading_leaves_no_descriptor_and_no_thread(tmp_path, chunk):
    manifest = written(tmp_path / "k")
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    read(tmp_path / "k", manifest)
    (tmp_path / "k").write_bytes(b"?" * manifest.key_bytes)
    for _ in range(3):
        with pytest.raises(InvalidKey):
            read(tmp_path / "k", manifest)
    assert threading.active_count() == threads and len(os.listdir("/proc/self/fd")) == descriptors


# -- manifests --


def lie(manifest, **changes):
    """The text of a manifest that says something else, and whose digest is that of what it says."""
    record = json.loads(manifest.to_json()) | changes
    return json.dumps(record | {"digest": manifests.content_digest(record)})


def test_manifests_are_read_as_written_and_no_other_way(tmp_path):
    manifest = written(tmp_path / "k")
    text = manifest.to_json()
    assert manifests.from_json(text, "m") == manifest
    for bad, words in (
        ("", "is not JSON"),
        ("[" * 100_000, "nested deeper than 8"),
        ("[]", "expected a manifest of version 2, found list"),
        (text.replace('"version": 2', '"version": 1'), "version 2, found 1; add the circuit again"),
        (text.replace('"n_wires": 3', '"wires": 3'), r"missing or unknown: \['n_wires', 'wires'\]"),
    ):
        with pytest.raises(InvalidKey, match=words):
            manifests.from_json(bad, "m")
    renamed = manifests.from_json(text.replace('"name": "c"', '"name": "d"'), "m")
    assert renamed.digest == manifest.digest  # the digest names the key, not the circuit


@pytest.mark.parametrize(
    "field", [f for f in manifests.Manifest.__dataclass_fields__ if f not in ("name", "source", "version")]
)
def test_every_field_is_under_the_digest(tmp_path, field):
    record = asdict(written(tmp_path / "k"))
    other = {int: lambda v: v + 1, str: lambda v: v[:-1] + "0" if v else "0" * 64, tuple: lambda v: v[:-1]}
    record[field] = other[type(record[field])](record[field])
    with pytest.raises(InvalidKey, match="content was altered"):
        manifests.from_json(json.dumps(record), "m")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_wires": "3"}, "n_wires: expected a int, found '3'"),
        ({"n_wires": True}, "n_wires: expected a int"),
        ({"n_wires": 0}, "n_wires: expected 1 to"),
        ({"n_public": 3}, "n_wires: expected 4 to"),
        ({"n_public": -1}, "n_public: expected 0 to"),
        ({"curve": "p256"}, "curve: expected one of bn254, bls12_381"),
        ({"curve": ["bn254"]}, "curve: expected a str"),
        ({"log_domain": 10**18}, "log_domain: expected 0 to 27"),
        ({"log_domain": -1}, "log_domain: expected 0 to 27"),
        ({"n_constraints": 10}, "n_constraints: expected 0 to 1,? ?"),
        ({"root_family": 0}, r"root_family: expected one of \(5, 7\)"),
        ({"reduction": "libsnark"}, "reduction: expected one of circom, bellman"),
        ({"constraint_check": "no"}, "constraint_check: expected one of checked, derived"),
        ({"key_bytes": 1 << 60}, "key_bytes: expected 4096 to"),
        ({"key_bytes": 8192}, r"key_bytes: expected \d+, where its sections end, found 8192"),
        ({"calculator": "../../etc/passwd"}, "calculator: expected nothing or a digest"),
        ({"sections": {}}, "sections: expected a list"),
        ({"sections": [1]}, "not a layout that this version of cuzkd writes"),
        ({"sections": [{}]}, "not a layout"),
        ({"source": 1}, "source: expected a str"),
    ],
)
def test_a_manifest_that_agrees_with_itself_is_not_believed(tmp_path, changes, words):
    with pytest.raises(InvalidKey, match=words):
        manifests.from_json(lie(written(tmp_path / "k"), **changes), "m")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"offset": 4096 * 1000}, "expected 1 digests from byte"),
        ({"offset": -4096}, "expected 1 digests from byte"),
        ({"shape": (2**40, 4)}, "expected 524288 digests from byte"),
        ({"shape": (-1, 4)}, "not a layout"),
        ({"shape": (1.5, 4)}, "not a layout"),
        ({"shape": 3}, "not a layout"),
        ({"dtype": "float64"}, "not a layout"),
        ({"name": 7}, "not a layout"),
        ({"name": "points"}, "a name occurs twice"),
        ({"chunk_digests": ()}, "found 0 from byte"),
        ({"chunk_digests": (5,)}, "not a layout"),
    ],
)
def test_sections_that_cannot_be_are_refused(tmp_path, change, words):
    manifest = written(tmp_path / "k")
    sections = [asdict(s) for s in manifest.sections]
    sections[-1] |= change
    with pytest.raises(InvalidKey, match=words):
        manifests.from_json(lie(manifest, sections=sections), "m")


def test_another_digest_in_the_table_is_no_help(tmp_path):
    """A manifest that was made anew for a changed file would pass: digests find damage, and sign nothing."""
    manifest = written(tmp_path / "k")
    one = replace(manifest.sections[0], chunk_digests=("0" * 64,))
    sections = [asdict(s) for s in (one, *manifest.sections[1:])]
    lying = manifests.from_json(lie(manifest, sections=sections), "m")
    with pytest.raises(InvalidKey, match=r"section points\) were altered: expected blake2b 0000"):
        read(tmp_path / "k", lying)


@pytest.mark.parametrize("name", ["a", "A1", "merkle_1k", "x.y-z", "0" * 64])
def test_names(name):
    assert manifests.require_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "a;touch pwn", "-a", "_a", ".a", "a\n", "é", "x" * 65, "x" * 10_000],
)
def test_what_is_no_name(name):
    with pytest.raises(manifests.InvalidInput, match="circuit name"):
        manifests.require_name(name)
