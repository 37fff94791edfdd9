"""The two kinds of field that coordinates live in, by plain ints: Fp = Z/p and Fp2 = Fp[u]/(u^2 + 1).

Both offer the same few operations, so that the group law and the laws in tests/ are written once for either. Elements
are ints in [0, p), or pairs (c0, c1) of them for c0 + c1 u. inv(0) is 0, as everywhere in this house.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

Fp2 = tuple[int, int]
E = TypeVar("E")


class Field(Protocol[E]):
    """Arithmetic of reduced elements. degree: ints in an element."""

    p: int
    degree: int
    zero: E
    one: E

    def add(self, a: E, b: E) -> E: ...
    def sub(self, a: E, b: E) -> E: ...
    def mul(self, a: E, b: E) -> E: ...
    def neg(self, a: E) -> E: ...
    def inv(self, a: E) -> E: ...
    def scale(self, k: int, a: E) -> E: ...
    def pack(self, ints: list[int]) -> list[E]:
        """Coordinates in order -> elements."""

    def unpack(self, elements: list[E]) -> list[int]:
        """Elements -> coordinates in order."""


class Prime:
    """Z/p."""

    degree = 1
    zero, one = 0, 1

    def __init__(self, p: int) -> None:
        self.p = p

    def add(self, a: int, b: int) -> int:
        return (a + b) % self.p

    def sub(self, a: int, b: int) -> int:
        return (a - b) % self.p

    def mul(self, a: int, b: int) -> int:
        return a * b % self.p

    def neg(self, a: int) -> int:
        return -a % self.p

    def inv(self, a: int) -> int:
        return pow(a, -1, self.p) if a else 0

    def scale(self, k: int, a: int) -> int:
        return k * a % self.p

    def pack(self, ints: list[int]) -> list[int]:
        return ints

    def unpack(self, elements: list[int]) -> list[int]:
        return elements


class Quadratic:
    """Fp[u]/(u^2 + 1), a field where p = 3 mod 4."""

    degree = 2
    zero, one = (0, 0), (1, 0)

    def __init__(self, p: int) -> None:
        self.p = p

    def add(self, a: Fp2, b: Fp2) -> Fp2:
        return (a[0] + b[0]) % self.p, (a[1] + b[1]) % self.p

    def sub(self, a: Fp2, b: Fp2) -> Fp2:
        return (a[0] - b[0]) % self.p, (a[1] - b[1]) % self.p

    def mul(self, a: Fp2, b: Fp2) -> Fp2:
        return (a[0] * b[0] - a[1] * b[1]) % self.p, (a[0] * b[1] + a[1] * b[0]) % self.p

    def neg(self, a: Fp2) -> Fp2:
        return -a[0] % self.p, -a[1] % self.p

    def inv(self, a: Fp2) -> Fp2:
        """conj(a) / norm(a)"""
        norm = (a[0] * a[0] + a[1] * a[1]) % self.p
        inverse = pow(norm, -1, self.p) if norm else 0
        return a[0] * inverse % self.p, -a[1] * inverse % self.p

    def scale(self, k: int, a: Fp2) -> Fp2:
        return k * a[0] % self.p, k * a[1] % self.p

    def pow(self, a: Fp2, e: int) -> Fp2:
        """a^e for e >= 0, bit by bit from the top."""
        result = self.one
        for bit in bin(e)[2:]:
            result = self.mul(result, result)
            if bit == "1":
                result = self.mul(result, a)
        return result

    def conj(self, a: Fp2) -> Fp2:
        """a^p, as u^p = -u where p = 3 mod 4."""
        return a[0], -a[1] % self.p

    def pack(self, ints: list[int]) -> list[Fp2]:
        return list(zip(ints[0::2], ints[1::2], strict=True))

    def unpack(self, elements: list[Fp2]) -> list[int]:
        return [c for element in elements for c in element]
