"""Key files: what is written is mapped again, aligned; any other file under that name is refused before it is used."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from cuzkd.circuits import keyfile
from cuzkd.circuits import manifest as manifests
from cuzkd.errors import InvalidKey

RNG = np.random.default_rng(7)
ARRAYS = [
    ("points", RNG.integers(0, 2**63, size=(700, 2, 4), dtype=np.uint64)),
    ("nothing", np.zeros((0, 2, 4), dtype=np.uint64)),
    ("cols", RNG.integers(0, 2**32, size=5001, dtype=np.uint32)),
    ("one", np.array([[1, 2, 3, 4]], dtype=np.uint64)),
]


@pytest.fixture
def chunk(monkeypatch):
    """Chunks of 10,000 bytes: several in a small file, none ending with a section."""
    for module in (keyfile, manifests):
        monkeypatch.setattr(module, "CHUNK_BYTES", 10_000)
    return 10_000


def written(path, chunk_bytes=manifests.CHUNK_BYTES):
    w = keyfile.write(path, ARRAYS)
    return manifests.make(
        name="c", curve="bn254", n_constraints=1, n_public=0, n_wires=3, log_domain=1, root_family=5,
        reduction="circom", constraint_check="derived", n_coefficients=3, key_bytes=w.key_bytes,
        resident_bytes=w.resident_bytes,
        chunk_bytes=chunk_bytes, chunk_digests=w.chunk_digests, sections=w.sections, source="test",
    )  # fmt: skip


def test_what_is_written_is_mapped(tmp_path, chunk):
    manifest = written(tmp_path / "k", chunk)
    data = (tmp_path / "k").read_bytes()
    assert manifest.key_bytes == len(data) and manifest.resident_bytes == sum(a.nbytes for _, a in ARRAYS)
    assert manifest.chunk_digests == tuple(
        hashlib.blake2b(data[i : i + chunk], digest_size=32).hexdigest() for i in range(0, len(data), chunk)
    )
    mapped = keyfile.map_arrays(tmp_path / "k", manifest)
    assert list(mapped) == [name for name, _ in ARRAYS]
    for name, array in ARRAYS:
        assert np.array_equal(mapped[name], array) and mapped[name].dtype == array.dtype
        assert not mapped[name].flags.writeable and mapped[name].ctypes.data % keyfile.PAGE == 0


def test_a_map_outlives_its_file(tmp_path):
    manifest = written(tmp_path / "k")
    mapped = keyfile.map_arrays(tmp_path / "k", manifest)
    (tmp_path / "k").unlink()
    assert np.array_equal(mapped["points"], ARRAYS[0][1])


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "k").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        written(tmp_path / "k")
    assert (tmp_path / "k").read_bytes() == b"mine"


@pytest.mark.parametrize("cut", [1, 4096, None])
def test_a_cut_file_is_refused(tmp_path, cut):
    manifest = written(tmp_path / "k")
    data = (tmp_path / "k").read_bytes()
    (tmp_path / "k").write_bytes(data[: -cut if cut else 0])
    with pytest.raises(InvalidKey, match=f"expected {len(data)} bytes by its manifest, found"):
        keyfile.map_arrays(tmp_path / "k", manifest)


def test_a_longer_or_missing_file_is_refused(tmp_path):
    manifest = written(tmp_path / "k")
    with open(tmp_path / "k", "ab") as file:
        file.write(b"x")
    with pytest.raises(InvalidKey, match="bytes by its manifest"):
        keyfile.map_arrays(tmp_path / "k", manifest)
    (tmp_path / "k").unlink()
    with pytest.raises(InvalidKey, match="cannot be read: No such file"):
        keyfile.map_arrays(tmp_path / "k", manifest)


def test_a_flipped_bit_is_found_and_placed(tmp_path, chunk):
    manifest = written(tmp_path / "k", chunk)
    data = bytearray((tmp_path / "k").read_bytes())
    where = next(s.offset for s in manifest.sections if s.name == "cols") + 11_000
    data[where] ^= 4
    (tmp_path / "k").write_bytes(data)
    begin = where // chunk * chunk
    with pytest.raises(InvalidKey, match=rf"bytes {begin} to {begin + chunk} \(sections cols\) were altered"):
        keyfile.map_arrays(tmp_path / "k", manifest)
    keyfile.map_arrays(tmp_path / "k", manifest, check_digests=False)


def test_a_manifest_of_other_sections_is_refused(tmp_path):
    manifest = written(tmp_path / "k")
    last = manifest.sections[-1]
    for change, words in (
        ({"offset": 4096 * 1000}, "reach past the end"),
        ({"shape": (2**40, 4)}, "reach past the end"),
        ({"offset": last.offset + 8}, "not a layout"),
        ({"dtype": "float64"}, "not a layout"),
        ({"shape": (-1, 4)}, "not a layout"),
    ):
        lying = replace(manifest, sections=(*manifest.sections[:-1], replace(last, **change)))
        with pytest.raises(InvalidKey, match=words):
            keyfile.map_arrays(tmp_path / "k", lying, check_digests=False)


def test_manifests_are_read_as_written_and_no_other_way(tmp_path):
    manifest = written(tmp_path / "k")
    text = manifest.to_json()
    assert manifests.from_json(text, "m") == manifest
    for bad, words in (
        ("", "is not JSON"),
        ("[]", "expected a manifest of version 1, found list"),
        (text.replace('"version": 1', '"version": 2'), "expected a manifest of version 1, found 2"),
        (text.replace('"n_wires": 3', '"n_wires": 4'), "content was altered"),
        (text.replace('"n_wires": 3', '"wires": 3'), r"missing or unknown: \['n_wires', 'wires'\]"),
    ):
        with pytest.raises(InvalidKey, match=words):
            manifests.from_json(bad, "m")
    renamed = manifests.from_json(text.replace('"name": "c"', '"name": "d"'), "m")
    assert renamed.digest == manifest.digest  # the digest names the key, not the circuit


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
