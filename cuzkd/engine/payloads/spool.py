"""Payloads on our own disk, from the moment they arrive until their job has ended.

Problem. Witnesses are large and secret. Held in memory they double the peak; read later from the client's own
file they may change, vanish or be truncated under a mapping, which kills the process that has it mapped.

Design. Every payload becomes a file of ours: STATE/spool/UUID, mode 0600, written as it streams in. It is
synced before a job may name it; its name, in the directory, is synced while the content arrives. A client's path is
opened beneath an allowed folder, component by component, without following links, and copied. Contents are told apart
by a keyed hash: the digest says nothing about a witness to whoever reads a log or the journal. Its key is made once,
STATE/spool.key, so that a request is recognised after a restart, too.

Life of a file. make (bytes, upload, copy; or place, made by another process of ours, adopt) -> named by a job, or
dropped -> removed at the job's end. An upload that no job has taken expires. At start, files that no job names are
swept.

Methods here block on the disk; the engine calls them in threads. Each file is used by one call at a time.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from cuzkd.engine.faults import NoFaults
from cuzkd.engine.job import SpoolFile
from cuzkd.errors import SCARCE, Cancelled, CuzkdError, Exhausted, InvalidInput, NotFound
from cuzkd.formats.files import written_whole

COPY_BYTES = 1 << 20
MAX_PATH = 4096  # characters: Linux opens no longer one
SHOWN = 80  # characters of a path in a message
KEY_FILE = "spool.key"
KEY_BYTES = 32
Chunk = bytes | memoryview  # of a payload, byte by byte
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, *SCARCE)
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: a pipe that nobody writes to must not hold us before we know that it is no regular file.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Spool:
    """Files below state_dir/spool. folders: where clients may name files; resolved once, links and all."""

    def __init__(
        self,
        state_dir: str | os.PathLike[str],
        max_file_bytes: int,
        folders: Sequence[Path] = (),
        faults: NoFaults | None = None,
    ) -> None:
        """Raises InvalidInput when the key is damaged, Exhausted when it cannot be made on a full disk."""
        self.directory = Path(state_dir).resolve() / "spool"
        self.max_file_bytes = max_file_bytes
        self.folders = tuple(Path(folder).resolve() for folder in folders)
        self._faults = faults or NoFaults()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key = _key(self.directory.parent / KEY_FILE)
        self._names = _Names(self.directory)

    def sweep(self, named: Collection[str] = ()) -> int:
        """Remove whatever is there and whose path is not in `named`, links themselves, not what they lead to; returns
        how many. For the start, before any is made.
        """
        stale = [entry for entry in os.scandir(self.directory) if entry.path not in named]
        for entry in stale:
            if entry.is_dir(follow_symlinks=False):  # not ours, but so is nothing else here
                shutil.rmtree(entry)
            else:
                os.unlink(entry)
        return len(stale)

    def digest(self, data: bytes) -> bytes:
        """What the `digest` of a file with this content is."""
        return self._hasher(data).digest()

    def combine(self, parts: Sequence[bytes]) -> bytes:
        """One digest for a sequence of texts and digests."""
        return self._hasher(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).digest()

    def write(self, data: bytes) -> SpoolFile:
        """A file with this content, synced. Raises InvalidInput when too large, Exhausted when the disk is
        full.
        """
        with contextlib.closing(self.create(len(data))) as incoming:
            incoming.write(data)
            return incoming.commit()

    def create(self, size_bytes: int) -> Incoming:
        """A file that is going to have size_bytes. Raises InvalidInput when that is too much, Exhausted."""
        self._require_size(size_bytes)
        path = self.directory / str(uuid.uuid4())
        return Incoming(path, size_bytes, self._hasher(), self._names, self._faults)

    def place(self, size_bytes: int) -> str:
        """A path for a file that another process of ours is going to make. Raises InvalidInput when too large."""
        self._require_size(size_bytes)
        return str(self.directory / str(uuid.uuid4()))

    def adopt(self, path: str) -> SpoolFile:
        """The file that was made at a place, synced by its maker; here its directory is. Raises Exhausted."""
        with _disk(Path(path)):
            descriptor = os.open(path, _OPEN_FILE)
            try:
                size_bytes, digest = os.fstat(descriptor).st_size, self._digest(descriptor)
            finally:
                os.close(descriptor)
            self._names.sync().result()
        return SpoolFile(path, size_bytes, digest)

    def copy(self, path: str) -> SpoolFile:
        """A copy of a regular file beneath an allowed folder, synced. Raises as `digest_of` does, and Exhausted."""
        with self._open_beneath(path) as descriptor:
            size_bytes = os.fstat(descriptor).st_size
            with contextlib.closing(self.create(size_bytes)) as incoming:
                for chunk in _chunks(descriptor):
                    incoming.write(chunk)
                return incoming.commit()

    def digest_of(self, path: str) -> bytes:
        """What the `digest` of its copy would be, without making one.

        Raises InvalidInput when the path is not absolute, not beneath an allowed folder, leads through a
        link, or is no regular file; NotFound when there is none; Exhausted when no file can be opened just now.
        """
        with self._open_beneath(path) as descriptor:
            return self._digest(descriptor)

    def trouble(self, file: SpoolFile, give_up: Callable[[], bool] = lambda: False) -> str:
        """What is wrong with a file of ours; "" while it has the content of its digest. Reads all of it.

        Raises Exhausted when no file can be opened just now, Cancelled soon after give_up() has become true.
        """
        try:
            descriptor = os.open(file.path, _OPEN_FILE)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return "is no regular file any more"
                found = self._digest(descriptor, give_up)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return "is gone from the spool"
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            if error.errno in SCARCE:
                raise Exhausted(f"spool {self.directory}: {reason}; try again later") from None
            return f"cannot be read: {reason}"
        return "" if found == file.digest else "has changed on the disk since it was accepted"

    def remove(self, file: SpoolFile) -> None:
        """Unlink it. A prover that has it mapped keeps its map. Calling it again changes nothing."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file.path)

    def _require_size(self, size_bytes: int) -> None:
        if size_bytes > self.max_file_bytes:
            raise InvalidInput(f"payload of {size_bytes} bytes: at most {self.max_file_bytes} are allowed")

    def _hasher(self, data: bytes = b"") -> hashlib.blake2b:
        return hashlib.blake2b(data, digest_size=32, key=self._key)

    def _digest(self, descriptor: int, give_up: Callable[[], bool] = lambda: False) -> bytes:
        """Of all that can be read."""
        hasher = self._hasher()
        for chunk in _chunks(descriptor):
            hasher.update(chunk)
            if give_up():
                raise Cancelled("spool: nobody waits for this digest any more")
        return hasher.digest()

    @contextlib.contextmanager
    def _open_beneath(self, path: str) -> Iterator[int]:
        folder, parts = self._split(path)
        descriptors: list[int] = []
        try:
            descriptors.append(os.open(folder, _OPEN_FOLDER))
            for part in parts[:-1]:
                descriptors.append(os.open(part, _OPEN_FOLDER, dir_fd=descriptors[-1]))
            descriptors.append(os.open(parts[-1], _OPEN_FILE, dir_fd=descriptors[-1]))
            if not stat.S_ISREG(os.fstat(descriptors[-1]).st_mode):
                raise InvalidInput(f"{_shown(path)}: not a regular file")
        except OSError as error:
            _close(descriptors)
            raise _path_error(path, error) from None
        except CuzkdError:
            _close(descriptors)
            raise
        try:
            yield descriptors[-1]
        finally:
            _close(descriptors)

    def _split(self, path: str) -> tuple[Path, list[str]]:
        """The allowed folder that a path is beneath, and the names that lead from there to the file."""
        if len(path) > MAX_PATH:
            raise InvalidInput(f"{_shown(path)}: {len(path)} characters, at most {MAX_PATH} are allowed")
        names = path.split("/")
        if not path.startswith("/") or "\0" in path or ".." in names:
            raise InvalidInput(f"{_shown(path)}: expected an absolute path without '..'")
        names = [name for name in names if name not in ("", ".")]
        for folder in self.folders:
            above = list(folder.parts[1:])
            if names[: len(above)] == above and len(names) > len(above):
                return folder, names[len(above) :]
        allowed = ", ".join(map(str, self.folders)) or "none"
        raise InvalidInput(f"{_shown(path)}: not beneath an allowed folder ({allowed})")


class _Names:
    """Syncs of the directory, in a thread of its own: whoever asks while one is under way has the next one done for
    him, together with all who ask meanwhile.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._thread = ThreadPoolExecutor(1, "spool-names")
        self._next: Future[None] | None = None
        self._lock = threading.Lock()

    def sync(self) -> Future[None]:
        """Done when every name that is there now is on the disk. Its error is an OSError."""
        with self._lock:
            if self._next is None:
                self._next = self._thread.submit(self._sync)
            return self._next

    def _sync(self) -> None:
        with self._lock:
            self._next = None
        _sync_folder(self._directory)


def _chunks(descriptor: int) -> Iterator[memoryview]:
    """A file's content, each chunk good until the next one is asked for. One buffer for all, overwritten at the end:
    small objects of bytes would stay in the C library's caches as they are.
    """
    buffer = bytearray(COPY_BYTES)
    try:
        while n_bytes := os.readv(descriptor, [buffer]):
            with memoryview(buffer) as whole, whole[:n_bytes] as chunk:
                yield chunk
    finally:
        buffer[:] = bytes(COPY_BYTES)


class Incoming:
    """A spool file that is being written. Closed without a commit it is removed."""

    def __init__(
        self, path: Path, size_bytes: int, hasher: hashlib.blake2b, names: _Names, faults: NoFaults
    ) -> None:
        self._path = path
        self._faults = faults
        self._size_bytes = size_bytes
        self._hasher = hasher
        self._written = 0
        self._committed = False
        with _disk(path):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._named = names.sync()
        except BaseException:
            self.close()
            raise

    def write_all(self, pieces: Iterable[Chunk]) -> None:
        """Append them, one after the other. Raises as write does."""
        for data in pieces:
            self.write(data)

    def write(self, data: Chunk) -> None:
        """Append. Raises InvalidInput above the size that was announced, Exhausted when the disk is full."""
        if self._written + len(data) > self._size_bytes:
            raise InvalidInput(f"payload: {self._size_bytes} bytes were announced, and more came")
        with _disk(self._path):
            self._faults.at("spool_write")
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        self._hasher.update(data)
        self._written += len(data)

    def commit(self) -> SpoolFile:
        """Sync the file and its directory. Raises InvalidInput when less came than announced, Exhausted."""
        if self._written != self._size_bytes:
            raise InvalidInput(f"payload: {self._size_bytes} bytes were announced, {self._written} came")
        with _disk(self._path):
            self._faults.at("spool_sync")
            os.fsync(self._descriptor)
            self._named.result()
        self._committed = True
        return SpoolFile(str(self._path), self._written, self._hasher.digest())

    def close(self) -> None:
        """Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if not self._committed:
                os.unlink(self._path)


def _key(path: Path) -> bytes:
    """The key of the digests: made at the first start, whole or not at all, 0600."""
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        key = os.urandom(KEY_BYTES)
        with _disk(path), written_whole(path, 0o600) as file:
            file.write(key)
    if len(key) != KEY_BYTES:
        raise InvalidInput(
            f"{path}: {len(key)} bytes, expected {KEY_BYTES}: it is damaged. Restore it, or remove it: then requests "
            "that are repeated from before are not recognised"
        )
    return key


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, _OPEN_FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _shown(path: str) -> str:
    """A client's path, in a message: no longer than a line, nothing in it that a terminal obeys."""
    return f"server path {path[:SHOWN]!r}{'...' if len(path) > SHOWN else ''}"


def _path_error(path: str, error: OSError) -> CuzkdError:
    if error.errno == errno.ENOENT:
        return NotFound(f"{_shown(path)}: does not exist")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return InvalidInput(f"{_shown(path)}: leads through a link or something that is no folder")
    if error.errno in SCARCE:
        return Exhausted(f"{_shown(path)}: cannot be opened now: {os.strerror(error.errno)}; try again later")
    return InvalidInput(f"{_shown(path)}: cannot be opened: {os.strerror(error.errno or 0)}")


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Around writes: a full disk is Exhausted, and so is memory that is short; whatever else is wrong with the disk is
    an internal error.
    """
    try:
        yield
    except MemoryError:
        raise Exhausted(f"spool {path.parent}: out of memory; try again later") from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        if error.errno in _FULL:
            raise Exhausted(f"spool {path.parent}: {reason}; try again later") from None
        raise CuzkdError(f"spool {path.parent}: {reason}") from error
