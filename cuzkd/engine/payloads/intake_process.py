"""The intake process: input JSON to witness files. `python -m cuzkd.engine.payloads.intake_process --fd N`.

Problem. Inputs come from anybody, calculators from circuits' authors: both are parsed and run, and both may be made
to eat memory and time, or to break what runs them. The front must not feel any of it. Design. A process of its own
without device, keys or state: it reads one file of the spool, runs one calculator in its sandbox, and makes one file
of the spool. Its memory is bounded by the operating system besides the sandbox's own bounds; for time, the front
kills it. A thread listens meanwhile, so that it is gone as soon as the front is.

Life. Configure, then one Calculate after the other, each answered before the next. Calculators are read from the
registry by name and digest, compiled once (also over processes: wasmtime's cache lies in STATE/wasm-cache) and kept;
the least recently used one gives way. Nothing of an input stays: its file is the front's to remove.
"""

from __future__ import annotations

import os
import queue
import resource
import socket
import threading
import time
from collections import OrderedDict
from pathlib import Path

from cuzkd.circuits import calculator, inputs
from cuzkd.circuits.calculator import Calculator, Limits
from cuzkd.circuits.registry import Registry
from cuzkd.engine import process
from cuzkd.engine.channel import Channel
from cuzkd.engine.wire import intake_pb2 as wire
from cuzkd.errors import CuzkdError, Exhausted, InvalidInput, NotFound

KEPT = 16  # compiled calculators
# Besides the program's memory: the document, its values, and the compiler at work.
WORKING_BYTES = 2 << 30


class Intake:
    """All that the process does. registry: where calculators are. cache: settings of wasmtime's cache."""

    def __init__(self, configure: wire.Configure, registry: Registry, cache: str) -> None:
        self._limits = Limits(configure.memory_bytes, configure.fuel)
        self._max_input_bytes = configure.max_input_bytes
        self._registry = registry
        self._cache = cache
        self._calculators: OrderedDict[str, Calculator] = OrderedDict()  # by digest, the latest used last

    def answer(self, request: wire.Calculate) -> wire.FromIntake:
        """Do it; what went wrong is an answer, too. Never holds a value of the input."""
        try:
            return wire.FromIntake(calculated=self._calculate(request))
        except CuzkdError as error:
            code, message = error.code, str(error)
        except MemoryError:
            code = InvalidInput.code
            message = f"the calculation needs more memory than the limit of {self._limits.memory_bytes} bytes"
        except OSError as error:
            code, message = Exhausted.code, f"spool: {os.strerror(error.errno or 0)}; try again later"
        except Exception as error:  # a bug of ours: its text might quote an input
            code, message = CuzkdError.code, f"the calculation failed: {type(error).__name__}"
        encodable = message.encode("utf-8", "backslashreplace").decode()
        return wire.FromIntake(failed=wire.Failed(error_code=code, error_message=encodable))

    def _calculate(self, request: wire.Calculate) -> wire.Calculated:
        started_s = time.monotonic()
        compiled = self._calculator(request)
        compiled.facts.require_fits(request.circuit, request.curve, request.n_wires)
        compiled_s = time.monotonic()
        data = Path(request.input_path).read_bytes()
        signals = inputs.parse(data, request.curve, self._max_input_bytes, compiled.n_inputs)
        del data
        descriptor = os.open(request.output_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            compiled.calculate(signals, out)
            out.flush()
            os.fsync(descriptor)
        return wire.Calculated(compile_s=compiled_s - started_s, seconds=time.monotonic() - compiled_s)

    def _calculator(self, request: wire.Calculate) -> Calculator:
        digest = request.calculator_digest
        if digest not in self._calculators:
            if self._registry.get(request.circuit).calculator != digest:
                raise NotFound(f"circuit {request.circuit}: its calculator has been replaced; submit again")
            wasm = self._registry.calculator(request.circuit)
            where = f"circuit {request.circuit}: witness calculator"
            self._calculators[digest] = Calculator(wasm, self._limits, cache=self._cache, where=where)
            if len(self._calculators) > KEPT:
                self._calculators.popitem(last=False)
        self._calculators.move_to_end(digest)
        return self._calculators[digest]


def limit_memory(nbytes: int) -> None:
    """Bound what this process may write to; beyond it allocations fail. Reserved addresses do not count."""
    resource.setrlimit(resource.RLIMIT_DATA, (nbytes, nbytes))


def serve(sock: socket.socket) -> None:
    """Everything from the first message to the end of the process."""
    channel = Channel(sock, wire.ToIntake)
    first = channel.receive()
    if first is None or first.WhichOneof("kind") != "configure":
        os._exit(1)
    configure = first.configure
    limit_memory(configure.memory_bytes + WORKING_BYTES)
    state_dir = Path(configure.state_dir)
    intake = Intake(configure, Registry(state_dir), calculator.cache_below(state_dir))
    requests: queue.SimpleQueue[wire.Calculate] = queue.SimpleQueue()

    def listen() -> None:
        while (message := channel.receive()) is not None:
            requests.put(message.calculate)
        os._exit(0)

    threading.Thread(target=listen, name="listen", daemon=True).start()
    while True:
        answer = intake.answer(requests.get())
        try:
            channel.send(answer)
        except OSError:  # the front is gone
            os._exit(0)


def main() -> None:
    process.main("cuzkd.engine.payloads.intake_process", serve)


if __name__ == "__main__":
    main()
