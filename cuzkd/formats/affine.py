"""Single points, between Montgomery limbs and the plain numbers that text and bytes hold.

Problem: proof.json, verification keys and proof bytes hold the same few points in different spellings.
Design: one form in the middle, plain ints with None for infinity, and the two checks that every reader owes:
each coordinate below q, each point on its curve. For points by the million there is
`backend.cpu.check_points`.
"""

from __future__ import annotations

import numpy as np

from cuzkd.backend.protocol import U64
from cuzkd.curves import params

Fq2 = tuple[int, int]
G1 = tuple[int, int] | None
G2 = tuple[Fq2, Fq2] | None


def limbs(curve: str) -> int:
    """64-bit limbs of a coordinate: 4 or 6."""
    return (params.CURVES[curve].q.bit_length() + 63) // 64


def _int(curve: str, element: U64) -> int:
    """uint64[L], Montgomery -> the number."""
    q = params.CURVES[curve].q
    stored = int.from_bytes(np.ascontiguousarray(element, dtype="<u8").tobytes(), "little")
    return stored * pow(1 << (64 * limbs(curve)), -1, q) % q


def _element(curve: str, number: int) -> U64:
    """A number below q -> uint64[L], Montgomery."""
    q = params.CURVES[curve].q
    n = limbs(curve)
    stored = (number << (64 * n)) % q
    return np.frombuffer(stored.to_bytes(8 * n, "little"), dtype="<u8").astype(np.uint64)


def g1_from_array(curve: str, point: U64) -> G1:
    """uint64[2, L], Montgomery, zero for infinity -> (x, y) or None."""
    if not point.any():
        return None
    return _int(curve, point[0]), _int(curve, point[1])


def g2_from_array(curve: str, point: U64) -> G2:
    """uint64[2, 2, L], Montgomery, zero for infinity -> ((x.c0, x.c1), (y.c0, y.c1)) or None."""
    if not point.any():
        return None
    (x0, x1), (y0, y1) = ([_int(curve, c) for c in pair] for pair in point)
    return (x0, x1), (y0, y1)


def g1_to_array(curve: str, point: G1) -> U64:
    """The inverse of g1_from_array."""
    return np.stack([_element(curve, c) for c in point or (0, 0)])


def g2_to_array(curve: str, point: G2) -> U64:
    """The inverse of g2_from_array."""
    return np.stack([np.stack([_element(curve, c) for c in pair]) for pair in point or ((0, 0), (0, 0))])


def g1_problem(curve: str, point: G1) -> str | None:
    """What is wrong with a point of G1 (coordinate not below q, off the curve), or None."""
    if point is None:
        return None
    c = params.CURVES[curve]
    x, y = point
    if not (0 <= x < c.q and 0 <= y < c.q):
        return f"a coordinate is not below q of {curve}"
    return None if (y * y - x * x * x - c.b) % c.q == 0 else f"point is not on {curve}"


def g2_problem(curve: str, point: G2) -> str | None:
    """What is wrong with a point of G2, or None."""
    if point is None:
        return None
    c = params.CURVES[curve]
    x, y = point
    if not all(0 <= n < c.q for n in (*x, *y)):
        return f"a coordinate is not below q of {curve}"
    return None if fq2_mul(y, y, c.q) == g2_right_side(curve, x) else f"point is not on the twist of {curve}"


def g2_right_side(curve: str, x: Fq2) -> Fq2:
    """x^3 + b2 in Fq2 = Fq[u]/(u^2 + 1)."""
    c = params.CURVES[curve]
    cube = fq2_mul(fq2_mul(x, x, c.q), x, c.q)
    return (cube[0] + c.b2[0]) % c.q, (cube[1] + c.b2[1]) % c.q


def fq2_mul(a: Fq2, b: Fq2, q: int) -> Fq2:
    """(a0 + a1 u)(b0 + b1 u) with u^2 = -1."""
    return (a[0] * b[0] - a[1] * b[1]) % q, (a[0] * b[1] + a[1] * b[0]) % q


def fq_sqrt(a: int, q: int) -> int | None:
    """A square root mod q = 3 mod 4, or None."""
    root = pow(a, (q + 1) // 4, q)
    return root if root * root % q == a % q else None


def fq2_sqrt(a: Fq2, q: int) -> Fq2 | None:
    """A square root in Fq2, or None: with n the root of the norm, x0^2 = (a0 +- n)/2 and x1 = a1/(2 x0)."""
    if a[1] == 0:
        real = fq_sqrt(a[0], q)
        if real is not None:
            return real, 0
        imaginary = fq_sqrt(-a[0] % q, q)  # one of a0, -a0 is a square, as -1 is none
        return None if imaginary is None else (0, imaginary)
    norm = fq_sqrt((a[0] * a[0] + a[1] * a[1]) % q, q)
    if norm is None:
        return None
    half = (q + 1) // 2
    for sign in (norm, -norm):
        x0 = fq_sqrt((a[0] + sign) * half % q, q)
        if x0:
            return x0, a[1] * pow(2 * x0, -1, q) % q
    return None
