"""A proof as bytes, as the wire carries it and as verifiers elsewhere want it. All big-endian.

bls12_381   192 bytes: A (48), B (96), C (48), each compressed as Zcash does it
            (https://github.com/zkcrypto/pairing/blob/master/src/bls12_381/README.md): x alone, and in the
            three highest bits of the first byte: compressed (always 1 here), infinity (then all else is 0), y
            is the larger of y and -y. Fq2 puts c1 before c0, and compares c1 first.
bn254       256 bytes: A.x A.y | B.x.c1 B.x.c0 B.y.c1 B.y.c0 | C.x C.y, 32 bytes each, the order of the EVM's
            pairing precompile (EIP-197); infinity is all zero. arkworks and gnark compress BN254 in other
            ways.

Decoders are strict: one byte string for a proof, every coordinate below q, every point on its curve. Whether
points lie in the subgroup, and whether the proof proves anything, is for the verifier.
"""

from __future__ import annotations

from cuzkd.curves import params
from cuzkd.errors import InvalidInput
from cuzkd.formats import affine
from cuzkd.formats.affine import G1, G2, Fq2
from cuzkd.groth16.keys import Proof

LENGTHS = {"bls12_381": 192, "bn254": 256}
_COMPRESSED, _INFINITY, _LARGER_Y = 0x80, 0x40, 0x20
_FLAGS = _COMPRESSED | _INFINITY | _LARGER_Y
_BN, _BLS = "bn254", "bls12_381"


def encode(proof: Proof) -> bytes:
    """The bytes of a proof: LENGTHS[proof.curve] of them."""
    a, c = (affine.g1_from_array(proof.curve, point) for point in (proof.a, proof.c))
    b = affine.g2_from_array(proof.curve, proof.b)
    if proof.curve == _BLS:
        return _compress_g1(a) + _compress_g2(b) + _compress_g1(c)
    (b_x0, b_x1), (b_y0, b_y1) = b or ((0, 0), (0, 0))
    numbers = (*(a or (0, 0)), b_x1, b_x0, b_y1, b_y0, *(c or (0, 0)))
    return b"".join(n.to_bytes(32, "big") for n in numbers)


def decode(curve: str, data: bytes) -> Proof:
    """The proof that bytes encode. Raises InvalidInput, saying which point is wrong and how."""
    if len(data) != LENGTHS[curve]:
        raise InvalidInput(f"proof: expected {LENGTHS[curve]} bytes on {curve}, found {len(data)}")
    if curve == _BLS:
        a, b, c = (
            _decompress_g1(data[:48], "A"),
            _decompress_g2(data[48:144], "B"),
            _decompress_g1(data[144:], "C"),
        )
    else:
        n = [int.from_bytes(data[i : i + 32], "big") for i in range(0, len(data), 32)]
        a = (n[0], n[1]) if any(n[0:2]) else None
        b = ((n[3], n[2]), (n[5], n[4])) if any(n[2:6]) else None
        c = (n[6], n[7]) if any(n[6:8]) else None
    problems = (affine.g1_problem(curve, a), affine.g2_problem(curve, b), affine.g1_problem(curve, c))
    for point, problem in zip("ABC", problems, strict=True):
        if problem:
            raise InvalidInput(f"proof: {point}: {problem}")
    return Proof(
        curve, affine.g1_to_array(curve, a), affine.g2_to_array(curve, b), affine.g1_to_array(curve, c)
    )


def _is_larger(y: Fq2, q: int) -> bool:
    """Is y the larger of y and -y, reading (c0, c1) as a number with c1 first? c1 = 0 leaves the choice to
    c0.
    """
    return (y[1] or y[0]) > (q - 1) // 2


def _compress(x: Fq2, y: Fq2, size: int) -> bytes:
    """size 48: x.c0 only; 96: x.c1, then x.c0."""
    number = x[0] | x[1] << 384
    data = bytearray(number.to_bytes(size, "big"))
    data[0] |= _COMPRESSED | (_LARGER_Y if _is_larger(y, params.CURVES[_BLS].q) else 0)
    return bytes(data)


def _infinity(size: int) -> bytes:
    return bytes([_COMPRESSED | _INFINITY]) + bytes(size - 1)


def _compress_g1(point: G1) -> bytes:
    return _infinity(48) if point is None else _compress((point[0], 0), (point[1], 0), 48)


def _compress_g2(point: G2) -> bytes:
    return _infinity(96) if point is None else _compress(*point, 96)


def _decompress_g1(data: bytes, which: str) -> G1:
    q = params.CURVES[_BLS].q
    if (x := _compressed_x(data, which)) is None:
        return None
    y = affine.fq_sqrt((x[0] ** 3 + params.CURVES[_BLS].b) % q, q)
    if y is None:
        raise InvalidInput(f"proof: {which}: no point of {_BLS} has this x")
    return x[0], y if _is_larger((y, 0), q) == bool(data[0] & _LARGER_Y) else -y % q


def _decompress_g2(data: bytes, which: str) -> G2:
    q = params.CURVES[_BLS].q
    if (x := _compressed_x(data, which)) is None:
        return None
    y = affine.fq2_sqrt(affine.g2_right_side(_BLS, x), q)
    if y is None:
        raise InvalidInput(f"proof: {which}: no point of the twist of {_BLS} has this x")
    return x, y if _is_larger(y, q) == bool(data[0] & _LARGER_Y) else (-y[0] % q, -y[1] % q)


def _compressed_x(data: bytes, which: str) -> Fq2 | None:
    """x of a compressed point (c1 = 0 in G1), None for infinity. InvalidInput for any second spelling."""
    flags = data[0] & _FLAGS
    number = int.from_bytes(bytes([data[0] & ~_FLAGS]) + data[1:], "big")
    if not flags & _COMPRESSED:
        raise InvalidInput(f"proof: {which}: the flag of a compressed point is missing")
    if flags & _INFINITY:
        if flags & _LARGER_Y or number:
            raise InvalidInput(f"proof: {which}: point at infinity with other bits set")
        return None
    x = (number & ((1 << 384) - 1), number >> 384)
    if max(x) >= params.CURVES[_BLS].q:
        raise InvalidInput(f"proof: {which}: a coordinate is not below q of {_BLS}")
    return x
