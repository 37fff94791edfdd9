"""A witness that can be recognised, in all the forms in which it might lie about, and where to look for it."""

import re
from pathlib import Path

import pytest

from cuzkd.circuits import builtin
from cuzkd.curves.params import CURVES

# 31 bytes without a pattern: nothing else looks like them.
MARKER = 0x5EC12E70FAC11E4700DDBA11C0FFEE15900D7EA50F7E11A5EC12E7B00B1E55
CHUNK = 16 << 20


def secrets(curve, n_rounds, preimage):
    """Values of a chain's witness that nobody but its owner may know: first, middle and last."""
    wires = builtin.witness(curve, n_rounds, preimage)
    return [preimage, wires[len(wires) // 2], wires[-1]]


def forms(curve, value):
    """{name: bytes}: canonical in both orders, Montgomery, and as text."""
    r = CURVES[curve].r
    found = {
        "little": value.to_bytes(32, "little")[:31],
        "big": value.to_bytes(32, "big")[1:],
        "montgomery": (value * pow(2, 256, r) % r).to_bytes(32, "little"),
        "decimal": str(value).encode(),
        "hexadecimal": f"{value:x}".encode(),
        "hexadecimal, little": value.to_bytes(32, "little").hex().encode()[:62],
    }
    return found


def marks(curve, values):
    return {
        f"{name} of {i}": data for i, value in enumerate(values) for name, data in forms(curve, value).items()
    }


def in_text(text, wanted):
    """Names of the marks that a text (str or bytes) holds, whatever its case."""
    data = (text.encode() if isinstance(text, str) else text).lower()
    return [name for name, mark in wanted.items() if mark in data or mark.lower() in data]


def in_files(folder, wanted):
    """{file: names} below a folder."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            if names := [name for name, mark in wanted.items() if mark in data]:
                found[str(path.relative_to(folder))] = names
    return found


def in_memory(pid, wanted):
    """{region: names} of whatever a process may write to. Skips the test where we may not look."""
    found = {}
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
        memory = open(f"/proc/{pid}/mem", "rb", buffering=0)  # noqa: SIM115
    except PermissionError:
        pytest.skip("the memory of a process that is not dumpable is seen by root alone")
    with memory:
        for line in maps.splitlines():
            begin, end, access, name = re.match(r"(\w+)-(\w+) (\S+) \S+ \S+ \S+\s*(.*)", line).groups()
            if "w" not in access or name.startswith("[v"):
                continue
            if names := _in_region(memory, int(begin, 16), int(end, 16), wanted):
                found[f"{line[:60].split()[0]} {name}"] = names
    return found


def _in_region(memory, begin, end, wanted):
    names, tail = set(), b""
    while begin < end:
        try:
            memory.seek(begin)
            data = memory.read(min(CHUNK, end - begin))
        except OSError:  # it is gone meanwhile
            break
        if not data:
            break
        text = tail + data
        names |= {name for name, mark in wanted.items() if mark in text}
        begin, tail = begin + len(data), text[-80:]
    return sorted(names)
