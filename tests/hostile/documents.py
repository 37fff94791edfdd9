"""Lies in JSON: every member and element left out, doubled, of another type, or another number than it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from hostile.fields import Lie

Path = tuple[str | int, ...]
Answers = Callable[[Path], frozenset[str]]

OTHER_TYPES: list[Any] = [None, True, False, 0, -1, 1.5, 2**64 - 1, "", "x", [], {}, [[]], ["1"], {"0": "1"}]


def lies(record: Any, answers: Answers, whole: frozenset[str], modulus: int) -> Iterator[Lie]:
    """Every lie about a document. answers: by the path of the member that lies; whole: for a text that is no document.
    modulus: what numbers must be below.
    """
    text = json.dumps(record, indent=1)
    seen = {text}
    for path, what, changed in _changes(record, (), modulus):
        lying = json.dumps(changed, indent=1)
        if lying not in seen:
            seen.add(lying)
            yield Lie(f"{'.'.join(map(str, path)) or 'document'}: {what}", lying.encode(), answers(path))
    for keep in {0, 1, 2, *range(0, len(text) - 1, max(1, len(text) // 40)), len(text) - 2, len(text) - 1}:
        if text[:keep].strip() != text.strip():
            yield Lie(f"cut to {keep} bytes", text[:keep].encode(), whole)
    for what, data in (
        ("a second document", text.encode() * 2),
        ("a comma too many", text.encode() + b","),
        ("not UTF-8", b"\xff" + text.encode()),
        ("a zero byte", text.encode() + b"\0"),
        ("the same in UTF-16", text.encode("utf-16-le")),
        ("brackets in a string that make up for others", b'["' + b"]" * 100_000 + b'",' + b"[" * 100_000),
        ("the same behind a quote", rb'["\"' + b"]" * 100_000 + b'",' + b"[" * 100_000),
        ("a string without end", b'["' + rb"\"" * 200_000),
        ("deep arrays", b"[" * 200_000),
        ("deep objects", b'{"a":' * 200_000),
        ("a number of a million digits", b"9" * 1_000_000),
        ("NaN", b"NaN"),
    ):
        yield Lie(what, data, whole)


def _changes(value: Any, path: Path, modulus: int) -> Iterator[tuple[Path, str, Any]]:
    """(where, what, the whole value with that change) for each lie at or below `path`."""
    for other in OTHER_TYPES:
        yield path, f"{other!r}", other
    if isinstance(value, dict):
        for key, member in value.items():
            rest = {k: v for k, v in value.items() if k != key}
            yield (*path, key), "left out", rest
            yield (*path, key), "named in capitals", rest | {key.upper() + "_": member}
            for where, what, changed in _changes(member, (*path, key), modulus):
                yield where, what, value | {key: changed}
    elif isinstance(value, list):
        yield path, "one short", value[:-1]
        yield path, "one more", [*value, *value[-1:]]
        yield path, "reversed", value[::-1]
        for i, element in enumerate(value):
            if i in {0, 1, len(value) // 2, len(value) - 1}:
                for where, what, changed in _changes(element, (*path, i), modulus):
                    yield where, what, [*value[:i], changed, *value[i + 1 :]]
    elif isinstance(value, str) and value.isdecimal():
        n = int(value)
        numbers = (
            0,
            n + 1,
            n - 1,
            -n,
            modulus,
            modulus - n,
            n + modulus,
            2**31,
            2**32 - 1,
            2**60,
            2**64 - 1,
            10**200,
        )
        yield from ((path, str(x)[:80], str(x)) for x in numbers)
        spellings = (
            "0" + value,
            "+" + value,
            " " + value,
            value + " ",
            value + ".0",
            value + "e0",
            hex(n),
            "9" * 5000,
        )
        yield from ((path, f"spelt {s[:80]!r}", s) for s in (*spellings, value.translate(_ARABIC)))
        yield path, "a number", n
    elif isinstance(value, str):
        yield from (
            (path, f"{s!r}", s) for s in (value + "x", value[::-1], value[1:], value + "\0", "x" * 10_000)
        )
    elif isinstance(value, int) and not isinstance(value, bool):
        numbers = (
            value + 1,
            value - 1,
            2**31,
            2**32 - 1,
            2**60,
            2**64 - 1,
            -value,
            float(value),
            float("inf"),
            str(value),
        )
        yield from ((path, f"{x!r}", x) for x in numbers)


_ARABIC = {ord("0") + i: chr(0x660 + i) for i in range(10)}
