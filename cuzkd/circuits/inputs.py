"""Input JSON to signals: what a circuit's witness calculator is fed with.

    {"secret": "123", "path": [["0x1f", 2], [true, -1]], "leaf": {"key": 7, "sides": [{"left": 1}]}}

Problem. Values come as JSON numbers, as decimal or hexadecimal text, nested and named in the ways of circom's own
tools, and from anybody. Elsewhere a number that is too large for JavaScript is silently rounded, one that is too
large for the field silently wraps (two inputs, one witness: a double spend), and a key that occurs twice counts
once. Design. The document is read once, with hooks that refuse what cannot be meant; what is refused is named by
signal and index, never by value. Work is bounded before it is done: bytes, by what the circuit can take, digits of a
number, depth, names.

Names are those of circom: arrays are flattened, row by row; an object is a bus, whose fields are signals
`name.field`; in an array of objects they are `name[i].field`. A value v with |v| < r means v mod r, as in circom;
any other is an error.

Life of data: bytes in, one packed block per signal out, ready to be copied into a calculator's memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput
from cuzkd.formats import json_depth
from cuzkd.formats.printable import printable

# By name of the signal: its values in order, 32 bytes each, little-endian, canonical (below r).
Signals = Mapping[str, bytes]

N8 = 32
MAX_BYTES = 64 << 20
MAX_DIGITS = 100  # r has 77; more is a mistake, and turning digits into a number takes quadratic time
MAX_DEPTH = 64
MAX_NAME = 256  # characters of a signal's whole name
# What a circuit of so many values may be sent. A value has at most 78 digits, most often fewer: there is room for
# names, quotes and deep indentation.
FREE_BYTES, BYTES_A_VALUE = 4096, 256
_SURROGATE = re.compile("[\ud800-\udfff]")
_DECIMAL = re.compile(r"-?[0-9]+", re.ASCII)
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+", re.ASCII)
_KINDS = {dict: "an object", list: "an array", type(None): "null"}


@dataclass(frozen=True)
class _Refused:
    """Stands in the document for what JSON allows and we do not, until its place is known. why: without the value."""

    why: str


class _At(Exception):
    """A value that cannot be taken; `place` grows on the way out of the arrays."""

    def __init__(self, why: str) -> None:
        self.why = why
        self.place = ""


def parse(data: bytes, curve: str, max_bytes: int = MAX_BYTES, n_values: int | None = None) -> Signals:
    """The signals of an input file. n_values: how many the circuit takes, None where it does not say; they bound the
    file, too. Raises InvalidInput: too large, not JSON, not an object of values, a value that is no number of the
    field. Names signal and index, never a value.
    """
    _require_size(len(data), max_bytes, n_values)
    document = _read(data)
    if not isinstance(document, dict):
        raise InvalidInput(f"input JSON: expected an object of signals, got {_kind(document)}")
    r = CURVES[curve].r
    signals: dict[str, bytes] = {}
    for name, value in _qualified("", document):
        if name in signals:
            raise InvalidInput(f"input JSON: signal {printable(name)} is given twice")
        packed = bytearray()
        try:
            _pack(value, r, packed)
        except _At as at:
            place = printable(name) + at.place
            raise InvalidInput(f"input JSON: signal {place}: {at.why} (curve {curve})") from None
        signals[name] = bytes(packed)
    return signals


def _require_size(nbytes: int, max_bytes: int, n_values: int | None) -> None:
    if nbytes > max_bytes:
        raise InvalidInput(f"input JSON: {nbytes} bytes, at most {max_bytes} are allowed")
    if n_values is not None and nbytes > (most := FREE_BYTES + BYTES_A_VALUE * n_values):
        raise InvalidInput(
            f"input JSON: {nbytes} bytes, at most {most} are allowed for the {n_values} values that the circuit takes"
        )


def _read(data: bytes) -> Any:
    """The document. No float, no huge number and no key that occurs twice gets through; errors hold no content."""
    try:
        text = data.decode("utf-8-sig")
        if json_depth.is_deeper(text, MAX_DEPTH):
            raise InvalidInput(f"input JSON: nested deeper than {MAX_DEPTH}")
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=lambda text: _number(text, _DECIMAL),
            parse_float=lambda _: _Refused("has a fraction or an exponent; expected a whole number"),
            parse_constant=lambda _: _Refused("is not a number"),
        )
    except UnicodeDecodeError as error:
        raise InvalidInput(f"input JSON: is not UTF-8, from byte {error.start}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise InvalidInput(f"input JSON: is not JSON at {where}: {error.msg}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        _require_name(name)
        if name in found:
            raise InvalidInput(f"input JSON: the name {printable(name)} occurs twice in one object")
        found[name] = value
    return found


def _require_name(name: str) -> None:
    if len(name) > MAX_NAME:
        raise InvalidInput(f"input JSON: a name of {len(name)} characters, at most {MAX_NAME} are allowed")
    if _SURROGATE.search(name):
        raise InvalidInput("input JSON: a name is no Unicode text: it holds half of a surrogate pair")


def _number(text: str, pattern: re.Pattern[str], base: int = 10) -> int | _Refused:
    if len(text) > MAX_DIGITS:
        return _Refused(f"has {len(text)} digits, at most {MAX_DIGITS} are allowed")
    if not pattern.fullmatch(text):
        return _Refused("is text, but no number; expected decimal digits, or 0x and hexadecimal ones")
    return int(text, base)


def _qualified(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """(name of the signal, its scalar or nested array of scalars), buses taken apart."""
    _require_name(name)
    if isinstance(value, dict):
        for field, inner in value.items():
            yield from _qualified(f"{name}.{field}" if name else field, inner)
    elif isinstance(value, list) and _holds_objects(value):
        for index, inner in enumerate(value):
            if not isinstance(inner, dict | list):
                raise InvalidInput(
                    f"input JSON: {printable(name)}[{index}]: is no object, and others in the array are"
                )
            yield from _qualified(f"{name}[{index}]", inner)
    else:
        yield name, value


def _holds_objects(value: list[Any]) -> bool:
    """Whether the first thing in an array that is not an array itself is an object."""
    while value:
        if not isinstance(value[0], list):
            return isinstance(value[0], dict)
        value = value[0]
    return False


def _pack(value: Any, r: int, out: bytearray) -> None:
    """Append a scalar, or all of an array's. Raises _At."""
    if not isinstance(value, list):
        out += _element(value, r).to_bytes(N8, "little")
        return
    for index, inner in enumerate(value):
        try:
            _pack(inner, r, out)
        except _At as at:
            at.place = f"[{index}]{at.place}"
            raise


def _element(value: Any, r: int) -> int:
    """A scalar as an element of the field. Raises _At."""
    if isinstance(value, str):
        hexadecimal = value[:2] in ("0x", "0X")
        value = _number(value, *((_HEXADECIMAL, 16) if hexadecimal else (_DECIMAL, 10)))
    if isinstance(value, _Refused):
        raise _At(value.why)
    if not isinstance(value, int):  # true and false are whole numbers to Python, and to circom
        raise _At(f"is {_kind(value)}; expected a number")
    if not -r < value < r:
        raise _At("is not smaller than the prime r, or not larger than -r")
    return value % r


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "a single value")
