"""The prover's side of the host budget: grants asked for over the channel.

The front owns the one Budget of the machine. Here a reservation is a promise that it made: asked for with a
request id, answered by the channel's reader, given back with a message. When this process dies the front
takes everything back by itself, so nothing has to be returned on the way out. A request that is given up is withdrawn:
the same id again, with 0 bytes. If its grant is on the way all the same, it goes straight back.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable

from cuzkd.engine.faults import NoFaults
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import Cancelled, CuzkdError, Exhausted, Unavailable, from_code
from cuzkd.memory.budget import RECHECK_S
from cuzkd.memory.upstream import Slab, Upstream

Send = Callable[[wire.FromProver], None]


class RemoteReservation:
    """Bytes of the front's budget. The same contract as memory.budget.Reservation."""

    def __init__(self, send: Send, nbytes: int, what: str) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._nbytes = nbytes
        self.what = what

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def shrink(self, to: int) -> None:
        with self._lock:
            if to < 0 or to > self._nbytes:
                raise ValueError(f"{self.what}: cannot shrink {self._nbytes} bytes to {to}")
            returned, self._nbytes = self._nbytes - to, to
        if returned:
            self._send(wire.FromProver(grant_return=wire.GrantReturn(bytes=returned, what=self.what)))

    def release(self) -> None:
        self.shrink(0)


class _Request:
    def __init__(self, nbytes: int, what: str) -> None:
        self.nbytes = nbytes
        self.what = what
        self.answered = threading.Event()
        self.error: CuzkdError | None = None


class RemoteGrants:
    """memory.budget.Grants over the channel. Thread-safe; `answer` is called by the reader and never blocks
    for long.
    """

    def __init__(self, send: Send, faults: NoFaults | None = None) -> None:
        self._send = send
        self._faults = faults or NoFaults()
        self._lock = threading.Lock()  # over the table; never held while sending
        self._ids = itertools.count(1)
        self._open: dict[int, _Request] = {}
        self._closed = False

    def reserve(
        self,
        nbytes: int,
        what: str,
        timeout_s: float | None = None,
        give_up: Callable[[], bool] | None = None,
    ) -> RemoteReservation:
        """Block until the front grants. timeout_s = 0: it answers at once, Exhausted instead of a place in
        its queue. give_up is asked now and then while waiting.

        Raises NeverFits when it is more than the whole budget, Unavailable once the channel is closed.
        Other timeouts give up waiting with Exhausted, and give_up with Cancelled.
        """
        self._faults.at("grant")
        request = _Request(nbytes, what)
        now = timeout_s == 0
        with self._lock:
            if self._closed:
                raise Unavailable("the prover is shutting down")
            number = next(self._ids)
            self._open[number] = request
        self._send(
            wire.FromProver(
                grant_request=wire.GrantRequest(request_id=number, bytes=nbytes, what=what, now=now)
            )
        )
        why = self._wait(request, None if now else timeout_s, give_up)
        if why is not None:
            with self._lock:
                withdrawn = self._open.pop(number, None) is not None
            if withdrawn:
                self._send(wire.FromProver(grant_request=wire.GrantRequest(request_id=number, what=what)))
                raise why
            request.answered.wait()  # it comes at this very moment
        if request.error is not None:
            raise request.error
        return RemoteReservation(self._send, nbytes, what)

    def _wait(
        self, request: _Request, timeout_s: float | None, give_up: Callable[[], bool] | None
    ) -> CuzkdError | None:
        """None: answered. Else why it is not waited for any longer."""
        began_s = time.monotonic()
        while True:
            left = math.inf if timeout_s is None else began_s + timeout_s - time.monotonic()
            if request.answered.wait(None if left == math.inf and give_up is None else min(left, RECHECK_S)):
                return None
            if give_up is not None and give_up():
                return Cancelled(f"{request.what} of {request.nbytes} bytes is not wanted any more")
            if left <= RECHECK_S:
                return Exhausted(
                    f"{request.what} needs {request.nbytes} bytes: no grant within {timeout_s} s"
                )

    def answer(self, grant: wire.Grant) -> None:
        """A Grant arrived. One that nobody waits for any more goes straight back."""
        with self._lock:
            request = self._open.pop(grant.request_id, None)
        if request is not None:
            if grant.error_code:
                request.error = from_code(grant.error_code, grant.error_message)
            request.answered.set()
        elif not grant.error_code:
            self._send(wire.FromProver(grant_return=wire.GrantReturn(bytes=grant.bytes, what="late")))

    def close(self) -> None:
        """Everybody who waits gets Unavailable."""
        with self._lock:
            self._closed = True
            requests, self._open = list(self._open.values()), {}
        for request in requests:
            request.error = Unavailable("the prover is shutting down")
            request.answered.set()


class Slabs:
    """An upstream with a point where faults are planned."""

    def __init__(self, upstream: Upstream, faults: NoFaults) -> None:
        self.name = upstream.name
        self._upstream = upstream
        self._faults = faults

    def make(self, nbytes: int) -> Slab:
        self._faults.at("slab")
        return self._upstream.make(nbytes)
