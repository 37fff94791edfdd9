"""Multi-scalar sums on the device: how the work is cut, and the order of its kernels.

Problem: sum of scalar_i * base_i over up to 2^27 points, several sums over the same scalars (the witness), in
bounded memory, without asking the device how many entries each step produced.
Design: Pippenger's method with signed windows of c bits. The windows are taken in groups that fit a budget;
for a group, gpu/digits.cu lists the non-zero digits ordered by bucket, once, and every sum over those scalars
walks the lists with its own bases (gpu/msm.cu). Each window ends as one point, so a sum leaves `windows`
points and one more for the scalars 1 and -1, which have no digits; the host combines these few (the sum of
2^(c v) times window v). Zero scalars cost nothing after the count, ones a single addition.
Buffers and grids follow from upper bounds, so nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from cuzkd import errors
from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Buffer, Device, blocks
from cuzkd.curves.params import CURVES

SCAN_BLOCK = 4096  # counts per block of gpu/digits.cu's scan
SCAN_THREADS = 512
FAN = 8  # of the tree over heads: LOG_FAN in gpu/msm.cu
GROUP_BYTES = 2 << 30  # lists and buckets of a group of windows stay below this (one window may exceed it)
THREADS_PER_PROCESSOR = 2048  # accumulating threads: some waves of what a multiprocessor holds at once
ENTRIES_PER_THREAD = 16  # at least, so that the sums which span threads stay few
LOG_MERGE = 3  # items merged by one thread, as a logarithm: one after another, so few
MAX_WINDOW_BITS = 20
MAX_SCALARS = (1 << 31) - 1  # an index and a sign share 32 bits


def coordinate_bytes(curve: str, group: str) -> int:
    """Bytes of one coordinate of a point."""
    return 8 * CURVES[curve].fq_limbs * (1 if group == "g1" else 2)


@dataclass(frozen=True)
class Plan:
    """How a sum over n scalars is cut. window_bits: c; group: windows at a time; threads: of `accumulate`."""

    n: int
    window_bits: int
    windows: int
    group: int
    threads: int

    @property
    def buckets_per_window(self) -> int:
        return 1 << (self.window_bits - 1)


@lru_cache(maxsize=64)
def plan(n: int, scalar_bits: int, processors: int, bucket_bytes: int) -> Plan:
    """The cheapest window by a plain model: an addition per scalar and window, two full ones per bucket.

    The full ones count double: there is little to run beside them.
    """

    def windows(c: int) -> int:
        return -(-scalar_bits // c)

    c = min(range(4, MAX_WINDOW_BITS + 1), key=lambda c: windows(c) * (n + 4 * (1 << (c - 1))))
    per_window = 4 * n + (bucket_bytes << (c - 1))
    group = max(1, min(windows(c), GROUP_BYTES // per_window))
    threads = min(blocks(n * group, ENTRIES_PER_THREAD), processors * THREADS_PER_PROCESSOR)
    return Plan(n, c, windows(c), group, 128 * blocks(threads, 128))


@dataclass(frozen=True)
class Query:
    """One sum: scalar i goes with bases[i - skip]; the first `skip` scalars count for nothing."""

    phase: str
    group: str
    bases: Buffer
    skip: int = 0


@dataclass
class _Lists:
    """Entries of a group of windows, ordered by bucket; offsets has one more than n_buckets."""

    entries: Buffer
    offsets: Buffer
    n_buckets: int


class Sums:
    """The multi-scalar sums of one curve on one device."""

    def __init__(self, device: Device, curve: str) -> None:
        self._device = device
        self._curve = curve
        self._bits = CURVES[curve].r.bit_length()
        self._digits = nvrtc.Module("digits", curve)

    def run(
        self,
        scalars: Buffer,
        n: int,
        queries: Sequence[Query],
        mark: Callable[[str], None],
        deliver: Callable[[Query, Plan, Buffer], None],
    ) -> None:
        """Enqueue the sums of n CANONICAL scalars with each query's bases.

        mark(phase) is called after what belongs to a phase has been enqueued; deliver(query, plan, points) after all of
        a query has been: the points, affine, are plan.windows window sums, lowest first, and the sum of the bases whose
        scalar is 1 or -1.
        """
        if n > MAX_SCALARS:
            raise errors.InvalidInput(f"a sum takes up to {MAX_SCALARS} scalars, got {n}")
        widest = max(4 * coordinate_bytes(self._curve, q.group) for q in queries)
        cut = plan(n, self._bits, self._device.processors, widest)
        sizes = [2 * coordinate_bytes(self._curve, q.group) for q in queries]
        results = [self._device.scratch((cut.windows + 1) * size) for size in sizes]
        for first in range(0, cut.windows, cut.group):
            count = min(cut.group, cut.windows - first)
            lists = self._sort(scalars, cut, first, count)
            mark("prep_msm")
            for query, result in zip(queries, results, strict=True):
                self._sum(query, cut, first, count, lists, result)
                mark(query.phase)
                if first + count == cut.windows:
                    deliver(query, cut, result)

    def _sort(self, scalars: Buffer, cut: Plan, first: int, count: int) -> _Lists:
        device, units = self._device, int(first == 0)
        n_buckets = count * cut.buckets_per_window + units
        counts = device.zeros(4 * n_buckets)
        offsets, cursors = device.scratch(4 * (n_buckets + 1)), device.scratch(4 * n_buckets)
        entries = device.scratch(4 * cut.n * count)
        scan = blocks(n_buckets, SCAN_BLOCK)
        sums = device.scratch(4 * scan)
        grid = min(blocks(cut.n, 256), device.processors * 8)
        shape = (np.uint32(cut.n), cut.window_bits, cut.windows, first, count)
        device.launch(self._digits, "count_entries", grid, 256, scalars, *shape, counts)
        size = np.uint32(n_buckets)
        device.launch(self._digits, "scan_blocks", scan, SCAN_THREADS, counts, size, sums)
        device.launch(self._digits, "scan_sums", 1, SCAN_THREADS, sums, np.uint32(scan))
        device.launch(self._digits, "scan_apply", scan, SCAN_THREADS, counts, size, sums, offsets, cursors)
        device.launch(self._digits, "place_entries", grid, 256, scalars, *shape, cursors, entries)
        return _Lists(entries, offsets, n_buckets)

    def _sum(self, query: Query, cut: Plan, first: int, count: int, lists: _Lists, result: Buffer) -> None:
        device, module = self._device, nvrtc.Module("msm", self._curve, group=query.group)
        size = 4 * coordinate_bytes(self._curve, query.group)
        buckets = device.zeros(size * lists.n_buckets)
        self._fill(module, size, query, cut.threads, lists, buckets)
        plain, weighted = self._merge(module, size, cut, count, buckets)
        bucket_of_units = np.uint64(buckets.address + size * (lists.n_buckets - 1)) if first == 0 else None
        out, units = (np.uint64(result.address + v * size // 2) for v in (first, cut.windows))
        ends = (bucket_of_units, np.uint32(count), out, units)
        device.launch(module, "window_sums", blocks(count + 1, 32), 32, plain, weighted, *ends)

    def _fill(
        self, module: nvrtc.Module, size: int, query: Query, threads: int, lists: _Lists, buckets: Buffer
    ) -> None:
        """Sum the entries of each bucket."""
        device = self._device
        levels = [threads]
        while levels[-1] >= FAN:
            levels.append(levels[-1] // FAN)
        nodes, keys = device.scratch(size * sum(levels)), device.scratch(4 * sum(levels))
        tails = device.scratch(size * threads)
        n_buckets, wide = np.uint32(lists.n_buckets), np.uint32(threads)
        device.launch(
            module, "accumulate", blocks(threads, 128), 128,
            query.bases, lists.entries, lists.offsets, n_buckets, np.uint32(query.skip), wide,
            buckets, nodes, keys, tails,
        )  # fmt: skip
        at = 0
        for below, level in pairwise(levels):
            places = (nodes.address + size * at, keys.address + 4 * at)
            at += below
            outs = (nodes.address + size * at, keys.address + 4 * at)
            source, out = map(np.uint64, places), map(np.uint64, outs)
            device.launch(module, "gather_heads", blocks(level, 64), 64, *source, np.uint32(level), *out)
        grid = blocks(lists.n_buckets, 64)
        device.launch(module, "join", grid, 64, lists.offsets, n_buckets, wide, nodes, tails, buckets)

    def _merge(
        self, module: nvrtc.Module, size: int, cut: Plan, count: int, buckets: Buffer
    ) -> tuple[Buffer, Buffer]:
        """Per window the sum of its buckets, and that of b * bucket_b (b from 0)."""
        device = self._device
        left = cut.window_bits - 1
        steps, weight = blocks(left, LOG_MERGE), 0
        plain, weighted = buckets, None
        for step in range(steps):
            log_fan = left // (steps - step)
            left -= log_fan
            n_out = count << left
            outs = device.scratch(size * n_out), device.scratch(size * n_out)
            device.launch(
                module,
                "merge",
                blocks(n_out, 64),
                64,
                plain,
                weighted,
                np.uint32(n_out),
                log_fan,
                weight,
                *outs,
            )
            plain, weighted = outs
            weight += log_fan
        assert weighted is not None  # window_bits >= 4
        return plain, weighted
