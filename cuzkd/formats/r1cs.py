"""The .r1cs file: a constraint system as circom's compiler writes it. It has C, which a .zkey lacks.

    1   u32 n8, r (n8 bytes), u32 n_wires, n_public_outputs, n_public_inputs, n_private_inputs, u64 n_labels,
        u32 n_constraints
    2   per constraint A, B and C: u32 number of terms, then (u32 wire, n8 bytes coefficient) a term
    3   u64 label of each wire: what debuggers call it
    4,5 custom gates, of PLONK

All is little-endian, coefficients are canonical. Wire 0 is the constant 1, then come public outputs, public
inputs, private inputs, internal wires.

Problem: section 2 is a stream of no fixed length, a gigabyte perhaps, in which each count and index may lie; and a
file may be one hole: terabytes of zeros that take no room on the disk of whoever made it.
Design: the header's counts are held against the lengths of sections 2 and 3 first (a constraint takes 12 bytes at
least, a wire 8) and against the largest domain that the curve has, so nothing is sized by a lie; native code then walks
section 2 block by block, all of it checked (readers_r1cs.hpp). Labels are not looked at. Constraints come out in order
and in normal form: within a row wires ascend, duplicates are summed (bellman's densities depend on it), zeros are left
out. The rows that bind public wires are appended.
Life of data: section 2 is read twice, to count and to fill, a block at a time. What stays are 24 bytes a row, twice
what a constraint without terms has in the file, hole or not (at most 2^27 rows on BN254, 3 GiB; 2^31 on BLS12-381,
48 GiB), and a quarter of the bytes of the terms that are not zero.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cuzkd.backend import readers
from cuzkd.backend.protocol import SparseMatrix
from cuzkd.curves import limbs, params
from cuzkd.errors import InvalidKey, MalformedFile
from cuzkd.formats import iden3, names
from cuzkd.groth16.constraints import Constraints

MAGIC = b"r1cs"
VERSION = 1
HEADER, CONSTRAINTS, LABELS, GATES, GATE_USES = range(1, 6)
NAMES = {
    HEADER: "header", CONSTRAINTS: "constraints", LABELS: "wire to label", GATES: "custom gates list",
    GATE_USES: "custom gates application",
}  # fmt: skip
N8 = 32  # bytes of a coefficient: both scalar fields have four limbs
_COUNTS = struct.Struct("<IIIIQI")
_HEADER_BYTES = 4 + N8 + _COUNTS.size
_LEAST_CONSTRAINT = 12  # bytes: three counts
_LABEL = 8
BLOCK_BYTES = 16 << 20  # of section 2 at a time
_ROWS_AT_ONCE = 1 << 16  # of the writer


@dataclass(frozen=True)
class R1csHeader:
    """Section 1, checked against the lengths of sections 2 and 3. n_wires: the constant 1 included."""

    curve: str
    n_wires: int
    n_public_outputs: int
    n_public_inputs: int
    n_private_inputs: int
    n_labels: int
    n_constraints: int

    @property
    def n_public(self) -> int:
        return self.n_public_outputs + self.n_public_inputs


def read(path: str | os.PathLike[str]) -> Constraints:
    """Read and check a constraint system. Raises MalformedFile, naming constraint and matrix of a lie, InvalidKey for
    a field that is not of our curves or for custom gates, InvalidInput for what is no file.
    """
    with iden3.open_container(path, MAGIC, VERSION, NAMES) as file:
        head = _header(file)
        a, b, c = readers.r1cs_matrices(
            head.curve, lambda: _blocks(file), file.require(CONSTRAINTS).size, head.n_wires, head.n_constraints,
            head.n_public + 1, file.where(CONSTRAINTS),
        )  # fmt: skip
    return Constraints(head.curve, head.n_public, a, b, c)


def _blocks(file: iden3.Container) -> Iterator[memoryview]:
    """Section 2 from its beginning."""
    for begin in range(0, file.require(CONSTRAINTS).size, BLOCK_BYTES):
        yield file.part(CONSTRAINTS, begin, BLOCK_BYTES)


def read_header(path: str | os.PathLike[str]) -> R1csHeader:
    """What the file says it holds; the constraints are not read. Raises as `read`."""
    with iden3.open_container(path, MAGIC, VERSION, NAMES) as file:
        return _header(file)


def _header(file: iden3.Container) -> R1csHeader:
    where = file.where(HEADER)
    for section_id in (GATES, GATE_USES):
        if section_id in file.sections:
            raise InvalidKey(
                f"{file.where(section_id)}: expected none: Groth16 has no custom gates, only PLONK has"
            )
    head = bytes(file.part(HEADER, 0, _HEADER_BYTES))
    if len(head) < 4:
        raise MalformedFile(f"{where}: expected {_HEADER_BYTES} bytes, found {len(head)}")
    (n8,) = struct.unpack_from("<I", head)
    if n8 != N8:
        raise MalformedFile(f"{where}: expected coefficients of n8 = {N8} bytes, found n8 = {n8}")
    file.require(HEADER, _HEADER_BYTES)
    prime = int.from_bytes(head[4 : 4 + N8], "little")
    curve = names.by_scalar_prime(prime)
    if curve is None:
        raise InvalidKey(f"{where}: expected the prime r of {names.KNOWN}, found {prime}")
    header = R1csHeader(curve, *_COUNTS.unpack_from(head, 4 + N8))
    named = 1 + header.n_public + header.n_private_inputs
    if named > header.n_wires:
        raise MalformedFile(
            f"{where}: expected at least {named} wires (the constant, {header.n_public_outputs} public outputs, "
            f"{header.n_public_inputs} public inputs, {header.n_private_inputs} private inputs), "
            f"found {header.n_wires}"
        )
    largest = 1 << (params.CURVES[curve].two_adicity - 1)  # the quotient is computed on its double
    if (rows := header.n_constraints + header.n_public + 1) > largest:
        raise MalformedFile(
            f"{where}: expected at most {largest} rows on {curve}, found {rows} ({header.n_constraints} constraints, "
            f"{header.n_public} public wires, the constant)"
        )
    file.require(LABELS, _LABEL * header.n_wires, because=f"{header.n_wires} labels by the header")
    section = file.require(CONSTRAINTS)
    if section.size < _LEAST_CONSTRAINT * header.n_constraints:
        raise MalformedFile(
            f"{file.where(CONSTRAINTS)}: expected at least {_LEAST_CONSTRAINT * header.n_constraints} bytes "
            f"({header.n_constraints} constraints by the header), found {section.size}"
        )
    return header


def write(path: str | os.PathLike[str], constraints: Constraints) -> None:
    """Write a constraint system, without the rows that bind the public wires: `read` appends them again.

    `Constraints` knows only how many wires are public, so all of these are written as public inputs, all others as
    internal, and a wire's label is its number. Raises InvalidKey when C is not known (keys from a .zkey).
    """
    a, b, c = constraints.a, constraints.b, constraints.c
    if c is None:
        raise InvalidKey(f"{path}: an .r1cs holds A, B and C, and of this system C is not known")
    n_wires = constraints.n_wires
    head = (
        struct.pack("<I", N8)
        + names.scalar_prime(constraints.curve).to_bytes(N8, "little")
        + _COUNTS.pack(n_wires, 0, constraints.n_public, 0, n_wires, constraints.n_constraints)
    )
    iden3.write_container(
        path,
        MAGIC,
        VERSION,
        [
            (HEADER, [head]),
            (CONSTRAINTS, _rows(constraints.curve, (a, b, c), constraints.n_constraints)),
            (LABELS, [np.arange(n_wires, dtype="<u8").data.cast("B")]),
        ],
    )


def _rows(curve: str, matrices: tuple[SparseMatrix, ...], n_rows: int) -> Iterator[memoryview]:
    """Section 2, some rows at a time, built in 32-bit words: a count is one of them, a term nine."""
    tables = [_canonical(curve, matrix) for matrix in matrices]
    for begin in range(0, n_rows, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, n_rows)
        pointers = [matrix.row_ptr[begin : end + 1].astype(np.int64) for matrix in matrices]
        # In the order of the file: A, B, C of the first row, of the second ...
        lengths = np.stack([np.diff(pointer) for pointer in pointers], axis=1)
        ends = np.cumsum(1 + 9 * lengths.reshape(-1)).reshape(lengths.shape)
        starts = ends - 1 - 9 * lengths
        words = np.empty(int(ends[-1, -1]), "<u4")
        words[starts] = lengths
        for i, (matrix, pointer) in enumerate(zip(matrices, pointers, strict=True)):
            terms = slice(pointer[0], pointer[-1])
            of_row = np.repeat(starts[:, i] + 1 - 9 * (pointer[:-1] - pointer[0]), lengths[:, i])
            at = of_row + 9 * np.arange(len(of_row))
            words[at] = matrix.cols[terms]
            words[at[:, None] + np.arange(1, 9)] = tables[i][matrix.coeff[terms]]
        yield words.data.cast("B")


def _canonical(curve: str, matrix: SparseMatrix) -> NDArray[np.uint32]:
    """The coefficients of a matrix's table as plain numbers of eight 32-bit words."""
    r = params.CURVES[curve].r
    once = limbs.from_montgomery(matrix.table, r)
    plain = limbs.from_montgomery(limbs.from_ints(once, limbs.FR_LIMBS), r)
    return limbs.from_ints(plain, limbs.FR_LIMBS).astype("<u8").view("<u4").reshape(-1, 8)
