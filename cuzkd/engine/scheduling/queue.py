"""Partitions that wait for a prover: bounded, by priority, inside one priority in the order of arrival.

Problem. A queue without a bound turns overload into a crash an hour later; one that drops work loses jobs; and
one that must be read through, to find more work for a key that is loaded or to tell a client how long it will
take, makes a full daemon slow.
Design. `push` refuses what would not fit, all of a job or nothing. A partition that comes back from a prover
(`put_back`) was admitted before and is never refused; its old place in the order is its place again. Each line is
kept twice, whole and by key, so that no question costs more than the circuits that wait.
Life of a ticket. push -> candidates -> remove (offered, or its job ended) -> maybe put_back.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from cuzkd.engine.job import Priority, Ticket
from cuzkd.errors import Exhausted, NeverFits

GROUPED = (Priority.NORMAL, Priority.LOW)  # what a prover may take out of turn, to go on with its key


def place(ticket: Ticket) -> tuple[int, int]:
    """The order of all partitions: the best is the smallest."""
    return -ticket.priority, ticket.sequence


def _sequence(ticket: Ticket) -> int:
    return ticket.sequence


class _Line:
    """The tickets of one priority, by sequence."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []
        self.of_key: dict[tuple[str, str], list[Ticket]] = {}  # by circuit and digest; none is empty

    def put(self, ticket: Ticket) -> None:
        of_key = self.of_key.setdefault((ticket.circuit, ticket.circuit_digest), [])
        for line in (self.tickets, of_key):
            bisect.insort(line, ticket, key=_sequence)

    def remove(self, ticket: Ticket) -> bool:
        if not _take(self.tickets, ticket):
            return False
        key = ticket.circuit, ticket.circuit_digest
        _take(self.of_key[key], ticket)
        if not self.of_key[key]:
            del self.of_key[key]
        return True


def _take(line: list[Ticket], ticket: Ticket) -> bool:
    at = bisect.bisect_left(line, ticket.sequence, key=_sequence)
    if at == len(line) or line[at].sequence != ticket.sequence:
        return False
    del line[at]
    return True


def _first(tickets: Iterable[Ticket], count: int) -> Iterator[Ticket]:
    """The first `count` on their first attempt, and the suspects among them."""
    for ticket in tickets:
        if ticket.attempt == 1:
            if not count:
                return
            count -= 1
        yield ticket


class PartitionQueue:
    """Owned by the engine's loop. Sequences are unique."""

    def __init__(self, max_partitions: int) -> None:
        self.max_partitions = max_partitions
        self._lines = {priority: _Line() for priority in sorted(Priority, reverse=True)}

    def __len__(self) -> int:
        return sum(len(line.tickets) for line in self._lines.values())

    def __iter__(self) -> Iterator[Ticket]:
        """Best first."""
        return itertools.chain.from_iterable(line.tickets for line in self._lines.values())

    def push(self, tickets: Sequence[Ticket]) -> None:
        """All of them, or none. Raises as require_room does."""
        self.require_room(len(tickets))
        self.put_back(tickets)

    def require_room(self, count: int, arriving: int = 0) -> None:
        """Raises Exhausted when `count` more would be too many beside those that wait or arrive, NeverFits when they
        are too many for an empty queue.
        """
        if count > self.max_partitions:
            raise NeverFits(
                f"queue: {count} partitions in one job, at most {self.max_partitions} may wait in all"
            )
        waiting = len(self) + arriving
        if waiting + count > self.max_partitions:
            raise Exhausted(
                f"queue: {waiting} of at most {self.max_partitions} partitions wait, "
                f"{count} more do not fit; try again later"
            )

    def put_back(self, tickets: Iterable[Ticket]) -> None:
        """Each to the place that its sequence names."""
        for ticket in tickets:
            self._lines[ticket.priority].put(ticket)

    def candidates(self, circuits: Collection[str], count: int) -> list[Ticket]:
        """What `scheduler.decide` needs to see, best first, without taking it: the best `count`; and of each of these
        circuits, and of those of the best, the best `count` of every priority that is grouped.

        Suspects (attempt > 1) do not count: they may have to wait while others behind them need not.
        """
        best = list(_first(self, count))
        wanted = {ticket.circuit for ticket in best}.union(circuits)
        found = {ticket.sequence: ticket for ticket in best}
        for priority in GROUPED:
            for (circuit, _), tickets in self._lines[priority].of_key.items():
                if circuit in wanted:
                    found.update((ticket.sequence, ticket) for ticket in _first(tickets, count))
        return sorted(found.values(), key=place)

    def remove(self, ticket: Ticket) -> bool:
        """Take one out. False: it does not wait here."""
        return self._lines[ticket.priority].remove(ticket)

    def position(self, ticket: Ticket) -> int:
        """How many go before it (or would, if it waited)."""
        ahead = sum(len(line.tickets) for priority, line in self._lines.items() if priority > ticket.priority)
        line = self._lines[ticket.priority].tickets
        return ahead + bisect.bisect_left(line, ticket.sequence, key=_sequence)

    def ahead(self, priority: Priority, sequence: float = math.inf) -> Mapping[str, int]:
        """How many partitions of each circuit, by its digest, go before one of this place; by default before one
        that comes now.
        """
        counts: defaultdict[str, int] = defaultdict(int)
        for other, line in self._lines.items():
            for (_, digest), tickets in line.of_key.items():
                if other > priority:
                    counts[digest] += len(tickets)
                elif other == priority:
                    counts[digest] += bisect.bisect_left(tickets, sequence, key=_sequence)
        return {digest: count for digest, count in counts.items() if count}

    def depths(self) -> Mapping[Priority, int]:
        return {priority: len(line.tickets) for priority, line in self._lines.items()}
