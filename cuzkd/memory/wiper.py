"""Idle memory is cleared soon after the job that used it.

Problem. A witness must not lie about until another owner happens to want its memory, and clearing gigabytes is nothing
that a job should wait for. Design. A thread that waits until no lease has begun or ended for a while and nobody waits
for one; then it takes what is dirty out of the pool piece by piece, clears it outside the lock, and puts it back. Who
comes meanwhile waits for one piece at most. Life. Started with the first lease that ends; rests while all is clean;
closed with its pool.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

from cuzkd.memory.ranges import Range

PIECE_BYTES = 32 << 20  # at a time: a few milliseconds


class Wiper:
    """lock: the pool's. All methods but `close`, and the three callables, are called with it held.

    take: a dirty piece that is free no longer; None while there is none, or it is not the time. clean: the piece is.
    settled: whether there is nothing dirty, and nothing that may come back so.
    """

    def __init__(
        self,
        lock: threading.Lock,
        idle_s: float,
        *,
        take: Callable[[], Range | None],
        clean: Callable[[Range], None],
        settled: Callable[[], bool],
    ) -> None:
        self._lock = lock
        self._idle_s = idle_s
        self._take, self._clean, self._settled = take, clean, settled
        self._changed = threading.Condition(lock)
        self._thread: threading.Thread | None = None
        self._stirred_s = 0.0
        self._rests = True
        self._closed = False
        self.nbytes = 0  # of the piece that is being cleared

    def stir(self) -> None:
        """Not now, nor soon: there is something to do, or about to be."""
        self._stirred_s = time.monotonic()

    def wake(self) -> None:
        """Something may be dirty."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pool-wiper", daemon=True)
            self._thread.start()
        elif self._rests:
            self._changed.notify()

    def close(self) -> None:
        """Ends after the piece that it is at."""
        with self._lock:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (piece := self._next()) is not None:
            ctypes.memset(piece.arena.slab.address + piece.offset, 0, piece.nbytes)  # releases the GIL
            with self._lock:
                self.nbytes = 0
                self._clean(piece)

    def _next(self) -> Range | None:
        """Wait until there is something to clear, and time for it. None: closed."""
        with self._lock:
            while not self._closed:
                left_s = self._stirred_s + self._idle_s - time.monotonic()
                piece = self._take() if left_s <= 0 else None
                if piece is not None:
                    self.nbytes = piece.nbytes
                    return piece
                self._rests = self._settled()
                pause_s = left_s if left_s > 0 else max(self._idle_s, 0.001)
                self._changed.wait(None if self._rests else pause_s)
            return None
