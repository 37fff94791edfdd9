"""Random numbers for the laws of this folder."""

import random

import pytest


@pytest.fixture
def rng():
    return random.Random(7)


def py_ecc_of(curve):
    """py_ecc's plain (not optimised) implementation of a curve."""
    from py_ecc import bls12_381, bn128

    return {"bn254": bn128, "bls12_381": bls12_381}[curve]
