"""The front's few intake processes: witnesses are calculated there, one at a time in each.

Problem. A calculation may hang, eat memory or kill its process; its client may leave; and a daemon that is never sent
inputs should not pay for any of it. Design. Processes start when they are first needed and stay for the next
calculation. Who finds no turn (engine/turns) waits, up to a number of one circuit's, then is refused. What a process
may use is reserved in the host budget while it is at work; who gets no memory for a while is refused. A calculation
that takes too long, or that nobody waits for any more, ends with its process; the next one gets a new process. A
process that dies by itself fails the one calculation that it was at.

Life of a process. spawned -> (calculating -> idle)* -> killed, or found dead. When `calculate` is over, however it
ended, nobody writes to its output any more.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from cuzkd.circuits.manifest import Manifest
from cuzkd.engine.channel import AsyncChannel
from cuzkd.engine.payloads.turns import Turns
from cuzkd.engine.process import describe_exit, reap, spawn
from cuzkd.engine.wire import intake_pb2 as wire
from cuzkd.errors import (
    SCARCE,
    CuzkdError,
    Exhausted,
    InvalidInput,
    NotFound,
    Unavailable,
    Unsupported,
    from_code,
)
from cuzkd.memory.budget import Reservation

log = structlog.get_logger()

MEMORY_WAIT_S = 30.0  # in the budget's line, where others wait behind it

Reserve = Callable[[int, str], Awaitable[Reservation]]  # BudgetDesk.reserve_async

COMMAND = (sys.executable, "-P", "-m", "cuzkd.engine.payloads.intake_process")


@dataclass(frozen=True)
class IntakeSettings:
    """processes: at most so many, 0 = none: inputs are refused. max_waiting: calculations of one circuit that may wait.
    timeout_s, memory_bytes, max_instructions: of one calculation. max_input_bytes: of one input JSON. command: what
    is started (tests).
    """

    processes: int = 2
    max_waiting: int = 64
    timeout_s: float = 120.0
    memory_bytes: int = 2 << 30
    max_instructions: int = 10**12
    max_input_bytes: int = 64 << 20
    command: Sequence[str] = COMMAND


@dataclass(frozen=True)
class Calculation:
    """How long it took, in seconds. wait_s: until a process and its memory were free. compile_s: 0 or nearly so where
    the process had the calculator already. calculate_s: reading the inputs, calculating, writing.
    """

    wait_s: float
    compile_s: float
    calculate_s: float


@dataclass(eq=False)
class _Process:
    process: asyncio.subprocess.Process
    channel: AsyncChannel[wire.FromIntake]
    calculators: set[str] = field(default_factory=set)  # digests of those that it has compiled

    async def ask(self, request: wire.Calculate) -> wire.FromIntake | None:
        """Its answer; None when it is gone."""
        try:
            await self.channel.send(wire.ToIntake(calculate=request))
        except ConnectionError:
            return None
        return await self.channel.receive()

    async def end(self) -> int:
        """Kill and reap it; its exit status."""
        status = await reap(self.process, patience_s=0.0)
        await self.channel.close()
        assert status is not None  # it was waited for
        return status


class Calculators:
    """Owned by the engine's loop. reserve: memory of the host budget."""

    def __init__(self, state_dir: Path, settings: IntakeSettings, reserve: Reserve) -> None:
        self._state_dir = state_dir.resolve()
        self._settings = settings
        self._reserve = reserve
        self._turns = Turns(settings.processes)
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._ending: set[asyncio.Task[int]] = set()
        self._closed = False

    @property
    def share(self) -> int:
        """How many calculations of one circuit may run at once."""
        return self._turns.share

    def require_possible(self, manifest: Manifest) -> None:
        """Raise Unsupported when this daemon calculates nothing, NotFound when the circuit has no calculator."""
        if not self._settings.processes:
            raise Unsupported(
                "input JSON: this daemon calculates no witnesses (intake.processes = 0): send a witness"
            )
        if not manifest.calculator:
            raise NotFound(
                f"circuit {manifest.name}: has no witness calculator: add it with its .wasm, or send a witness"
            )

    def require_size(self, nbytes: int) -> None:
        """Raise InvalidInput when an input is larger than is allowed."""
        if nbytes > self._settings.max_input_bytes:
            allowed = self._settings.max_input_bytes
            raise InvalidInput(
                f"input JSON: {nbytes} bytes, at most {allowed} are allowed (intake.max_input)"
            )

    async def calculate(self, manifest: Manifest, input_path: str, output_path: str) -> Calculation:
        """Make the witness file for an input file. The output is synced (its directory is not).

        Raises InvalidInput (inputs, or a limit exceeded), UnsatisfiedWitness, NotFound, Exhausted, NeverFits (the whole
        budget is less than intake.memory), Unavailable; CuzkdError when the process died. Then the output may be there
        in part; it is the caller's to remove.
        """
        self.require_possible(manifest)
        request = wire.Calculate(
            circuit=manifest.name,
            calculator_digest=manifest.calculator,
            curve=manifest.curve,
            n_wires=manifest.n_wires,
            input_path=input_path,
            output_path=output_path,
        )
        loop = asyncio.get_running_loop()
        came_s = loop.time()
        self._require_room(manifest.name)
        await self._turns.take(manifest.name)
        try:
            with await self._memory(manifest.name):
                wait_s = loop.time() - came_s
                done = await self._in_a_process(request)
        finally:
            self._turns.give_back(manifest.name)
        return Calculation(wait_s, done.compile_s, done.seconds)

    async def stop(self) -> None:
        """End all processes; calculations that run fail with Unavailable. Idempotent."""
        self._closed = True
        for process in (*self._idle, *self._busy):
            self._end(process)
        self._idle.clear()
        while self._ending:
            await asyncio.wait(self._ending)

    def _require_room(self, circuit: str) -> None:
        waiting = self._turns.waiting(circuit)
        if waiting >= self._settings.max_waiting and not self._turns.is_free(circuit):
            raise Exhausted(
                f"input JSON: circuit {circuit}: {waiting} calculations wait, at most {self._settings.max_waiting} "
                "may; try again later, or send witnesses"
            )

    async def _memory(self, circuit: str) -> Reservation:
        nbytes = self._settings.memory_bytes
        what = f"circuit {circuit}: calculating a witness (intake.memory)"
        try:
            async with asyncio.timeout(MEMORY_WAIT_S):
                return await self._reserve(nbytes, what)
        except TimeoutError:
            raise Exhausted(
                f"{what} needs {nbytes} bytes of the host budget, which were not free for {MEMORY_WAIT_S:g} s; "
                "try again later, or send witnesses"
            ) from None

    async def _in_a_process(self, request: wire.Calculate) -> wire.Calculated:
        process = self._pick(request.calculator_digest) or await self._spawn()
        self._busy.add(process)
        answer = None
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                answer = await process.ask(request)
        except TimeoutError:
            raise InvalidInput(
                f"circuit {request.circuit}: the calculation took longer than the limit of "
                f"{self._settings.timeout_s:g} s (intake.timeout)"
            ) from None
        finally:
            self._busy.discard(process)
            if answer is None or self._closed:
                status = await asyncio.shield(self._end(process))
            else:
                self._idle.append(process)
        if self._closed:
            raise Unavailable("the daemon is stopping")
        if answer is None:
            cause = describe_exit(status)
            log.error("intake_process_died", circuit=request.circuit, cause=cause)
            raise CuzkdError(
                f"circuit {request.circuit}: the process that calculated the witness died: {cause}"
            )
        if answer.WhichOneof("kind") == "failed":
            raise from_code(answer.failed.error_code, answer.failed.error_message)
        process.calculators.add(request.calculator_digest)
        return answer.calculated

    def _pick(self, digest: str) -> _Process | None:
        """An idle process, one that has the calculator if there is one. Those that died meanwhile are forgotten."""
        for process in [process for process in self._idle if process.process.returncode is not None]:
            self._idle.remove(process)
            self._end(process)
        if not self._idle:
            return None
        knowing = next((process for process in self._idle if digest in process.calculators), self._idle[-1])
        self._idle.remove(knowing)
        return knowing

    async def _spawn(self) -> _Process:
        if self._closed:
            raise Unavailable("the daemon is stopping")
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise _not_started(error) from None
        try:
            process = await spawn(self._settings.command, theirs, self._state_dir)
            channel = await AsyncChannel.open(ours, wire.FromIntake)
        except OSError as error:
            ours.close()
            raise _not_started(error) from None
        except BaseException:
            ours.close()  # if it was started, it ends for having nobody to listen to
            raise
        finally:
            theirs.close()
        started = _Process(process, channel)
        log.info("intake_process_started", pid=process.pid)
        settings = self._settings
        started.channel.post(
            wire.ToIntake(
                configure=wire.Configure(
                    state_dir=str(self._state_dir),
                    memory_bytes=settings.memory_bytes,
                    fuel=settings.max_instructions,
                    max_input_bytes=settings.max_input_bytes,
                )
            )
        )
        return started

    def _end(self, process: _Process) -> asyncio.Task[int]:
        """Kill it; the task is done when it is gone."""
        task = asyncio.get_running_loop().create_task(process.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task


def _not_started(error: OSError) -> CuzkdError:
    if error.errno in SCARCE:
        return Exhausted(f"input JSON: no process can be started now: {error.strerror}; try again later")
    return Unavailable(f"input JSON: no process can be started: {error.strerror}")
