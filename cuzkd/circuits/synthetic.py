"""A circuit in the shape of a PoRep partition, of exactly n constraints, n from 2^10 to a curve's largest domain.

One partition of a 32 GiB sector has 130,278,869 constraints, with 0.999 variables and 2.37 / 1.00 / 2.17 entries of
A / B / C each; a quarter of the variables occur in B, and about 95 % of the witness is 0 or 1. What a proof costs
depends on such numbers, not on what is proved: with this circuit keys, proofs and memory can be tried at full size
without Filecoin's parameters.

    wires   0 the constant, 1 the public digest, then the wires of tile after tile, the last tile cut
    rows    x_last of the first tile = digest, then the rows of tile after tile, the last tile cut

Problem: A, B and C take 8.9 GB at full size, a witness 4.2 GB.
Design: one tile (circuits/synthetic_tile.py) repeated. Tiles differ by what is added to their wires and entries,
so arrays are filled tile-wise by threads, straight into where they stay. The last tile is cut after any row.
Life of data: constraints() and witness() make new arrays at each call and keep none. A (curve, n) always gives the same
circuit, a (curve, n, seed) the same witness.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cuzkd.backend.protocol import U64, SparseMatrix
from cuzkd.circuits.synthetic_tile import ONE, SAMPLES, SIBLINGS, VALUE, Values
from cuzkd.circuits.synthetic_tile import tile as tile_of
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput
from cuzkd.formats import wtns
from cuzkd.groth16.constraints import Constraints

DIGEST = 1  # wire
N_PUBLIC = 1
HEAD = 1  # rows before the first tile, and their entries in each matrix: x_last * 1 = digest
MIN_CONSTRAINTS = 1 << 10
# Tiles that a thread takes at a time: 33 MB of witness. The fewer, the more the interpreter shows: a witness for 4
# million constraints took 280 ms with 16, 38 ms with 256, 27 ms with 1024 (2 cores of an Intel Xeon).
CHUNK_TILES = 1024

# Where `count` values from wire `first` on are to be written, for as long as the context lasts.
Window = Callable[[int, int], AbstractContextManager[Values]]


@dataclass(frozen=True)
class Shape:
    """What the cost of a proof depends on.

    per_row      entries of A, B, C for each row, those that bind public wires included
    in_a, in_b   share of wires that occur in A, in B: the sizes of those sums
    bits         share of wires that are 0 or 1 in every witness
    units        share of entries that are +1 or -1
    coefficients distinct ones, over the three matrices
    """

    n_constraints: int
    n_wires: int
    per_row: tuple[float, float, float]
    in_a: float
    in_b: float
    bits: float
    units: float
    coefficients: int


@dataclass(frozen=True)
class _Draws:
    """What a seed decides for each of n tiles, the cut one included.

    choice: uint8[n], a sample of the tile. siblings: [SIBLINGS, n, 4], CANONICAL, below r.
    """

    choice: NDArray[np.uint8]
    siblings: U64


class Synthetic:
    """The circuit of n_constraints over a curve. threads: those that fill arrays, by default one per processor.

    Raises InvalidInput for an unknown curve, or a size below 2^10 or beyond the domains of the curve.
    """

    def __init__(self, curve: str, n_constraints: int, threads: int | None = None) -> None:
        if curve not in CURVES:
            raise InvalidInput(f"curve: expected one of {', '.join(CURVES)}, got '{curve}'")
        # A domain takes n_constraints + n_public + 1 rows, and its double must have a root of unity. Wires are at most
        # as many as rows, so their indices fit 32 bits.
        largest = (1 << (CURVES[curve].two_adicity - 1)) - N_PUBLIC - 1
        if not MIN_CONSTRAINTS <= n_constraints <= largest:
            raise InvalidInput(
                f"n_constraints: expected {MIN_CONSTRAINTS} to {largest} on {curve}, got {n_constraints}"
            )
        self.curve = curve
        self.n_constraints = n_constraints
        self.n_public = N_PUBLIC
        self.threads = threads or len(os.sched_getaffinity(0))
        self.tile = tile_of(curve)
        self._n_tiles, self._cut_rows = divmod(n_constraints - HEAD, self.tile.n_rows)
        self._cut_wires = int(self.tile.wires_after[self._cut_rows])
        self.n_wires = 1 + self._offset(self._n_tiles) + self._cut_wires

    def constraints(self) -> Constraints:
        """A, B, C with the rows that bind the public wires: 68 bytes a constraint, 8.9 GB at full size."""
        a, b, c = self.tile.matrices
        return Constraints(
            self.curve,
            N_PUBLIC,
            self._tiled(a, self._offset(0) + self.tile.digest_wire, binds=True),
            self._tiled(b, ONE),
            self._tiled(c, DIGEST),
        )

    def witness(self, seed: int, out: U64 | None = None) -> U64:
        """A witness that satisfies all constraints: uint64[n_wires, 4], CANONICAL. Every seed has its own.

        out: the array to fill (a lease, say), else a new one. Raises InvalidInput when it does not fit.
        """
        if out is None:
            out = np.empty((self.n_wires, limbs.FR_LIMBS), np.uint64)
        if (
            out.shape != (self.n_wires, limbs.FR_LIMBS)
            or out.dtype != np.uint64
            or not out.flags.c_contiguous
        ):
            raise InvalidInput(
                f"out: expected a contiguous uint64 array of shape {(self.n_wires, limbs.FR_LIMBS)}, "
                f"got {out.dtype} of shape {out.shape}"
            )
        values = out.view(VALUE)[:, 0]

        @contextmanager
        def window(first: int, count: int) -> Iterator[Values]:
            yield values[first : first + count]

        self._fill(seed, window)
        return out

    def write_witness(self, path: str | os.PathLike[str], seed: int) -> None:
        """witness(seed) as a .wtns file, which appears under its name only when whole.

        Threads write it piece by piece: in memory there are CHUNK_TILES tiles of each.
        """
        head = struct.pack(
            "<4sII IQ I32sI IQ",
            *(wtns.MAGIC, wtns.VERSION, 2),
            *(wtns.HEADER, 4 + wtns.N8 + 4),
            *(wtns.N8, CURVES[self.curve].r.to_bytes(wtns.N8, "little"), self.n_wires),
            *(wtns.VALUES, self.n_wires * wtns.N8),
        )
        path = Path(path)
        partial = path.with_name(path.name + ".part")

        # Written, not mapped: on a full disk a mapping ends the process, a write raises.
        @contextmanager
        def window(first: int, count: int) -> Iterator[Values]:
            values = np.empty(count, VALUE)
            yield values
            with open(partial, "r+b") as file:
                file.seek(len(head) + first * wtns.N8)
                file.write(values.view(np.uint8).data)

        try:
            partial.write_bytes(head)
            os.truncate(partial, len(head) + self.n_wires * wtns.N8)
            self._fill(seed, window)
            os.replace(partial, path)
        except BaseException as error:
            partial.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename is None:  # of a write: the disk is full, say
                error.filename = str(path)
            raise

    def shape(self) -> Shape:
        """Counted from the tile; no array is made."""
        tile, n_bound = self.tile, N_PUBLIC + 1
        # The first row and those that bind: their entries; in A the public wires and x_last, in B the constant.
        total = np.array([HEAD + n_bound, HEAD, HEAD, 0, n_bound + 1, 1, N_PUBLIC])
        total += self._n_tiles * tile.counts(tile.n_rows) + tile.counts(self._cut_rows)
        *entries, others, in_a, in_b, field = total.tolist()
        a, b, c = (n / (self.n_constraints + n_bound) for n in entries)
        return Shape(
            n_constraints=self.n_constraints,
            n_wires=self.n_wires,
            per_row=(a, b, c),
            in_a=in_a / self.n_wires,
            in_b=in_b / self.n_wires,
            bits=1 - field / self.n_wires,
            units=1 - others / sum(entries),
            coefficients=len({value for m in tile.matrices for value in limbs.to_ints(m.table)}),
        )

    def _offset(self, tile: int) -> int:
        """What is added to a wire of a tile, other than the constant."""
        return N_PUBLIC + tile * self.tile.n_wires

    def _tiled(self, matrix: SparseMatrix, head: int, binds: bool = False) -> SparseMatrix:
        """The tile's matrix for all tiles. head: the wire of the first row. binds: the last rows bind public wires."""
        n_tiles, rows, cut, n_bound = self._n_tiles, self.tile.n_rows, self._cut_rows, N_PUBLIC + 1
        row_ptr, size, cut_size = matrix.row_ptr, int(matrix.row_ptr[rows]), int(matrix.row_ptr[cut])
        local, local_coeff = matrix.cols[:size], matrix.coeff[:size]
        moves = (local != ONE).astype(np.uint32)

        # Entries (and rows alike): the first row's, the tiles', the cut tile's, those that bind.
        at_cut = HEAD + n_tiles * size
        at_bound = at_cut + cut_size
        cols = np.empty(at_bound + n_bound * binds, np.uint32)
        coeff = np.empty_like(cols)
        starts = np.empty(HEAD + n_tiles * rows + cut + n_bound + 1, np.uint64)
        ends = starts[1:]
        tile_cols, tile_coeff = (x[HEAD:at_cut].reshape(n_tiles, size) for x in (cols, coeff))
        tile_ends = ends[HEAD:][: n_tiles * rows].reshape(n_tiles, rows)

        def fill(begin: int, stop: int) -> None:
            tiles = np.arange(begin, stop, dtype=np.uint64)[:, None]
            offsets = (tiles * np.uint64(self.tile.n_wires) + np.uint64(N_PUBLIC)).astype(np.uint32)
            np.multiply(offsets, moves, out=tile_cols[begin:stop])
            tile_cols[begin:stop] += local
            tile_coeff[begin:stop] = local_coeff
            np.add(
                tiles * np.uint64(size) + np.uint64(HEAD), row_ptr[1 : rows + 1], out=tile_ends[begin:stop]
            )

        self._in_threads(fill)
        cols[:HEAD], coeff[:HEAD] = head, 0
        cols[at_cut:at_bound] = local[:cut_size] + moves[:cut_size] * np.uint32(self._offset(n_tiles))
        coeff[at_cut:at_bound] = local_coeff[:cut_size]
        cols[at_bound:], coeff[at_bound:] = np.arange(n_bound * binds), 0
        starts[0], ends[:HEAD] = 0, HEAD
        ends[HEAD + n_tiles * rows :][:cut] = row_ptr[1 : cut + 1] + np.uint64(at_cut)
        ends[-n_bound:] = at_bound + np.arange(1, n_bound + 1) * binds
        return SparseMatrix(self.n_wires, starts, cols, coeff, matrix.table)

    def _fill(self, seed: int, window: Window) -> None:
        """The witness of a seed, window by window."""
        draws, width = self._draws(seed), self.tile.n_wires

        def solve(begin: int, stop: int, out: Values) -> None:
            siblings = draws.siblings[:, begin:stop]
            self.tile.solve(draws.choice[begin:stop], siblings, out.reshape(stop - begin, width))

        def tiles(begin: int, stop: int) -> None:
            with window(1 + self._offset(begin), (stop - begin) * width) as out:
                solve(begin, stop, out)

        self._in_threads(tiles)
        one = np.empty(width, VALUE)
        solve(self._n_tiles, self._n_tiles + 1, one)
        with window(1 + self._offset(self._n_tiles), self._cut_wires) as out:
            out[:] = one[: self._cut_wires]
        solve(0, 1, one)
        with window(0, 1 + N_PUBLIC) as out:
            out[ONE] = np.void((1).to_bytes(VALUE.itemsize, "little"))
            out[DIGEST] = one[self.tile.digest_wire - 1]

    def _draws(self, seed: int) -> _Draws:
        name = f"cuzkd synthetic witness {self.curve} {self.n_constraints} {seed}"
        n = self._n_tiles + 1
        # The raw words of a bit generator are the same in every version of numpy; those of a Generator need not be.
        source = np.random.PCG64(int.from_bytes(hashlib.blake2b(name.encode()).digest(), "big"))
        choice = (source.random_raw(n) % np.uint64(SAMPLES)).astype(np.uint8)
        siblings = source.random_raw(SIBLINGS * n * limbs.FR_LIMBS).reshape(SIBLINGS, n, limbs.FR_LIMBS)
        below_r = CURVES[self.curve].r.bit_length() - 1
        siblings[..., -1] >>= np.uint64(64 * limbs.FR_LIMBS - below_r)
        return _Draws(choice, siblings)

    def _in_threads(self, work: Callable[[int, int], None]) -> None:
        """work(begin, stop) over all whole tiles, CHUNK_TILES at a time."""
        begins = range(0, self._n_tiles, CHUNK_TILES)
        with ThreadPoolExecutor(self.threads) as pool:
            for _ in pool.map(lambda i: work(i, min(i + CHUNK_TILES, self._n_tiles)), begins):
                pass
