"""Constraint matrices in device memory, and their products with a witness that is there already.

Problem: a and b are 8.6 GB at 2^27 rows and cost the processor a second; the witness that they follow from is 4 GB, and
nearly all of it zeros and ones.
Design: the matrices stay beside the key, in 6 bytes an entry and 2 a row (kernels/packed_rows.cuh): wire and kind of
coefficient in one word, the coefficient's number in as few bytes as hold it, and of each row where it ends, counted
from where its group of 32 rows starts. Long rows are listed apart, because a whole warp sums each. Two bits for each
wire of the witness are made once (`planes`) and serve all matrices.
Life of the data: host arrays -> packed block by block, indices checked on the way, because a kernel would read beyond
its arrays -> device. No packed matrix is ever whole in host memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cuzkd import errors
from cuzkd.backend import cpu, nvrtc
from cuzkd.backend.ahead import ahead
from cuzkd.backend.cuda_device import Buffer, Lane, blocks
from cuzkd.backend.protocol import U32, U64, SparseMatrix
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

if TYPE_CHECKING:
    from cuzkd.backend.cuda_device import Device

WIRE_BITS = 30  # of an entry's word: in packed_rows.cuh, as are
FEW = 16  # and those two,
GROUP = 32
FAR = 0xFFFF
LONG_ROW = 16  # entries; a row of more is summed by a warp
BLOCK_ROWS = 1 << 20  # packed at a time, whole groups
THREADS, WARPS = 128, 4  # of a block of sparse_rows

Array = NDArray[Any]


@dataclass(frozen=True)
class _Long:
    """Rows that are summed by warps, and the entries [begins, ends) of each."""

    rows: U32
    begins: U64
    ends: U64


@dataclass(frozen=True)
class _Block:
    """Some rows, packed. arrays: words, classes, starts, ends, and where in the whole each begins, in bytes."""

    arrays: tuple[Array, Array, Array, Array]
    offsets: tuple[int, int, int, int]
    long: _Long


@dataclass(frozen=True)
class DeviceMatrix:
    """A SparseMatrix on the device."""

    curve: str
    n_rows: int
    n_cols: int
    class_bytes: int
    n_long: int
    parts: tuple[Buffer, ...]  # words, classes, starts, ends; table, lookup; long rows, begins, ends

    @classmethod
    def of(cls, curve: str, matrix: SparseMatrix, device: Device) -> DeviceMatrix:
        """Done on return. InvalidKey when rows do not fit entries or an index is out of bounds, InvalidInput for more
        than 2^30 columns.
        """
        if matrix.n_cols > 1 << WIRE_BITS:
            raise errors.InvalidInput(f"a matrix of {matrix.n_cols} columns: a device takes 2^{WIRE_BITS}")
        require_rows(matrix)
        nnz, width = len(matrix.cols), class_type(matrix).itemsize
        long: list[_Long] = []

        def pieces() -> Iterator[tuple[int, int, Array]]:
            begins = range(0, matrix.n_rows, BLOCK_ROWS)
            for block in ahead(lambda begin: pack(matrix, begin), begins):
                long.append(block.long)
                for number, (offset, array) in enumerate(zip(block.offsets, block.arrays, strict=True)):
                    yield number, offset, array

        groups = -(-matrix.n_rows // GROUP)
        bulk = device.put_pieces((4 * nnz, width * nnz, 8 * groups, 2 * matrix.n_rows), pieces())
        lists = _Long(
            *(
                np.concatenate([np.empty(0, kind), *(getattr(part, name) for part in long)])
                for name, kind in (("rows", np.uint32), ("begins", np.uint64), ("ends", np.uint64))
            )
        )
        rest = device.put_resident(
            [matrix.table, lookup(curve, matrix.table), lists.rows, lists.begins, lists.ends]
        )
        return cls(curve, matrix.n_rows, matrix.n_cols, width, len(lists.rows), (*bulk, *rest))

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def multiply(self, lane: Lane, z: Buffer, out: int, bits: Buffer | None = None) -> None:
        """matrix . z to the device address `out`: z CANONICAL [n_cols, 4] -> Montgomery [n_rows, 4].

        bits: of z, as planes() gives them; made here by default.
        """
        words, classes, starts, ends, table, entries, *long = self.parts
        bits = bits or planes(lane, self.curve, z, self.n_cols)
        grid = blocks(self.n_rows, THREADS) + -(-self.n_long // WARPS)
        lane.launch(
            nvrtc.Module("rows", self.curve), "sparse_rows", grid, THREADS,
            words, classes, self.class_bytes, table, entries, starts, ends, np.uint64(self.n_rows),
            np.uint32(LONG_ROW), *long, np.uint32(self.n_long), bits, z, np.uint64(out),
        )  # fmt: skip


def planes(lane: Lane, curve: str, z: Buffer, n: int) -> Buffer:
    """Two bits for each of n values, CANONICAL: is it 1, is it neither 0 nor 1."""
    out = lane.scratch(8 * blocks(n, 32))
    lane.launch(nvrtc.Module("rows", curve), "bit_planes", blocks(n, 256), 256, z, np.uint64(n), out)
    return out


def packed_bytes(matrix: SparseMatrix) -> int:
    """Of device memory that it takes, but for its lists of coefficients and of long rows."""
    nnz, n_rows = len(matrix.cols), matrix.n_rows
    return nnz * (4 + class_type(matrix).itemsize) + 2 * n_rows + 8 * (-(-n_rows // GROUP))


def class_type(matrix: SparseMatrix) -> np.dtype[Any]:
    """The narrowest that holds the number of a coefficient."""
    return np.min_scalar_type(len(matrix.table) - 1)


def lookup(curve: str, table: U64) -> U64:
    """-FEW .. FEW in Montgomery form, then the coefficients of a table so."""
    few = limbs.to_montgomery([v % CURVES[curve].r for v in range(-FEW, FEW + 1)], CURVES[curve].r)
    return np.concatenate([few, cpu.CpuBackend().field_op(curve, "fr", "from_mont", table)])


def pack(matrix: SparseMatrix, begin: int) -> _Block:
    """Up to BLOCK_ROWS rows from row `begin` on, the first of a group. InvalidKey when an index is out of bounds."""
    row_ptr = matrix.row_ptr[begin : begin + BLOCK_ROWS + 1]
    n_rows, first, last = len(row_ptr) - 1, int(row_ptr[0]), int(row_ptr[-1])
    cols, coeff = matrix.cols[first:last], matrix.coeff[first:last]
    _require_inside(matrix, first, cols, coeff)
    words = np.minimum(coeff, np.uint32(2))
    words <<= np.uint32(WIRE_BITS)
    words |= cols
    starts = row_ptr[:-1:GROUP].copy()
    ends = np.minimum(row_ptr[1:] - np.repeat(starts, GROUP)[:n_rows], np.uint64(FAR)).astype(np.uint16)
    short = (row_ptr[1:] - row_ptr[:-1] <= np.uint64(LONG_ROW)) & (ends < FAR)
    apart = np.flatnonzero(~short)
    long = _Long((apart + begin).astype(np.uint32), row_ptr[apart], row_ptr[apart + 1])
    kind = class_type(matrix)
    at = (4 * first, kind.itemsize * first, 8 * (begin // GROUP), 2 * begin)
    return _Block((words, coeff.astype(kind), starts, ends), at, long)


def _require_inside(matrix: SparseMatrix, first: int, cols: U32, coeff: U32) -> None:
    """Of entries from number `first` on."""
    if not len(cols) or (int(cols.max()) < matrix.n_cols and int(coeff.max()) < len(matrix.table)):
        return
    wrong = first + int(np.flatnonzero((cols >= matrix.n_cols) | (coeff >= len(matrix.table)))[0])
    row = int(np.searchsorted(matrix.row_ptr, wrong, side="right")) - 1
    raise errors.InvalidKey(f"matrix row {row}: an index of entry {wrong} is out of bounds")


def require_rows(matrix: SparseMatrix) -> None:
    """InvalidKey where the rows do not fit the entries."""
    rows = matrix.row_ptr
    counts = rows[0] == 0 and rows[-1] == len(matrix.cols) == len(matrix.coeff)
    if not counts or (rows[1:] < rows[:-1]).any():
        raise errors.InvalidKey(
            f"matrix of {matrix.n_rows} rows and {matrix.n_cols} columns: its rows do not fit its entries"
        )
