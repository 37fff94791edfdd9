"""Whose inputs are calculated next.

Problem. Calculators are programs of the circuits' authors: one that loops, or is merely slow, must not keep the inputs
of all other circuits waiting, however many of its own there are. Design. A circuit never has all processes but one
(where there are two or more), so that another one finds a free one; and turns go round the circuits that wait. Of one
circuit's, who came first is first. With one process there is nothing to hold back, and the round is what is left.

Life of a turn: asked for -> (waiting ->) taken -> given back; who stops waiting has none.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque


class Turns:
    """Owned by one event loop. n: turns at once. share: of them, those of one circuit."""

    def __init__(self, n: int) -> None:
        self.share = max(1, n - 1)
        self._free = n
        self._taken: Counter[str] = Counter()
        # By circuit, whose turn comes first in front; never an empty queue.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def is_free(self, circuit: str) -> bool:
        """Whether `take` would not wait."""
        return self._free > 0 and self._taken[circuit] < self.share

    def waiting(self, circuit: str) -> int:
        return len(self._waiting.get(circuit, ()))

    async def take(self, circuit: str) -> None:
        """Wait for a turn; it must be given back. Cancelled, there is none."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(circuit, deque()).append(turn)
        self._hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(circuit, turn)
            else:  # it came at the same moment
                self.give_back(circuit)
            raise

    def give_back(self, circuit: str) -> None:
        self._free += 1
        self._taken[circuit] -= 1
        if not self._taken[circuit]:
            del self._taken[circuit]
        self._hand_out()

    def _hand_out(self) -> None:
        while (circuit := next(filter(self.is_free, self._waiting), None)) is not None:
            queue = self._waiting.pop(circuit)
            turn = queue.popleft()
            if not turn.cancelled():  # else who waited is about to leave
                self._free -= 1
                self._taken[circuit] += 1
                turn.set_result(None)
            if queue:
                self._waiting[circuit] = queue  # behind all others

    def _leave(self, circuit: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(circuit, deque())
        if turn in queue:
            queue.remove(turn)
        if not queue:
            self._waiting.pop(circuit, None)
