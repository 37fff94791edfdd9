"""How much memory a stretch of work took: of this process, and of the device.

Peaks of the process are the kernel's own; those of the device are looked at every few milliseconds, so a
spike shorter than that is missed (buffers live for a whole proof).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cuzkd.backend.protocol import Backend

LOOK_EVERY_S = 0.01


@dataclass
class Peaks:
    """Bytes; 0 where nothing can be known. Complete once the block is left."""

    host: int = 0  # resident, page-locked and mapped files included
    device: int = 0  # of the whole card: what other processes have is in it
    pool: int = 0  # what our memory pool held of it


@contextmanager
def watched(backend: Backend) -> Iterator[Peaks]:
    """Peaks of a block."""
    peaks, over = Peaks(), threading.Event()
    with contextlib.suppress(OSError):  # not everywhere allowed: then the peak is that since the start
        Path("/proc/self/clear_refs").write_text("5")
    memory = getattr(backend, "memory", None)

    def look() -> None:
        while memory is not None:
            now = memory()
            peaks.device = max(peaks.device, now.total_bytes - now.free_bytes)
            peaks.pool = max(peaks.pool, now.pool_bytes)
            if over.wait(LOOK_EVERY_S):
                return

    watcher = threading.Thread(target=look, name="bench-usage", daemon=True)
    watcher.start()
    try:
        yield peaks
    finally:
        over.set()
        watcher.join()
        peaks.host = _status_bytes("VmHWM")


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0
