"""A map of a file, and every lie that can be told in it.

A `Field` says where in a file a number lies, what sort of number it is, and with which rows of its format's table
of answers (answers.py) a lie there may be answered. `lies` makes of a file and its map all files in which one field
lies (or two have changed places), and all that end at a boundary of a field, or one byte beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hostile import encodings

from cuzkd.curves.params import CURVES

NUMBERS = (0, 2**31, 2**32 - 1, 2**60, 2**64 - 1)


@dataclass(frozen=True)
class Field:
    """One field of a file.

    kind: "number" (a count, size, id, index, version), "magic", "prime", "scalar" (a field element, `detail` its
    modulus), "point" (`detail` an encodings.Spelling), "compressed" (an x of BLS12-381), "flags" (each bit means
    something), "raw".
    answers: the rows of the table that lies here may be answered with. certain: for some lies, by what they are, the
    only rows.
    """

    name: str
    kind: str
    at: int
    size: int
    answers: frozenset[str]
    order: str = "little"
    detail: Any = None
    certain: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.at + self.size


@dataclass(frozen=True)
class Lie:
    """A file with one thing wrong. answers: any of these rows is a right answer."""

    what: str
    data: bytes
    answers: frozenset[str] = field(repr=False)


def words(text: str) -> frozenset[str]:
    """Names of rows, separated by commas."""
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def lies(data: bytes, fields: Sequence[Field], cut: frozenset[str]) -> Iterator[Lie]:
    """Every lie about `data`. cut: the rows that answer a file which ends too early."""
    seen = {data}
    for what, changed, answers in (*_field_lies(data, fields), *_exchanges(data, fields)):
        if changed not in seen:
            seen.add(changed)
            yield Lie(what, changed, answers)
    for keep in sorted(
        {k for f in fields for k in (f.at - 1, f.at, f.at + 1, f.end - 1) if 0 <= k < len(data)}
    ):
        yield Lie(f"cut to {keep} bytes", data[:keep], cut)


def _field_lies(data: bytes, fields: Iterable[Field]) -> Iterator[tuple[str, bytes, frozenset[str]]]:
    for f in fields:
        for what, value in values(f, data[f.at : f.end]):
            yield f"{f.name}: {what}", replaced(data, f, value), f.certain.get(what, f.answers)


def _exchanges(data: bytes, fields: Sequence[Field]) -> Iterator[tuple[str, bytes, frozenset[str]]]:
    """Each field with the next of its size."""
    for i, one in enumerate(fields):
        other = next((f for f in fields[i + 1 :] if f.size == one.size), None)
        if other is not None:
            changed = replaced(data, one, data[other.at : other.end])
            changed = replaced(changed, other, data[one.at : one.end])
            yield f"{one.name} and {other.name} exchanged", changed, one.answers | other.answers


def replaced(data: bytes, f: Field, value: bytes) -> bytes:
    """The file with other bytes in a field."""
    return data[: f.at] + value + data[f.end :]


def values(f: Field, old: bytes) -> Iterator[tuple[str, bytes]]:
    """(what, bytes) for each lie in one field."""
    top = 1 << (8 * f.size)

    def spelt(*numbers: int) -> Iterator[tuple[str, bytes]]:
        for n in numbers:
            if 0 <= n < top:
                yield f"{n}" if n < 2**65 else f"{n:#x}", n.to_bytes(f.size, f.order)

    now = int.from_bytes(old, f.order)
    if f.kind == "number":
        yield from spelt(*NUMBERS, now + 1, now - 1, 2 * now, int.from_bytes(old[::-1], f.order))
    elif f.kind == "magic":
        yield from ((f"{m!r}", m) for m in (bytes(f.size), old[::-1], old.upper(), old[:-1] + b"x"))
    elif f.kind == "prime":
        primes = [p for c in CURVES.values() for p in (c.q, c.r)]
        yield from spelt(0, 1, now + 2, now - 2, top - 1, int.from_bytes(old[::-1], f.order), *primes)
    elif f.kind == "scalar":
        r = f.detail
        yield from spelt(0, now + 1, now ^ 1, r, now + r, r - now, r - 1, top - 1, 2**60, 2**64 - 1)
    elif f.kind == "point":
        yield from encodings.wrong_points(f.detail, old)
    elif f.kind == "compressed":  # an x of BLS12-381, with flags above it in the first half of a point
        curve, half = f.detail
        flags = 0 if half else now >> 381 << 381
        x, q = now - flags, CURVES[curve].q
        yield from spelt(
            *(flags | n for n in (0, x ^ 1, x ^ 2, x + 1, x - 1, q, q - 1, q + 1, (1 << 381) - 1))
        )
    elif f.kind == "flags":
        yield from ((f"bit {bit}", (now ^ 1 << bit).to_bytes(f.size, f.order)) for bit in range(8 * f.size))
    else:
        yield "one bit", bytes([old[0] ^ 1]) + old[1:]
        yield "zeros", bytes(f.size)
        yield "ones", b"\xff" * f.size
