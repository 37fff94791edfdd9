"""Capacity hints: how many rows a circuit turned out to need, kept over restarts.

One small JSON object, digest -> rows, replaced atomically. Hints are only hints: a missing or damaged file
means starting to learn again, never an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path


class CapacityHints:
    """Thread-safe. path None: nothing is kept. Of several processes with one file the last to learn wins."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._rows = {} if path is None else _read(path)

    def get(self, digest: str) -> int | None:
        """Rows that were needed for this circuit, at most, so far; None when it is new."""
        with self._lock:
            return self._rows.get(digest)

    def learn(self, digest: str, rows: int) -> None:
        """Remember a need; the file changes only when it is a new maximum."""
        with self._lock:
            if rows <= self._rows.get(digest, -1):
                return
            self._rows[digest] = rows
            self._keep()

    def largest(self) -> int:
        """The greatest need of any circuit; 0 when nothing was learned yet."""
        with self._lock:
            return max(self._rows.values(), default=0)

    def forget(self, digest: str) -> None:
        with self._lock:
            if self._rows.pop(digest, None) is not None:
                self._keep()

    def _keep(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):  # a full disk must not fail the job that taught us something
                _write(self._path, self._rows)


def _read(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {digest: rows for digest, rows in found.items() if isinstance(rows, int) and rows >= 0}


def _write(path: Path, rows: dict[str, int]) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    with open(beside, "w") as file:
        json.dump(rows, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
