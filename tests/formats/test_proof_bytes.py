"""Proof bytes: they mean what others say they mean, and each proof has one spelling."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import py_arkworks_bls12381 as arkworks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzkd.curves import fields, params, points
from cuzkd.errors import InvalidInput
from cuzkd.formats import affine, proof_bytes, snarkjs
from cuzkd.groth16 import verifier
from cuzkd.groth16.keys import Proof

VECTORS = Path(__file__).parent.parent / "vectors"
REAL = {
    "bn254": VECTORS / "merkle_1k" / "proof.json",
    "bls12_381": VECTORS / "merkle_1k_bls12381" / "proof.json",
}
CURVES = list(REAL)


def same(p, q):
    return p.curve == q.curve and all(np.array_equal(getattr(p, n), getattr(q, n)) for n in "abc")


def proof_of(curve, a, b, c):
    return Proof(
        curve, affine.g1_to_array(curve, a), affine.g2_to_array(curve, b), affine.g1_to_array(curve, c)
    )


@pytest.mark.parametrize("curve", CURVES)
def test_real_proofs_survive(curve):
    proof = snarkjs.read_proof(REAL[curve], curve)
    data = proof_bytes.encode(proof)
    assert len(data) == proof_bytes.LENGTHS[curve]
    assert same(proof_bytes.decode(curve, data), proof)


@pytest.mark.parametrize("curve", CURVES)
def test_infinity_and_both_signs(curve):
    c = params.CURVES[curve]
    minus = (c.g1[0], c.q - c.g1[1]), (c.g2[0], tuple(c.q - n for n in c.g2[1]))
    for a, b in ((c.g1, c.g2), minus):
        proof = proof_of(curve, a, b, a)
        assert same(proof_bytes.decode(curve, proof_bytes.encode(proof)), proof)
    for i, which in enumerate("ABC"):
        three = [c.g1, c.g2, c.g1]
        three[i] = None
        proof = proof_of(curve, *three)
        data = proof_bytes.encode(proof)
        if curve == "bn254":  # the EVM's precompile takes it
            assert same(proof_bytes.decode(curve, data), proof)
        else:
            with pytest.raises(InvalidInput, match=f"proof: {which}: the point at infinity"):
                proof_bytes.decode(curve, data)


@pytest.mark.parametrize("curve", CURVES)
def test_proofs_in_a_row(curve):
    """A proof for each partition, without a count."""
    proof, length = snarkjs.read_proof(REAL[curve], curve), proof_bytes.LENGTHS[curve]
    data = proof_bytes.encode(proof)
    for n in (1, 3):
        found = proof_bytes.split(curve, data * n)
        assert len(found) == n and all(same(p, proof) for p in found)
    for size in (0, 1, length - 1, length + 1, 2 * length - 1):
        with pytest.raises(
            InvalidInput, match=f"proofs: expected a multiple of {length} bytes .* found {size}"
        ):
            proof_bytes.split(curve, (data * 2)[:size])
    wrong = bytearray(data * 3)
    wrong[length : length + 48] = b"\xff" * 48
    with pytest.raises(InvalidInput, match="proof 2 of 3: A: "):
        proof_bytes.split(curve, bytes(wrong))


def outside(curve, group):
    """A point of the curve that is not in the subgroup of order r."""
    q, law = params.CURVES[curve].q, points.group(curve, group)
    for i in range(1, 200):
        if group == "g1":
            x = i
            y = affine.fq_sqrt((x**3 + params.CURVES[curve].b) % q, q)
        else:
            x = (i, 0)
            y = affine.fq2_sqrt(affine.g2_right_side(curve, x), q)
        if y is not None and not law.in_subgroup((x, y)):
            return x, y
    raise AssertionError


@pytest.mark.parametrize(("curve", "which"), [("bn254", "b"), *(("bls12_381", w) for w in "abc")])
def test_points_outside_the_subgroup_are_the_verifiers(curve, which):
    """They decode, as their bytes are in order, and verify nothing. In BN254's G1 there are none."""
    good = snarkjs.read_proof(REAL[curve], curve)
    vk = snarkjs.read_vkey(REAL[curve].with_name("vkey.json"))
    publics = snarkjs.read_publics(REAL[curve].with_name("public.json"), curve)
    group = "g2" if which == "b" else "g1"
    law = points.group(curve, group)
    (was,) = law.decode(getattr(good, which)[None])
    small = law._times(params.CURVES[curve].r, outside(curve, group))  # r times it: of the order that is left
    moved = law.add(was, small)
    assert law.on_curve(moved) and not law.in_subgroup(moved)
    bent = replace(good, **{which: law.encode([moved])[0]})
    read = proof_bytes.decode(curve, proof_bytes.encode(bent))
    assert same(read, bent)
    assert verifier.verify(vk, good, publics)
    assert not verifier.verify(vk, read, publics)


def test_bls12_381_is_compressed_as_arkworks_does_it():
    a, b, c = arkworks.G1Point(), arkworks.G2Point(), arkworks.G1Point.identity()
    for k in range(1, 20):  # both signs occur
        a, b, c = a + a + arkworks.G1Point(), b + b + arkworks.G2Point(), -a
        data = bytes(a.to_compressed_bytes() + b.to_compressed_bytes() + c.to_compressed_bytes())
        assert proof_bytes.encode(proof_bytes.decode("bls12_381", data)) == data, k


def test_bn254_has_the_order_of_the_evm():
    c = params.CURVES["bn254"]
    (x0, x1), (y0, y1) = c.g2
    data = proof_bytes.encode(proof_of("bn254", c.g1, c.g2, None))
    numbers = [int.from_bytes(data[i : i + 32], "big") for i in range(0, 256, 32)]
    assert numbers == [1, 2, x1, x0, y1, y0, 0, 0]


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("size", [0, 1, 128, 191, 193, 255, 257])
def test_other_lengths_are_refused(curve, size):
    with pytest.raises(InvalidInput, match=f"expected {proof_bytes.LENGTHS[curve]} bytes"):
        proof_bytes.decode(curve, bytes(size))


def edited(curve, at, data):
    whole = bytearray(
        proof_bytes.encode(proof_of(curve, params.CURVES[curve].g1, params.CURVES[curve].g2, None))
    )
    whole[at : at + len(data)] = data
    return bytes(whole)


Q_BN, Q_BLS = (params.CURVES[c].q for c in CURVES)


@pytest.mark.parametrize(
    ("curve", "at", "data", "words"),
    [
        ("bn254", 0, (1 + Q_BN).to_bytes(32, "big"), "A: a coordinate is not below q"),
        ("bn254", 63, b"\x03", "A: point is not on bn254"),
        ("bn254", 191, b"\x00", "B: point is not on the twist"),
        ("bn254", 255, b"\x01", "C: point is not on bn254"),
        ("bls12_381", 0, b"\x17", "A: the flag of a compressed point is missing"),
        ("bls12_381", 144, b"\xe0", "C: point at infinity with other bits set"),
        ("bls12_381", 191, b"\x01", "C: point at infinity with other bits set"),
        ("bls12_381", 0, ((1 << 383) + Q_BLS).to_bytes(48, "big"), "A: a coordinate is not below q"),
        ("bls12_381", 48, ((1 << 383) + Q_BLS).to_bytes(48, "big"), "B: a coordinate is not below q"),
        ("bls12_381", 96, Q_BLS.to_bytes(48, "big"), "B: a coordinate is not below q"),
        ("bls12_381", 0, ((1 << 383) + 1).to_bytes(48, "big"), "A: no point of bls12_381 has this x"),
    ],
)
def test_what_is_wrong_is_named(curve, at, data, words):
    with pytest.raises(InvalidInput, match=words):
        proof_bytes.decode(curve, edited(curve, at, data))


@pytest.mark.parametrize("curve", CURVES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_changed_byte_is_refused_or_another_proof(curve, data):
    """Strict: whatever decodes is spelt exactly as the encoder spells it."""
    good = bytearray(proof_bytes.encode(snarkjs.read_proof(REAL[curve], curve)))
    good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        proof = proof_bytes.decode(curve, bytes(good))
    except InvalidInput:
        return
    assert proof_bytes.encode(proof) == good


@pytest.mark.parametrize("curve", CURVES)
@given(data=st.binary(min_size=192, max_size=256))
@settings(max_examples=40, deadline=None)
def test_random_bytes_raise_nothing_else(curve, data):
    try:
        proof_bytes.decode(curve, data[: proof_bytes.LENGTHS[curve]])
    except InvalidInput:
        return
    assert len(data) >= proof_bytes.LENGTHS[curve]


@given(c0=st.integers(0, 2**381), c1=st.integers(0, 2**381))
@settings(max_examples=30, deadline=None)
def test_square_roots(c0, c1):
    q = Q_BLS
    field = fields.Quadratic(q)
    for x in ((c0 % q, c1 % q), (c0 % q, 0), (0, c1 % q)):
        square = field.mul(x, x)
        root = affine.fq2_sqrt(square, q)
        assert root is not None and field.mul(root, root) == square
        # (1 + u) is not a square in Fq2, so neither is its product with one
        assert x == (0, 0) or affine.fq2_sqrt(field.mul(square, (1, 1)), q) is None
