"""One partition inside a prover process, and the lines in which partitions wait.

A `Partition` owns everything that its proof holds: the key's use, its leases, its place among the ready
ones, the device. Each is given back by an idempotent method, so that every way out (done, failed,
cancelled, a bug in a stage) frees each of them exactly once.

Life: offered -> line of those to synthesise -> [slot, key, leases] -> line of the ready ones -> [device] ->
finalised.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cuzkd.backend.protocol import U64, Run, Span, Upload, seconds_by_phase
from cuzkd.engine.prover.device import DeviceHold
from cuzkd.engine.prover.occupancy import Work
from cuzkd.engine.prover.residency import ResidentKey
from cuzkd.errors import Cancelled
from cuzkd.memory.lease import Lease

URGENT = 4  # of a partition's priority, engine.job.Priority.CRITICAL: from here on it has ways of its own


@dataclass
class Vectors:
    """Host vectors of one proof, in leased memory. a, b, c: Montgomery [rows, 4]; z: CANONICAL [n_wires,
    4]. None is what nobody asked for.
    """

    z: U64
    a: U64 | None
    b: U64 | None
    c: U64 | None


@dataclass(eq=False)
class Partition:
    """What was offered, how far it is, and what it holds. Used by one thread at a time, but for `cancel`.

    alone: it is not launched together with others, because that went wrong. launch_set: how many were, itself included.
    """

    id: str
    circuit: str
    digest: str
    spool_path: str
    priority: int
    sequence: int
    attempt: int = 1

    stage: str = "queued"
    alone: bool = False
    launch_set: int = 1
    attempts_inside: int = 0
    spans: list[Span] = field(default_factory=list)
    publics: list[int] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    ready_at: float = 0.0  # when it became ready, on the monotonic clock
    mutex_wait_s: float = 0.0
    freed_s: float = 0.0  # spent on giving memory back

    resident: ResidentKey | None = None
    leases: list[Lease] = field(default_factory=list)
    vectors: Vectors | None = None
    upload: Upload | None = None
    run: Run | None = None
    device: DeviceHold | None = None
    work: Work | None = None  # the device's, whenever it was computed
    h2d_bytes: int = 0
    give_back: dict[str, Callable[[], None]] = field(default_factory=dict)

    @property
    def urgent(self) -> bool:
        return self.priority >= URGENT

    def cancel(self) -> None:
        """Its owner wants no proof any more. From any thread; who waits or computes for it soon raises Cancelled."""
        self.cancelled.set()
        run = self.run
        if run is not None:
            run.cancel()

    def launched(self, run: Run) -> None:
        """It is on the device, or about to be computed."""
        self.run = run
        if self.cancelled.is_set():  # by somebody who may not have seen the run
            run.cancel()

    def check(self) -> None:
        """Raise Cancelled if it was. Called at every boundary between stages."""
        if self.cancelled.is_set():
            raise Cancelled("cancelled at its owner's wish")

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """A block of the calling thread is work on a phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(phase, began)

    def add(self, phase: str, began: float) -> None:
        """So is what the calling thread did from `began` (monotonic) until now."""
        seconds = time.monotonic() - began
        self.spans.append(Span(phase, threading.current_thread().name, began, seconds))

    @property
    def phases(self) -> dict[str, float]:
        """Seconds by phase."""
        return seconds_by_phase(self.spans)

    @property
    def key(self) -> ResidentKey:
        """The key it uses; only while it does."""
        if self.resident is None:
            raise RuntimeError(f"partition {self.id} uses no key in stage {self.stage}")
        return self.resident

    @property
    def made(self) -> Vectors:
        """The vectors; only while it has them."""
        if self.vectors is None:
            raise RuntimeError(f"partition {self.id} has no vectors in stage {self.stage}")
        return self.vectors

    def hold(self, name: str, give_back: Callable[[], None]) -> None:
        """Remember how to give something back that this partition now holds."""
        self.give_back[name] = give_back

    def free(self, name: str) -> None:
        """Give it back if it is held."""
        give_back = self.give_back.pop(name, None)
        if give_back is not None:
            give_back()

    def drop_vectors(self) -> None:
        """Forget the vectors and end their leases. Raises LeaseRevoked when somebody still looks at one."""
        began = time.monotonic()
        self.vectors = None
        leases, self.leases = self.leases, []
        error: Exception | None = None
        for lease in leases:
            try:
                lease.release()
            except Exception as caught:  # the other leases must end all the same
                error = caught
        self.freed_s += time.monotonic() - began
        if error is not None:
            raise error

    def release(self) -> None:
        """Give everything back, whatever is held. Raises the error of a lease that could not end, after all
        else.
        """
        self.upload = self.run = self.resident = self.device = None
        try:
            self.drop_vectors()
        finally:
            for name in list(self.give_back):
                self.free(name)


class Line:
    """Partitions by (priority, sequence): the more urgent first, then the older. Thread-safe.

    slots: how many may have left the line and not yet have freed their slot (None: no limit). Taking waits
    for both a partition and a slot, and chooses the partition only then: an urgent late-comer still goes
    first. Beside them there is one more slot, for an urgent one alone: it waits for none of the others.
    """

    def __init__(self, slots: int | None = None) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[int, int, int, Partition]] = []
        self._tie = itertools.count()
        self._slots = slots
        self._extra = 1
        self._closed = False

    def put(self, partition: Partition) -> None:
        with self._changed:
            heapq.heappush(self._heap, (-partition.priority, partition.sequence, next(self._tie), partition))
            self._changed.notify_all()

    def take(self) -> Partition | None:
        """The first one, holding "slot" if there are slots; None when the line is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._heap and self._slots != 0))
            if self._closed:
                return None
            partition = heapq.heappop(self._heap)[-1]
            if self._slots is not None:
                self._slots -= 1
                partition.hold("slot", self._free_slot)
            return partition

    def take_urgent(self) -> Partition | None:
        """The first one as soon as it is urgent, holding the extra slot as its "slot"; None when the line is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self.urgent and self._extra))
            if self._closed:
                return None
            partition = heapq.heappop(self._heap)[-1]
            self._extra -= 1
            partition.hold("slot", self._free_extra)
            return partition

    def take_now(self, chosen: Callable[[Partition], bool]) -> Partition | None:
        """The first one that is chosen, or None if there is none now. For lines without slots."""
        with self._changed:
            found = min((item for item in self._heap if chosen(item[-1])), default=None)
            return found[-1] if found is not None and self.remove(found[-1]) else None

    def wait_for(self, chosen: Callable[[Partition], bool], timeout_s: float) -> bool:
        """Until one that is chosen stands in line, or the line is closed; False when the time is up."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._closed or any(chosen(item[-1]) for item in self._heap), timeout_s
            )

    @property
    def urgent(self) -> bool:
        """Is its first one urgent?"""
        with self._changed:
            return bool(self._heap) and self._heap[0][-1].urgent

    def _free_slot(self) -> None:
        with self._changed:
            if self._slots is not None:
                self._slots += 1
            self._changed.notify_all()

    def _free_extra(self) -> None:
        with self._changed:
            self._extra += 1
            self._changed.notify_all()

    def remove(self, partition: Partition) -> bool:
        """Take one out of the middle. False: it is not here (any more)."""
        with self._changed:
            kept = [item for item in self._heap if item[-1] is not partition]
            found = len(kept) < len(self._heap)
            self._heap = kept
            heapq.heapify(self._heap)
            return found

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._heap)
