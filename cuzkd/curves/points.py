"""The groups G1 and G2 by plain ints: affine points, the textbook chord-and-tangent law, None for infinity.

Problem: every fast formula has exceptional cases, and somebody has to know the right answers.
Design: one class for both groups, over the field that its coordinates live in; the slope is divided out each time, so
there are no coordinates to normalise and each case is visible. Slow: about 8 ms for a scalar product in G1.
Life of data: `decode` takes points from arrays as backends hold them, `encode` gives them back.

    chord  m = (y2 - y1)/(x2 - x1)     tangent  m = 3 x^2/(2 y)      (both curves have a = 0)
    x3 = m^2 - x1 - x2,  y3 = m (x1 - x3) - y1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

from cuzkd.curves import limbs
from cuzkd.curves.fields import Field, Fp2, Prime, Quadratic
from cuzkd.curves.limbs import U64
from cuzkd.curves.params import CURVES

E = TypeVar("E")


class Group(Generic[E]):
    """Points (x, y) or None with y^2 = x^3 + b; `generator` has order r. cofactor: points of the curve, over r."""

    def __init__(self, field: Field[E], b: E, generator: tuple[E, E], r: int, cofactor: int) -> None:
        self.field, self.b, self.generator, self.r, self.cofactor = field, b, generator, r, cofactor

    def on_curve(self, point: tuple[E, E] | None) -> bool:
        """Infinity is."""
        if point is None:
            return True
        f, (x, y) = self.field, point
        return f.mul(y, y) == f.add(f.mul(f.mul(x, x), x), self.b)

    def in_subgroup(self, point: tuple[E, E] | None) -> bool:
        """On the curve, and r times the point is infinity."""
        return self.on_curve(point) and self._times(self.r, point) is None

    def neg(self, point: tuple[E, E] | None) -> tuple[E, E] | None:
        return None if point is None else (point[0], self.field.neg(point[1]))

    def double(self, point: tuple[E, E] | None) -> tuple[E, E] | None:
        if point is None or point[1] == self.field.zero:
            return None
        f, (x, y) = self.field, point
        return self._third(f.mul(f.scale(3, f.mul(x, x)), f.inv(f.scale(2, y))), x, x, y)

    def add(self, p: tuple[E, E] | None, q: tuple[E, E] | None) -> tuple[E, E] | None:
        if p is None:
            return q
        if q is None:
            return p
        if p[0] == q[0]:
            return self.double(p) if p[1] == q[1] else None
        f = self.field
        return self._third(f.mul(f.sub(q[1], p[1]), f.inv(f.sub(q[0], p[0]))), p[0], q[0], p[1])

    def _third(self, slope: E, x1: E, x2: E, y1: E) -> tuple[E, E]:
        f = self.field
        x3 = f.sub(f.sub(f.mul(slope, slope), x1), x2)
        return x3, f.sub(f.mul(slope, f.sub(x1, x3)), y1)

    def mul(self, scalar: int, point: tuple[E, E] | None) -> tuple[E, E] | None:
        """scalar (any int, taken mod r) times a point of order r."""
        return self._times(scalar % self.r, point)

    def _times(self, scalar: int, point: tuple[E, E] | None) -> tuple[E, E] | None:
        """Double and add from the top bit; scalar >= 0 as it is."""
        result = None
        for bit in bin(scalar)[2:]:
            result = self.double(result)
            if bit == "1":
                result = self.add(result, point)
        return result

    def msm(self, points: Iterable[tuple[E, E] | None], scalars: Iterable[int]) -> tuple[E, E] | None:
        """sum scalars_i points_i, one by one; infinity when there are none."""
        total = None
        for point, scalar in zip(points, scalars, strict=True):
            total = self.add(total, self.mul(scalar, point))
        return total

    def decode(self, array: U64) -> list[tuple[E, E] | None]:
        """uint64[n, 2, L] or [n, 2, 2, L], Montgomery, all zero for infinity -> points. Nothing is checked."""
        f = self.field
        coordinates = f.pack(limbs.from_montgomery(array, f.p))
        pairs = zip(coordinates[0::2], coordinates[1::2], strict=True)
        return [None if x == y == f.zero else (x, y) for x, y in pairs]

    def encode(self, points: Sequence[tuple[E, E] | None]) -> U64:
        """The inverse of decode."""
        f = self.field
        coordinates = [c for point in points for c in (point or (f.zero, f.zero))]
        shape = (len(points), 2, f.degree, -1) if f.degree > 1 else (len(points), 2, -1)
        array = limbs.to_montgomery(f.unpack(coordinates), f.p)
        return array.reshape(*shape[:-1], array.shape[-1])


@cache
def g1(curve: str) -> Group[int]:
    """The points of y^2 = x^3 + b over Fq."""
    c = CURVES[curve]
    return Group(Prime(c.q), c.b, c.g1, c.r, c.h1)


@cache
def g2(curve: str) -> Group[Fp2]:
    """The points of the twist y^2 = x^3 + b2 over Fq2."""
    c = CURVES[curve]
    return Group(Quadratic(c.q), c.b2, c.g2, c.r, c.h2)


def group(curve: str, name: str) -> Group[Any]:
    """g1 or g2 by its name, for code that treats both alike."""
    if name not in ("g1", "g2"):
        raise ValueError(f"group: expected g1 or g2, got '{name}'")
    return g1(curve) if name == "g1" else g2(curve)
