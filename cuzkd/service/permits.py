"""Permits: a bound on the memory that requests take before anybody has looked at them.

Problem: gRPC reads a whole message into memory before a handler runs, and does not say beforehand how large it is; a
few clients with 256 MiB each are enough to take what proofs need. And whoever holds a permit and sends nothing holds
up everybody else.
Design: RPCs that may be large take a permit for the largest message before the message is read. Once it is here, its
size is known: it keeps so much, and its place goes to the next one; the rest is given back as soon as the handler has
put the payload on disk. One permit is covered by what the budget leaves to this process;
every further one is a reservation of the host budget, there at once or not at all: a permit never waits in the
budget's line, where it would hold up the provers that must finish for memory to come back. First come, first served,
but nobody has more than half of all permits. A permit that others wait for is held for a slow sender a short while
only.
Life of data: a permit is held from before the first byte until the payload is on disk, never while a job runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cuzkd.errors import Unavailable

Message = TypeVar("Message")


class Reserved(Protocol):
    """Bytes of the host budget."""

    def shrink(self, to: int) -> None: ...

    def release(self) -> None: ...


class _Nothing:
    def shrink(self, to: int) -> None:
        pass

    def release(self) -> None:
        pass


NOTHING = _Nothing()
Reserve = Callable[[int], Reserved | None]  # so many bytes now, or None


@dataclass(frozen=True)
class Patience:
    """Seconds that a sender may take for a message: while nobody else waits for its permit, and from when one does."""

    alone_s: float = 120.0
    wanted_s: float = 20.0


PATIENCE = Patience()


class Permits:
    """Of permit_bytes each, limit_bytes at once (at least one), and as much again for messages that are here. One event
    loop only.
    """

    def __init__(
        self,
        permit_bytes: int,
        limit_bytes: int,
        reserve: Reserve = lambda nbytes: NOTHING,
        patience: Patience = PATIENCE,
    ) -> None:
        self.permit_bytes = permit_bytes
        self.most = max(limit_bytes // permit_bytes, 1)
        self.share = max(self.most // 2, 1)
        self.patience = patience
        self._reserve = reserve
        self._limit_bytes = limit_bytes
        self._reading: list[Permit] = []
        self._here_bytes = 0  # of messages that have arrived
        self._by_peer: Counter[str] = Counter()
        self._waiting: deque[tuple[asyncio.Future[Permit], str]] = deque()

    @property
    def used_bytes(self) -> int:
        return len(self._reading) * self.permit_bytes + self._here_bytes

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @contextlib.asynccontextmanager
    async def take(self, peer: str = "") -> AsyncIterator[Permit]:
        """Wait for a permit, hold it for the block or until Permit.release(). peer: who has no more than half of them;
        "" for those who are not told apart.
        """
        turn: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, peer))
        self._serve()
        try:
            permit = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                turn.result().release()  # it was granted in the same moment
            else:
                self._forget(turn, peer)
                self._serve()
            raise
        try:
            yield permit
        finally:
            permit.release()

    def _serve(self) -> None:
        """Whoever can have a permit now gets it; who cannot makes the holders hurry."""
        for turn, peer in list(self._waiting):
            if turn.done():  # cancelled: its task has not come by yet
                self._forget(turn, peer)
                continue
            if len(self._reading) == self.most:
                break
            if peer and self._by_peer[peer] >= self.share:
                continue  # others may go before it
            reserved = self._reserve(self.permit_bytes) if self._reading else NOTHING
            if reserved is None:
                break
            self._waiting.remove((turn, peer))
            permit = Permit(self, peer, reserved)
            self._reading.append(permit)
            self._by_peer[peer] += 1
            turn.set_result(permit)
        if self._waiting:
            for permit in self._reading:
                permit.hurry()

    def _forget(self, turn: asyncio.Future[Permit], peer: str) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove((turn, peer))

    # -- for Permit alone --

    def arrived(self, permit: Permit, reserved: Reserved, nbytes: int) -> Reserved | None:
        """A message is here: what is reserved for it from now on, or None where there is no room for it beside the
        places of those that are read.
        """
        if self._here_bytes + nbytes > self._limit_bytes:
            return None
        if reserved is NOTHING:
            kept = self._reserve(nbytes)
            if kept is None:
                return None
            reserved = kept
        else:
            reserved.shrink(nbytes)
        self._here_bytes += nbytes
        self._leave(permit)
        return reserved

    def gone(self, permit: Permit, reserved: Reserved, nbytes: int | None) -> None:
        """nbytes: of its message, if that had arrived and made its place free."""
        reserved.release()
        if nbytes is None:
            self._leave(permit)
        else:
            self._here_bytes -= nbytes
            self._serve()

    def _leave(self, permit: Permit) -> None:
        self._reading.remove(permit)
        self._by_peer -= Counter([permit.peer])  # forgets peers that have none
        self._serve()


class Permit:
    """A held permit."""

    def __init__(self, owner: Permits, peer: str, reserved: Reserved) -> None:
        self.peer = peer
        self._owner = owner
        self._reserved: Reserved | None = reserved
        self._here_bytes: int | None = None  # of its message, once it needs no place any more
        self._reading: asyncio.Timeout | None = None
        self._wanted = False

    async def reading(self, message: Awaitable[Message]) -> Message:
        """The message. Raises Unavailable when it does not arrive while there is patience."""
        patience = self._owner.patience
        try:
            async with asyncio.timeout(patience.alone_s) as self._reading:
                if self._owner.waiting:
                    self.hurry()
                return await message
        except TimeoutError:
            raise Unavailable(
                f"the request was sent too slowly while others waited: {patience.wanted_s:g} s and it was not here"
                if self._wanted
                else f"the request did not arrive within {patience.alone_s:g} s"
            ) from None
        finally:
            self._reading = None

    def hurry(self) -> None:
        """Others wait for it. Counts from the first time."""
        if self._reading is None or self._wanted:
            return
        self._wanted = True
        end_s = asyncio.get_running_loop().time() + self._owner.patience.wanted_s
        self._reading.reschedule(min(end_s, self._reading.when() or end_s))

    def arrived(self, nbytes: int) -> None:
        """The message is here, and so large: the next one may be read. Called once."""
        nbytes = min(nbytes, self._owner.permit_bytes)  # what surrounds a message is not counted
        if self._reserved is not None:
            kept = self._owner.arrived(self, self._reserved, nbytes)
            if kept is not None:
                self._reserved, self._here_bytes = kept, nbytes

    def release(self) -> None:
        """Give it back early. Idempotent."""
        reserved, self._reserved = self._reserved, None
        if reserved is not None:
            self._owner.gone(self, reserved, self._here_bytes)


_current: ContextVar[Permit | None] = ContextVar("permit", default=None)


def hold(permit: Permit) -> None:
    """Make it the permit of this call, for release_current()."""
    _current.set(permit)


def release_current() -> None:
    """Called by handlers once the payload is out of memory. Nothing happens where no permit was needed."""
    if (permit := _current.get()) is not None:
        permit.release()
