"""Multi-scalar sums on the device: how the work is cut, and the order of its kernels.

Problem: sum of scalar_i * base_i over up to 2^27 points, several sums over the same scalars (the witness), or
several witnesses over the same bases (a batch), in bounded memory, without asking the device how many entries
each step produced.
Design: Pippenger's method with signed windows of c bits. The windows are taken in groups that fit a budget;
for a group, cuda_lists.py lists the non-zero digits ordered by bucket, once, and every sum over those scalars
walks the lists with its own bases (gpu/msm.cu). A batch has the windows of its witnesses side by side in each
group: `windows` of them become batch * windows, and nothing after the listing knows the difference. Each
window ends as one point, so a sum leaves `windows` points and one more for the scalars 1 and -1, which have no
digits; the host combines these few (the sum of 2^(c v) times window v). Zero scalars cost nothing after the
count, ones a single addition.
Buffers and grids follow from upper bounds, so nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from cuzkd import errors
from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Buffer, Lane, blocks
from cuzkd.backend.cuda_lists import Lister, Lists, Part
from cuzkd.curves.params import CURVES

FAN = 8  # of the tree over heads: LOG_FAN in gpu/msm.cu
GROUP_SHARE = 16  # lists and buckets of a group stay below this part of the device's memory,
GROUP_BYTES = 4 << 30  # and below this; one window may exceed both
THREADS_PER_PROCESSOR = 2048  # accumulating threads: some waves of what a multiprocessor holds at once
ENTRIES_PER_THREAD = 16  # at least, so that the sums which span threads stay few
LOG_MERGE = 3  # items merged by one thread, as a logarithm: one after another, so few
MAX_WINDOW_BITS = 20
MAX_SCALARS = (1 << 31) - 1  # an index and a sign share 32 bits
MAX_ENTRIES = (1 << 32) - 1  # of a group: places in its list are 32-bit numbers


def coordinate_bytes(curve: str, group: str) -> int:
    """Bytes of one coordinate of a point."""
    return 8 * CURVES[curve].fq_limbs * (1 if group == "g1" else 2)


@dataclass(frozen=True)
class Plan:
    """How sums over `batch` times n scalars are cut. window_bits: c; group: windows of each at a time; threads: of
    `accumulate`.
    """

    n: int
    batch: int
    window_bits: int
    windows: int
    group: int
    threads: int

    @property
    def buckets_per_window(self) -> int:
        return 1 << (self.window_bits - 1)

    @property
    def points(self) -> int:
        """That one sum leaves: its windows, lowest first, and the sum of the bases whose scalar is 1 or -1."""
        return self.windows + 1


@lru_cache(maxsize=64)
def plan(n: int, batch: int, scalar_bits: int, processors: int, bucket_bytes: int, group_bytes: int) -> Plan:
    """The cheapest window by a plain model: an addition per scalar and window, two full ones per bucket.

    The full ones count double: there is little to run beside them. A group is one more pass over the scalars, so there
    are as few as fit, of sizes as even as can be. InvalidInput when not even one window of each does.
    """

    def windows(c: int) -> int:
        return -(-scalar_bits // c)

    if n > MAX_SCALARS or n * batch > MAX_ENTRIES:
        raise errors.InvalidInput(
            f"{batch} sums over {n} scalars: a sum takes up to {MAX_SCALARS}, a batch {MAX_ENTRIES} in all"
        )
    c = min(range(4, MAX_WINDOW_BITS + 1), key=lambda c: windows(c) * (n + 4 * (1 << (c - 1))))
    per_window = batch * (4 * n + (bucket_bytes << (c - 1)))
    most = max(1, min(windows(c), group_bytes // per_window, MAX_ENTRIES // (batch * n)))
    group = blocks(windows(c), blocks(windows(c), most))
    threads = min(blocks(n * batch * group, ENTRIES_PER_THREAD), processors * THREADS_PER_PROCESSOR)
    return Plan(n, batch, c, windows(c), group, 128 * blocks(threads, 128))


@dataclass(frozen=True)
class Query:
    """One sum: scalar i goes with bases[i - skip]; the first `skip` scalars count for nothing."""

    phase: str
    group: str
    bases: Buffer
    skip: int = 0


class Sums:
    """The multi-scalar sums of one curve on one lane. group_bytes: see GROUP_BYTES."""

    def __init__(self, lane: Lane, curve: str) -> None:
        self._lane = lane
        self._curve = curve
        self._bits = CURVES[curve].r.bit_length()
        self._lister = Lister(lane, curve)
        self.group_bytes = min(GROUP_BYTES, lane.device.total_bytes // GROUP_SHARE)

    def run(
        self,
        scalars: Sequence[Buffer],
        n: int,
        queries: Sequence[Query],
        mark: Callable[[str], None],
        deliver: Callable[[Query, Plan, Buffer], None],
    ) -> None:
        """Enqueue the sums of each buffer's n CANONICAL scalars (n > 0) with each query's bases. See steps."""
        for _ in self.steps(scalars, n, queries, mark, deliver):
            pass

    def steps(
        self,
        scalars: Sequence[Buffer],
        n: int,
        queries: Sequence[Query],
        mark: Callable[[str], None],
        deliver: Callable[[Query, Plan, Buffer], None],
    ) -> Iterator[None]:
        """The same, of a query the windows of one group at a time: the next are enqueued when they are asked for.

        mark(phase) is called after what belongs to a phase has been enqueued; deliver(query, plan, points) after all of
        a query has been: affine points, plan.points of each sum, in the order of `scalars`.
        """
        widest = max(4 * coordinate_bytes(self._curve, q.group) for q in queries)
        processors = self._lane.device.processors
        cut = plan(n, len(scalars), self._bits, processors, widest, self.group_bytes)
        sizes = [2 * coordinate_bytes(self._curve, q.group) for q in queries]
        results = [self._lane.scratch(cut.batch * cut.points * size) for size in sizes]
        classes = self._lister.classify(scalars, n)
        for first in range(0, cut.windows, cut.group):
            count = min(cut.group, cut.windows - first)
            part = Part(n, cut.batch, cut.window_bits, cut.windows, first, count)
            lists = self._lister.lists(classes, part)
            mark("prep_msm")
            for query, result in zip(queries, results, strict=True):
                self._sum(query, cut, part, lists, result)
                mark(query.phase)
                if first + part.count == cut.windows:
                    deliver(query, cut, result)
                yield
            del lists  # the next group's take its place

    def _sum(self, query: Query, cut: Plan, part: Part, lists: Lists, result: Buffer) -> None:
        lane, module = self._lane, nvrtc.Module("msm", self._curve, group=query.group)
        size = 4 * coordinate_bytes(self._curve, query.group)
        buckets = lane.zeros(size * part.n_buckets)
        self._fill(module, size, query, part, lists, cut.threads, buckets)
        plain, weighted = self._merge(module, size, part, buckets)
        units = np.uint64(buckets.address + size * (part.n_buckets - part.units)) if part.units else None
        shape = (np.uint32(part.batch), np.uint32(part.count), np.uint32(part.first), np.uint32(part.windows))
        grid = blocks(part.lists + part.units, 32)
        lane.launch(module, "window_sums", grid, 32, plain, weighted, units, *shape, result)

    def _fill(
        self,
        module: nvrtc.Module,
        size: int,
        query: Query,
        part: Part,
        lists: Lists,
        threads: int,
        buckets: Buffer,
    ) -> None:
        """Sum the entries of each bucket."""
        lane = self._lane
        levels = [threads]
        while levels[-1] >= FAN:
            levels.append(levels[-1] // FAN)
        nodes, keys = lane.scratch(size * sum(levels)), lane.scratch(4 * sum(levels))
        tails = lane.scratch(size * threads)
        n_buckets, wide = np.uint32(part.n_buckets), np.uint32(threads)
        lane.launch(
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
            lane.launch(module, "gather_heads", blocks(level, 64), 64, *source, np.uint32(level), *out)
        grid = blocks(part.n_buckets, 64)
        lane.launch(module, "join", grid, 64, lists.offsets, n_buckets, wide, nodes, tails, buckets)

    def _merge(self, module: nvrtc.Module, size: int, part: Part, buckets: Buffer) -> tuple[Buffer, Buffer]:
        """Per window the sum of its buckets, and that of b * bucket_b (b from 0)."""
        lane, left, weight = self._lane, part.window_bits - 1, 0
        steps = blocks(left, LOG_MERGE)
        plain, weighted = buckets, None
        for step in range(steps):
            log_fan = left // (steps - step)
            left -= log_fan
            n_out = part.lists << left
            outs = lane.scratch(size * n_out), lane.scratch(size * n_out)
            shape = (np.uint32(n_out), log_fan, weight)
            lane.launch(module, "merge", blocks(n_out, 64), 64, plain, weighted, *shape, *outs)
            plain, weighted = outs
            weight += log_fan
        assert weighted is not None  # window_bits >= 4
        return plain, weighted
