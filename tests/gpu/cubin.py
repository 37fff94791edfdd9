"""What the compiler made of a kernel, read from its cubin: instructions by kind, registers, memory for spills.

Problem: a compiler that stops fusing the two halves of a product, or spills, makes kernels twice as slow and breaks no
test; and a machine without a GPU has no disassembler either.
Design: a cubin is an ELF file with a section of code for each kernel, which holds the functions it calls as well.
Instructions since Volta are 16 bytes: the lowest 9 bits say what it does, the next 3 where its operands are (register,
constant memory, the instruction itself). The table below has what kernels of numbers are made of; it was taken from the
output of nvdisasm, and test_counts.py compares the two where that is installed.
"""

from __future__ import annotations

import struct
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cuzkd.backend import nvrtc

KINDS = {
    0x002: "mov", 0x003: "p2r", 0x007: "sel", 0x00C: "isetp", 0x010: "iadd3", 0x011: "lea", 0x012: "lop3",
    0x017: "imnmx", 0x019: "shf", 0x024: "imad", 0x025: "imad.wide", 0x027: "imad.hi", 0x029: "dadd",
    0x02B: "dfma", 0x035: "hfma2.mma", 0x048: "vimnmx", 0x118: "nop", 0x144: "call.rel", 0x147: "bra",
    0x14D: "exit", 0x150: "ret.rel", 0x181: "ldg", 0x182: "ldc", 0x183: "ldl", 0x184: "lds", 0x186: "stg",
    0x187: "stl", 0x188: "sts",
}  # fmt: skip
ARCHS = ("sm_80", "sm_90")
REGISTER_COUNT, FRAME_BYTES = 0x2F, 0x11  # attributes of .nv.info
SIZED = 4  # the format of an attribute that says how long it is
NO_REGISTER = 255  # RZ: reads as zero


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="cubins-")


@cache
def compiled(arch: str) -> dict[nvrtc.Module, Path]:
    """Every module's cubin, for all tests of this process. Needs NVRTC."""
    where = Path(_folder().name, arch)
    where.mkdir()
    return nvrtc.CubinCache(arch, where).get_all(nvrtc.all_modules(), threads=2)


@dataclass(frozen=True)
class Kernel:
    """counts: instructions by kind, of this kernel and the functions it calls. `imad` are products alone: those that
    only move, add or shift are `imad.other`, and "0x1ab" are those that KINDS does not have.
    """

    counts: Counter[str]
    registers: int
    frame_bytes: int

    @property
    def wide(self) -> int:
        """Products of 32 by 32 bits of which the high half is used: what the multiply pipe is busy with."""
        return self.counts["imad.wide"] + self.counts["imad.hi"]

    @property
    def local(self) -> int:
        """Loads from and stores to local memory: spills, or arrays and operands that are not in registers."""
        return self.counts["ldl"] + self.counts["stl"]


def kernels(cubin: bytes) -> dict[str, Kernel]:
    """Every kernel of a cubin by name."""
    if cubin[:4] != b"\x7fELF":
        raise ValueError(f"expected an ELF file, got {cubin[:4]!r}")
    (at,) = struct.unpack_from("<Q", cubin, 0x28)
    size, n, names_index = struct.unpack_from("<3H", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + i * size) for i in range(n)]

    def content(header: tuple[int, ...]) -> bytes:
        return cubin[header[4] : header[4] + header[5]]

    names = content(headers[names_index])
    sections = {_string(names, header[0]): header for header in headers}
    symbols, strings = content(sections[".symtab"]), content(sections[".strtab"])
    facts = _attributes(content(sections[".nv.info"]), symbols, strings)
    return {
        name: Kernel(
            Counter(map(kind, _instructions(content(header)))),
            facts[name, REGISTER_COUNT],
            facts.get((name, FRAME_BYTES), 0),
        )
        for name, header in (
            (key.removeprefix(".text."), h) for key, h in sections.items() if key[:6] == ".text."
        )
    }


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(0, at)].decode()


def _instructions(code: bytes) -> list[tuple[int, int]]:
    words = struct.unpack(f"<{len(code) // 8}Q", code)
    return list(zip(words[::2], words[1::2], strict=True))


def kind(instruction: tuple[int, int]) -> str:
    """Of an instruction as two words of 64 bits, the low one first."""
    low, high = instruction
    name = KINDS.get(low & 0x1FF, hex(low & 0x1FF))
    return "imad.other" if name == "imad" and not _multiplies(low, high) else name


def _multiplies(low: int, high: int) -> bool:
    """Whether an IMAD is a product. Its factors: a register, and by the place of operands another one or a number."""
    place, a, b = low >> 9 & 7, low >> 24 & 255, low >> 32
    if a == NO_REGISTER:
        return False
    if place == 1:
        return b & 255 != NO_REGISTER
    if place == 4:
        return b & (b - 1) != 0  # 0, 1 or a power of two: to move, add or shift
    if place in (2, 3):
        return high & 255 != NO_REGISTER
    return True


def _attributes(info: bytes, symbols: bytes, strings: bytes) -> dict[tuple[str, int], int]:
    """By symbol and number of the attribute, those that name a symbol and a number."""
    found, at = {}, 0
    while at < len(info):
        form, number, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != SIZED:
            continue
        if size == 8:
            symbol, value = struct.unpack_from("<II", info, at)
            (name_at,) = struct.unpack_from("<I", symbols, 24 * symbol)
            found[_string(strings, name_at), number] = value
        at += size
    return found
