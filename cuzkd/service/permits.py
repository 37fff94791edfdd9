"""Byte permits: a bound on the memory that requests take before anybody has looked at them.

Problem: gRPC reads a whole message into memory before a handler runs; a few clients with 256 MiB each are
enough to take what proofs need.
Design: RPCs that may be large take a permit for the largest message before the message is read, and give it
back as soon as the handler has put the payload on disk. First come, first served. Small RPCs need none.
Life of data: a permit is held from before the first byte until the payload is spooled, never while a job
runs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar


class BytePermits:
    """limit_bytes: how much may be out at once. One event loop only."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    @asynccontextmanager
    async def take(self, n_bytes: int) -> AsyncIterator[Permit]:
        """Wait for n_bytes (at most the limit), hold them for the block or until Permit.release()."""
        n_bytes = min(n_bytes, self.limit_bytes)
        if self._waiting or self.used_bytes + n_bytes > self.limit_bytes:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            entry = (turn, n_bytes)
            self._waiting.append(entry)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._give(n_bytes)  # it was granted in the same moment
                else:
                    if entry in self._waiting:
                        self._waiting.remove(entry)
                    self._serve()
                raise
        else:
            self.used_bytes += n_bytes
        permit = Permit(self, n_bytes)
        try:
            yield permit
        finally:
            permit.release()

    def _give(self, n_bytes: int) -> None:
        self.used_bytes -= n_bytes
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self.used_bytes + self._waiting[0][1] <= self.limit_bytes:
            turn, n_bytes = self._waiting.popleft()
            if not turn.done():
                self.used_bytes += n_bytes
                turn.set_result(None)


class Permit:
    """A held permit."""

    def __init__(self, owner: BytePermits, n_bytes: int) -> None:
        self._owner = owner
        self.n_bytes = n_bytes

    def release(self) -> None:
        """Give it back early. Idempotent."""
        n_bytes, self.n_bytes = self.n_bytes, 0
        if n_bytes:
            self._owner._give(n_bytes)


_current: ContextVar[Permit | None] = ContextVar("permit", default=None)


def hold(permit: Permit) -> None:
    """Make it the permit of this call, for release_current()."""
    _current.set(permit)


def release_current() -> None:
    """Called by handlers once the payload is out of memory. Nothing happens where no permit was needed."""
    if (permit := _current.get()) is not None:
        permit.release()
