"""Transforms and the quotient on the device: tables, passes, and the order of steps.

Problem: a proof needs six or seven transforms of one size over two sets of constants (twiddles, coset powers), and
none of the constants should be made, or fetched from the host, while it waits.
Design: `Transforms` belongs to a lane, a curve and a root family. It keeps the two twiddle tables of
kernels/ntt.cuh at the largest size asked for so far (a smaller domain reads a prefix) and, per domain, the
coset powers in two levels: base^e = low[e mod 2^s] high[e / 2^s], so that 2^27 powers take 2^14 numbers made
from Python ints. All work goes to one lane in the order of the calls; nothing here waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cuzkd import errors
from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Buffer, Lane, blocks
from cuzkd.backend.protocol import REDUCTIONS, U64
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

FR_BYTES = 32
LOG_TILE = 10  # elements of a tile in shared memory: TILE in gpu/ntt.cu
LOG_WIDE = 9  # layers of a pass whose rows lie apart: leaves two columns, 64 bytes, side by side


def passes(log_n: int) -> list[tuple[int, int, int]]:
    """(first layer, layers, log columns) of each pass of `down`; `up` goes through them backwards.

    The last pass works on neighbours. The layers before it are shared out evenly, fewest passes first.
    """
    last = min(log_n, LOG_TILE)
    rest = log_n - last
    wide = -(-rest // LOG_WIDE)
    plan, first = [], 0
    for i in range(wide):
        layers = rest * (i + 1) // wide - first
        plan.append((first, layers, LOG_TILE - layers))
        first += layers
    return [*plan, (first, last, 0)]


@dataclass(frozen=True)
class Powers:
    """base^e times a constant, e < 2^bits, in two levels (the constant lies in `high`)."""

    low: Buffer
    high: Buffer
    split: int


class Transforms:
    """Everything over one domain family. All arguments are device addresses of Montgomery elements of Fr."""

    def __init__(self, lane: Lane, curve: str, root_family: int) -> None:
        self._lane = lane
        self._curve = CURVES[curve]
        self._r = self._curve.r
        self._family = root_family
        self._module = nvrtc.Module("ntt", curve)
        self._tables: tuple[Buffer, Buffer] | None = None  # down, up
        self._log_table = -1
        self._there: dict[int, Powers] = {}  # by log n: coefficients to the odd coset w_2n <w>
        self._back: dict[int, Powers] = {}  # and back, over X^n - 1

    def prepare(self, log_n: int, reduction: str) -> None:
        """Make the tables that quotient() needs for a domain of 2^log_n, if they are not there yet."""
        self._prepare_twiddles(log_n)
        r, n = self._r, 1 << log_n
        root = self._curve.root_of_unity(self._family, log_n + 1)
        if log_n not in self._there:
            self._there[log_n] = self._powers(root, log_n, pow(n, -1, r))
        if reduction == "bellman" and log_n not in self._back:
            # X^n - 1 is -2 on all of the coset. Over R: such a factor makes Montgomery values CANONICAL.
            factor = pow(-2 * n << 64 * limbs.FR_LIMBS, -1, r)
            self._back[log_n] = self._powers(pow(root, -1, r), log_n, factor)

    def _prepare_twiddles(self, log_n: int) -> None:
        if log_n > self._log_table:
            bits = max(log_n - 1, 0)
            root = self._curve.root_of_unity(self._family, log_n)
            self._tables = self._twiddles(pow(root, -1, self._r), bits), self._twiddles(root, bits)
            self._log_table = log_n

    def quotient(self, vectors: int, log_n: int, reduction: str, with_c: bool = False) -> None:
        """The scalars of the H sum from a, b, c at `vectors`, one after another, 2^log_n rows each.

        Leaves them in a's place, as Backend.quotient says. Six transforms, and the way back from the coset for
        bellman's. with_c: c is there; else there is room for it, and it is made here as a o b.
        """
        if reduction not in REDUCTIONS:
            raise ValueError(f"reduction: expected one of {', '.join(REDUCTIONS)}, got '{reduction}'")
        self.prepare(log_n, reduction)
        n = 1 << log_n
        a, b, c = (np.uint64(vectors + i * n * FR_BYTES) for i in range(3))
        if not with_c:
            self._launch("pointwise", blocks(n, 256), 256, a, b, c, np.uint64(n))
        self._network("ntt_down", vectors, log_n, 3)
        there = self._there[log_n]
        grid = (blocks(n, 256), 3)
        self._launch("scale_reversed", grid, 256, a, there.low, there.high, there.split, log_n)
        self._network("ntt_up", vectors, log_n, 3)
        if reduction == "circom":
            self._launch("quotient", blocks(n, 256), 256, a, b, c, np.uint64(n))
            return
        back = self._back[log_n]
        self._launch("numerator", blocks(n, 256), 256, a, b, c, np.uint64(n))
        self._network("ntt_down", int(c), log_n, 1)
        self._launch("reorder", blocks(n, 256), 256, c, a, back.low, back.high, back.split, log_n, 1)

    def transform(self, values: U64, inverse: bool, shift: int | None) -> U64:
        """Host to host, natural order both ways; see Backend.ntt."""
        n = len(values)
        log_n = n.bit_length() - 1
        if n != 1 << max(log_n, 0):
            raise errors.InvalidInput(f"a transform takes 2^k values, got {n}")
        self._prepare_twiddles(log_n)
        base = 1 if shift is None else shift
        if inverse:
            factors = self._powers(pow(base, -1, self._r), log_n, pow(n, -1, self._r))
        else:
            factors = self._powers(base, log_n, 1)
        source, out = self._lane.put(values), self._lane.scratch(n * FR_BYTES)
        if inverse:
            self._network("ntt_down", source.address, log_n, 1)
        order = (factors.low, factors.high, factors.split, log_n, int(inverse))
        self._launch("reorder", blocks(n, 256), 256, source, out, *order)
        if not inverse:
            self._network("ntt_up", out.address, log_n, 1)
        return self._lane.get(out, (n, 4))

    def _network(self, kernel: str, values: int, log_n: int, batch: int) -> None:
        if log_n == 0 or self._tables is None:
            return
        down = kernel == "ntt_down"
        plan = passes(log_n)
        for first, layers, log_cols in plan if down else reversed(plan):
            tiles = 1 << (log_n - layers - log_cols)
            shape = (log_n, first, layers, log_cols)
            self._launch(
                kernel, (tiles, batch), 256, np.uint64(values), self._tables[0 if down else 1], *shape
            )

    def _launch(self, name: str, grid: int | tuple[int, int], block: int, *args: object) -> None:
        self._lane.launch(self._module, name, grid, block, *args)

    def _twiddles(self, root: int, bits: int) -> Buffer:
        table = self._lane.scratch(FR_BYTES << bits)
        powers = self._powers(root, bits, 1)
        grid = blocks(1 << bits, 256)
        self._launch("twiddles", grid, 256, table, powers.low, powers.high, powers.split, bits)
        return table

    def _powers(self, base: int, bits: int, factor: int) -> Powers:
        split = (bits + 1) // 2
        low = self._geometric(1, base, 1 << split)
        high = self._geometric(factor, pow(base, 1 << split, self._r), 1 << (bits - split))
        return Powers(self._lane.put(low), self._lane.put(high), split)

    def _geometric(self, first: int, ratio: int, count: int) -> U64:
        """Montgomery forms of first * ratio^i, i < count."""
        values = [first]
        for _ in range(count - 1):
            values.append(values[-1] * ratio % self._r)
        return limbs.to_montgomery(values, self._r)
