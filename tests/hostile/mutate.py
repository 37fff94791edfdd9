"""Files changed at random: a few changes, one after the other, each what a medium, a tool or an attacker does to files.

One source of choices, `Choose`, serves both users: Hypothesis, which shrinks what it finds, and the long run (hour.py),
which wants as many files as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hostile.fields import Field, values
from hypothesis import strategies as st

# choose(low, high): an integer in [low, high].
Choose = Callable[[int, int], int]
MAX_CHANGES = 4
MAX_RUN = 4096  # bytes that one change moves


def mutated(data: bytes, fields: Sequence[Field], choose: Choose) -> bytes:
    """`data` with 1 to MAX_CHANGES changes."""
    for _ in range(choose(1, MAX_CHANGES)):
        change = CHANGES[choose(0, len(CHANGES) - 1)]
        data = change(data, fields, choose)
    return data


def _span(data: bytes, choose: Choose) -> tuple[int, int]:
    """Where some bytes begin and end; short ones are as likely as long ones."""
    begin = choose(0, len(data))
    return begin, min(len(data), begin + min(MAX_RUN, choose(0, 1 << choose(0, 12))))


def flip(data: bytes, fields: Sequence[Field], choose: Choose) -> bytes:
    """Bits of one byte."""
    if not data:
        return data
    at = choose(0, len(data) - 1)
    return data[:at] + bytes([data[at] ^ choose(1, 255)]) + data[at + 1 :]


def fill(data: bytes, fields: Sequence[Field], choose: Choose) -> bytes:
    """Some bytes all the same: a hole in a file that was not downloaded whole."""
    begin, end = _span(data, choose)
    return data[:begin] + bytes([(0, 0xFF, 0x80, 1)[choose(0, 3)]]) * (end - begin) + data[end:]


def cut(data: bytes, fields: Sequence[Field], choose: Choose) -> bytes:
    """The end left out."""
    return data[: choose(0, len(data))]


def delete(data: bytes, fields: Sequence[Field], choose: Choose) -> bytes:
    """Some bytes left out."""
    begin, end = _span(data, choose)
    return data[:begin] + data[end:]


def double(data: bytes, fields: Sequence[Field], choose: Choose) -> bytes:
    """Some bytes twice."""
    begin, end = _span(data, choose)
    return data[:end] + data[begin:end] + data[end:]


def splice(data: bytes, fields: Sequence[Field], choose: Choose) -> bytes:
    """Some bytes written over others of the same file."""
    begin, end = _span(data, choose)
    to = choose(0, len(data))
    return (data[:to] + data[begin:end] + data[to + end - begin :])[: max(len(data), to)]


def lie(data: bytes, fields: Sequence[Field], choose: Choose) -> bytes:
    """One of the lies of fields.py in a field, wherever the bytes before have moved it."""
    inside = [f for f in fields if f.end <= len(data)]
    if not inside:
        return flip(data, fields, choose)
    f = inside[choose(0, len(inside) - 1)]
    told = [value for _, value in values(f, data[f.at : f.end])]
    return data[: f.at] + told[choose(0, len(told) - 1)] + data[f.end :] if told else data


def exchange(data: bytes, fields: Sequence[Field], choose: Choose) -> bytes:
    """Two fields of one size."""
    inside = [f for f in fields if f.end <= len(data)]
    if not inside:
        return flip(data, fields, choose)
    one = inside[choose(0, len(inside) - 1)]
    others = [f for f in inside if f.size == one.size]
    other = others[choose(0, len(others) - 1)]
    out = bytearray(data)
    out[one.at : one.end], out[other.at : other.end] = data[other.at : other.end], data[one.at : one.end]
    return bytes(out)


CHANGES = (flip, flip, fill, cut, delete, double, splice, lie, lie, lie, exchange)


@st.composite
def mutations(draw: st.DrawFn, data: bytes, fields: Sequence[Field]) -> bytes:
    """`mutated`, with the choices of Hypothesis."""
    return mutated(data, fields, lambda low, high: draw(st.integers(low, high)))
