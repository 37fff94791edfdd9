"""Ints to limbs and back: both forms, edges, refusals."""

import numpy as np
import pytest

from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES


def moduli():
    return [p for c in CURVES.values() for p in (c.r, c.q)]


@pytest.mark.parametrize("p", moduli())
def test_there_and_back(p, rng):
    n = limbs.limbs_of(p)
    values = [0, 1, p - 1, (1 << 64) - 1, 1 << 64, *(rng.randrange(p) for _ in range(20))]
    array = limbs.from_ints(values, n)
    assert array.shape == (len(values), n) and array.dtype == np.uint64 and array.flags.writeable
    assert limbs.to_ints(array) == values
    assert limbs.from_montgomery(limbs.to_montgomery(values, p), p) == values


def test_order_of_limbs():
    assert limbs.from_ints([1 + (2 << 64) + (3 << 192)], 4).tolist() == [[1, 2, 0, 3]]


@pytest.mark.parametrize("p", moduli())
def test_montgomery_form_is_the_number_times_r(p, rng):
    v, big_r = rng.randrange(p), 1 << (64 * limbs.limbs_of(p))
    assert limbs.to_ints(limbs.to_montgomery([v, v + p, v - p], p)) == [v * big_r % p] * 3


def test_nested_and_empty():
    array = np.arange(16, dtype=np.uint64).reshape(2, 2, 4)
    assert limbs.to_ints(array) == limbs.to_ints(array.reshape(4, 4))
    assert limbs.from_ints([], 6).shape == (0, 6)
    assert limbs.to_ints(np.empty((0, 4), np.uint64)) == []


@pytest.mark.parametrize("value", [-1, 1 << 256])
def test_out_of_range(value):
    with pytest.raises(OverflowError):
        limbs.from_ints([value], 4)
