"""The container that .zkey, .wtns and .r1cs share: magic, version, then numbered sections in any order.

    4 bytes magic | u32 version | u32 number of sections | (u32 id | u64 size | bytes) ...

Numbers are little-endian.

Problem: every number in such a file may lie, and other readers then crash, hang, or make proofs from zeros.
Design: the table of sections is walked once against the *file's* length, and nothing is allocated from a number
that the file's length does not bear out. A reader then asks for sections by id, with the size that its own header
implies. Writers of the format put the sections in different orders (a fresh `snarkjs groth16 setup` and a
contributed key differ), so order means nothing; duplicates and bytes after the last section are refused.
Life of data: a `Container` holds the open file; a section's bytes are read when asked for, whole or in part, and
belong to whoever asked. Only where the file is ours is it mapped instead, and views of it are windows.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType

from cuzkd.errors import MalformedFile
from cuzkd.formats.files import FileBytes, MappedFile, RawFile, written_whole

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
    """An open container file whose table of sections has been checked against the file's length."""

    def __init__(self, file: FileBytes, sections: Mapping[int, Section], names: Mapping[int, str]):
        self.path = file.path
        self.sections = sections
        self._names = names
        self._file = file

    def require(self, section_id: int, expected_bytes: int | None = None, because: str = "") -> Section:
        """The section of that id. Raises MalformedFile when there is none, or when its size is not expected_bytes."""
        if section_id not in self.sections:
            named = Section(section_id, self._names.get(section_id, ""), 0, 0)
            raise MalformedFile(f"{self.path}: {named} is missing; found {sorted(self.sections)}")
        section = self.sections[section_id]
        if expected_bytes is not None and section.size != expected_bytes:
            why = f" ({because})" if because else ""
            raise MalformedFile(
                f"{self.path}: {section}: expected {expected_bytes} bytes{why}, found {section.size}"
            )
        return section

    def where(self, section_id: int) -> str:
        """File and section, for messages."""
        return f"{self.path}: {self.require(section_id)}"

    def view(self, section_id: int, expected_bytes: int | None = None, because: str = "") -> memoryview:
        """All bytes of a section, read-only. Raises as `require`, and MalformedFile when the file has shrunk."""
        section = self.require(section_id, expected_bytes, because)
        return self._file.read(section.offset, section.size)

    def part(self, section_id: int, begin: int, nbytes: int) -> memoryview:
        """Bytes [begin, begin + nbytes) of a section, fewer where it ends, read-only."""
        section = self.require(section_id)
        begin = min(begin, section.size)
        return self._file.read(section.offset + begin, min(nbytes, section.size - begin))

    def close(self) -> None:
        """Let go of the file. Raises BufferError while it is mapped and a view, or an array made from one, is alive."""
        self._file.close()

    def __enter__(self) -> Container:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_container(
    path: str | os.PathLike[str],
    magic: bytes,
    version: int,
    names: Mapping[int, str],
    *,
    mapped: bool = False,
) -> Container:
    """Open a file and check its frame: magic, version, and that its sections fill it exactly, each id once.

    names: what the format calls each section, for messages. mapped: for files that nobody else may shorten. Raises
    MalformedFile, InvalidInput.
    """
    file = MappedFile(path) if mapped else RawFile(path)
    try:
        return Container(file, _walk(file, magic, version, names), names)
    except BaseException:
        file.close()
        raise


def _walk(file: FileBytes, magic: bytes, version: int, names: Mapping[int, str]) -> dict[int, Section]:
    path, length = file.path, file.size
    if length < _FILE_HEAD.size:
        raise MalformedFile(
            f"{path}: expected at least {_FILE_HEAD.size} bytes of file header, found {length}: file is cut"
        )
    found_magic, found_version, count = _FILE_HEAD.unpack(bytes(file.read(0, _FILE_HEAD.size)))
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
        section_id, size = _SECTION_HEAD.unpack(bytes(file.read(at, _SECTION_HEAD.size)))
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
    return sections


def write_container(
    path: str | os.PathLike[str],
    magic: bytes,
    version: int,
    sections: Iterable[tuple[int, Iterable[bytes | memoryview]]],
) -> None:
    """Write a container; each section's bytes come in pieces, which are taken one at a time.

    The file appears under its name only when it is whole and on the disk; when a piece cannot be had, nothing stays.
    """
    table = list(sections)
    with written_whole(path) as file:
        file.write(_FILE_HEAD.pack(magic, version, len(table)))
        for section_id, pieces in table:
            head = file.tell()
            file.write(_SECTION_HEAD.pack(section_id, 0))
            for piece in pieces:
                file.write(piece)
            end = file.tell()
            file.seek(head)
            file.write(_SECTION_HEAD.pack(section_id, end - head - _SECTION_HEAD.size))
            file.seek(end)
