"""circom 1's witness calculators (Dark Forest's among them): field elements in a memory that we bring.

Problem. The older interface has no sizes and no number of inputs; elements lie in the memory in a short or a long
form; and a program that is given too little simply computes less. Design. Elements go in one by one, in the form that
circom's own runtime chooses (some compiled code looks at it); the witness comes out of the buffer that the calculator
makes, in blocks, or element by element where it has none. It runs with its own checks on, so that a broken constraint
is named by its place in the source. Signals that overlap were given too many values. An input that is missing shows
no earlier than in the prover, which refuses the witness.

    element: i32 value (short form) | u32 kind: 0 short, 0x80000000 long, 0xC0000000 long and Montgomery | 32 bytes

Word 0 of the memory is the end of what is in use.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import wasmtime

from cuzkd.circuits import calculator_sandbox as sandbox
from cuzkd.circuits.calculator_circom2 import fnv1a
from cuzkd.circuits.calculator_sandbox import PAGE_BYTES, Box, Signature
from cuzkd.circuits.inputs import N8, Signals
from cuzkd.errors import InvalidInput, MalformedFile, UnsatisfiedWitness
from cuzkd.formats.printable import printable

IMPORTS: dict[tuple[str, str], Signature | None] = {
    ("env", "memory"): None,
    ("runtime", "error"): (6, 0),
    ("runtime", "log"): (1, 0),
    ("runtime", "logSetSignal"): (2, 0),
    ("runtime", "logGetSignal"): (2, 0),
    ("runtime", "logStartComponent"): (1, 0),
    ("runtime", "logFinishComponent"): (1, 0),
}
EXPORTS: dict[str, Signature] = {
    "init": (1, 0),
    "getNVars": (0, 1),
    "getFrLen": (0, 1),
    "getPRawPrime": (0, 1),
    "getSignalOffset32": (4, 0),
    "setSignal": (4, 0),
    "getPWitness": (1, 1),
}
OPTIONAL: dict[str, Signature] = {"getWitnessBuffer": (0, 1)}
ELEMENT = 8 + N8  # bytes
BLOCK = 1 << 15  # wires that are read at once
_PAGES = 32767  # what circom's runtime gives; a page that nobody touches costs nothing
_LONG, _MONTGOMERY = 0x80000000, 0x40000000
_CODES = range(1, 10)
_HASH_NOT_FOUND, _ASSIGNED_TWICE, _CONSTRAINT, _ASSERTION = 3, 6, 7, 9
_PLACE = re.compile(rb"([\w.-]{1,64}\.circom:\d{1,6})(?::\d{1,6})?\Z")


class Circom1:
    """One run of a circom 1 calculator. A module that passed `require` below goes in."""

    def __init__(self, box: Box, module: wasmtime.Module) -> None:
        self._box = box
        self._memory = box.memory(min(_PAGES, box.limits.memory_bytes // PAGE_BYTES))
        ours = {name: box.function(shape, _ignore) for name, shape in IMPORTS.items() if shape is not None}
        ours["runtime", "error"] = box.function((6, 0), self._error)
        self._exports = box.instance(module, {**ours, ("env", "memory"): self._memory})

    @staticmethod
    def require(module: wasmtime.Module, where: str) -> None:
        """Raise MalformedFile unless imports and exports are this interface's."""
        sandbox.require_imports(module, IMPORTS, where)
        there = sandbox.exports_of(module)
        optional = {name: signature for name, signature in OPTIONAL.items() if name in there}
        sandbox.require_exports(module, {**EXPORTS, **optional}, where)
        if all((wanted.module, wanted.name) != ("env", "memory") for wanted in module.imports):
            raise MalformedFile(f"{where}: does not import env.memory, which circom 1's calculators do")

    def version(self) -> tuple[int, int, int]:
        return (1, 0, 0)

    def prime(self) -> int:
        """The field's prime; 0 when its values are not of 32 bytes."""
        if self._ask("getFrLen") != ELEMENT:
            return 0
        return int.from_bytes(self._read(self._ask("getPRawPrime"), N8), "little")

    def n_wires(self) -> int:
        return self._ask("getNVars")

    def n_inputs(self) -> None:
        """It does not say."""

    def feed(self, signals: Signals) -> None:
        """Set all inputs, which computes the witness. Raises InvalidInput for signals that are not the circuit's, or
        that overlap; UnsatisfiedWitness for a broken constraint.
        """
        prime = self.prime()
        self._ask("init", 1)
        answer, element = self._allocate(8), self._allocate(ELEMENT)
        offsets: dict[str, int] = {}
        for name in signals:
            hashed = fnv1a(name)
            self._setting = name
            self._ask("getSignalOffset32", answer, 0, hashed >> 32, hashed & 0xFFFFFFFF)
            offsets[name] = int.from_bytes(self._read(answer, 4), "little")
        _require_apart(signals, offsets)
        for name, packed in signals.items():
            self._setting = name
            for i in range(len(packed) // N8):
                value = int.from_bytes(packed[i * N8 : (i + 1) * N8], "little")
                self._write(element, _encode(value, prime))
                self._ask("setSignal", 0, 0, offsets[name] + i, element)

    def wires(self, n_wires: int) -> Iterator[bytes]:
        """The witness in blocks of 32 bytes a wire. After `feed`."""
        if "getWitnessBuffer" in self._exports:
            buffer = self._ask("getWitnessBuffer")
            for first in range(0, n_wires, BLOCK):
                yield self._read(buffer + first * N8, min(BLOCK, n_wires - first) * N8)
            return
        prime = self.prime()
        for wire in range(n_wires):
            value = _decode(self._read(self._ask("getPWitness", wire), ELEMENT), prime)
            yield value.to_bytes(N8, "little")

    def _allocate(self, nbytes: int) -> int:
        """A place in the memory that is not used until the run is over."""
        at = int.from_bytes(self._read(0, 4), "little")
        self._write(0, (at + nbytes).to_bytes(8, "little")[:4])
        return at

    def _read(self, at: int, nbytes: int) -> bytes:
        self._require_inside(at, nbytes)
        return bytes(self._memory.read(self._box.store, at, at + nbytes))

    def _write(self, at: int, data: bytes) -> None:
        self._require_inside(at, len(data))
        self._memory.write(self._box.store, data, at)

    def _require_inside(self, at: int, nbytes: int) -> None:
        size = self._memory.data_len(self._box.store)
        if at + nbytes > size:
            raise InvalidInput(f"{self._box.where}: points outside of its memory of {size} bytes")

    def _ask(self, name: str, *arguments: int) -> int:
        return self._box.call(self._exports[name], *arguments)

    def _error(self, code: int, _text: int, _a: int, _b: int, _c: int, place: int) -> NoReturn:
        """What the calculator's checks found. Of its arguments only a known code and a place in the source are
        believed: all others might be values.
        """
        if code == _HASH_NOT_FOUND:
            raise InvalidInput(
                f"input JSON: signal {printable(self._setting)}: the circuit has no such input"
            )
        if code == _ASSIGNED_TWICE:
            raise InvalidInput(
                f"input JSON: setting signal {printable(self._setting)}: a signal is set twice: "
                "one of them has too many values"
            )
        if code in (_CONSTRAINT, _ASSERTION):
            where = self._place(place & 0xFFFFFFFF)
            raise UnsatisfiedWitness(
                f"the inputs do not satisfy the circuit: constraint{where} does not hold"
            )
        known = f"the error {code}" if code in _CODES else "an error that circom does not have"
        raise InvalidInput(f"{self._box.where}: broke off for these inputs: it reports {known}")

    def _place(self, at: int) -> str:
        size = self._memory.data_len(self._box.store)
        if not 0 < at < size:
            return ""
        text = self._read(at, min(512, size - at)).split(b"\0")[0]
        match = _PLACE.search(text)
        return f" at {match[1].decode()}" if match else ""

    _setting = ""  # the signal that is being set


def _require_apart(signals: Signals, offsets: dict[str, int]) -> None:
    """Raise InvalidInput when the values of one signal reach into another's."""
    ordered = sorted(offsets, key=lambda name: offsets[name])
    for name, following in itertools.pairwise(ordered):
        given, room = len(signals[name]) // N8, offsets[following] - offsets[name]
        if given > room:
            raise InvalidInput(
                f"input JSON: signal {printable(name)}: too many values: expected at most {room}, got {given}"
            )


def _encode(value: int, prime: int) -> bytes:
    """A canonical value as an element, short where circom's runtime makes it so."""
    signed = value - prime if value >= prime - (1 << 31) else value
    if signed < 1 << 31:
        return signed.to_bytes(4, "little", signed=True) + bytes(4 + N8)
    return bytes(4) + _LONG.to_bytes(4, "little") + value.to_bytes(N8, "little")


def _decode(element: bytes, prime: int) -> int:
    """An element as a canonical value."""
    kind = int.from_bytes(element[4:8], "little")
    if not kind & _LONG:
        return int.from_bytes(element[:4], "little", signed=True) % prime
    value = int.from_bytes(element[8:], "little")
    return value * pow(1 << (8 * N8), -1, prime) % prime if kind & _MONTGOMERY else value % prime


def _ignore(*_: Any) -> None:
    """What it logs is nobody's business."""
