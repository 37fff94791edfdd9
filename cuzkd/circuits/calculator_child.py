"""What a calculator says of itself: asked in a child process. `python -m cuzkd.circuits.calculator_child WHERE STATE`.

Problem. Whoever adds or inspects a .wasm wants to know its interface, curve and sizes. To be asked it must be compiled
and run, and it is somebody else's program: a compiler can be kept busy for hours and fed with all memory by a small
file, a start function runs before anything is known, and no signal reaches Python meanwhile. Design. `ask` starts a
process, hands it the module and reads a line of JSON; the operating system bounds its time and its memory, and
whoever interrupts the caller ends the child. The jobs' own calculations are bounded likewise, in the intake process.

Life. Started, told the module on its standard input, asked once, gone. What it compiled stays in the cache
(calculator.cache_below), so that the first job finds it.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cuzkd.errors import CuzkdError, InvalidInput, InvalidWitness, from_code

# Real calculators take seconds, those of some ten MB up to a minute; a job's first calculation has as long.
TIME_S = 120
# Of the program, and of compiler and interpreter besides: what a calculation has by default, too.
PROGRAM_BYTES = 2 << 30
MEMORY_BYTES = PROGRAM_BYTES + (2 << 30)
FUEL = 10**9  # instructions: an honest one takes some hundred


@dataclass(frozen=True)
class Facts:
    """where: how errors name the calculator. curve, n_wires: of the witnesses that it makes. n_inputs: values that it
    takes, None where it does not say (circom 1). interface: e.g. "circom 2.2.3". imports: e.g. "env.memory".
    """

    where: str
    interface: str
    curve: str
    n_wires: int
    n_inputs: int | None
    imports: tuple[str, ...]

    def require_fits(self, name: str, curve: str, n_wires: int) -> None:
        """Raise InvalidWitness unless its witnesses have the curve and the length of a circuit."""
        if (self.curve, self.n_wires) != (curve, n_wires):
            raise InvalidWitness(
                f"{self.where}: expected {n_wires} wires over {curve} (circuit {name}), "
                f"found {self.n_wires} over {self.curve}"
            )


def ask(wasm: bytes, where: str, state_dir: Path | None = None, time_s: int = TIME_S) -> Facts:
    """What a calculator is. state_dir: where its compiled form is kept, None = nowhere.

    Raises what Calculator does, and InvalidInput when the child exceeds a limit or dies.
    """
    command = [sys.executable, "-P", "-m", __name__, where, str(state_dir or ""), str(time_s)]
    try:
        # Its own clock ends it; ours is for a child that does not get so far as to set it.
        done = subprocess.run(command, input=wasm, capture_output=True, timeout=2 * time_s + 60, check=False)
    except subprocess.TimeoutExpired:
        raise InvalidInput(_broke_off(where, time_s, "no answer")) from None
    except OSError as error:
        raise CuzkdError(f"{where}: cannot be asked: no process can be started: {error.strerror}") from None
    if done.returncode == -signal.SIGALRM:
        raise InvalidInput(
            f"{where}: compiling it and asking it what it is took longer than the limit of {time_s} s"
        )
    if done.returncode < 0:
        raise InvalidInput(_broke_off(where, time_s, f"signal {-done.returncode}"))
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise CuzkdError(
            f"{where}: cannot be asked: the process that should ended with status {done.returncode}"
        ) from None
    if "error" in answer:
        raise from_code(answer["error"], answer["message"])
    return Facts(**{**answer, "imports": tuple(answer["imports"])})


def _broke_off(where: str, time_s: int, how: str) -> str:
    return (
        f"{where}: the process that compiled it and asked it what it is died ({how}); "
        f"its limits are {MEMORY_BYTES} bytes of memory and {time_s} s"
    )


def main(arguments: Sequence[str]) -> None:
    where, state_dir, time_s = arguments
    signal.alarm(int(time_s))  # nobody handles it: it ends the process, whatever that is at
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    from cuzkd.circuits import calculator  # a large runtime, for the child alone

    cache = calculator.cache_below(Path(state_dir)) if state_dir else ""
    limits = calculator.Limits(PROGRAM_BYTES, FUEL)
    try:
        facts = calculator.Calculator(sys.stdin.buffer.read(), limits, cache=cache, where=where).facts
        answer = asdict(facts)
    except CuzkdError as error:
        answer = {"error": error.code, "message": str(error)}
    except MemoryError:
        message = f"{where}: needs more memory than the limit of {MEMORY_BYTES} bytes"
        answer = {"error": InvalidInput.code, "message": message}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
