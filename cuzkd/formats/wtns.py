"""The .wtns file: one witness, as circom's calculators and snarkjs write it.

    magic "wtns", version 2 | section 1: u32 n8, r (n8 bytes), u32 n | section 2: n values of n8 bytes

Values are little-endian and *canonical* (not Montgomery): wire 0 is the constant 1, then public outputs,
public inputs, private inputs, internal wires. Other provers read a cut witness as zeros and hand out an
invalid proof; here each way to be wrong has its own error. This module checks the frame and the header only.
That each value is below r, and that wire 0 is one, is checked where the values are copied
(`backend.cpu.copy_witness`), in native threads.
Life of data: the values are a window of the mapped file, closed by whoever opened it; nothing is copied here. Maps
are for the daemon's own spool files: a map of a file that somebody shortens faults.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from cuzkd.errors import InvalidWitness, MalformedFile
from cuzkd.formats import iden3, names

MAGIC = b"wtns"
VERSION = 2
HEADER, VALUES = 1, 2
NAMES = {HEADER: "header", VALUES: "values"}
N8 = 32  # bytes of a value: both scalar fields have four limbs


@dataclass(frozen=True)
class WitnessHeader:
    """What a witness file says about itself, checked against its length."""

    path: Path
    curve: str
    n_wires: int

    def require_fits(self, circuit: str, curve: str, n_wires: int) -> None:
        """Raise InvalidWitness unless this witness has the curve and the length of a circuit."""
        if self.curve != curve:
            raise InvalidWitness(
                f"{self.path}: expected a witness over {curve} (circuit {circuit}), "
                f"found one over {self.curve}"
            )
        if self.n_wires != n_wires:
            raise InvalidWitness(
                f"{self.path}: expected {n_wires} values (circuit {circuit}), found {self.n_wires}"
            )


class WitnessFile:
    """A mapped witness. `values`: n_wires x 32 bytes, little-endian, canonical if valid (NOT yet range-
    checked).
    """

    def __init__(self, header: WitnessHeader, values: memoryview, container: iden3.Container):
        self.header = header
        self.values = values
        self._container = container

    def close(self) -> None:
        """Unmap. Raises BufferError while an array made from `values` is alive."""
        self.values.release()
        self._container.close()

    def __enter__(self) -> WitnessFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def map(path: str | os.PathLike[str]) -> WitnessFile:
    """Map a witness file and check frame, header and lengths. Raises MalformedFile, InvalidWitness,
    InvalidInput.
    """
    container = iden3.open_container(path, MAGIC, VERSION, NAMES, mapped=True)
    try:
        header = _header(container)
        return WitnessFile(header, container.view(VALUES), container)
    except BaseException:
        container.close()
        raise


def read_header(path: str | os.PathLike[str]) -> WitnessHeader:
    """The checked header of a witness file, anybody's: its values are not touched, and nothing is mapped."""
    with iden3.open_container(path, MAGIC, VERSION, NAMES) as container:
        return _header(container)


def _header(container: iden3.Container) -> WitnessHeader:
    """Section 1, and that section 2 is as long as it says."""
    section = container.require(HEADER)
    head = bytes(container.part(HEADER, 0, 4 + N8 + 4))
    where = container.where(HEADER)
    if len(head) < 4:
        raise MalformedFile(f"{where}: expected {4 + N8 + 4} bytes, found {section.size}")
    (n8,) = struct.unpack_from("<I", head)
    if n8 != N8:
        raise MalformedFile(f"{where}: expected values of n8 = {N8} bytes, found n8 = {n8}")
    if section.size != 4 + N8 + 4:
        raise MalformedFile(f"{where}: expected {4 + N8 + 4} bytes, found {section.size}")
    prime = int.from_bytes(head[4 : 4 + N8], "little")
    curve = names.by_scalar_prime(prime)
    if curve is None:
        # The number is not told: in a file whose parts have moved it is a value of the witness.
        raise InvalidWitness(f"{where}: expected the prime r of {names.KNOWN}, found another number")
    (n_wires,) = struct.unpack_from("<I", head, 4 + N8)
    if n_wires == 0:
        raise MalformedFile(f"{where}: expected at least the constant wire, found 0 values")
    container.require(VALUES, n_wires * N8, because=f"{n_wires} values of {N8} bytes by the header")
    return WitnessHeader(container.path, curve, n_wires)


def write(path: str | os.PathLike[str], curve: str, values: Iterable[int]) -> None:
    """Write a witness file from plain ints. Raises InvalidWitness, naming the wire, for a value outside [0,
    r).
    """
    r = names.scalar_prime(curve)
    pieces: list[bytes] = []
    for wire, value in enumerate(values):
        if not 0 <= value < r:
            raise InvalidWitness(f"wire {wire}: value is not in [0, r) of {curve}")
        pieces.append(value.to_bytes(N8, "little"))
    head = struct.pack("<I", N8) + r.to_bytes(N8, "little") + struct.pack("<I", len(pieces))
    iden3.write_container(path, MAGIC, VERSION, [(HEADER, [head]), (VALUES, [b"".join(pieces)])])


def head(curve: str, n_wires: int) -> bytes:
    """All of a witness file that comes before its n_wires x 32 bytes of values: for whoever streams them."""
    section = (
        struct.pack("<I", N8) + names.scalar_prime(curve).to_bytes(N8, "little") + struct.pack("<I", n_wires)
    )
    frame = struct.pack("<4sII", MAGIC, VERSION, 2) + struct.pack("<IQ", HEADER, len(section))
    return frame + section + struct.pack("<IQ", VALUES, n_wires * N8)
