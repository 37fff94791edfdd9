"""Development keys made with tables of narrow windows, for the emulated device: wide ones take it seconds.

test_emulated.py runs this, and with -m slow tests/gpu/test_setup.py as it is.
"""

import pytest
from gpu.test_setup import (  # noqa: F401
    test_any_constraints,
    test_matrices_and_points_in_pieces,
    test_no_constraints_at_all,
    test_the_command,
    test_the_shortest_chain,
)


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    from cuzkd.backend import cuda_setup

    monkeypatch.setattr(cuda_setup, "WIDE", cuda_setup.NARROW)
