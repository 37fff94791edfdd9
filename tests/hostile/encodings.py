"""How files spell a point, and points that no honest file holds.

A spelling turns a point into the bytes of a file and back, by way of its raw coordinates: the numbers that the
file holds as they stand, whether or not they are below q. `wrong_points` lists what hostile files put there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from cuzkd.curves import points
from cuzkd.curves.params import CURVES
from cuzkd.formats import affine


@dataclass(frozen=True)
class Spelling:
    """One way to write points of one group. Coordinates are in the order x, y or x.c0, x.c1, y.c0, y.c1."""

    curve: str
    group: str
    montgomery: bool
    order: str  # "little" or "big"
    c1_first: bool = False
    flags: bool = False  # bellman's, in the top bits of the first byte

    @property
    def width(self) -> int:
        return 8 * affine.limbs(self.curve)

    @property
    def size(self) -> int:
        return self.width * (2 if self.group == "g1" else 4)

    def _permuted(self, raw: list[int]) -> list[int]:
        return [raw[1], raw[0], raw[3], raw[2]] if self.c1_first and len(raw) == 4 else raw

    def pack(self, raw: list[int]) -> bytes:
        return b"".join(n.to_bytes(self.width, self.order) for n in self._permuted(raw))

    def raw(self, data: bytes) -> list[int]:
        numbers = [
            int.from_bytes(data[i : i + self.width], self.order) for i in range(0, len(data), self.width)
        ]
        return self._permuted(numbers)

    def write(self, point) -> bytes:
        """The bytes of a point of cuzkd.curves.points; None is infinity, all zero."""
        if point is None:
            return bytes(self.size)
        q = CURVES[self.curve].q
        numbers = list(point) if self.group == "g1" else [*point[0], *point[1]]
        factor = (1 << (8 * self.width)) % q if self.montgomery else 1
        return self.pack([n * factor % q for n in numbers])

    def read(self, data: bytes):
        """The inverse of write."""
        if not any(data):
            return None
        q = CURVES[self.curve].q
        factor = pow(1 << (8 * self.width), -1, q) if self.montgomery else 1
        n = [x * factor % q for x in self.raw(data)]
        return (n[0], n[1]) if self.group == "g1" else ((n[0], n[1]), (n[2], n[3]))


def iden3(curve: str, group: str) -> Spelling:
    """As a .zkey has them."""
    return Spelling(curve, group, montgomery=True, order="little")


def evm(curve: str, group: str) -> Spelling:
    """As the EVM's precompile has them: big-endian, c1 before c0."""
    return Spelling(curve, group, montgomery=False, order="big", c1_first=True)


def bellman(curve: str, group: str) -> Spelling:
    """As bellman has them, uncompressed: the same, with flags."""
    return Spelling(curve, group, montgomery=False, order="big", c1_first=True, flags=True)


@cache
def outside_subgroup(curve: str, group: str):
    """A point of the curve that is not in the subgroup of order r, or None where there is none (G1 of BN254)."""
    c, g = CURVES[curve], points.group(curve, group)
    if (curve, group) == ("bn254", "g1"):
        return None
    for x in range(1, 200):
        if group == "g1":
            y = affine.fq_sqrt((x**3 + c.b) % c.q, c.q)
            point = None if y is None else (x, y)
        else:
            y = affine.fq2_sqrt(affine.g2_right_side(curve, (x, 1)), c.q)
            point = None if y is None else ((x, 1), y)
        if point is not None and not g.in_subgroup(point):
            return point
    raise AssertionError("no such point among the first 200")


def wrong_points(spelling: Spelling, data: bytes) -> Iterator[tuple[str, bytes]]:
    """(what it is, its bytes) for each way in which the point in `data` may be made a lie."""
    q, raw = CURVES[spelling.curve].q, spelling.raw(data)
    group = points.group(spelling.curve, spelling.group)

    def with_(index: int, value: int) -> bytes:
        return spelling.pack([value if i == index else n for i, n in enumerate(raw)])

    largest = (1 << (8 * spelling.width)) - 1
    changes: list[tuple[str, Callable[[int], int]]] = [
        ("+ 1", lambda n: (n + 1) % q),
        ("= q", lambda n: q),
        ("+ q", lambda n: n + q),
        ("all ones", lambda n: largest),
    ]
    for index in (0, len(raw) - 1):
        for what, change in changes:
            if (value := change(raw[index])) <= largest:
                yield f"coordinate {index} {what}", with_(index, value)
    yield "infinity", bytes(spelling.size)
    yield "the generator", spelling.write(group.generator)
    point = spelling.read(data)
    if point is not None and group.on_curve(point):
        yield "negated", spelling.write(group.neg(point))
        yield "doubled", spelling.write(group.add(point, point))
    if spelling.flags:
        for bit in range(8):
            yield f"bit {bit} of the first byte", bytes([data[0] ^ 1 << bit]) + data[1:]
        yield "infinity, flagged", b"\x40" + bytes(spelling.size - 1)
        yield "infinity, flagged twice", b"\xc0" + bytes(spelling.size - 1)
    stranger = outside_subgroup(spelling.curve, spelling.group)
    if stranger is not None:
        yield "outside the subgroup", spelling.write(stranger)
