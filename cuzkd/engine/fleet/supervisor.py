"""One prover process: started, listened to, and replaced when it dies.

Problem. A device that fails takes its process along: by a crash, by an error that sticks, or by a hang.
Whoever shares its process dies too, and whoever waits for it waits for ever.

Design. The prover is spawned (never forked) with one end of a socketpair and a small environment. It must
answer Configure with Ready within a deadline. From then on its messages are passed on in order; the end of
the stream, a Fatal, a broken frame or an order to replace it all lead to the same end: the process is killed
and reaped first, and only then is its death announced, so that nothing it held can still be worked on when
somebody else is given it. What its successor opens, and after which pause, is the listener's to say (health.py).

Life of a process. starting -> ready -> dead -> pause -> starting ...; stop() ends the circle: stopped.
"""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import structlog

from cuzkd.engine.channel import AsyncChannel
from cuzkd.engine.fleet.health import Death
from cuzkd.engine.process import describe_exit, forget_locks, reap, spawn
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import DeviceFault

log = structlog.get_logger()

EXIT_PATIENCE_S = 1.0  # for a process that has closed its end, or said Fatal, to be gone by itself
LONGEST_STEP_S = 1.0  # of waiting for Ready
KILL_PATIENCE_S = 10.0  # for one that was killed; a driver may hold it for ever
COMMAND = (sys.executable, "-P", "-m", "cuzkd.engine.prover.main")
STOPPING = Death("the daemon is stopping", asked=True)


@dataclass(frozen=True)
class Timing:
    """Seconds. handshake_s: from the start to Ready, with kernels to be compiled. shutdown_s: from Shutdown
    to exit. first_pause_s, longest_pause_s: before a successor (health.Rules).
    """

    handshake_s: float = 600.0
    shutdown_s: float = 10.0
    first_pause_s: float = 0.5
    longest_pause_s: float = 60.0


class Listener(Protocol):
    """The engine's side. All calls come on its loop, in the order in which things happened."""

    def prover_begins(self, prover: str) -> str:
        """A process is about to be started. Returns the backend that it is to open."""

    def prover_starting(self, prover: str, pid: int) -> None: ...

    def prover_ready(self, prover: str, ready: wire.Ready) -> None: ...

    def prover_said(self, prover: str, message: wire.FromProver) -> None:
        """Anything but Ready and Fatal."""

    def prover_died(self, prover: str, death: Death) -> float:
        """It is reaped, or killed for good. Returns for how many seconds its successor is to wait."""

    def prover_stopped(self, prover: str) -> None:
        """It is reaped, and there will be no other."""


class Supervisor:
    """Keeps one prover running. name: stable, over all its processes. configure: the first message to a process, by the
    backend that it is to open. command: gets `--fd N` appended. lock: the file that each of its processes locks for
    life, if any. besides: of their environment.
    """

    def __init__(
        self,
        name: str,
        configure: Callable[[str], wire.Configure],
        listener: Listener,
        *,
        timing: Timing,
        cwd: str,
        command: Sequence[str] = COMMAND,
        lock: Path | None = None,
        besides: Mapping[str, str] = MappingProxyType({}),
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.ready = False
        self._configure = configure
        self._listener = listener
        self._timing = timing
        self._cwd = cwd
        self._lock = lock
        self._command = command if lock is None else (*command, "--lock", str(lock))
        self._besides = besides
        self._pause = pause
        self._channel: AsyncChannel[wire.FromProver] | None = None
        self._order: asyncio.Future[Death | None] | None = None  # an order to replace: its cause
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._circle(), name=self.name)

    def send(self, message: wire.ToProver) -> None:
        """In order, without waiting. Lost when the process is gone: its death is announced anyway."""
        if self._channel is not None:
            self._channel.post(message)

    def replace(self, death: Death) -> None:
        """Kill this process and start another."""
        if self._order is not None and not self._order.done():
            self._order.set_result(death)

    def hurry(self) -> None:
        """Start the next process now, if it waits for the end of a pause."""
        self._hurry.set()

    async def stop(self) -> None:
        """Shutdown, a while to obey, then kill. Returns when the process is reaped. Idempotent, and may be
        called again when the first call was given up.
        """
        if self._task is None:
            return
        self._stopping.set()
        if self.ready:
            self.send(wire.ToProver(shutdown=wire.Shutdown()))
        else:  # it holds nothing, and may not listen for minutes
            self.replace(STOPPING)
        await asyncio.wait([self._task], timeout=self._timing.shutdown_s)
        self.replace(STOPPING)  # it did not obey
        await asyncio.wait([self._task])
        task, self._task = self._task, None
        task.result()
        self._listener.prover_stopped(self.name)

    async def _circle(self) -> None:
        while not self._stopping.is_set():
            death = await self._one_life()
            if self._stopping.is_set():
                return
            self._hurry.clear()
            try:
                pause_s = self._listener.prover_died(self.name, death)
            except Exception:  # a bug of ours must not be the end of proving
                log.exception("prover_death_mishandled", prover=self.name, cause=death.cause)
                pause_s = self._timing.first_pause_s
            await _either(self._pause(pause_s), self._hurry.wait(), self._stopping.wait())

    async def _one_life(self) -> Death:
        """Run one process until it is reaped; returns what it died of."""
        backend = self._listener.prover_begins(self.name)
        try:
            process, ours = await self._spawn()
        except OSError as error:
            return Death(f"cannot be started: {error}")
        self._order = asyncio.get_running_loop().create_future()
        if self._stopping.is_set():  # the order to stop came before there was anybody to give it to
            self.replace(STOPPING)
        channel, death = None, None
        try:
            channel = await AsyncChannel.open(ours, wire.FromProver)
            self._listener.prover_starting(self.name, process.pid)
            death = await self._converse(channel, backend)
        except OSError as error:
            death = Death(f"cannot be talked to: {error}")
        finally:
            was_ready, self.ready = self.ready, False
            self._channel = None
            status = await reap(process, 0.0 if self._order.done() else EXIT_PATIENCE_S, KILL_PATIENCE_S)
            ours.close() if channel is None else await channel.close()
        if status is None:
            return self._stuck(process.pid, death)
        return death or _exited(status, was_ready)

    async def _spawn(self) -> tuple[asyncio.subprocess.Process, socket.socket]:
        """A process, and our end of the socketpair. Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            return await spawn(self._command, theirs, self._cwd, self._besides), ours
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

    def _stuck(self, pid: int, death: Death | None) -> Death:
        """A process that is killed and does not go. Its successor need not wait for its locks: it computes nothing any
        more, and nobody listens to it.
        """
        log.error("prover_cannot_be_reaped", prover=self.name, pid=pid)
        if self._lock is not None:
            self._lock.unlink(missing_ok=True)  # it may not have come to writing its name there
            forget_locks(self._lock.parent, pid)
        known = death or Death("closed its end")
        cause = (
            f"{known.cause}; killed, it is still there after {KILL_PATIENCE_S:g} s, held by a driver perhaps"
        )
        return replace(known, cause=cause, suspect=True)

    async def _converse(self, channel: AsyncChannel[wire.FromProver], backend: str) -> Death | None:
        """Talk until there is nothing more to say. None: the stream just ended."""
        assert self._order is not None
        talk = asyncio.ensure_future(self._listen(channel, backend))
        await asyncio.wait([talk, self._order], return_when=asyncio.FIRST_COMPLETED)
        if talk.done():
            return talk.result()
        talk.cancel()
        await asyncio.wait([talk])
        return self._order.result()

    async def _listen(self, channel: AsyncChannel[wire.FromProver], backend: str) -> Death | None:
        try:
            channel.post(wire.ToProver(configure=self._configure(backend)))
            death = await self._shake_hands(channel)
            while self.ready and not death:
                message = await channel.receive()
                if message is None:
                    return None
                death = self._pass_on(message)
            return death
        except TimeoutError:
            limit_s = self._timing.handshake_s
            return Death(f"was not ready within {limit_s:g} s", stage="start", suspect=True)
        except Exception as error:  # a broken frame, or a message that makes no sense
            log.error("prover_misspoke", prover=self.name, exc_info=error)
            return Death(f"spoke out of turn: {error!r}")

    async def _shake_hands(self, channel: AsyncChannel[wire.FromProver]) -> Death | None:
        greeting = asyncio.ensure_future(self._greeting(channel))
        try:
            await _within(greeting, self._timing.handshake_s)
            ready = greeting.result()
        finally:
            greeting.cancel()
            await asyncio.wait([greeting])
        if isinstance(ready, wire.Ready):
            self._channel = channel
            self.ready = True
            self._listener.prover_ready(self.name, ready)
            return None
        return ready

    async def _greeting(self, channel: AsyncChannel[wire.FromProver]) -> wire.Ready | Death | None:
        """Wait for Ready; what comes before it (log records, grants) is passed on. None: the stream ended."""
        while (message := await channel.receive()) is not None:
            if message.WhichOneof("kind") == "ready":
                return message.ready
            self._channel = channel  # it may need answers already
            if death := self._pass_on(message):
                return death
        return None

    def _pass_on(self, message: wire.FromProver) -> Death | None:
        if message.WhichOneof("kind") == "fatal":
            return _last_words(message.fatal)
        self._listener.prover_said(self.name, message)
        return None


def _last_words(fatal: wire.Fatal) -> Death:
    return Death(
        f"{fatal.error_message} ({fatal.error_code})",
        stage=fatal.stage,
        code=fatal.error_code,
        device=fatal.device,
        suspect=fatal.error_code == DeviceFault.code,
    )


def _exited(status: int, was_ready: bool) -> Death:
    """Without last words. A signal is native code's doing, the driver's perhaps, but SIGKILL is somebody else's."""
    cause = describe_exit(status) + ("" if was_ready else " before it was ready")
    return Death(cause, suspect=status < 0 and -status != signal.SIGKILL)


async def _within(task: asyncio.Future[Any], limit_s: float) -> None:
    """Wait for it. Raises TimeoutError; time for which the loop was away, and could hear nobody, counts as one step."""
    step_s = min(limit_s / 10, LONGEST_STEP_S)
    for _ in range(math.ceil(limit_s / step_s)):
        if (await asyncio.wait([task], timeout=step_s))[0]:
            return
    raise TimeoutError


async def _either(*waits: Awaitable[object]) -> None:
    """Until the first of them; the others are given up."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    _, late = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in late:
        task.cancel()
    await asyncio.wait(tasks)
