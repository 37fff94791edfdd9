"""A proof as bytes, as the wire carries it and as verifiers elsewhere want it. All big-endian.

bls12_381   192 bytes: A (48), B (96), C (48), each compressed as Zcash does it (`compressed.py`). Readers of
            bellman, bellperson and Zcash refuse infinity in a proof, and so does this one.
bn254       256 bytes: A.x A.y | B.x.c1 B.x.c0 B.y.c1 B.y.c0 | C.x C.y, 32 bytes each, the order of the EVM's
            pairing precompile (EIP-197); infinity is all zero. arkworks and gnark compress BN254 in other
            ways.

Several proofs (one for each partition, as Filecoin has them) stand one after the other, without a count.

Decoders are strict: one byte string for a proof, every coordinate below q, every point on its curve. Whether
points lie in the subgroup of order r, and whether the proof proves anything, is for `groth16.verifier`, which
looks at both.
"""

from __future__ import annotations

from cuzkd.errors import InvalidInput
from cuzkd.formats import affine, compressed
from cuzkd.formats.affine import G1, G2
from cuzkd.groth16.keys import Proof

LENGTHS = {"bls12_381": 192, "bn254": 256}


def encode(proof: Proof) -> bytes:
    """The bytes of a proof: LENGTHS[proof.curve] of them."""
    a, c = (affine.g1_from_array(proof.curve, point) for point in (proof.a, proof.c))
    b = affine.g2_from_array(proof.curve, proof.b)
    if proof.curve == compressed.CURVE:
        return compressed.encode_g1(a) + compressed.encode_g2(b) + compressed.encode_g1(c)
    (b_x0, b_x1), (b_y0, b_y1) = b or ((0, 0), (0, 0))
    numbers = (*(a or (0, 0)), b_x1, b_x0, b_y1, b_y0, *(c or (0, 0)))
    return b"".join(n.to_bytes(32, "big") for n in numbers)


def decode(curve: str, data: bytes, where: str = "proof") -> Proof:
    """The proof that bytes encode. Raises InvalidInput, saying which point is wrong and how."""
    if len(data) != LENGTHS[curve]:
        raise InvalidInput(f"{where}: expected {LENGTHS[curve]} bytes on {curve}, found {len(data)}")
    a, b, c = _compressed(data, where) if curve == compressed.CURVE else _evm(data)
    problems = (affine.g1_problem(curve, a), affine.g2_problem(curve, b), affine.g1_problem(curve, c))
    for point, problem in zip("ABC", problems, strict=True):
        if problem:
            raise InvalidInput(f"{where}: {point}: {problem}")
    return Proof(
        curve, affine.g1_to_array(curve, a), affine.g2_to_array(curve, b), affine.g1_to_array(curve, c)
    )


def split(curve: str, data: bytes) -> list[Proof]:
    """The proofs that stand one after the other. Raises InvalidInput, saying in which of them what is wrong."""
    length = LENGTHS[curve]
    n = len(data) // length
    if n == 0 or len(data) % length:
        raise InvalidInput(
            f"proofs: expected a multiple of {length} bytes (a proof on {curve}), found {len(data)}"
        )
    return [decode(curve, data[i * length : (i + 1) * length], f"proof {i + 1} of {n}") for i in range(n)]


def _evm(data: bytes) -> tuple[G1, G2, G1]:
    n = [int.from_bytes(data[i : i + 32], "big") for i in range(0, len(data), 32)]
    return (
        (n[0], n[1]) if any(n[0:2]) else None,
        ((n[3], n[2]), (n[5], n[4])) if any(n[2:6]) else None,
        (n[6], n[7]) if any(n[6:8]) else None,
    )


def _compressed(data: bytes, where: str) -> tuple[G1, G2, G1]:
    which = "A"
    try:
        a = compressed.decode_g1(data[:48])
        which = "B"
        b = compressed.decode_g2(data[48:144])
        which = "C"
        c = compressed.decode_g1(data[144:])
    except compressed.BadPoint as problem:
        raise InvalidInput(f"{where}: {which}: {problem}") from problem
    for which, point in zip("ABC", (a, b, c), strict=True):
        if point is None:
            raise InvalidInput(f"{where}: {which}: the point at infinity, which a proof cannot hold")
    return a, b, c
