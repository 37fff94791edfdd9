"""The journal's file, before SQLite touches it.

Problem. What is wrong with it must be said before anything is changed, by us or by SQLite, and a journal that is not
there must not be taken for a first start: the payloads of its jobs would be swept. Design. Looks that change nothing.
Life. require_whole, require_ours, make: in this order, at every start.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cuzkd.engine.journal import rows
from cuzkd.errors import InvalidInput

FILE = "journal.sqlite"
MAGIC = b"SQLite format 3\0"
VERSION_AT = 60  # of the header: four bytes, big-endian
HEADER_BYTES = 100


def require_whole(state_dir: Path) -> None:
    """For the start, before anything is made: payloads of jobs that a journal knew, and no journal, is a mistake of
    whoever moved it, and would be swept. Raises InvalidInput.
    """
    journal, spool = state_dir / FILE, state_dir / "spool"
    there = journal.exists() and journal.stat().st_size > 0
    if there or not (state_dir / "spool.key").exists():  # without a key no job was ever recorded
        return
    with contextlib.suppress(FileNotFoundError):
        if count := len(os.listdir(spool)):
            raise InvalidInput(
                f"journal {journal}: is missing, and {spool} has {count} files of jobs that it knew. Nothing was "
                f"changed. Put it back together with {FILE}-wal, or move spool/ away to start without these jobs"
            )


def require_ours(path: Path) -> None:
    """Look at the header without touching anything. Raises InvalidInput."""
    try:
        with open(path, "rb") as file:
            header = file.read(HEADER_BYTES)
    except FileNotFoundError:
        return
    if not header:  # made, and the process died
        return
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        raise InvalidInput(
            f"journal {path}: is no journal of cuzkd. Nothing was changed. Restore it, or move it away together with "
            "spool/: jobs that it holds are lost then"
        )
    version = int.from_bytes(header[VERSION_AT : VERSION_AT + 4], "big")
    if version > rows.VERSION:
        raise InvalidInput(
            f"journal {path}: version {version}, this cuzkd knows versions up to {rows.VERSION}. Nothing was changed. "
            "Start the newer cuzkd, or move the journal away together with spool/"
        )


def make(path: Path) -> None:
    """An empty file of ours, 0600; its log inherits that. Its folder is synced."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
