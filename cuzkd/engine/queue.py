"""Partitions that wait for a prover: bounded, by priority, inside one priority in the order of arrival.

Problem. A queue without a bound turns overload into a crash an hour later; one that drops work loses jobs.
Design. `push` refuses what would not fit, all of a job or nothing. A partition that comes back from a prover
(`put_back`) was admitted before and is never refused; its old place in the order is its place again.
Life of a ticket. push -> best -> remove (offered, or its job ended) -> maybe put_back.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cuzkd.engine.job import Priority, Ticket
from cuzkd.errors import Exhausted


def _place(ticket: Ticket) -> int:
    return ticket.sequence


class PartitionQueue:
    """Owned by the engine's loop. Sequences are unique."""

    def __init__(self, max_partitions: int) -> None:
        self.max_partitions = max_partitions
        self._lines: dict[Priority, list[Ticket]] = {p: [] for p in sorted(Priority, reverse=True)}

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def __iter__(self) -> Iterator[Ticket]:
        """Best first."""
        return itertools.chain.from_iterable(self._lines.values())

    def push(self, tickets: Sequence[Ticket]) -> None:
        """All of them, or Exhausted and none."""
        self.require_room(len(tickets))
        self.put_back(tickets)

    def require_room(self, count: int) -> None:
        """Raises Exhausted when `count` more would be too many."""
        waiting = len(self)
        if waiting + count > self.max_partitions:
            raise Exhausted(
                f"queue: {waiting} of at most {self.max_partitions} partitions wait, "
                f"{count} more do not fit; try again later"
            )

    def put_back(self, tickets: Iterable[Ticket]) -> None:
        """Each to the place that its sequence names."""
        for ticket in tickets:
            bisect.insort(self._lines[ticket.priority], ticket, key=_place)

    def best(self, count: int) -> list[Ticket]:
        """The first `count`, without taking them."""
        return list(itertools.islice(self, count))

    def remove(self, ticket: Ticket) -> bool:
        """Take one out. False: it does not wait here."""
        line = self._lines[ticket.priority]
        at = bisect.bisect_left(line, ticket.sequence, key=_place)
        if at == len(line) or line[at].sequence != ticket.sequence:
            return False
        del line[at]
        return True

    def position(self, ticket: Ticket) -> int:
        """How many go before it (or would, if it waited)."""
        ahead = sum(len(line) for priority, line in self._lines.items() if priority > ticket.priority)
        return ahead + bisect.bisect_left(self._lines[ticket.priority], ticket.sequence, key=_place)

    def depths(self) -> Mapping[Priority, int]:
        return {priority: len(line) for priority, line in self._lines.items()}
