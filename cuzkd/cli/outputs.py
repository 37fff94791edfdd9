"""Where commands write: nobody loses a file because a name was mistyped.

Design: what is to be written is looked at before the work: names that differ, a folder that is there, nothing that is
in the way. A regular file is overwritten when --force says so; a pipe or a device never is replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cuzkd.errors import AlreadyExists, InvalidInput
from cuzkd.formats.files import written_whole

STANDARD = ("-", "/dev/stdout")


def require_free(outputs: Sequence[Path], sources: Sequence[Path], force: bool) -> None:
    """Each output is a file of its own, in a folder that is there, and nobody has it yet, or `force`. Raises
    InvalidInput, AlreadyExists.
    """
    paths = [*sources, *outputs]
    places = [path.resolve() for path in paths]
    for i, path in enumerate(paths):
        if i < len(sources):
            continue
        if places[i] in places[:i]:
            raise InvalidInput(f"{path}: named twice: files read and written must differ")
        if not path.parent.is_dir():
            raise InvalidInput(f"{path}: there is no folder {path.parent}")
        if not path.exists():
            continue
        if not path.is_file():
            what = "a folder" if path.is_dir() else "no regular file"
            raise AlreadyExists(f"{path}: is there already, and is {what}")
        if not force:
            raise AlreadyExists(f"{path}: is there already: --force overwrites it")


def write(data: str | bytes, out: Path | None, sources: Sequence[Path], force: bool) -> None:
    """To a file of its own; to what is no file (a pipe, a device) as it is; to standard output (None, "-") as lines,
    or as bytes. Raises as require_free, OSError.
    """
    raw = data.encode() if isinstance(data, str) else data
    if out is None or str(out) in STANDARD:
        if isinstance(data, str):
            print(data)
        else:
            sys.stdout.buffer.write(data)
    elif out.exists() and not out.is_file() and not out.is_dir():
        _write_into(out, raw)
    else:
        require_free([out], sources, force)
        with written_whole(out) as file:
            file.write(raw)


def _write_into(out: Path, raw: bytes) -> None:
    try:
        with open(out, "wb") as stream:
            stream.write(raw)
    except OSError as error:
        error.filename = str(out)  # a full device has no name
        raise
