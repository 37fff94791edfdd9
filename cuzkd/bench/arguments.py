"""Numbers on the command line of the benches: what they may be, and how help shows them."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

DEFAULT = "(default %(default)s)"
CURVES = ("bn254", "bls12_381")


def count(text: str) -> int:
    """A whole number, with _ or , between digits if the user likes."""
    digits = text.replace("_", "").replace(",", "")
    if not digits.isascii() or not digits.isdigit():
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}")
    return int(digits)


def positive(text: str) -> int:
    """A whole number from 1 up."""
    if (number := count(text)) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got {text!r}")
    return number


def seconds(text: str) -> float:
    """A number from 0 up."""
    number = float(text)  # argparse tells of a ValueError
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number from 0 up, got {text!r}")
    return number


def number(
    command: argparse.ArgumentParser, name: str, kind: Callable[[str], int], default: int, says: str
) -> None:
    command.add_argument(name, type=kind, default=default, metavar="N", help=f"{says} {DEFAULT}")
