"""Transforms and the quotient on the device: passes, and the order of steps.

Problem: the six transforms of a quotient are bound by products, so memory must not be in their way, nor launches where
they are small; and no proof may wait for constants.
Design: a network of log n layers is cut into passes over device memory, one for up to 2^9, two up to 2^20, three up to
2^29, so that few steps of three layers (kernels/octet.cuh) do it; all passes but the last join elements far apart. What
lies between transforms is part of a pass that has the values in registers anyway:
  c = a b           in the first pass of `down` on all three
  the odd coset     between the last pass of `down` and the first of `up`, which are one kernel on the same tiles
  circom's a b - c  in the last pass of `up`
  bellman           c stays behind as coefficients; the product of a and b goes from the last pass of `up` into the
                    first of `down`, and the coefficients of h are put together in the last pass of all
`Transforms` belongs to a lane, a curve and a root family. All work goes to that lane in the order of the calls;
nothing here waits. What it keeps is made by `prepare`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from cuzkd import errors
from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Buffer, Lane, blocks
from cuzkd.backend.cuda_twiddles import FR_BYTES, LOG_TILE, TABLE_SHARE, Twiddles
from cuzkd.backend.protocol import REDUCTIONS, U64
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

__all__ = ["FR_BYTES", "Shape", "Transforms", "layers"]

LOG_ONE_PASS = 9  # up to this size
LOG_LAST = 11  # layers of the last pass at most: all of a tile
LOG_WIDE = 9  # of the others: leaves two neighbours, 64 bytes, in a usual tile, and four in the largest
LOG_LEAST_TILE = 8  # a warp
LOG_USUAL_TILE = 10  # four blocks on a multiprocessor rather than two: they load while others work
TILES = 2  # for each processor, at least, before tiles are made smaller
FUSED_TILES = 1.5  # likewise, before passes do three vectors one after another


def layers(log_n: int) -> tuple[int, ...]:
    """Layers of each pass of `down`; `up` goes through them backwards. Three or more, but for fewer than 2^3 elements.

    Few passes first, then few steps of three layers, then even ones.
    """
    return (log_n,) if log_n <= LOG_ONE_PASS else _cut(log_n, LOG_WIDE, LOG_LAST)


@lru_cache
def _cut(log_n: int, log_wide: int, log_last: int) -> tuple[int, ...]:
    for wide in range(1, log_n):
        cuts = [(*cut, log_n - sum(cut)) for cut in product(range(3, log_wide + 1), repeat=wide)]
        fitting = [cut for cut in cuts if 3 <= cut[-1] <= log_last]
        if fitting:
            return min(fitting, key=lambda cut: (sum(-(-n // 3) for n in cut), max(cut) - min(cut)))
    raise AssertionError(f"no passes for 2^{log_n}")


@dataclass(frozen=True)
class Shape:
    """Of the tiles of a pass; see gpu/tile.cuh."""

    first: int
    rows: int
    done: int
    log_cols: int
    log_tiles: int

    @classmethod
    def of(cls, log_n: int, number: int, log_tile: int) -> Shape:
        """Pass `number` of layers(log_n), in tiles of about 2^log_tile elements."""
        cut = layers(log_n)
        before, mine = sum(cut[:number]), cut[number]
        if number == len(cut) - 1:
            rows = max(3, mine, min(log_tile, log_n))
            return cls(before - (rows - mine), rows, rows - mine, 0, max(0, log_n - rows))
        log_cols = min(max(0, log_tile - mine), log_n - before - mine)
        return cls(before, mine, 0, log_cols, log_n - mine - log_cols)


class Transforms:
    """Everything over one domain family. All arguments are device addresses of Montgomery elements of Fr.

    table_bytes: what a table of twiddles may take; by default its share of the device.
    """

    def __init__(self, lane: Lane, curve: str, root_family: int, table_bytes: int | None = None) -> None:
        self._lane = lane
        self._r = CURVES[curve].r
        self._ntt, self._steps = nvrtc.Module("ntt", curve), nvrtc.Module("quotient", curve)
        if table_bytes is None:
            table_bytes = lane.device.total_bytes // TABLE_SHARE
        self._twiddles = Twiddles(lane, curve, root_family, table_bytes)
        self._constants: dict[int, Buffer] = {}  # of quotients, by log n

    def table_bytes(self, log_n: int) -> int:
        """Device memory that prepare() takes for the largest domain that there will be."""
        return self._twiddles.bytes_for(log_n)

    def prepare(self, log_n: int) -> None:
        """Make what quotient() needs for a domain of 2^log_n, if it is not there yet."""
        self._twiddles.prepare(log_n)
        if log_n not in self._constants:
            r, n = self._r, 1 << log_n
            plain = limbs.from_ints([pow(x, -1, r) for x in (n * n, 2 * n, -2 * n**3)], limbs.FR_LIMBS)
            self._constants[log_n] = self._lane.put(np.concatenate([limbs.to_montgomery([n], r), plain]))

    def quotient(
        self, vectors: int, log_n: int, reduction: str, with_c: bool = False, batch: int = 1
    ) -> None:
        """The scalars of the H sum from a, b, c at `vectors`, one after another, 2^log_n rows each; of a batch,
        those of the next follow.

        Leaves them in a's place, as Backend.quotient says; b and c hold rubbish then. Six transforms. with_c: c is
        there; else there is room for it, and it is made here as a o b.
        """
        if reduction not in REDUCTIONS:
            raise ValueError(f"reduction: expected one of {', '.join(REDUCTIONS)}, got '{reduction}'")
        self.prepare(log_n)
        n, last, constants = 1 << log_n, len(layers(log_n)) - 1, self._constants[log_n]
        processors = self._lane.device.processors
        fused = last > 0 and batch << log_n >= FUSED_TILES * processors * (1 << LOG_TILE)
        grid, size = (blocks(n, 256), batch), np.uint64(n)
        at = np.uint64(vectors)

        if fused and not with_c:
            self._pass(self._steps, "quotient_open", vectors, log_n, 0, batch)
        else:
            if not with_c:
                self._lane.launch(self._steps, "make_c", grid, 256, at, size)
            if last > 0:
                self._pass(self._ntt, "ntt_down", vectors, log_n, 0, 3 * batch)
        for number in range(1, last):
            self._pass(self._ntt, "ntt_down", vectors, log_n, number, 3 * batch)

        count = 3 if reduction == "circom" else 2  # of each triple, that go on to the coset
        self._pass(self._ntt, "ntt_turn", vectors, log_n, last, count * batch, count, coset=True)
        for number in range(last - 1, 0, -1):
            self._pass(self._ntt, "ntt_up", vectors, log_n, number, count * batch, count)
        if last > 0 and not fused:
            self._pass(self._ntt, "ntt_up", vectors, log_n, 0, count * batch, count)

        if reduction == "circom":
            if fused:
                self._pass(self._steps, "quotient_circom", vectors, log_n, 0, batch, constants=constants)
            else:
                self._lane.launch(self._steps, "circom_scalars", grid, 256, at, constants, size)
            return
        b = vectors + n * FR_BYTES
        if fused:
            self._pass(self._steps, "quotient_bellman", vectors, log_n, 0, batch, constants=constants)
        else:
            self._lane.launch(self._steps, "bellman_values", grid, 256, at, constants, size)
            if last > 0:
                self._pass(self._ntt, "ntt_down", b, log_n, 0, batch, 1)
        for number in range(1, last):
            self._pass(self._ntt, "ntt_down", b, log_n, number, batch, 1)
        self._pass(
            self._steps, "quotient_close", vectors, log_n, last, batch, constants=constants, coset=True
        )

    def down(self, values: int, log_n: int, vectors: int = 1) -> None:
        """Values to n times their coefficients in bit-reversed order, of vectors one after another, in place."""
        self._twiddles.prepare(log_n - 1)
        for number in range(len(layers(log_n))):
            self._pass(self._ntt, "ntt_down", values, log_n, number, vectors)

    def up(self, values: int, log_n: int, vectors: int = 1) -> None:
        """Coefficients in bit-reversed order to values, likewise."""
        self._twiddles.prepare(log_n - 1)
        for number in reversed(range(len(layers(log_n)))):
            self._pass(self._ntt, "ntt_up", values, log_n, number, vectors)

    def transform(self, values: U64, inverse: bool, shift: int | None) -> U64:
        """Host to host, natural order both ways; see Backend.ntt."""
        n, r = len(values), self._r
        log_n = n.bit_length() - 1
        if n != 1 << max(log_n, 0):
            raise errors.InvalidInput(f"a transform takes 2^k values, got {n}")
        base = 1 if shift is None else shift
        if inverse:
            factors = self._twiddles.powers(pow(base, -1, r), log_n, pow(n, -1, r))
        else:
            factors = self._twiddles.powers(base, log_n, 1)
        source, out = self._lane.put(values), self._lane.scratch(n * FR_BYTES)
        if inverse:
            self.down(source.address, log_n)
        order = (factors.low, factors.high, factors.split, log_n, int(inverse))
        self._lane.launch(self._ntt, "reorder", blocks(n, 256), 256, source, out, *order)
        if not inverse:
            self.up(out.address, log_n)
        return self._lane.get(out, (n, 4))

    def _pass(
        self,
        module: nvrtc.Module,
        kernel: str,
        values: int,
        log_n: int,
        number: int,
        vectors: int,
        count: int = 3,
        *,
        constants: Buffer | None = None,
        coset: bool = False,
    ) -> None:
        """One kernel of gpu/tile.cuh's kind; coset: that looks up the coset's powers, too."""
        log_tile = min(LOG_USUAL_TILE, LOG_TILE)
        while (
            log_tile > LOG_LEAST_TILE and vectors << log_n < TILES * self._lane.device.processors << log_tile
        ):
            log_tile -= 1
        shape = Shape.of(log_n, number, log_tile)
        threads = 1 << shape.rows + shape.log_cols - 3
        for window in self._twiddles.windows(shape.first, shape.rows + coset, shape.done, shape.log_tiles):
            self._lane.launch(
                module, kernel, window.tiles * vectors, threads, np.uint64(values), window.down, window.up, constants,
                np.uint32(window.base), np.uint32(window.shift), log_n, shape.first, shape.rows, shape.done,
                shape.log_cols, np.uint32(vectors), np.uint32(count),
            )  # fmt: skip
