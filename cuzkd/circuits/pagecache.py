"""Whether a file is in the page cache, so that reading it will not wait for a disk.

Design: the file is mapped and not touched, and the kernel is asked about single pages of the map (mincore), spread
over the file: a hundred microseconds, whatever the file's size. The answer is of this moment.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import cache
from pathlib import Path

SAMPLES = 64
ENOUGH = 0.9  # of the sampled pages


def holds(path: Path) -> bool:
    """At least ENOUGH of the file, by a sample. False where it cannot be looked at, and for an empty one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            size = os.fstat(descriptor).st_size
            # Writable and private, so that ctypes takes its address; nothing is ever written.
            mapped = mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return False
    with mapped:
        window = ctypes.c_char.from_buffer(mapped)
        begin = ctypes.addressof(window)
        del window
        pages = -(-size // mmap.PAGESIZE)
        sample = sorted({i * (pages - 1) // max(SAMPLES - 1, 1) for i in range(SAMPLES)})
        found = sum(_resident(begin + page * mmap.PAGESIZE) for page in sample)
        return found >= ENOUGH * len(sample)


def _resident(address: int) -> bool:
    answer = ctypes.c_ubyte()
    failed: int = _libc().mincore(ctypes.c_void_p(address), ctypes.c_size_t(1), ctypes.byref(answer))
    return not failed and bool(answer.value & 1)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
