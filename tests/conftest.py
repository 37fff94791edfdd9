"""Options that several floors' tests share."""

from pathlib import Path


def pytest_addoption(parser):
    # Not --fixtures: pytest has that one for itself.
    parser.addoption(
        "--fixtures-dir", type=Path, metavar="DIR", help="--fixtures-dir=DIR: try every .zkey below DIR, too"
    )
