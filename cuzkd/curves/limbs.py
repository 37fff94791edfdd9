"""Plain ints to arrays of 64-bit limbs and back, as they are or in Montgomery form.

Problem: above and below this floor numbers are uint64[n, L]; here they are Python ints.
Design: whole sequences at a time through bytes: the only loop is Python's own over the ints. Limbs are little-endian,
R = 2^(64 L), and the Montgomery form of v is v R mod p. Nothing is reduced silently but by the Montgomery product.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
FR_LIMBS = 4


def limbs_of(modulus: int) -> int:
    """64-bit limbs of an element below modulus."""
    return (modulus.bit_length() + 63) // 64


def from_ints(values: Iterable[int], n_limbs: int) -> U64:
    """Ints in [0, 2^(64 n_limbs)) -> uint64[n, n_limbs], writable. Raises OverflowError for others."""
    data = bytearray().join(v.to_bytes(8 * n_limbs, "little") for v in values)
    return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False).reshape(-1, n_limbs)


def to_ints(array: U64) -> list[int]:
    """uint64[..., L] -> the numbers, flattened in order."""
    size = 8 * array.shape[-1]
    data = np.ascontiguousarray(array, dtype="<u8").tobytes()
    return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


def to_montgomery(values: Iterable[int], modulus: int) -> U64:
    """Ints (reduced or not, of any sign) -> uint64[n, L], Montgomery."""
    n_limbs = limbs_of(modulus)
    shift = 64 * n_limbs
    return from_ints([(v << shift) % modulus for v in values], n_limbs)


def from_montgomery(array: U64, modulus: int) -> list[int]:
    """uint64[..., L], Montgomery -> ints in [0, modulus), flattened in order."""
    inverse = pow(1 << (64 * array.shape[-1]), -1, modulus)
    return [v * inverse % modulus for v in to_ints(array)]
