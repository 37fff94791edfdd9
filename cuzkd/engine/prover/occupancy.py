"""How long the device has worked, by what its spans say.

Problem: the device's mutex tells who may give it work, not whether it works; and spans of several streams, and of
partitions that end in another order than they began, cover one another.
Design: the union of all kernels' spans. Copies do not count: while something only crosses, the device does nothing.
Intervals that are long past are forgotten, but for their sum.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from cuzkd.backend.protocol import Span

COPIES = ("h2d", "d2h")
KEPT = 64  # intervals: those of a few proofs
RESOLUTION_S = 1e-6  # of a device's clock: intervals that are no further apart than that touch


@dataclass(frozen=True)
class Work:
    """The device's, on one partition. begin_s, end_s: of its first and last kernel, on the clock of time.monotonic().
    busy_s: time in which some kernel of it ran, and none of the partitions told of before; these add up to the time in
    which the device was busy.
    """

    begin_s: float
    end_s: float
    busy_s: float

    def after(self, earlier: Work | None) -> Work:
        """This and what was done on the same partition before."""
        if earlier is None:
            return self
        begin_s, end_s = min(self.begin_s, earlier.begin_s), max(self.end_s, earlier.end_s)
        return Work(begin_s, end_s, self.busy_s + earlier.busy_s)


class Occupancy:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # over the rest
        self._seconds = 0.0
        self._intervals: list[tuple[float, float]] = []  # they neither touch nor overlap, in order
        self._horizon_s = float("-inf")  # before that, all time counts as told of

    @property
    def seconds(self) -> float:
        """Never falls."""
        with self._lock:
            return self._seconds

    def add(self, spans: Sequence[Span]) -> Work | None:
        """Of one partition; None where no kernel ran for it."""
        kernels = [span for span in spans if span.phase not in COPIES and span.seconds > 0]
        if not kernels:
            return None
        with self._lock:
            busy_s = sum(self._insert(max(span.begin_s, self._horizon_s), span.end_s) for span in kernels)
            self._seconds += busy_s
            while len(self._intervals) > KEPT:
                _, self._horizon_s = self._intervals.pop(0)
        return Work(min(span.begin_s for span in kernels), max(span.end_s for span in kernels), busy_s)

    def _insert(self, begin_s: float, end_s: float) -> float:
        """Seconds that are new."""
        if end_s <= begin_s:
            return 0.0
        first = bisect_left(self._intervals, begin_s - RESOLUTION_S, key=lambda interval: interval[1])
        behind = bisect_right(self._intervals, end_s + RESOLUTION_S, key=lambda interval: interval[0])
        known_s = 0.0
        for low_s, high_s in self._intervals[first:behind]:
            begin_s, end_s = min(begin_s, low_s), max(end_s, high_s)
            known_s += high_s - low_s
        self._intervals[first:behind] = [(begin_s, end_s)]
        return max(0.0, end_s - begin_s - known_s)
