"""One number of bytes, shared by everything that holds memory.

Problem. Pools, keys and working sets each look harmless alone; together they take more than the machine
has. A counter that several parties subtract from is not enough either: a request that can never fit must be
told apart from one that has to wait, a large request must not starve behind a stream of small ones, and a
wake-up must never be lost.

Design. A `Budget` grants strictly in order of arrival: the head of the queue waits until it fits, and
nobody overtakes it. `request` never blocks and calls back (from whichever thread frees the bytes, outside
the lock), so the asyncio front and blocking threads share one queue; `reserve` is `request` and a wait.

Life of a reservation. Requested before the memory exists, it travels with that memory, shrinks as soon as
less is needed, and is released once the bytes are really back with the operating system. Release is
idempotent.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from cuzkd.errors import Cancelled, Exhausted, NeverFits

RECHECK_S = 0.25  # whoever waits asks so often whether it is still wanted


class Reserved(Protocol):
    """Bytes held from some budget, near or remote."""

    @property
    def nbytes(self) -> int: ...

    def shrink(self, to: int) -> None: ...

    def release(self) -> None: ...


class Grants(Protocol):
    """Where a pool asks before it makes memory: a Budget, or the prover's side of a remote one."""

    def reserve(
        self,
        nbytes: int,
        what: str,
        timeout_s: float | None = None,
        give_up: Callable[[], bool] | None = None,
    ) -> Reserved:
        """Block until granted; timeout_s = 0 means now or `Exhausted`. `NeverFits` when it is more than
        there is. give_up is asked now and then while waiting: `Cancelled`.
        """


class Reservation:
    """Bytes held from a Budget. Made by `Budget.request` and `Budget.reserve` alone."""

    def __init__(self, budget: Budget, nbytes: int, what: str) -> None:
        self._budget = budget
        self._nbytes = nbytes
        self.what = what

    @property
    def nbytes(self) -> int:
        """Bytes still held; 0 after release."""
        return self._nbytes

    def shrink(self, to: int) -> None:
        """Keep `to` bytes and give the rest back. Growing is another reservation."""
        self._budget._give_back(self, to)

    def release(self) -> None:
        """Give everything back. Calling it again changes nothing."""
        self._budget._give_back(self, 0)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.release()


class Ticket:
    """A place in a Budget's queue."""

    def __init__(
        self, budget: Budget, nbytes: int, what: str, granted: Callable[[Reservation], None]
    ) -> None:
        self._budget = budget
        self.nbytes = nbytes
        self.what = what
        self._granted = granted

    def cancel(self) -> bool:
        """Leave the queue. False: too late, the callback has been or is being called with the reservation."""
        return self._budget._leave(self)


class Budget:
    """`limit_bytes` to hand out, first come first served. Thread-safe."""

    def __init__(self, limit_bytes: int, name: str = "host") -> None:
        self.limit_bytes = limit_bytes
        self.name = name
        self._lock = threading.Lock()  # never held while a callback runs
        self._used = 0
        self._peak = 0
        self._queue: deque[Ticket] = deque()

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def peak_bytes(self) -> int:
        return self._peak

    @property
    def waiting(self) -> int:
        """Requests in the queue. Their sum does not tell how much more memory would serve them: the head
        decides.
        """
        return len(self._queue)

    def request(self, nbytes: int, what: str, granted: Callable[[Reservation], None]) -> Ticket:
        """Queue for nbytes; `granted(reservation)` is called once, maybe before this returns, on any thread.

        Raises NeverFits when nbytes is more than the whole budget.
        """
        if nbytes < 0:
            raise ValueError(f"{what}: {nbytes} bytes asked of the {self.name} budget")
        if nbytes > self.limit_bytes:
            raise NeverFits(
                f"{what} needs {nbytes} bytes, the whole {self.name} budget is {self.limit_bytes} bytes"
            )
        ticket = Ticket(self, nbytes, what, granted)
        with self._lock:
            self._queue.append(ticket)
            served = self._serve()
        _call(served)
        return ticket

    def reserve(
        self,
        nbytes: int,
        what: str,
        timeout_s: float | None = None,
        give_up: Callable[[], bool] | None = None,
    ) -> Reservation:
        """Block until nbytes are ours. timeout_s = 0: now or never. give_up is asked now and then while waiting.

        Raises NeverFits at once when nbytes is more than the whole budget, Exhausted when the time is up, Cancelled on
        give_up.
        """
        got: list[Reservation] = []
        arrived = threading.Event()

        def granted(reservation: Reservation) -> None:
            got.append(reservation)
            arrived.set()

        ticket = self.request(nbytes, what, granted)
        until = None if timeout_s is None else time.monotonic() + timeout_s
        given_up = False
        while not given_up and (until is None or time.monotonic() < until) and not arrived.is_set():
            left = RECHECK_S if until is None else until - time.monotonic()
            arrived.wait(min(left, RECHECK_S))
            given_up = give_up is not None and give_up()
        if not arrived.is_set():
            if ticket.cancel():
                if given_up:
                    raise Cancelled(f"{what} of {nbytes} bytes is not wanted any more")
                raise Exhausted(
                    f"{what} needs {nbytes} bytes; {self.limit_bytes - self._used} of {self.limit_bytes} "
                    f"bytes of the {self.name} budget are free and {len(self._queue)} other requests wait"
                )
            arrived.wait()
        return got[0]

    def _serve(self) -> list[tuple[Ticket, Reservation]]:
        served = []
        while self._queue and self._used + self._queue[0].nbytes <= self.limit_bytes:
            ticket = self._queue.popleft()
            self._used += ticket.nbytes
            self._peak = max(self._peak, self._used)
            served.append((ticket, Reservation(self, ticket.nbytes, ticket.what)))
        return served

    def _give_back(self, reservation: Reservation, keep: int) -> None:
        with self._lock:
            if keep < 0 or keep > reservation._nbytes:
                raise ValueError(f"{reservation.what}: cannot shrink {reservation._nbytes} bytes to {keep}")
            self._used -= reservation._nbytes - keep
            reservation._nbytes = keep
            served = self._serve()
        _call(served)

    def _leave(self, ticket: Ticket) -> bool:
        with self._lock:
            try:
                self._queue.remove(ticket)
            except ValueError:
                return False
            served = self._serve()  # the one that left may have been what the others waited behind
        _call(served)
        return True


def _call(served: list[tuple[Ticket, Reservation]]) -> None:
    for ticket, reservation in served:
        ticket._granted(reservation)
