"""Twiddles of one root family in device memory: one table for everything, or windows of it on small cards.

Problem: a transform of 2^27 takes 2^26 different twiddles each way and its coset 2^27 powers more, 64 bytes each with
their quotients (kernels/factor.cuh): 17 GB as three tables. Making them as they are needed costs two products each.
Design: one table, w_2n^rev(k) for k < n, holds the twiddles of the network `up` in its first half, those of `down`
backwards (kernels/octet.cuh), and is the coset's powers as a whole. 8.6 GB at 2^27, made from powers in two levels,
and those from Python ints. Only the last pass of a network looks beyond its first thousands, and a tile of it at few
places. So where that is more than the card can spare, the table ends early, and what a range of tiles wants is written
to a window ahead of the kernel that does these tiles of all vectors: one window for each way, and a tenth more work in
a quotient.
Life of the data: `prepare` makes table, powers and room for windows; they stay as long as the Transforms that own them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Buffer, Lane, blocks
from cuzkd.backend.protocol import U64
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

FR_BYTES = 32
TWIDDLE_BYTES = 64  # with its quotient: kernels/factor.cuh
LOG_TILE = 11  # elements of a tile at most: gpu/tile.cuh
LOG_WINDOW = 8  # tiles that a window is about
TABLE_SHARE = 16  # of a card's memory: one part goes to a table


def mirrored(k: int) -> int:
    """k with all bits below its highest one turned round."""
    return k ^ ((1 << k.bit_length() >> 1) - 1) if k else 0


@dataclass(frozen=True)
class Powers:
    """base^e times a constant, e < 2^bits, in two levels (the constant lies in `high`)."""

    low: Buffer
    high: Buffer
    split: int


@dataclass(frozen=True)
class Window:
    """Where the twiddles are for tiles base .. base + tiles - 1, whose numbers are `shift` larger there (mod 2^32)."""

    down: Buffer
    up: Buffer
    base: int
    shift: int
    tiles: int


class Twiddles:
    """table_bytes: what the table may take. One of 2^(LOG_TILE + LOG_WINDOW) entries, 34 MB, is made all the same."""

    def __init__(self, lane: Lane, curve: str, root_family: int, table_bytes: int) -> None:
        self._lane = lane
        self._curve = CURVES[curve]
        self._family = root_family
        self._module = nvrtc.Module("ntt", curve)
        self._most_bits = max(LOG_TILE + LOG_WINDOW, (table_bytes // TWIDDLE_BYTES).bit_length() - 1)
        self._bits = -1  # of the table
        self._table: Buffer | None = None
        self._reach = -1  # of windows: their numbers lie below 2^reach
        self._windows: tuple[Buffer, Buffer] | None = None  # for `down` and `up`
        self._powers: Powers | None = None

    def bytes_for(self, bits: int) -> int:
        """Device memory that prepare(bits) takes."""
        table = TWIDDLE_BYTES << self._table_bits(bits)
        return table if bits <= self._most_bits else table + 4 * (TWIDDLE_BYTES << LOG_TILE + LOG_WINDOW)

    def _table_bits(self, bits: int) -> int:
        """Of the table, where entries below 2^bits are wanted: no more than needed where windows are made anyway."""
        return max(bits, 3) if bits <= self._most_bits else LOG_TILE + LOG_WINDOW  # an octet looks at eight

    def prepare(self, bits: int) -> None:
        """Have entries below 2^bits at hand. bits + 1 is at most the field's two-adicity."""
        wanted = self._table_bits(bits)
        if wanted > self._bits:
            self._table, self._bits = None, -1  # first, so that both need not be there
            self._table = self._make_table(wanted)
            self._bits = wanted
        if bits > max(self._bits, self._reach):
            if self._windows is None:
                nbytes = 2 * TWIDDLE_BYTES << LOG_TILE + LOG_WINDOW
                self._windows = self._lane.scratch(nbytes), self._lane.scratch(nbytes)
            self._powers = self.powers(self._root(bits), bits, 1)
            self._reach = bits

    def windows(self, first: int, levels: int, least: int, log_tiles: int) -> Iterator[Window]:
        """Ranges of a pass's tiles, 2^log_tiles in all, each with its twiddles, which are there for what is enqueued
        before the next range is asked for.

        first: the layer at which tiles begin. Of tile t, entries t 2^q .. (t + 1) 2^q - 1 are looked up, where
        least <= q < levels.
        """
        assert self._table is not None  # prepare()
        if first + levels - 1 <= self._bits:
            yield Window(self._table, self._table, 0, 0, 1 << log_tiles)
            return
        assert self._windows is not None and first == log_tiles >= LOG_WINDOW
        tiles, covered = 1 << LOG_WINDOW, self._bits - (levels - 1)  # 2^covered tiles need no window
        yield Window(self._table, self._table, 0, 0, 1 << covered)
        for number in range(1 << covered - LOG_WINDOW, 1 << log_tiles - LOG_WINDOW):
            for window, source in zip(self._windows, (mirrored(number), number), strict=True):
                self._fill(window, source * tiles, levels, least)
            yield Window(*self._windows, number * tiles, (tiles - number * tiles) % (1 << 32), tiles)

    def _fill(self, window: Buffer, first: int, levels: int, least: int) -> None:
        powers, n = self._powers, 1 << LOG_WINDOW + levels
        assert powers is not None and n * TWIDDLE_BYTES <= window.nbytes
        shape = (powers.low, powers.high, powers.split, self._reach, np.uint32(first), LOG_WINDOW, least)
        self._lane.launch(self._module, "twiddle_window", blocks(n, 256), 256, window, *shape, np.uint64(n))

    def _make_table(self, bits: int) -> Buffer:
        n, powers = 1 << bits, self.powers(self._root(bits), bits, 1)
        table = self._lane.scratch(n * TWIDDLE_BYTES)
        how = (powers.low, powers.high, powers.split, bits, np.uint64(n))
        self._lane.launch(self._module, "twiddles", blocks(n, 256), 256, table, *how)
        return table

    def _root(self, bits: int) -> int:
        """Of order 2^(bits + 1)."""
        return self._curve.root_of_unity(self._family, bits + 1)

    def powers(self, base: int, bits: int, factor: int) -> Powers:
        """Of a plain int."""
        split = (bits + 1) // 2
        low = self._geometric(1, base, 1 << split)
        high = self._geometric(factor, pow(base, 1 << split, self._curve.r), 1 << (bits - split))
        return Powers(self._lane.put(low), self._lane.put(high), split)

    def _geometric(self, first: int, ratio: int, count: int) -> U64:
        """Montgomery forms of first * ratio^i, i < count."""
        values, r = [first], self._curve.r
        for _ in range(count - 1):
            values.append(values[-1] * ratio % r)
        return limbs.to_montgomery(values, r)
