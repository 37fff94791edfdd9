"""Options and fixtures that several floors' tests share."""

from pathlib import Path

import pytest

from cuzkd.curves.params import CURVES


def pytest_addoption(parser):
    # Not --fixtures: pytest has that one for itself.
    parser.addoption(
        "--fixtures-dir", type=Path, metavar="DIR", help="--fixtures-dir=DIR: try every .zkey below DIR, too"
    )


@pytest.fixture(params=list(CURVES))
def curve(request):
    return request.param


@pytest.fixture(params=["g1", "g2"])
def group(request):
    return request.param
