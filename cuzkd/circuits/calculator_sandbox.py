"""The sandbox that a circuit's own WASM runs in: nothing but its memory, a few calls of ours, and limits.

Problem. A witness calculator is a program of somebody else's. It may loop for ever, grow without end, trap, ask for
the world, or lie about what it exports. Design. wasmtime without WASI. A module may import exactly what its
interface defines, by name and type, and must export what we call, with the types that we call it with: both are
looked at before anything of it runs. A `Box` is one job's store: its instructions (fuel), its calls of ours and its
memory are bounded, and whatever goes wrong inside comes out as one of our errors, without anything that the program
computed.

Life. An engine and its compiled modules live as long as the process; a box as long as one job.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import wasmtime

from cuzkd.errors import InvalidInput, MalformedFile
from cuzkd.formats.printable import printable

Result = TypeVar("Result")
# Types of a function: numbers of i32 that it takes and gives; no interface uses any other type.
Signature = tuple[int, int]
PAGE_BYTES = 1 << 16
MAX_NAMES = 1000  # imports, and exports; circom's have some twenty
CALL_FUEL = 10_000  # what one call of ours costs, in Python, as instructions
_OUT_OF_FUEL = wasmtime.TrapCode.OUT_OF_FUEL


@dataclass(frozen=True)
class Limits:
    """Of one calculation. memory_bytes: of the program's memory. fuel: about one for each instruction."""

    memory_bytes: int = 2 << 30
    fuel: int = 10**12


@functools.lru_cache(maxsize=1)
def engine(cache: str = "") -> wasmtime.Engine:
    """The process's engine. cache: a file of settings of wasmtime's own cache of compiled modules, "" for none."""
    config = wasmtime.Config()
    config.consume_fuel = True
    config.wasm_threads = False
    config.wasm_memory64 = False
    if cache:
        config.cache = cache
    return wasmtime.Engine(config)


def compile_module(of: wasmtime.Engine, wasm: bytes, where: str) -> wasmtime.Module:
    """Raises MalformedFile when it is no valid module, or has more imports or exports than any calculator."""
    if wasm[:4] != b"\0asm":
        raise MalformedFile(f"{where}: expected a WebAssembly module, its magic is missing")
    try:
        module = wasmtime.Module(of, wasm)
    except wasmtime.WasmtimeError as error:
        raise MalformedFile(f"{where}: is no valid WebAssembly module: {_first_line(error)}") from None
    for what, n in (("imports", len(module.imports)), ("exports", len(module.exports))):
        if n > MAX_NAMES:
            raise MalformedFile(f"{where}: {n} {what}, expected at most {MAX_NAMES}: no circom calculator")
    return module


@functools.lru_cache(maxsize=8)
def own_module(of: wasmtime.Engine, wat: str) -> wasmtime.Module:
    """A module of ours, written as text."""
    return wasmtime.Module(of, bytes(wasmtime.wat2wasm(wat)))


def require_imports(
    module: wasmtime.Module, allowed: Mapping[tuple[str, str], Signature | None], where: str
) -> None:
    """Raise MalformedFile unless everything that the module wants is there to be had. None: a memory."""
    for wanted in module.imports:
        name = (wanted.module, wanted.name or "")
        if name not in allowed:
            raise MalformedFile(
                f"{where}: imports {printable(name[0])}.{printable(name[1])}, "
                "which no circom calculator needs; refused"
            )
        if not _is(wanted.type, allowed[name]):
            raise MalformedFile(f"{where}: imports {name[0]}.{name[1]} with another type than circom's")


def require_exports(module: wasmtime.Module, called: Mapping[str, Signature], where: str) -> None:
    """Raise MalformedFile unless these functions are exported with these types."""
    exported = {export.name: export.type for export in module.exports}
    for name, signature in called.items():
        if name not in exported:
            raise MalformedFile(f"{where}: does not export {name}, which circom's calculators have")
        if not _is(exported[name], signature):
            raise MalformedFile(f"{where}: exports {name} with another type than circom's")


def exports_of(module: wasmtime.Module) -> frozenset[str]:
    return frozenset(export.name or "" for export in module.exports)


def _is(kind: Any, signature: Signature | None) -> bool:
    if signature is None:
        return isinstance(kind, wasmtime.MemoryType)
    if not isinstance(kind, wasmtime.FuncType):
        return False
    numbers = [*kind.params, *kind.results]
    return (len(kind.params), len(kind.results)) == signature and all(str(n) == "i32" for n in numbers)


class Box:
    """One job's instances, within limits. Everything that runs inside is run through `guard`.

    A context manager: its end unmaps the memories. (Left alone they would stay: wasmtime's table of callbacks holds
    whoever's methods are called back.)
    """

    def __init__(self, of: wasmtime.Engine, limits: Limits, where: str) -> None:
        self.engine = of
        self.limits = limits
        self.where = where
        self.store = wasmtime.Store(of)
        # Ours besides theirs: the loop's instance, and its memory of a few pages.
        self.store.set_limits(
            memory_size=limits.memory_bytes, instances=2, memories=2, tables=4, table_elements=1 << 20
        )
        self.store.set_fuel(limits.fuel)
        self._calls_left = limits.fuel // CALL_FUEL

    def __enter__(self) -> Box:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()

    def memory(self, pages: int) -> wasmtime.Memory:
        """A memory for a module that imports one; larger only if it grows it."""
        kind = wasmtime.MemoryType(wasmtime.Limits(pages, None))
        return self.guard(lambda: wasmtime.Memory(self.store, kind))

    def function(
        self, signature: Signature, callback: Callable[..., Any], caller: bool = False
    ) -> wasmtime.Func:
        """One of ours, to be imported; each call is counted, as fuel does not see what it costs. caller: its first
        argument is the calling module's exports.
        """

        def counted(*arguments: Any) -> Any:
            self._calls_left -= 1
            if self._calls_left < 0:
                limit = self.limits.fuel // CALL_FUEL
                raise InvalidInput(f"{self.where}: stopped: more than {limit} calls of the runtime")
            return callback(*arguments)

        i32 = wasmtime.ValType.i32()
        kind = wasmtime.FuncType([i32] * signature[0], [i32] * signature[1])
        return wasmtime.Func(self.store, kind, counted, access_caller=caller)

    def instance(self, module: wasmtime.Module, imports: Mapping[tuple[str, str], Any]) -> Mapping[str, Any]:
        """Its exports, by name."""
        needed = [imports[wanted.module, wanted.name or ""] for wanted in module.imports]
        made = self.guard(lambda: wasmtime.Instance(self.store, module, needed))
        return made.exports(self.store)

    def call(self, function: Any, *arguments: int) -> int:
        """Call an export with unsigned 32-bit numbers; its result as one, 0 where there is none."""
        result = self.guard(lambda: function(self.store, *(_signed(argument) for argument in arguments)))
        return 0 if result is None else int(result) & 0xFFFFFFFF

    def guard(self, step: Callable[[], Result]) -> Result:
        """Run something inside. Errors that our own functions raise there pass; all others become InvalidInput."""
        try:
            return step()
        except wasmtime.Trap as trap:
            raise self._trapped(trap) from None
        except wasmtime.WasmtimeError as error:
            text = _first_line(error)
            if "memory minimum size" in text or "exceeds" in text:
                text = f"it needs more memory than the limit of {self.limits.memory_bytes} bytes"
            raise InvalidInput(f"{self.where}: cannot run: {text}") from None

    def _trapped(self, trap: wasmtime.Trap) -> InvalidInput:
        code = trap.trap_code
        if code is _OUT_OF_FUEL:
            return InvalidInput(
                f"{self.where}: stopped: it used more than the limit of {self.limits.fuel} instructions"
            )
        reason = code.name.lower().replace("_", " ") if code is not None else "an unknown trap"
        return InvalidInput(f"{self.where}: broke off for these inputs: {reason}")


def _signed(number: int) -> int:
    """An unsigned 32-bit number as wasmtime wants i32."""
    return number - (1 << 32) if number >= 1 << 31 else number


def _first_line(error: BaseException) -> str:
    return printable((str(error).splitlines() or [""])[0], 200)
