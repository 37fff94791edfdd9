"""The container that .zkey, .wtns and .r1cs share: magic, version, then numbered sections in any order.

    4 bytes magic | u32 version | u32 number of sections | (u32 id | u64 size | bytes) ...

Numbers are little-endian.

Problem: every number in such a file may lie, and other readers then crash, hang, or make proofs from zeros.
Design: the file is mapped read-only, the table of sections is walked once against the *file's* length, and
nothing is allocated from a number that the file's length does not bear out. A reader then asks for sections
by id, with the size that its own header implies. Writers of the format put the sections in different orders
(a fresh `snarkjs groth16 setup` and a contributed key differ), so order means nothing; duplicates and bytes
after the last section are refused.
Life of data: `Container` holds the map; views handed out keep it alive; pages are read when touched. A file
that somebody shortens while it is mapped faults the process, so only files that we own, or an operator's key
in the process that imports it, may come this way.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuzkd.errors import InvalidInput, MalformedFile

_FILE_HEAD = struct.Struct("<4sII")
_SECTION_HEAD = struct.Struct("<IQ")
# The formats define at most ten sections; a count beyond this is a lie, and walking it would take the time it
# asks for.
MAX_SECTIONS = 64


@dataclass(frozen=True)
class Section:
    """One section: its id, what the format calls it, and where its bytes lie in the file."""

    id: int
    name: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"section {self.id} ({self.name})" if self.name else f"section {self.id}"


class Container:
    """A mapped container file whose table of sections has been checked against the file's length."""

    def __init__(
        self,
        path: Path,
        version: int,
        sections: Mapping[int, Section],
        names: Mapping[int, str],
        data: FileBytes,
    ):
        self.path = path
        self.version = version
        self.sections = sections
        self._names = names
        self._map = data

    def require(self, section_id: int) -> Section:
        """The section of that id. Raises MalformedFile when the file has none."""
        if section_id not in self.sections:
            named = Section(section_id, self._names.get(section_id, ""), 0, 0)
            raise MalformedFile(f"{self.path}: {named} is missing; found {sorted(self.sections)}")
        return self.sections[section_id]

    def view(self, section_id: int, expected_bytes: int | None = None, because: str = "") -> memoryview:
        """Read-only bytes of a section, not copied. A size other than expected_bytes raises MalformedFile."""
        section = self.require(section_id)
        if expected_bytes is not None and section.size != expected_bytes:
            why = f" ({because})" if because else ""
            raise MalformedFile(
                f"{self.path}: {section}: expected {expected_bytes} bytes{why}, found {section.size}"
            )
        return memoryview(self._map)[section.offset : section.offset + section.size]

    def close(self) -> None:
        """Unmap. Raises BufferError while a view, or an array made from one, is alive."""
        self._map.close()


class SmallFile(bytes):
    """The bytes of a small file, with a map's manners. Views of it may outlive close()."""

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> SmallFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


FileBytes = mmap.mmap | SmallFile
# Up to here a file is read: unmapping interrupts all processors of the process, which costs more than the copy.
SMALL_BYTES = 64 << 10


def map_file(path: Path) -> FileBytes:
    """Map a regular file read-only (a small one is read). Raises InvalidInput when it cannot be opened,
    MalformedFile when it is empty.
    """
    try:
        # O_NONBLOCK: opening a pipe that nobody writes to must not hang.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: cannot be opened: {getattr(error, 'strerror', error)}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput(f"{path}: is not a regular file")
        if status.st_size == 0:
            raise MalformedFile(f"{path}: file is empty")
        if status.st_size <= SMALL_BYTES:
            return SmallFile(os.read(descriptor, SMALL_BYTES))
        return mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)


def open_container(
    path: str | os.PathLike[str], magic: bytes, version: int, names: Mapping[int, str]
) -> Container:
    """Map a file and check its frame: magic, version, and that its sections fill it exactly, each id once.

    names: what the format calls each section, for messages. Raises MalformedFile, InvalidInput.
    """
    path = Path(path)
    data = map_file(path)
    try:
        found_version, sections = _walk(path, data, magic, version, names)
    except BaseException:
        data.close()
        raise
    return Container(path, found_version, sections, names, data)


def _walk(
    path: Path, data: FileBytes, magic: bytes, version: int, names: Mapping[int, str]
) -> tuple[int, dict[int, Section]]:
    length = len(data)
    if length < _FILE_HEAD.size:
        raise MalformedFile(
            f"{path}: expected at least {_FILE_HEAD.size} bytes of file header, found {length}: file is cut"
        )
    found_magic, found_version, count = _FILE_HEAD.unpack_from(data, 0)
    if found_magic != magic:
        raise MalformedFile(f"{path}: expected magic {magic!r}, found {found_magic!r}")
    if found_version != version:
        raise MalformedFile(f"{path}: expected version {version}, found {found_version}")
    if count > MAX_SECTIONS:
        raise MalformedFile(f"{path}: header claims {count} sections; at most {MAX_SECTIONS} are accepted")

    sections: dict[int, Section] = {}
    at = _FILE_HEAD.size
    for index in range(count):
        if length - at < _SECTION_HEAD.size:
            raise MalformedFile(
                f"{path}: header claims {count} sections, file ends at byte {length} before the header "
                f"of number {index + 1}: file is cut"
            )
        section_id, size = _SECTION_HEAD.unpack_from(data, at)
        at += _SECTION_HEAD.size
        section = Section(section_id, names.get(section_id, ""), at, size)
        if section_id in sections:
            raise MalformedFile(f"{path}: {section} occurs twice")
        if size > length - at:
            raise MalformedFile(
                f"{path}: {section} claims {size} bytes from byte {at}, but the file ends at byte {length}: "
                "file is cut or the size is wrong"
            )
        sections[section_id] = section
        at += size
    if at != length:
        raise MalformedFile(f"{path}: {length - at} bytes after the last of {count} sections")
    return found_version, sections


def write_container(
    path: str | os.PathLike[str],
    magic: bytes,
    version: int,
    sections: Iterable[tuple[int, Sequence[bytes | memoryview]]],
) -> None:
    """Write a container; each section's bytes are given as pieces. The file appears under its name only when
    whole.
    """
    path = Path(path)
    partial = path.with_name(path.name + ".part")
    table = list(sections)
    with open(partial, "wb") as file:
        file.write(_FILE_HEAD.pack(magic, version, len(table)))
        for section_id, pieces in table:
            file.write(_SECTION_HEAD.pack(section_id, sum(memoryview(piece).nbytes for piece in pieces)))
            for piece in pieces:
                file.write(piece)
    os.replace(partial, path)
