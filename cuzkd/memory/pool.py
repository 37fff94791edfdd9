"""PinnedPool: leases of exact size out of a few large slabs.

Problem. Making page-locked memory is slow and the number of locked segments is limited, so it must be made
ahead of the jobs and reused. Reuse is where others went wrong: a cached buffer outside the budget, a pool
that rounds to powers of two, a buffer handed out while somebody still reads it, one client's witness
readable by the next.

Design. Slabs come from an `Upstream`, each paid for by a grant for as long as it exists. A lease is a
page-aligned range (best fit, coalesced on return). Requests are served strictly in order; several ranges
asked together are given together or not at all, so that two half-served requests cannot wait for each
other. When nothing fits, a background thread makes one slab: first of the preferred size if the grant comes
at once, otherwise idle slabs that are too small go back and exactly what is missing is asked for. Memory
that held one owner's data is wiped before another owner gets it; and soon after it came back, when nobody wants
memory for a while (`wiper`). Whoever comes meanwhile waits for one piece at most, and no slab is made instead of it.

Life of a lease. lease -> views and arrays (each keeps the lease's root buffer alive) -> release. Release
takes the views back; if an array, or a slice of a view, is still alive, the range is quarantined until it
dies and `LeaseRevoked` is raised. A range with a living view is thus never leased again, whatever the
caller does.

The pool does not log. `stats()` is what there is to observe.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cuzkd.errors import Cancelled, CuzkdError, Exhausted, LeaseRevoked, NeverFits, Unavailable
from cuzkd.memory.budget import RECHECK_S, Grants, Reserved
from cuzkd.memory.lease import Lease
from cuzkd.memory.pool_stats import PoolStats
from cuzkd.memory.ranges import CLEAN, Arena, Range, carve, carve_dirty, give_back, idle_one
from cuzkd.memory.upstream import Upstream, round_to_pages
from cuzkd.memory.wiper import PIECE_BYTES, Wiper


@dataclass(eq=False)
class _Waiter:
    sizes: Sequence[int]
    urgent: bool
    ranges: list[Range] | None = None
    error: CuzkdError | None = None

    @property
    def answered(self) -> bool:
        return self.ranges is not None or self.error is not None


class PinnedPool:
    """See the module docstring. Thread-safe.

    slab_bytes: preferred size of a slab; 0 means that each is as large as the lease it is made for.
    wipe: overwrite with zeros whatever another owner may have left in a range, before it is handed out; and what
    anybody has left, idle_s after the last lease began or ended.
    """

    def __init__(
        self, upstream: Upstream, grants: Grants, slab_bytes: int = 0, wipe: bool = True, idle_s: float = 1.0
    ) -> None:
        self._upstream = upstream
        self._grants = grants
        self._slab_bytes = slab_bytes
        self._wipe = wipe
        lock = threading.Lock()  # guards everything below; never held during grants, making or wiping
        self._changed = threading.Condition(lock)
        self._work = threading.Condition(lock)  # the grower sleeps here, so that leases alone do not wake it
        self._wiper = Wiper(lock, idle_s, take=self._take_dirty, clean=self._wiped, settled=self._all_clean)
        self._arenas: list[Arena] = []
        self._waiters: deque[_Waiter] = deque()
        self._prewarm: deque[tuple[int, int]] = deque()  # (bytes, how many slabs)
        self._revived: deque[tuple[Range, str]] = deque()  # by finalisers, which run anywhere: no lock there
        self._leased = self._quarantined = self._peak_slab = self._peak_leased = 0
        self._made = self._made_on_job_path = 0
        self._generations = itertools.count(1)
        self._asking = False  # the grower waits for a grant
        self._closed = False
        self._grower: threading.Thread | None = None

    # -- leasing --

    def lease(self, nbytes: int, timeout_s: float | None = None, owner: str = "") -> Lease:
        """One range of exactly nbytes. See lease_all."""
        return self.lease_all([nbytes], timeout_s, owner)[0]

    def lease_all(
        self,
        sizes: Sequence[int],
        timeout_s: float | None = None,
        owner: str = "",
        give_up: Callable[[], bool] = lambda: False,
        urgent: bool = False,
    ) -> list[Lease]:
        """All of the sizes (bytes) or none, first come first served; blocks until there is room.

        owner: whose data will be in them (a circuit digest). give_up is asked now and then while waiting. urgent: it
        stands before all that are not.
        The contents are zeros or what the same owner left. Raises Exhausted when timeout_s is over or
        memory cannot be made, NeverFits when it is more than the grants can ever give, Cancelled on
        give_up, Unavailable once closed.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        waiter = _Waiter(sizes, urgent)
        with self._changed:
            if self._closed:
                raise Unavailable("the memory pool is closed")
            before = sum(other.urgent for other in self._waiters) if urgent else len(self._waiters)
            self._waiters.insert(before, waiter)
        while self._wait(waiter, deadline, give_up):
            # The thread that makes slabs is itself waiting for a grant, perhaps for the very bytes that lie
            # idle here.
            self.trim(sum(sizes))
        if waiter.ranges is None:
            raise waiter.error or Unavailable("the memory pool is closed")
        leases = []
        for size, taken in zip(sizes, waiter.ranges, strict=True):
            fresh = not self._wipe or taken.before in (CLEAN, owner)
            generation = next(self._generations)
            leases.append(
                Lease(self._return, taken, size, owner=owner, generation=generation, wipe=not fresh)
            )
        return leases

    def _wait(self, waiter: _Waiter, deadline: float | None, give_up: Callable[[], bool]) -> bool:
        """Wait for the answer: False. Or True: idle slabs that do not help the waiter should be trimmed
        first.
        """
        with self._changed:
            self._serve()
            while not waiter.answered:
                self._wake_grower()
                left = RECHECK_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    waiter.error = Exhausted(
                        f"no room for a lease of {sum(waiter.sizes)} bytes in time "
                        f"({self._leased} bytes leased, {self._quarantined} quarantined)"
                    )
                elif give_up():
                    waiter.error = Cancelled("cancelled while waiting for memory")
                elif (
                    self._asking and self._waiters[0] is waiter and any(arena.idle for arena in self._arenas)
                ):
                    return True
                else:
                    # Now and then for its caller's change of mind, and for quarantined ranges that came back.
                    self._changed.wait(min(left, RECHECK_S))
                    self._serve()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                self._serve()
            return False

    def _return(self, taken: Range, owner: str, root: weakref.ref[NDArray[np.uint8]]) -> None:
        """A lease ended. Raises LeaseRevoked, and quarantines the range, when a view of it is still alive."""
        with self._changed:
            self._leased -= taken.nbytes
            living = root()
            revoked = living is not None
            if living is None:
                give_back(taken, owner)
            else:
                self._quarantined += taken.nbytes
                weakref.finalize(living, self._revived.append, (taken, owner)).atexit = False
            del living  # the error raised below must not keep it
            self._wiper.stir()
            self._serve()
            if self._wipe and not self._closed:
                self._wiper.wake()
        if revoked:
            raise LeaseRevoked(
                f"a lease of {taken.nbytes} bytes ended while a view of it is alive; "
                "its range is kept out of use until the view is gone"
            )

    def _serve(self) -> None:
        """Answer waiting requests in order while their sizes fit. Lock held."""
        while self._revived:
            taken, owner = self._revived.popleft()
            self._quarantined -= taken.nbytes
            give_back(taken, owner)
        while self._waiters:
            waiter = self._waiters[0]
            ranges, missing = self._try(waiter.sizes)
            if missing:
                break
            waiter.ranges = ranges
            self._leased += sum(taken.nbytes for taken in ranges)
            self._peak_leased = max(self._peak_leased, self._leased)
            self._wiper.stir()
            self._waiters.popleft()
        self._changed.notify_all()

    def _try(self, sizes: Sequence[int]) -> tuple[list[Range], int]:
        """Carve all sizes, or none and say how many bytes are missing. Largest first: it is the hardest to place."""
        order = sorted(range(len(sizes)), key=lambda index: -sizes[index])
        got: dict[int, Range] = {}
        missing = 0
        for index in order:
            taken = carve(self._arenas, sizes[index])
            if taken is None:
                missing += round_to_pages(max(sizes[index], 1))
            else:
                got[index] = taken
        if missing:
            for taken in got.values():
                give_back(taken, taken.before)
            return [], missing
        return [got[index] for index in range(len(sizes))], 0

    # -- making slabs, in the background --

    def prewarm(self, nbytes: int, count: int) -> None:
        """Have `count` slabs of at least nbytes, leased or idle, if grants come at once. Does not block."""
        with self._changed:
            if not self._closed and (nbytes, count) not in self._prewarm:
                self._prewarm.append((nbytes, count))
                self._wake_grower()

    def _next_ahead(self) -> int:
        """The size of a slab that some prewarming still lacks, 0 when none does. Lock held."""
        while self._prewarm:
            nbytes, count = self._prewarm[0]
            if sum(arena.nbytes >= nbytes for arena in self._arenas) < count:
                return nbytes
            self._prewarm.popleft()
        return 0

    def _wake_grower(self) -> None:
        self._work.notify()
        if self._grower is None and not self._closed:
            self._grower = threading.Thread(target=self._grow_forever, name="pool-grower", daemon=True)
            self._grower.start()

    def _grow_forever(self) -> None:
        while True:
            with self._changed:
                # What is being wiped will be back before any slab could be made.
                while not self._closed and (self._wiper.nbytes or not (self._waiters or self._prewarm)):
                    self._work.wait()
                if self._closed:
                    return
                self._serve()
                waiter = self._waiters[0] if self._waiters else None
                missing = self._try(waiter.sizes)[1] if waiter else 0
                ahead = 0 if waiter else self._next_ahead()
            if ahead:
                self._make_ahead(ahead)
            elif waiter is not None and missing:
                try:
                    self._make_for(waiter, missing)
                except Exception as error:  # the waiting request's answer, not this thread's end
                    with self._changed:
                        waiter.error = _told(error)
                        if waiter in self._waiters:
                            self._waiters.remove(waiter)
                        self._serve()

    def _make_ahead(self, nbytes: int) -> None:
        try:
            self._make(self._grants.reserve(round_to_pages(nbytes), "slab", 0), on_job_path=False)
        except Exception:  # not now, so not at all: a lease that needs it asks in earnest, and is told why
            with self._changed:
                if self._prewarm:
                    self._prewarm.popleft()

    def _make_for(self, waiter: _Waiter, missing: int) -> None:
        preferred = round_to_pages(max(self._slab_bytes, missing))
        try:
            return self._make(self._grants.reserve(preferred, "slab", 0), on_job_path=True)
        except (Exhausted, NeverFits):
            # No grant, or no memory: whatever lies idle goes back first, and may have been counted on by
            # the request.
            self.trim(preferred)
        with self._changed:
            self._serve()
            if self._closed or not self._waiters or self._waiters[0] is not waiter:
                return None
            missing = self._try(self._waiters[0].sizes)[1]
            self._asking = True
            self._changed.notify_all()
        try:
            reservation = self._grants.reserve(missing, "slab", None, lambda: self._is_over(waiter))
        except Cancelled:
            return None  # who is first now may want less, or nothing
        finally:
            self._asking = False
        return self._make(reservation, on_job_path=True)

    def _is_over(self, waiter: _Waiter) -> bool:
        """Is another one first by now, or nobody?"""
        with self._changed:
            return not self._waiters or self._waiters[0] is not waiter

    def _make(self, reservation: Reserved, on_job_path: bool) -> None:
        with self._changed:
            # The grant may have taken long: another request, of another size, may be first by now, or none.
            self._serve()
            useful = not self._closed and not on_job_path
            if self._waiters and not self._closed:
                useful = self._try(self._waiters[0].sizes)[1] <= reservation.nbytes
        if not useful:
            reservation.release()
            return
        try:
            slab = self._upstream.make(reservation.nbytes)
        except BaseException:
            reservation.release()
            raise
        with self._changed:
            self._arenas.append(Arena(slab, reservation))
            self._made += 1
            self._made_on_job_path += on_job_path
            self._peak_slab = max(self._peak_slab, sum(arena.nbytes for arena in self._arenas))
            self._serve()

    def trim(self, nbytes: int) -> int:
        """Give idle slabs back to the system until nbytes are freed or none is left; returns bytes freed."""
        freed = 0
        while freed < nbytes:
            with self._changed:
                self._wiper.stir()
                self._changed.wait_for(lambda: not self._wiper.nbytes)
                arena = idle_one(self._arenas, nbytes - freed)
                if arena is None:
                    break
                self._arenas.remove(arena)
            freed += arena.nbytes
            arena.close()
        return freed

    # -- wiping, in the background --

    def _take_dirty(self) -> Range | None:
        """A piece for the wiper. Lock held."""
        self._serve()  # perhaps something has left quarantine
        return None if self._waiters else carve_dirty(self._arenas, PIECE_BYTES)

    def _wiped(self, piece: Range) -> None:
        """Lock held."""
        give_back(piece, CLEAN)
        self._work.notify()
        self._serve()

    def _all_clean(self) -> bool:
        """Nothing is dirty, nor may come back so without a word. Lock held."""
        return not self._quarantined and not any(arena.dirt for arena in self._arenas)

    def close(self) -> None:
        """End the pool: waiting requests get Unavailable. Raises LeaseRevoked when leases are still out."""
        with self._changed:
            self._closed = True
            while self._waiters:
                self._waiters.popleft().error = Unavailable("the memory pool is closed")
            self._prewarm.clear()
            self._work.notify()
            self._serve()
        self._wiper.close()
        self.trim(1 << 63)
        if self._grower is not None:
            self._grower.join(timeout=1)  # it may wait for a grant of bytes that others hold
        self.trim(1 << 63)
        if self._arenas:
            raise LeaseRevoked(
                f"the pool was closed with {self._leased + self._quarantined} bytes still in use"
            )

    def stats(self) -> PoolStats:
        with self._changed:
            self._serve()
            slab_bytes = sum(arena.nbytes for arena in self._arenas)
            return PoolStats(
                slab_bytes=slab_bytes,
                leased_bytes=self._leased,
                free_bytes=slab_bytes - self._leased - self._quarantined,
                quarantined_bytes=self._quarantined,
                dirty_bytes=self._wiper.nbytes + sum(arena.dirty_bytes for arena in self._arenas),
                slabs=len(self._arenas),
                slabs_made=self._made,
                slabs_made_on_job_path=self._made_on_job_path,
                peak_slab_bytes=self._peak_slab,
                peak_leased_bytes=self._peak_leased,
                waiting=len(self._waiters),
                prewarming=len(self._prewarm),
            )


def _told(error: Exception) -> CuzkdError:
    """What a waiting request is told of what went wrong with a slab for it."""
    if isinstance(error, MemoryError):
        return Exhausted(f"no memory for a slab: {error}")
    return error if isinstance(error, CuzkdError) else CuzkdError(repr(error))
