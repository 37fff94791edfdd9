"""The generated header is what the parameters give, and its derived numbers are what they claim to be."""

from itertools import pairwise

import pytest

from cuzkd.curves import emit_constants
from cuzkd.curves.params import CURVES


def test_regenerates_identically():
    assert emit_constants.TARGET.read_text() == emit_constants.render()


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_derived_numbers(curve):
    digits = emit_constants.naf(curve.ate_loop)
    assert sum(d << i for i, d in enumerate(digits)) == curve.ate_loop and digits[-1] == 1
    assert all(not (a and b) for a, b in pairwise(digits))
