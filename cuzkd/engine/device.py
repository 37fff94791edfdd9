"""The device mutex, and how errors of a device become the engine's.

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

    def release(self) -> None:
        self._lock.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            yield


@contextmanager
def on_device(doing: str) -> Iterator[None]:
    """Around calls of a backend: out of memory is Exhausted, whatever else is unexpected is DeviceFault."""
    try:
        yield
    except CuzkdError:
        raise
    except MemoryError as error:
        raise Exhausted(f"{doing}: out of device memory: {error}") from error
    except Exception as error:
        raise DeviceFault(f"{doing}: {error!r}") from error
