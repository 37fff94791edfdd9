"""The device mutex, who holds it, and how errors of a device become the engine's.

The mutex orders what is enqueued on the device: proofs and key uploads. It is taken by one thread and may
be let go by another (the GPU scheduler launches, a finaliser sees the end), so it is a plain lock, and
whoever holds it is a partition or a key, not a thread. No other lock is taken while waiting for it, but the
ones that its holder has given up by then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cuzkd.errors import CuzkdError, DeviceFault, Exhausted

_RECHECK_S = 0.25


class DeviceMutex:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def busy(self) -> bool:
        return self._lock.locked()

    def acquire(self, check: Callable[[], None]) -> float:
        """Wait for the device; returns seconds waited. check is called now and then, and may raise."""
        began = time.monotonic()
        while not self._lock.acquire(timeout=_RECHECK_S):
            check()
        return time.monotonic() - began

    def try_acquire(self, timeout_s: float = 0.0) -> bool:
        """Whether it is the caller's now; waits for it that long."""
        return self._lock.acquire(timeout=timeout_s)

    def release(self) -> None:
        self._lock.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            yield


class DeviceHold:
    """The mutex, held by partitions that are launched together and, until they are, by whoever launches them.

    Made by that one, who is in. It is let go when the last one leaves, when what was launched has ended or, unless
    others gather meanwhile to be launched together, when it is about to end.
    """

    def __init__(self, mutex: DeviceMutex, gathering: bool = False) -> None:
        """The mutex is the caller's. gathering: see the class."""
        self._mutex: DeviceMutex | None = mutex
        self._gathering = gathering
        self._lock = threading.Lock()
        self._inside = 1

    def join(self) -> None:
        with self._lock:
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            last = self._inside == 0
        if last:
            self.done()

    def ending(self) -> None:
        """So little is left to be done that the next launch had better stand behind it. Idempotent."""
        if not self._gathering:
            self.done()

    def done(self) -> None:
        """The mutex is free, whoever is in. Idempotent."""
        with self._lock:
            mutex, self._mutex = self._mutex, None
        if mutex is not None:
            mutex.release()


@contextmanager
def on_device(doing: str, device: str = "") -> Iterator[None]:
    """Around calls of a backend: out of memory is Exhausted, whatever else is unexpected is DeviceFault. Their messages
    say what was being done, a fault's also on which device.
    """
    at = f"{doing} on device {device}" if device else doing
    try:
        yield
    except DeviceFault as error:
        raise DeviceFault(f"{at}: {error}") from error
    except CuzkdError:
        raise
    except MemoryError as error:
        raise Exhausted(f"{doing}: out of memory: {error}") from error
    except Exception as error:
        raise DeviceFault(f"{at}: {error!r}") from error
