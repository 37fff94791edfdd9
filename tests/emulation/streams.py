"""Streams and events of the emulated device: what CUDA promises about their order, and nothing beyond it.

Problem: a device that does its work as soon as it is told to hides every wait that is missing.
Design: a stream is a list of operations. The `Schedule` says when they are done, as late or as early as CUDA might:

    lazy     not before somebody waits for them, and then no more of them than that takes
    random   any of them, of any stream, whenever something is issued; kernels begin with their last block and thread
             as often as with the first

Operations run one at a time, on the host's thread that happens to ask: nothing is concurrent, and an event's time is
when that was. Where several threads issue work (a ring's do), one seed does not always give one order.
"""

import random
import threading
import time
import weakref
from collections import deque

import numpy as np


class Schedule:
    """policy: "lazy" or "random:SEED"."""

    def __init__(self, policy):
        name, _, seed = policy.partition(":")
        if name not in ("lazy", "random"):
            raise ValueError(f"expected lazy or random:SEED, got {policy!r}")
        self._random = random.Random(int(seed)) if name == "random" else None
        self.lock = threading.RLock()
        self._busy = False  # with an operation: what that issues (memory that goes back, say) starts no other
        self._streams = weakref.WeakValueDictionary()  # by number
        self._numbers = 0

    def add(self, stream):
        """The number of a new stream."""
        with self.lock:
            self._numbers += 1
            self._streams[self._numbers] = stream
            return self._numbers

    def stream(self, number):
        return self._streams[number]

    def issue(self, stream, operation):
        """Put a callable at the end of a stream. Returns how many were issued there so far."""
        with self.lock:
            stream.waiting.append(operation)
            position = stream.done + len(stream.waiting)
            if self._random and not self._busy:
                self._do_some()
            return position

    def _do_some(self):
        streams = list(self._streams.values())
        for stream in self._random.sample(streams, len(streams)):
            if stream.waiting and self._random.random() < 0.3:
                self.advance(stream, stream.done + self._random.randint(1, len(stream.waiting)))

    def advance(self, stream, position=None):
        """Do the operations of a stream up to a position; all of them by default."""
        with self.lock:
            before, self._busy = self._busy, True
            try:
                while stream.waiting and (position is None or stream.done < position):
                    stream.waiting[0]()
                    stream.waiting.popleft()
                    stream.done += 1
            finally:
                self._busy = before

    def advance_all(self):
        for stream in list(self._streams.values()):
            self.advance(stream)

    def backwards(self):
        """Does the next kernel begin with its last thread?"""
        with self.lock:
            return bool(self._random and self._random.getrandbits(1))


schedule = Schedule("lazy")
_inside = threading.local()


def choose(policy):
    """Begin anew. Streams from before are no good any more."""
    global schedule
    schedule = Schedule(policy)


def current_stream():
    """The innermost that this thread is inside of."""
    return _inside.streams[-1]


class Stream:
    def __init__(self, *, non_blocking):
        assert non_blocking, "streams that wait for the default one are not emulated"
        self.waiting = deque()
        self.done = 0
        self.ptr = schedule.add(self)

    def __enter__(self):
        _inside.__dict__.setdefault("streams", []).append(self)
        return self

    def __exit__(self, *_):
        _inside.streams.pop()

    def synchronize(self):
        schedule.advance(self)

    def wait_event(self, event):
        if event.recorded is not None:
            schedule.issue(self, event.recorded.reach)


class _Moment:
    """A place in a stream that an event was recorded at."""

    def __init__(self, stream):
        self.time = None  # of when it was reached
        self._stream = stream
        self._position = schedule.issue(stream, self._happen)

    def _happen(self):
        self.time = time.monotonic()

    def reach(self):
        schedule.advance(self._stream, self._position)


class Event:
    def __init__(self, *, block=False, disable_timing=False):
        self.recorded = None  # the last time
        self._timing = not disable_timing

    def record(self, stream):
        self.recorded = _Moment(stream)

    @property
    def done(self):
        return self.recorded is None or self.recorded.time is not None

    def synchronize(self):
        if self.recorded is not None:
            self.recorded.reach()

    @property
    def time(self):
        assert self._timing and self.recorded, "an event without a time"
        assert self.done, "an event that has not happened"
        return self.recorded.time


def get_elapsed_time(begin, end):
    """Milliseconds, as coarse as CUDA's."""
    return float(np.float32((end.time - begin.time) * 1e3))
