"""Files that others made: opened once, then read where a reader asks, or mapped where they are ours. And files
that appear whole.

Problem: a mapped file that somebody shortens faults the process that touches it; a file that is opened again by
name may be another one; a pipe or a directory hangs or surprises.
Design: one descriptor from beginning to end, so that a file that is replaced or deleted meanwhile is still the
one whose length was checked. `RawFile` reads with pread: of a file that has become too short it says so.
`MappedFile` has the same interface without copies, for files that nobody else may shorten (the daemon's spool).
Life of data: bytes read belong to whoever asked. The descriptor is closed by close(), or with its last user.
"""

from __future__ import annotations

import mmap
import os
import secrets
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from cuzkd.errors import SCARCE, Exhausted, InvalidInput, MalformedFile

# Up to here a file is read at once: unmapping interrupts all processors of the process, which costs more than the
# copy, and so would reading piece by piece.
SMALL_BYTES = 64 << 10


class FileBytes(Protocol):
    """A regular file of `size` bytes, at least one."""

    path: Path
    size: int

    def read(self, offset: int, nbytes: int) -> memoryview:
        """Read-only bytes. The range must lie within size. Raises MalformedFile when the file has shrunk."""

    def close(self) -> None:
        """Let go of the file. Idempotent."""


class RawFile:
    """A file that is read. Raises InvalidInput when it cannot be opened, Exhausted when no file can be just now,
    MalformedFile when it is empty.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        descriptor, self.size = _open(self.path)
        self._descriptor = descriptor
        self._finalize = weakref.finalize(self, os.close, descriptor)
        self._whole: memoryview | None = None
        if self.size <= SMALL_BYTES:
            self._whole = self.read(0, self.size)
            self.close()

    def read(self, offset: int, nbytes: int) -> memoryview:
        if self._whole is not None:
            return self._whole[offset : offset + nbytes]
        buffer = np.empty(nbytes, np.uint8).data
        done = 0
        while done < nbytes:
            try:
                n = os.preadv(self._descriptor, [buffer[done:]], offset + done)
            except OSError as error:
                raise InvalidInput(f"{self.path}: cannot be read: {error.strerror}") from error
            if n == 0:
                raise MalformedFile(
                    f"{self.path}: file is cut: it had {self.size} bytes when it was opened, and was "
                    f"shortened to {offset + done} or less while being read"
                )
            done += n
        return buffer.toreadonly()

    def close(self) -> None:
        self._finalize()


class MappedFile:
    """A file that is mapped (a small one is read): `read` copies nothing. Errors as RawFile's."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        descriptor, size = _open(self.path)
        self._data: bytearray | mmap.mmap
        try:
            if size <= SMALL_BYTES:
                self._data = bytearray(size)
                del self._data[os.readv(descriptor, [self._data]) :]
            else:
                self._data = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        self.size = len(self._data)

    def read(self, offset: int, nbytes: int) -> memoryview:
        return memoryview(self._data)[offset : offset + nbytes].toreadonly()

    def close(self) -> None:
        """Unmap, which raises BufferError while a view, or an array made from one, is alive; or overwrite what was
        read: it may be a witness.
        """
        if isinstance(self._data, mmap.mmap):
            self._data.close()
        else:
            self._data[:] = bytes(len(self._data))


@contextmanager
def written_whole(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write to. It gets its name when all has been written and is on the disk; after an exception nothing
    is left of it. mode: its permissions, less the umask. A link stays one: what it leads to is written. Raises
    InvalidInput where there is no folder for it, or something that is no file; OSError, naming `path`, where it cannot
    be written.
    """
    target = _place(Path(path))
    partial = target.with_name(f".{secrets.token_hex(8)}.part")  # nobody's, whatever else is in the folder
    try:
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError) and error.filename in (None, partial, str(partial)):
            error.filename = str(path)  # a full disk has no name, and the partial file's is ours alone
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # the name, too
    finally:
        os.close(folder)


def _place(path: Path) -> Path:
    """Where a file of that name goes: nothing but a regular file may be there."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InvalidInput(f"{path}: is a folder, expected the name of a file")
    if target.exists() and not target.is_file():
        raise InvalidInput(f"{path}: is no regular file: it would be replaced by one")
    if not target.parent.is_dir():
        raise InvalidInput(f"{path}: there is no folder {target.parent}")
    return target


def _open(path: Path) -> tuple[int, int]:
    """A descriptor of a regular file that is not empty, and its length."""
    try:
        # O_NONBLOCK: opening a pipe that nobody writes to must not hang.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) in SCARCE:
            raise Exhausted(
                f"{path}: cannot be opened now: {getattr(error, 'strerror', '')}; try again later"
            ) from error
        raise InvalidInput(f"{path}: cannot be opened: {getattr(error, 'strerror', error)}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise InvalidInput(f"{path}: is not a regular file")
    if status.st_size == 0:
        os.close(descriptor)
        raise MalformedFile(f"{path}: file is empty")
    return descriptor, status.st_size
