"""Compressed points of BLS12-381, as Zcash does it: 48 bytes in G1, 96 in G2, big-endian.

x alone (Fq2: c1 before c0), and in the three highest bits of the first byte: compressed (always 1 here), infinity
(then all else is 0), y is the larger of y and -y (Fq2 compares c1 first).
https://github.com/zkcrypto/pairing/blob/master/src/bls12_381/README.md

Decoders are strict: a point has one spelling. What they give lies on its curve; whether it lies in the subgroup of
order r is not looked at.
"""

from __future__ import annotations

from cuzkd.curves import params
from cuzkd.formats import affine
from cuzkd.formats.affine import G1, G2, Fq2

CURVE = "bls12_381"
G1_BYTES, G2_BYTES = 48, 96
COMPRESSED, INFINITY, LARGER_Y = 0x80, 0x40, 0x20
_FLAGS = COMPRESSED | INFINITY | LARGER_Y
_Q = params.CURVES[CURVE].q


class BadPoint(ValueError):
    """Bytes that encode no point; the message says why, and the caller where."""


def encode_g1(point: G1) -> bytes:
    return _infinity(G1_BYTES) if point is None else _encode((point[0], 0), (point[1], 0), G1_BYTES)


def encode_g2(point: G2) -> bytes:
    return _infinity(G2_BYTES) if point is None else _encode(*point, G2_BYTES)


def decode_g1(data: bytes) -> G1:
    """Raises BadPoint."""
    if (x := _x(data, G1_BYTES)) is None:
        return None
    y = affine.fq_sqrt((x[0] ** 3 + params.CURVES[CURVE].b) % _Q, _Q)
    if y is None:
        raise BadPoint(f"no point of {CURVE} has this x")
    return x[0], y if _is_larger((y, 0)) == bool(data[0] & LARGER_Y) else -y % _Q


def decode_g2(data: bytes) -> G2:
    """Raises BadPoint."""
    if (x := _x(data, G2_BYTES)) is None:
        return None
    y = affine.fq2_sqrt(affine.g2_right_side(CURVE, x), _Q)
    if y is None:
        raise BadPoint(f"no point of the twist of {CURVE} has this x")
    return x, y if _is_larger(y) == bool(data[0] & LARGER_Y) else (-y[0] % _Q, -y[1] % _Q)


def _is_larger(y: Fq2) -> bool:
    """Is y the larger of y and -y, reading (c0, c1) as a number with c1 first? c1 = 0 leaves the choice to c0."""
    return (y[1] or y[0]) > (_Q - 1) // 2


def _infinity(size: int) -> bytes:
    return bytes([COMPRESSED | INFINITY]) + bytes(size - 1)


def _encode(x: Fq2, y: Fq2, size: int) -> bytes:
    """G1 has c1 = 0, and bytes for c0 only."""
    data = bytearray((x[0] | x[1] << 384).to_bytes(size, "big"))
    data[0] |= COMPRESSED | (LARGER_Y if _is_larger(y) else 0)
    return bytes(data)


def _x(data: bytes, size: int) -> Fq2 | None:
    """x (c1 = 0 in G1), None for infinity. BadPoint for any second spelling."""
    if len(data) != size:
        raise BadPoint(f"expected {size} bytes, found {len(data)}")
    flags = data[0] & _FLAGS
    number = int.from_bytes(bytes([data[0] & ~_FLAGS]) + data[1:], "big")
    if not flags & COMPRESSED:
        raise BadPoint("the flag of a compressed point is missing")
    if flags & INFINITY:
        if flags & LARGER_Y or number:
            raise BadPoint("point at infinity with other bits set")
        return None
    x = (number & ((1 << 384) - 1), number >> 384)
    if max(x) >= _Q:
        raise BadPoint(f"a coordinate is not below q of {CURVE}")
    return x
