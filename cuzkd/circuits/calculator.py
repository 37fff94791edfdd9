"""A circuit's own witness calculator: the .wasm that circom makes, from signals to a .wtns file.

Problem. The witness must be the one that circom computes, or the key's constraints do not hold; so circom's program
is run, not imitated. Elsewhere parallel calls of one instance mix up their witnesses, and a wrong number of values
yields a witness of nonsense. Design. The module is compiled once and kept; each job has an instance of its own, in a
sandbox (calculator_sandbox) with limits. Two interfaces are known, each a file: circom 2 and circom 1; which one it is
the exports tell. Prime and number of wires are asked for at once, so that a calculator of another circuit is refused
before it sees any input.

Life of data: signals (inputs.parse) in, the file's head, then blocks of wires out; when the job's instance is gone,
its memory is unmapped. Range and constant wire are checked where every witness is: when the prover copies it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import BinaryIO

import wasmtime

from cuzkd.circuits import calculator_sandbox as sandbox
from cuzkd.circuits.calculator_child import Facts
from cuzkd.circuits.calculator_circom1 import Circom1
from cuzkd.circuits.calculator_circom2 import Circom2
from cuzkd.circuits.calculator_sandbox import Box, Limits
from cuzkd.circuits.inputs import Signals
from cuzkd.errors import MalformedFile
from cuzkd.formats import names, wtns

MAX_WIRES = 1 << 28  # above every circuit: the number must fit into memory, and is bounded by nothing else
DEFAULT_LIMITS = Limits()

__all__ = ["Calculator", "Limits"]


class Calculator:
    """A compiled calculator. facts: what it says of itself; curve, n_wires and n_inputs are of them.

    wasm: the module. limits: of one calculation. cache: settings of wasmtime's cache, "" for none. where: how errors
    name it. Raises MalformedFile when it is no circom calculator over a curve of ours, InvalidInput when asking it
    exceeds the limits. Threads must not share one: wasmtime hands errors of callbacks on through one place.
    """

    def __init__(
        self,
        wasm: bytes,
        limits: Limits = DEFAULT_LIMITS,
        *,
        cache: str = "",
        where: str = "witness calculator",
    ) -> None:
        self._engine = sandbox.engine(cache)
        self._limits = limits
        self._where = where
        self._module = sandbox.compile_module(self._engine, wasm, where)
        self._kind = _interface(self._module, where)
        self._kind.require(self._module, where)
        with self._box() as box:
            run = self._kind(box, self._module)
            version, prime = run.version(), run.prime()
            n_wires, n_inputs = run.n_wires(), run.n_inputs()
        if version[0] not in (1, 2):
            raise MalformedFile(f"{where}: made by circom {version[0]}, expected 1 or 2")
        curve = names.by_scalar_prime(prime)
        if curve is None:
            raise MalformedFile(
                f"{where}: expected the prime r of {names.KNOWN}, found {prime or 'another size'}"
            )
        if not 0 < n_wires <= MAX_WIRES:
            raise MalformedFile(f"{where}: claims {n_wires} wires, expected 1 to {MAX_WIRES}")
        interface = "circom " + (".".join(map(str, version)) if version[0] > 1 else "1")
        imports = tuple(f"{wanted.module}.{wanted.name}" for wanted in self._module.imports)
        self.facts = Facts(where, interface, curve, n_wires, n_inputs, imports)
        self.curve, self.n_wires, self.n_inputs = curve, n_wires, n_inputs

    def calculate(self, signals: Signals, out: BinaryIO) -> None:
        """Write the witness for these inputs as a whole .wtns file.

        Raises InvalidInput: signals that are not the circuit's or not of their sizes, a trap, a limit exceeded;
        UnsatisfiedWitness: a failed assertion, named by its place in the circuit. Then `out` holds nothing of use.
        """
        with self._box() as box:
            run = self._kind(box, self._module)
            run.feed(signals)
            out.write(wtns.head(self.curve, self.n_wires))
            for block in run.wires(self.n_wires):
                out.write(block)

    def _box(self) -> Box:
        return Box(self._engine, self._limits, self._where)


def cache_below(state_dir: Path) -> str:
    """The file that tells wasmtime to keep compiled modules in STATE/wasm-cache; "" where nothing can be written."""
    folder = state_dir / "wasm-cache"
    path, partial = folder / "settings.toml", folder / f"settings.{os.getpid()}"
    try:
        for place in (state_dir, folder):  # state is nobody else's to read
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial.write_text(f"[cache]\ndirectory = {json.dumps(str(folder.resolve() / 'modules'))}\n")
        partial.replace(path)
    except OSError:  # a cache: it is slower without
        return ""
    return str(path)


def _interface(module: wasmtime.Module, where: str) -> type[Circom1] | type[Circom2]:
    """Which of the two it is. Raises MalformedFile when neither."""
    there = sandbox.exports_of(module)
    if "getVersion" in there:
        return Circom2
    if there & {"getFrLen", "getPRawPrime", "getNVars"}:
        return Circom1
    raise MalformedFile(
        f"{where}: exports neither getVersion nor getFrLen: it is no witness calculator of circom"
    )
