"""Call data: one spelling for a proof, and each lie in it named. Equality with snarkjs: tests/conformance."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzkd.curves.params import CURVES
from cuzkd.errors import MalformedFile
from cuzkd.formats import affine, snarkjs, solidity
from cuzkd.groth16.keys import Proof

VECTORS = Path(__file__).parent.parent / "vectors"
FOLDERS = {"bn254": "merkle_1k", "bls12_381": "merkle_1k_bls12381"}


def real(curve):
    folder = VECTORS / FOLDERS[curve]
    proof = snarkjs.read_proof(folder / "proof.json", curve)
    return proof, snarkjs.read_publics(folder / "public.json", curve)


def same(p, q):
    return p.curve == q.curve and all(np.array_equal(getattr(p, n), getattr(q, n)) for n in "abc")


@pytest.mark.parametrize("curve", CURVES)
def test_both_ways(curve):
    proof, publics = real(curve)
    for values in (publics, publics[:1], []):
        text = solidity.call_data(proof, values)
        for spelling in (text, f"\n {text}\n", text.replace(",", " ,\n\t"), text.replace(", ", ",")):
            read, found = solidity.parse_call_data(spelling, "x", curve)
            assert same(read, proof) and found == values


def test_infinity_is_the_machines():
    c = CURVES["bn254"]
    proof = Proof(
        "bn254",
        affine.g1_to_array("bn254", c.g1),
        affine.g2_to_array("bn254", None),
        affine.g1_to_array("bn254", None),
    )
    text = solidity.call_data(proof, [])
    assert text.count(f'"0x{0:064x}"') == 6
    assert same(solidity.parse_call_data(text, "x", "bn254")[0], proof)


@pytest.mark.parametrize("curve", CURVES)
def test_other_texts_are_refused(curve):
    proof, publics = real(curve)
    text = solidity.call_data(proof, publics)
    first = text.split('"')[1]
    for wrong in (
        "", "[]", text[1:], text[:-1], text + ",", text + "]", text + "x", text.replace('"', "'"), f"[{text}]",
        text.replace(first, first.upper()), text.replace(first, "0x" + "1" * 63), text.replace("0x", "", 1),
        text.replace(first, "0x0" + first[2:]), text.replace(first, str(int(first, 16))), text.replace(",", ",,", 1),
        text.replace(first, first[:20] + " " + first[20:]), "[" * 100_000, text.replace(first, "0x" + "f" * 97),
    ):  # fmt: skip
        with pytest.raises(MalformedFile, match=r"^here: expected call data"):
            solidity.parse_call_data(wrong, "here", curve)


@pytest.mark.parametrize("curve", CURVES)
def test_numbers_that_lie(curve):
    proof, publics = real(curve)
    c = CURVES[curve]
    text = solidity.call_data(proof, publics)
    numbers = text.split('"')[1::2]
    for place, point in enumerate("AABBBBCC"):
        for value, words in (
            (int(numbers[place], 16) ^ 1, "point is not on"),
            (c.q, "a coordinate is not below q"),
        ):
            parts = text.split('"')
            parts[2 * place + 1] = f"0x{value:064x}"
            with pytest.raises(MalformedFile, match=f"here: {point}: {words}"):
                solidity.parse_call_data('"'.join(parts), "here", curve)
    with pytest.raises(MalformedFile, match=f"here: value 1: is not below r of {curve}"):
        solidity.parse_call_data(solidity.call_data(proof, [0, c.r]), "here", curve)


@given(text=st.text(alphabet='[]",0x1af \n', max_size=80))
def test_random_text_raises_nothing_else(text):
    with pytest.raises(MalformedFile):
        solidity.parse_call_data(text, "here", "bn254")
