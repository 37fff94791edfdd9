"""Multiplicative domains of 2^k points in Fr and polynomials over them, by plain ints.

A domain is <w>, w of order n = 2^k from a root family (5: circom, 7: bellman), or its coset shift * <w>. `evaluate` and
`interpolate` are each other's inverse, in natural order:

    evaluate(f)[i] = sum_j f_j (shift w^i)^j

They are radix-2 recursions, O(n log n); the `..._naive` ones are the definition itself, O(n^2), and the oracle of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cuzkd.curves.params import CURVES


@dataclass(frozen=True)
class Domain:
    """shift * <w> in Fr of `curve`; shift in [1, r). Raises ValueError where the curve has no such domain."""

    curve: str
    family: int
    log_n: int
    shift: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.shift < self.r:
            raise ValueError(f"shift: expected 1 to r - 1 of {self.curve}, got {self.shift}")
        CURVES[self.curve].root_of_unity(self.family, self.log_n)

    @property
    def r(self) -> int:
        return CURVES[self.curve].r

    @property
    def n(self) -> int:
        return 1 << self.log_n

    @property
    def root(self) -> int:
        """w"""
        return CURVES[self.curve].root_of_unity(self.family, self.log_n)

    def points(self) -> list[int]:
        """shift w^i for i = 0 .. n - 1."""
        return powers(self.root, self.n, self.r, first=self.shift)

    def evaluate(self, coefficients: Sequence[int]) -> list[int]:
        """Values on the domain of the polynomial with n coefficients, lowest first."""
        self._require_n(coefficients)
        r = self.r
        shifted = [c * s % r for c, s in zip(coefficients, powers(self.shift, self.n, r), strict=True)]
        return _transform(shifted, self.root, r)

    def interpolate(self, values: Sequence[int]) -> list[int]:
        """The n coefficients of the polynomial with these values on the domain."""
        self._require_n(values)
        r = self.r
        inverse_n, inverse_shift = pow(self.n, -1, r), pow(self.shift, -1, r)
        scale = powers(inverse_shift, self.n, r, first=inverse_n)
        return [c * s % r for c, s in zip(_transform(values, pow(self.root, -1, r), r), scale, strict=True)]

    def evaluate_naive(self, coefficients: Sequence[int]) -> list[int]:
        """`evaluate` by Horner's rule at each point."""
        self._require_n(coefficients)
        return [horner(coefficients, x, self.r) for x in self.points()]

    def interpolate_naive(self, values: Sequence[int]) -> list[int]:
        """`interpolate` by the inverse of the Vandermonde matrix: f_j = shift^-j/n sum_i values_i w^(-i j)."""
        self._require_n(values)
        r, w = self.r, pow(self.root, -1, self.r)
        sums = [horner(values, pow(w, j, r), r) for j in range(self.n)]
        return [s * pow(self.shift, -j, r) * pow(self.n, -1, r) % r for j, s in enumerate(sums)]

    def lagrange_at(self, tau: int) -> list[int]:
        """L_i(tau) for all i: the polynomial that is 1 at point i and 0 at the others, at tau outside the domain.

        With x_i = shift w^i: L_i(tau) = x_i (tau^n - shift^n) / (n shift^n (tau - x_i)). Raises ValueError inside.
        """
        r, points = self.r, self.points()
        shift_n = pow(self.shift, self.n, r)
        vanishing = (pow(tau, self.n, r) - shift_n) % r
        if vanishing == 0:
            raise ValueError("tau: expected a point outside the domain")
        factor = vanishing * pow(self.n * shift_n, -1, r) % r
        inverses = batch_inverse([(tau - x) % r for x in points], r)
        return [factor * x * i % r for x, i in zip(points, inverses, strict=True)]

    def _require_n(self, values: Sequence[int]) -> None:
        if len(values) != self.n:
            raise ValueError(f"values: expected {self.n}, got {len(values)}")


def horner(coefficients: Sequence[int], x: int, r: int) -> int:
    """sum_j coefficients_j x^j mod r."""
    total = 0
    for c in reversed(coefficients):
        total = (total * x + c) % r
    return total


def powers(base: int, n: int, r: int, first: int = 1) -> list[int]:
    """first, first base, .. first base^(n-1) mod r."""
    out, value = [], first
    for _ in range(n):
        out.append(value)
        value = value * base % r
    return out


def batch_inverse(values: Sequence[int], r: int) -> list[int]:
    """Inverses mod r of values without zeros, with one inversion (Montgomery's trick): prefix products, then back."""
    prefix, product = [], 1
    for value in values:
        prefix.append(product)
        product = product * value % r
    inverse = pow(product, -1, r)
    out = [0] * len(values)
    for i in range(len(values) - 1, -1, -1):
        out[i] = inverse * prefix[i] % r
        inverse = inverse * values[i] % r
    return out


def _transform(values: Sequence[int], w: int, r: int) -> list[int]:
    """sum_j values_j w^(i j): even and odd halves, then f(x) = even(x^2) + x odd(x^2) at x = w^i and -w^i."""
    if len(values) == 1:
        return list(values)
    even, odd = (_transform(values[half::2], w * w % r, r) for half in (0, 1))
    turned = [o * x % r for o, x in zip(odd, powers(w, len(odd), r), strict=True)]
    low = [(e + t) % r for e, t in zip(even, turned, strict=True)]
    return low + [(e - t) % r for e, t in zip(even, turned, strict=True)]
