"""What was made of a file, kept for as long as the file is the same.

Problem: a manifest is asked for at every submission and every status call, and parsing it takes a millisecond.
Design: a look at the file (device, inode, size, time of change) tells whether it was written or replaced. Times of
change have the grain of the kernel's clock, so a file that was changed a moment ago is read every time.
Life of data: kept under the file's path until the file changes or is gone.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

SETTLED_S = 2.0  # a file that was changed since then could change again without another time of change

Made = TypeVar("Made")
_Identity = tuple[int, int, int, int]


class Unchanged(Generic[Made]):
    """Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[Path, tuple[_Identity, Made]] = {}

    def get(self, path: Path, make: Callable[[], Made]) -> Made:
        """What make() made of this file, or makes of it now. Raises what it raises; nothing is kept then."""
        identity = _identity(path)  # before it is read: what changes meanwhile shows the next time
        kept = self._kept.pop(path, None)
        if kept is None or kept[0] != identity:
            made = make()
            if identity is None:
                return made
            kept = identity, made
        self._kept[path] = kept
        return kept[1]


def _identity(path: Path) -> _Identity | None:
    """None where nothing can be told by it."""
    try:
        found = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode) or time.time() - found.st_ctime <= SETTLED_S:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns
