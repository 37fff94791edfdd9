"""What files call a curve: by its name, spelt in many ways, or by its primes.

circom and snarkjs write "bn128" and "bls12381"; vkey readers also meet BN254, ALTBN128, BLS12-381 (case and
punctuation mean nothing). Binary files hold the primes themselves.
"""

from __future__ import annotations

from cuzkd.curves import params

# The spelling that circom and snarkjs write.
IN_FILES = {"bn254": "bn128", "bls12_381": "bls12381"}
_SPELLINGS = {"bn128": "bn254", "bn254": "bn254", "altbn128": "bn254", "bls12381": "bls12_381"}
KNOWN = " or ".join(params.CURVES)


def by_spelling(text: str) -> str | None:
    """Our name of a curve that a file names, or None."""
    return _SPELLINGS.get("".join(c for c in text.lower() if c.isalnum()))


def by_scalar_prime(r: int) -> str | None:
    """The curve whose groups have order r, or None."""
    return next((c.name for c in params.CURVES.values() if c.r == r), None)


def by_base_prime(q: int) -> str | None:
    """The curve over the field of q elements, or None."""
    return next((c.name for c in params.CURVES.values() if c.q == q), None)


def scalar_prime(curve: str) -> int:
    """r of one of our curves."""
    return params.CURVES[curve].r
