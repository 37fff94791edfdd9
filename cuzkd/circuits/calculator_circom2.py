"""circom 2's witness calculators: signals by hash, values through a buffer of eight words.

Problem. The interface moves one 32-bit word a call; from Python that is 0.12 ms for each wire. Design. A loop of
ours runs inside the sandbox, beside the calculator: inputs are written into the loop's memory in blocks and set from
there, wires are gathered there and copied out in blocks. A failed assertion reports itself line by line, innermost
template first; only a line that is an error's place and nothing else is believed, and only codes that circom has, so
that neither values nor what log() prints gets out.

The circuit's code runs as soon as its last input is set (or in init, where it has none). All counts are compared
before that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import wasmtime

from cuzkd.circuits import calculator_sandbox as sandbox
from cuzkd.circuits.calculator_sandbox import Box, Signature
from cuzkd.circuits.inputs import N8, Signals
from cuzkd.errors import InvalidInput, UnsatisfiedWitness
from cuzkd.formats.printable import printable

IMPORTS: dict[tuple[str, str], Signature | None] = {
    ("runtime", "exceptionHandler"): (1, 0),
    ("runtime", "printErrorMessage"): (0, 0),
    ("runtime", "writeBufferMessage"): (0, 0),
    ("runtime", "showSharedRWMemory"): (0, 0),
}
EXPORTS: dict[str, Signature] = {
    "getVersion": (0, 1),
    "getFieldNumLen32": (0, 1),
    "getRawPrime": (0, 0),
    "readSharedRWMemory": (1, 1),
    "writeSharedRWMemory": (2, 0),
    "getWitnessSize": (0, 1),
    "getInputSize": (0, 1),
    "init": (1, 0),
    "setInputSignal": (3, 0),
    "getWitness": (1, 0),
}
# Versions before 2.0.7 lack some of these.
OPTIONAL: dict[str, Signature] = {
    "getInputSignalSize": (2, 1),
    "getMinorVersion": (0, 1),
    "getPatchVersion": (0, 1),
    "getMessageChar": (0, 1),
}
BLOCK = 1 << 15  # values that the loop moves at once: 1 MiB
_UNKNOWN = (0, 0xFFFFFFFF)  # sizes of a signal that there is not, by version
_LINE = re.compile(r"Error in template ([A-Za-z_$][\w$]{0,63}) line: (\d{1,6})\s*", re.ASCII)
_MAX_LINES = 16
_MAX_MESSAGE = 1024
_CODES = {
    1: "a signal is not known to it",
    2: "too many signals were set",
    3: "a signal was set twice",
    5: "it ran out of memory",
    6: "a signal was given more values than it has",
}
# `set` and `get`: 32 bytes a value from the start of the memory, for values number `first` up.
_LOOP = """(module
  (import "calculator" "setInputSignal" (func $set_input (param i32 i32 i32)))
  (import "calculator" "getWitness" (func $get_witness (param i32)))
  (import "calculator" "readSharedRWMemory" (func $read (param i32) (result i32)))
  (import "calculator" "writeSharedRWMemory" (func $write (param i32 i32)))
  (memory (export "memory") 16)
  (func (export "set") (param $high i32) (param $low i32) (param $first i32) (param $n i32)
    (local $at i32) (local $end i32) (local $limb i32)
    (local.set $end (i32.shl (local.get $n) (i32.const 5)))
    (loop $next
      (if (i32.lt_u (local.get $at) (local.get $end)) (then
        (local.set $limb (i32.const 0))
        (loop $limbs
          (call $write (local.get $limb) (i32.load (local.get $at)))
          (local.set $at (i32.add (local.get $at) (i32.const 4)))
          (local.set $limb (i32.add (local.get $limb) (i32.const 1)))
          (br_if $limbs (i32.lt_u (local.get $limb) (i32.const 8))))
        (call $set_input (local.get $high) (local.get $low) (local.get $first))
        (local.set $first (i32.add (local.get $first) (i32.const 1)))
        (br $next)))))
  (func (export "get") (param $first i32) (param $n i32)
    (local $at i32) (local $end i32) (local $limb i32)
    (local.set $end (i32.shl (local.get $n) (i32.const 5)))
    (loop $next
      (if (i32.lt_u (local.get $at) (local.get $end)) (then
        (call $get_witness (local.get $first))
        (local.set $first (i32.add (local.get $first) (i32.const 1)))
        (local.set $limb (i32.const 0))
        (loop $limbs
          (i32.store (local.get $at) (call $read (local.get $limb)))
          (local.set $at (i32.add (local.get $at) (i32.const 4)))
          (local.set $limb (i32.add (local.get $limb) (i32.const 1)))
          (br_if $limbs (i32.lt_u (local.get $limb) (i32.const 8))))
        (br $next))))))"""


class Circom2:
    """One run of a circom 2 calculator. A module that passed `require` below goes in."""

    def __init__(self, box: Box, module: wasmtime.Module) -> None:
        self._box = box
        self._lines: list[str] = []
        self._printing = False
        self._exports = box.instance(
            module,
            {
                ("runtime", "exceptionHandler"): box.function((1, 0), self._exception),
                ("runtime", "printErrorMessage"): box.function((0, 0), self._print_error, caller=True),
                ("runtime", "writeBufferMessage"): box.function((0, 0), _ignore),
                ("runtime", "showSharedRWMemory"): box.function((0, 0), _ignore),
            },
        )

    @staticmethod
    def require(module: wasmtime.Module, where: str) -> None:
        """Raise MalformedFile unless imports and exports are this interface's."""
        sandbox.require_imports(module, IMPORTS, where)
        there = sandbox.exports_of(module)
        optional = {name: signature for name, signature in OPTIONAL.items() if name in there}
        sandbox.require_exports(module, {**EXPORTS, **optional}, where)

    def version(self) -> tuple[int, int, int]:
        return (self._ask("getVersion"), self._ask("getMinorVersion"), self._ask("getPatchVersion"))

    def prime(self) -> int:
        """The field's prime; 0 when its values are not of 32 bytes."""
        if self._ask("getFieldNumLen32") * 4 != N8:
            return 0
        self._ask("getRawPrime")
        words = [self._ask("readSharedRWMemory", i) for i in range(N8 // 4)]
        return sum(word << (32 * i) for i, word in enumerate(words))

    def n_wires(self) -> int:
        return self._ask("getWitnessSize")

    def n_inputs(self) -> int:
        return self._ask("getInputSize")

    def feed(self, signals: Signals) -> None:
        """Set all inputs, which computes the witness. Raises InvalidInput for signals that are not the circuit's, or
        not of their sizes; UnsatisfiedWitness for a failed assertion.
        """
        hashes = {name: fnv1a(name) for name in signals}
        self._require_counts(signals, hashes)
        loop = self._loop()
        self._ask("init", 1)
        for name, packed in signals.items():
            for first in range(0, len(packed) // N8, BLOCK):
                block = packed[first * N8 : (first + BLOCK) * N8]
                loop["memory"].write(self._box.store, block)
                high, low = hashes[name] >> 32, hashes[name] & 0xFFFFFFFF
                self._box.call(loop["set"], high, low, first, len(block) // N8)
        self._loop_exports = loop

    def wires(self, n_wires: int) -> Iterator[bytes]:
        """The witness in blocks of 32 bytes a wire. After `feed`."""
        loop = self._loop_exports
        for first in range(0, n_wires, BLOCK):
            n = min(BLOCK, n_wires - first)
            self._box.call(loop["get"], first, n)
            yield bytes(loop["memory"].read(self._box.store, 0, n * N8))

    def _require_counts(self, signals: Signals, hashes: dict[str, int]) -> None:
        for name, packed in signals.items():
            given, expected = len(packed) // N8, self._size(hashes[name], len(packed) // N8)
            if expected in _UNKNOWN and expected != given:
                raise InvalidInput(f"input JSON: signal {printable(name)}: the circuit has no such input")
            if given != expected:
                few = "few" if given < expected else "many"
                raise InvalidInput(
                    f"input JSON: signal {printable(name)}: too {few} values: expected {expected}, got {given}"
                )
        given, expected = sum(map(len, signals.values())) // N8, self.n_inputs()
        if given != expected:
            names = printable(", ".join(signals), 400) or "none"
            raise InvalidInput(
                f"input JSON: the circuit takes {expected} values, got {given}: "
                f"{'signals are missing' if given < expected else 'too many'} (given: {names})"
            )

    def _size(self, name_hash: int, otherwise: int) -> int:
        if "getInputSignalSize" not in self._exports:
            return otherwise
        return self._ask("getInputSignalSize", name_hash >> 32, name_hash & 0xFFFFFFFF)

    def _loop(self) -> Any:
        names = ("setInputSignal", "getWitness", "readSharedRWMemory", "writeSharedRWMemory")
        linked = {("calculator", name): self._exports[name] for name in names}
        return self._box.instance(sandbox.own_module(self._box.engine, _LOOP), linked)

    def _ask(self, name: str, *arguments: int) -> int:
        """Call an export; 0 where an optional one is not there."""
        return self._box.call(self._exports[name], *arguments) if name in self._exports else 0

    def _exception(self, code: int) -> NoReturn:
        if code != 4:
            reason = _CODES.get(code, "it reports an error that circom does not have")
            raise InvalidInput(f"{self._box.where}: broke off for these inputs: {reason}")
        found = [match for line in self._lines if (match := _LINE.fullmatch(line))]
        if not found:
            raise UnsatisfiedWitness("the inputs do not satisfy the circuit: an assertion failed")
        where, *callers = (f"template {match[1]} line {match[2]}" for match in found)
        within = f", called from {', '.join(callers)}" if callers else ""
        raise UnsatisfiedWitness(f"the inputs do not satisfy the circuit: assertion in {where}{within}")

    def _print_error(self, caller: wasmtime.Caller) -> None:
        """A line of an error; what it says is kept until we know what it is about."""
        get = caller.get("getMessageChar")
        if self._printing or not isinstance(get, wasmtime.Func) or len(self._lines) >= _MAX_LINES:
            return
        self._printing = (
            True  # a program that prints while it is asked for a character goes no deeper than this
        )
        characters: list[str] = []
        while len(characters) < _MAX_MESSAGE and 0 < (number := get(caller)) < 128:
            characters.append(chr(number))
        self._lines.append("".join(characters))
        self._printing = False


def fnv1a(name: str) -> int:
    """The 64-bit FNV-1a hash that stands for a signal's name."""
    value = 0xCBF29CE484222325
    for byte in name.encode("utf-8", "surrogatepass"):
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def _ignore() -> None:
    """What log() prints is nobody's business."""
