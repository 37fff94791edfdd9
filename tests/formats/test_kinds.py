"""Files without a name that helps: what they are, and what comes out of them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from cuzkd.errors import CuzkdError, InvalidInput, MalformedFile
from cuzkd.formats import bellman, bellman_vk, kinds, proof_bytes, snarkjs, zkey
from cuzkd.formats.files import RawFile
from cuzkd.formats.kinds import Kind

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
MERKLE, BLS = VECTORS / "merkle_1k", VECTORS / "merkle_1k_bls12381"
SAPLING, POLKA = VECTORS / "sapling_output" / "sapling-output.params", VECTORS / "polka_porep_2kib"


def kind_of(path):
    return kinds.kind_of(RawFile(path))


def same_key(vk, other):
    assert vk.curve == other.curve and vk.digest() == other.digest()


@pytest.fixture
def spelt(tmp_path):
    """Proofs as bytes and keys as .vk, by curve, under names that say nothing."""
    for folder, curve in ((MERKLE, "bn254"), (BLS, "bls12_381")):
        proof = snarkjs.read_proof(folder / "proof.json", curve)
        (tmp_path / f"proof {curve}").write_bytes(proof_bytes.encode(proof))
        bellman_vk.write_vk(tmp_path / f"vk {curve}", zkey.open(folder / "circuit.zkey"))
    return tmp_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (MERKLE / "circuit.zkey", Kind.ZKEY),
        (MERKLE / "circuit.wtns", Kind.WTNS),
        (MERKLE / "circuit.r1cs", Kind.R1CS),
        (VECTORS / "edge_nopub" / "circuit.wasm", Kind.WASM),
        (MERKLE / "proof.json", Kind.JSON),
        (MERKLE / "public.json", Kind.JSON),
        (SAPLING, Kind.PARAMS),
        (POLKA / "porep.vk", Kind.VK),
        (POLKA / "proof.bin", Kind.PROOFS),
    ],
)
def test_the_content_decides(tmp_path, path, expected):
    shutil.copy(path, tmp_path / "x")
    assert kind_of(tmp_path / "x") is expected


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
def test_what_has_no_magic(spelt, curve):
    assert kind_of(spelt / f"proof {curve}") is Kind.PROOFS
    assert kind_of(spelt / f"vk {curve}") is Kind.VK
    row = spelt / "row"
    row.write_bytes((spelt / f"proof {curve}").read_bytes() * 3)
    assert kind_of(row) is Kind.PROOFS and kinds.bytes_curve(RawFile(row)) == curve
    with pytest.raises(InvalidInput, match="row: expected"):
        kinds.read_proof(row)
    grown = spelt / "grown"
    grown.write_bytes((spelt / f"vk {curve}").read_bytes() + bytes(4))
    assert kind_of(grown) is Kind.PARAMS


@pytest.mark.parametrize("length", [0x100, 0xC0])
def test_a_proof_whose_first_point_is_none_is_still_taken_for_one(tmp_path, length):
    (tmp_path / "x").write_bytes(b"\x05" * length)
    assert kind_of(tmp_path / "x") is Kind.PROOFS
    with pytest.raises(InvalidInput, match="x: A: "):
        kinds.read_proof(tmp_path / "x")


@pytest.mark.parametrize("data", [b"\x00", b"zke", b"PK\x03\x04" + bytes(500), b"\xff" * 300, bytes(1000)])
def test_nothing_of_ours(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    assert kind_of(tmp_path / "x") is Kind.UNKNOWN
    for read in (kinds.read_vkey, kinds.read_proof, kinds.vk_bytes):
        with pytest.raises(InvalidInput, match="nothing that cuzkd knows"):
            read(tmp_path / "x")


@pytest.mark.parametrize("folder", [MERKLE, BLS], ids=lambda folder: folder.name)
def test_a_verification_key_in_every_spelling(spelt, folder):
    expected = snarkjs.read_vkey(folder / "vkey.json")
    for path in (folder / "vkey.json", folder / "circuit.zkey", spelt / f"vk {expected.curve}"):
        same_key(kinds.read_vkey(path), expected)
    data = (spelt / f"vk {expected.curve}").read_bytes()
    assert kinds.vk_bytes(folder / "circuit.zkey") == kinds.vk_bytes(spelt / f"vk {expected.curve}") == data


def test_the_key_in_parameters():
    head = bellman.read_params_head(SAPLING)
    same_key(kinds.read_vkey(SAPLING), head.vk)
    assert SAPLING.read_bytes().startswith(kinds.vk_bytes(SAPLING))


def test_what_snarkjs_has_is_too_little_for_a_vk():
    with pytest.raises(InvalidInput, match="beta_g1"):
        kinds.vk_bytes(MERKLE / "vkey.json")


@pytest.mark.parametrize("folder", [MERKLE, BLS], ids=lambda folder: folder.name)
@pytest.mark.parametrize("named", [True, False])
def test_a_proof_in_every_spelling(spelt, folder, named):
    curve = snarkjs.read_vkey(folder / "vkey.json").curve
    expected = snarkjs.read_proof(folder / "proof.json", curve)
    record = json.loads((folder / "proof.json").read_text())
    if not named:
        del record["curve"]
    (spelt / "json").write_text(json.dumps(record))
    for path in (spelt / "json", spelt / f"proof {curve}"):
        for asked in (None, curve):
            found = kinds.read_proof(path, asked)
            assert found.curve == curve
            assert all(np.array_equal(getattr(found, p), getattr(expected, p)) for p in "abc")


@pytest.mark.parametrize("other", [MERKLE / "circuit.zkey", SAPLING])
def test_a_key_is_no_proof(other):
    with pytest.raises(InvalidInput, match="expected a proof, found a proving key of"):
        kinds.read_proof(other)


def test_a_proof_of_another_curve(spelt):
    with pytest.raises(InvalidInput, match="expected 192 bytes on bls12_381, found 256"):
        kinds.read_proof(spelt / "proof bn254", "bls12_381")
    with pytest.raises(MalformedFile, match="expected a proof over bls12_381"):
        kinds.read_proof(MERKLE / "proof.json", "bls12_381")


@pytest.mark.parametrize(
    "source", [SAPLING, POLKA / "porep.vk", POLKA / "proof.bin", MERKLE / "circuit.zkey"]
)
def test_whatever_is_cut_is_told_by_its_reader(tmp_path, source):
    data = source.read_bytes()
    ends = {1, 47, 48, 95, 96, 191, 193, 500} | ({len(data) - 1} if source != SAPLING else set())
    for n in ends & set(range(len(data))):  # of parameters all but their head may be missing
        (tmp_path / "x").write_bytes(data[:n])
        for read in (kinds.read_vkey, kinds.read_proof, kinds.vk_bytes):
            with pytest.raises(CuzkdError, match="x"):
                read(tmp_path / "x")
