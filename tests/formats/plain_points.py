"""bellman's uncompressed points by plain ints: what the native decoder is held against, and what files are made of.

A point is None for infinity, (x, y) in G1, ((x.c0, x.c1), (y.c0, y.c1)) in G2.
"""

from cuzkd.curves import points
from cuzkd.curves.params import CURVES

FLAGS = {"bls12_381": 0xE0, "bn254": 0xC0}  # the bits of the first byte that q leaves free
INFINITY = 0x40


def q_bytes(curve):
    return 48 if curve == "bls12_381" else 32


def size(curve, group):
    return q_bytes(curve) * (2 if group == "g1" else 4)


def encode(curve, group, point):
    """The bytes of a point."""
    if point is None:
        return bytes([INFINITY]) + bytes(size(curve, group) - 1)
    x, y = point
    numbers = (x, y) if group == "g1" else (x[1], x[0], y[1], y[0])
    return b"".join(n.to_bytes(q_bytes(curve), "big") for n in numbers)


def decode(curve, group, raw):
    """One point. ValueError for a flag out of place or a coordinate that is not below q."""
    n = q_bytes(curve)
    flags = raw[0] & FLAGS[curve]
    raw = bytes([raw[0] & ~FLAGS[curve]]) + bytes(raw[1:])
    if flags == INFINITY:
        if any(raw):
            raise ValueError("infinity with other bits set")
        return None
    if flags:
        raise ValueError("flags")
    numbers = [int.from_bytes(raw[i : i + n], "big") for i in range(0, len(raw), n)]
    if max(numbers) >= CURVES[curve].q:
        raise ValueError("not below q")
    if not any(numbers):
        return None  # snarkjs's infinity
    if group == "g1":
        return numbers[0], numbers[1]
    return (numbers[1], numbers[0]), (numbers[3], numbers[2])


def decode_all(curve, group, raw):
    """Points one after the other, as uint64[n, *point], Montgomery."""
    n = size(curve, group)
    found = [decode(curve, group, raw[i : i + n]) for i in range(0, len(raw), n)]
    return points.group(curve, group).encode(found)
