"""A real .zkey taken apart and put together again with changes, for tests that make it lie."""

import struct
from pathlib import Path

from cuzkd.formats import iden3, zkey

VECTORS = Path(__file__).parent.parent / "vectors"


def sections_of(path):
    """{id: bytearray} in the order of the file."""
    file = iden3.open_container(path, b"zkey", 1, zkey.NAMES)
    return {s.id: bytearray(file.view(s.id)) for s in sorted(file.sections.values(), key=lambda s: s.offset)}


def assemble(sections):
    body = b"".join(struct.pack("<IQ", i, len(data)) + data for i, data in sections.items())
    return struct.pack("<4sII", b"zkey", 1, len(sections)) + body


def put(section, at, fmt, value):
    """Overwrite a number in a section."""
    struct.pack_into(fmt, section, at, value)


# Offsets in section 2 of a key over bn254.
N8Q, Q, N8R, R, N_WIRES, N_PUBLIC, DOMAIN = 0, 4, 36, 40, 72, 76, 80
ENTRY = 44  # bytes of an entry of section 4, after a count of 4 bytes
