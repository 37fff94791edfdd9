"""snarkjs JSON: what snarkjs wrote is read and written again to the letter; every other shape is refused in
words.
"""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzkd.curves import params
from cuzkd.errors import InvalidInput, MalformedFile
from cuzkd.formats import json_depth, kinds, snarkjs

VECTORS = Path(__file__).parent.parent / "vectors"
ALL = {"edge_nopub": "bn254", "edge_pub100": "bn254", "merkle_1k": "bn254", "merkle_1k_bls12381": "bls12_381"}


@pytest.mark.parametrize(("name", "curve"), ALL.items())
def test_to_the_letter(name, curve):
    folder = VECTORS / name
    proof = snarkjs.read_proof(folder / "proof.json", curve)
    assert snarkjs.proof_to_json(proof) == (folder / "proof.json").read_text()
    publics = snarkjs.read_publics(folder / "public.json", curve)
    assert snarkjs.publics_to_json(publics) == (folder / "public.json").read_text()
    vk = snarkjs.read_vkey(folder / "vkey.json")
    assert vk.curve == curve and len(vk.ic) == len(publics) + 1
    wanted = json.loads((folder / "vkey.json").read_text())
    del wanted["vk_alphabeta_12"]
    assert snarkjs.vkey_to_json(vk) == json.dumps(wanted, indent=1)


@pytest.mark.parametrize("name", ["merkle_1k", "merkle_1k_bls12381"])
def test_vkey_with_its_pairing_to_the_letter(name):
    text = (VECTORS / name / "vkey.json").read_text()
    vk = snarkjs.vkey_from_json(text, "vkey")
    assert snarkjs.vkey_to_json(vk, with_pairing=True) == text


@pytest.mark.parametrize("spelling", ["bn128", "BN254", "ALTBN128", "alt_bn128", "Bn-128", "bn254"])
def test_spellings_of_bn254(spelling):
    record = json.loads((VECTORS / "merkle_1k" / "vkey.json").read_text())
    assert snarkjs.vkey_from_json(json.dumps(record | {"curve": spelling}), "vkey").curve == "bn254"


@pytest.mark.parametrize("spelling", ["bls12381", "BLS12-381", "bls12_381"])
def test_spellings_of_bls12_381(spelling):
    record = json.loads((VECTORS / "merkle_1k_bls12381" / "vkey.json").read_text())
    assert snarkjs.vkey_from_json(json.dumps(record | {"curve": spelling}), "vkey").curve == "bls12_381"


def test_rapidsnarks_proof_names_no_curve():
    record = json.loads((VECTORS / "merkle_1k" / "proof.json").read_text())
    del record["curve"]
    compact = json.dumps(record, separators=(",", ":"))
    assert snarkjs.proof_from_json(compact, "p", "bn254").curve == "bn254"


def test_infinity():
    vk = snarkjs.read_vkey(VECTORS / "edge_nopub" / "vkey.json")
    vk.ic[0] = 0
    vk.gamma_g2[:] = 0
    record = json.loads(snarkjs.vkey_to_json(vk))
    assert record["IC"] == [["0", "1", "0"]] and record["vk_gamma_2"] == [["0", "0"], ["1", "0"], ["0", "0"]]
    again = snarkjs.vkey_from_json(json.dumps(record), "vkey")
    assert not again.ic.any() and not again.gamma_g2.any()


Q, R = params.CURVES["bn254"].q, params.CURVES["bn254"].r


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["pi_a", 0], str(Q), "pi_a: is not below q of bn254"),
        (["pi_a", 0], 12, "pi_a: expected a decimal string, found a number"),
        (["pi_a", 0], "0x12", "pi_a: expected a decimal string"),
        (["pi_a", 0], "-1", "expected a decimal string"),
        (["pi_a", 0], "007", "expected a decimal string"),
        (["pi_a", 0], "٣", "expected a decimal string"),
        (["pi_a", 0], "1" * 5000, "expected a decimal string"),
        (["pi_a", 2], "2", "pi_a: expected an affine point"),
        (["pi_a", 2], "0", "pi_a: expected an affine point"),
        (["pi_a"], ["0", "0", "1"], "pi_a: expected an affine point"),
        (["pi_a"], ["1", "2"], "pi_a: expected an array of 3, found 2"),
        (["pi_a"], None, "pi_a: expected an array of 3, found null"),
        (["pi_b", 1], ["1"], "pi_b: expected an array of 2, found 1"),
        (["pi_b", 2], ["0", "1"], "pi_b: expected an affine point"),
        (["protocol"], "plonk", "expected protocol 'groth16', found 'plonk'"),
        (["curve"], "bls12381", "expected a proof over bn254, found one over bls12_381"),
        (["curve"], "secp256k1", "curve: expected bn254 or bls12_381, found 'secp256k1'"),
        (["curve"], ["x"], "curve: expected bn254 or bls12_381"),
    ],
)
def test_wrong_proofs_are_named(path, value, words):
    record = json.loads((VECTORS / "merkle_1k" / "proof.json").read_text())
    inner = record
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(MalformedFile, match=words) as error:
        snarkjs.proof_from_json(json.dumps(record), "my.json", "bn254")
    assert "my.json" in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        (b"\xff\xfe\xfd", "is not JSON"),
        ("[" * 100_000, "nested deeper than 16"),
        (b"[" * 100_000, "nested deeper than 16"),
        ("9" * 10_000, "is not JSON"),
        ("[]", "expected an object, found an array"),
        ("{}", "missing: pi_a, pi_b, pi_c"),
    ],
)
def test_what_is_no_proof(text, words):
    with pytest.raises(MalformedFile, match=words):
        snarkjs.proof_from_json(text, "x", "bn254")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "expected an array of decimal strings, found an object"),
        (f'["1", "{R}"]', "value 1: is not below r of bn254"),
        ("[1]", "value 0: expected a decimal string, found a number"),
        ('["1", true]', "value 1: expected a decimal string"),
    ],
)
def test_wrong_publics_are_named(text, words):
    with pytest.raises(MalformedFile, match=words):
        snarkjs.publics_from_json(text, "x", "bn254")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nPublic": 2}, r"IC: expected nPublic \+ 1 points \(nPublic is 2\), found 4"),
        ({"nPublic": "3"}, r"nPublic is '3'"),
        ({"nPublic": True, "IC": [["0", "1", "0"]] * 2}, "nPublic is True"),
        ({"nPublic": -1, "IC": []}, "nPublic is -1"),
        ({"IC": 7}, "found a number"),
        ({"protocol": None}, "expected protocol"),
        ({"vk_beta_2": {}}, "vk_beta_2: expected an array of 3, found an object"),
    ],
)
def test_wrong_vkeys_are_named(change, words):
    record = json.loads((VECTORS / "merkle_1k" / "vkey.json").read_text()) | change
    with pytest.raises(MalformedFile, match=words):
        snarkjs.vkey_from_json(json.dumps(record), "vkey")


def test_files(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be opened"):
        snarkjs.read_vkey(tmp_path / "none.json")
    (tmp_path / "empty.json").touch()
    with pytest.raises(MalformedFile, match="empty"):
        snarkjs.read_publics(tmp_path / "empty.json", "bn254")


def test_files_too_large_are_not_read(tmp_path):
    path = tmp_path / "hole.json"
    for read, largest in (
        (snarkjs.read_vkey, 64 << 20),
        (lambda path: snarkjs.read_publics(path, "bn254"), 64 << 20),
        (lambda path: snarkjs.read_proof(path, "bn254"), 1 << 20),
        (kinds.read_proof, 1 << 20),
    ):
        with open(path, "wb") as file:
            file.write(b"{")
            file.truncate(largest + 1)
        with pytest.raises(
            MalformedFile, match=f"expected at most {largest} bytes of JSON, found {largest + 1}"
        ):
            read(path)


@pytest.mark.parametrize("piece", ["[],", "{},", '{"b":1},', "1,", '"",', '[1,{"a":[2]}],'])
def test_values_are_counted_before_they_are_made(piece):
    """Not fewer than there are; beyond the limit the text is not parsed."""

    def count(value):
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + sum(map(count, inner))

    few = f"[{piece * 50}0]"
    assert count(json.loads(few)) <= json_depth.most_values(few) <= 3 * count(json.loads(few))
    text = f"[{piece * snarkjs.MAX_VALUES}0]"
    tracemalloc.start()
    try:
        with pytest.raises(MalformedFile, match=f"expected at most {snarkjs.MAX_VALUES} values, found"):
            snarkjs.publics_from_json(text, "x", "bn254")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
def test_a_key_of_two_hundred_thousand_values_fits(curve):
    """By the text of one of its largest points."""
    q = params.CURVES[curve].q
    head = {"IC": [[str(q - 1), str(q - 2), "1"]] * 10}
    text = json.dumps(head, indent=1)
    assert (
        len(text) * 20_000 < snarkjs.MAX_BYTES and json_depth.most_values(text) * 20_000 < snarkjs.MAX_VALUES
    )


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda x: st.lists(x, max_size=3)
)


@given(key=st.sampled_from(["pi_a", "pi_b", "pi_c", "protocol", "curve"]), value=junk)
@settings(max_examples=60, deadline=None)
def test_junk_raises_nothing_else(key, value):
    record = json.loads((VECTORS / "merkle_1k" / "proof.json").read_text()) | {key: value}
    with pytest.raises(MalformedFile):
        snarkjs.proof_from_json(json.dumps(record), "x", "bn254")


def test_numbers_become_montgomery():
    vk = snarkjs.read_vkey(VECTORS / "merkle_1k" / "vkey.json")
    one = (1 << 256) % Q
    record = json.loads((VECTORS / "merkle_1k" / "proof.json").read_text()) | {"pi_a": ["1", "2", "1"]}
    a = snarkjs.proof_from_json(json.dumps(record), "x", vk.curve).a
    limbs = [[(k * one % Q >> (64 * i)) & (2**64 - 1) for i in range(4)] for k in (1, 2)]
    assert np.array_equal(a, np.array(limbs, dtype=np.uint64))
