"""Single points, between Montgomery limbs and the plain numbers that text and bytes hold.

Problem: proof.json, verification keys and proof bytes hold the same few points in different spellings.
Design: one form in the middle, plain ints with None for infinity, and the two checks that every reader owes:
each coordinate below q, each point on its curve. For points by the million there is
`backend.cpu.check_points`.
"""

from __future__ import annotations

from cuzkd.backend.protocol import U64
from cuzkd.curves import points
from cuzkd.curves.limbs import limbs_of
from cuzkd.curves.params import CURVES

Fq2 = tuple[int, int]
G1 = tuple[int, int] | None
G2 = tuple[Fq2, Fq2] | None


def limbs(curve: str) -> int:
    """64-bit limbs of a coordinate: 4 or 6."""
    return limbs_of(CURVES[curve].q)


def g1_from_array(curve: str, point: U64) -> G1:
    """uint64[2, L], Montgomery, zero for infinity -> (x, y) or None."""
    return points.g1(curve).decode(point[None])[0]


def g2_from_array(curve: str, point: U64) -> G2:
    """uint64[2, 2, L], Montgomery, zero for infinity -> ((x.c0, x.c1), (y.c0, y.c1)) or None."""
    return points.g2(curve).decode(point[None])[0]


def g1_to_array(curve: str, point: G1) -> U64:
    """The inverse of g1_from_array."""
    array: U64 = points.g1(curve).encode([point])[0]
    return array


def g2_to_array(curve: str, point: G2) -> U64:
    """The inverse of g2_from_array."""
    array: U64 = points.g2(curve).encode([point])[0]
    return array


def g1_problem(curve: str, point: G1) -> str | None:
    """What is wrong with a point of G1 (coordinate not below q, off the curve), or None."""
    if point is not None and not all(0 <= n < CURVES[curve].q for n in point):
        return f"a coordinate is not below q of {curve}"
    return None if points.g1(curve).on_curve(point) else f"point is not on {curve}"


def g2_problem(curve: str, point: G2) -> str | None:
    """What is wrong with a point of G2, or None."""
    if point is not None and not all(0 <= n < CURVES[curve].q for n in (*point[0], *point[1])):
        return f"a coordinate is not below q of {curve}"
    return None if points.g2(curve).on_curve(point) else f"point is not on the twist of {curve}"


def g2_right_side(curve: str, x: Fq2) -> Fq2:
    """x^3 + b2, whose root is y."""
    field = points.g2(curve).field
    return field.add(field.mul(field.mul(x, x), x), CURVES[curve].b2)


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
