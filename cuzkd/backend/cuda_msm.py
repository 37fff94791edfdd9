"""Multi-scalar sums on the device: how the work is cut, and the order of its steps.

Problem: sum of scalar_i * base_i over up to 2^27 points, several sums over the same scalars (the witness), or
several witnesses over the same bases (a batch), in bounded memory, without asking the device how many entries
each step produced.
Design: Pippenger's method with signed windows of c bits. The windows are taken in groups that fit a budget; for a
group, cuda_lists.py lists the non-zero digits ordered by bucket, once, and every sum over those scalars walks
the lists with its own bases (cuda_tree.py). A batch has the windows of its witnesses side by side in each group:
`windows` of them become batch * windows, and nothing after the listing knows the difference. Each window ends as c
points, and there is one more for the scalars 1 and -1, which have no digits; the host puts these together, each
doubled so and so often (Plan.doublings). Zero scalars cost nothing after the count, ones a single addition.
Buffers and grids follow from upper bounds, so nothing here waits for the device; but how many scalars are 0, 1 or small
makes a great difference, and where they were classified early (Sums.classify) plans are made for what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cuzkd import errors
from cuzkd.backend.cuda_device import Buffer, Lane, blocks
from cuzkd.backend.cuda_lists import (
    ENTRY_BYTES,
    Classes,
    Counts,
    Density,
    Lister,
    Lists,
    Part,
    small_windows,
)
from cuzkd.backend.cuda_tree import PAIR_BYTES, Counted, Tree, coordinate_bytes, halvings, rounds_for
from cuzkd.curves.params import CURVES

GROUP_SHARE = 16  # lists and points of a group stay below this part of the device's memory,
GROUP_BYTES = 8 << 30  # and below this; one window may exceed both
MIN_CHUNK = 1 << 20  # entries that the tree takes at a time, at least
MIN_WINDOW_BITS, MAX_WINDOW_BITS = 4, 22
MAX_SCALARS = (1 << 31) - 1  # an index and a sign share 32 bits
MAX_ENTRIES = (1 << 32) - 1  # of a group: places in its list are 32-bit numbers
# What the width of windows depends on: nanoseconds, by the bytes of a coordinate. Measured on an H200.
ADDITION_NS = {32: 0.16, 48: 0.31, 64: 0.37, 96: 0.75}  # one in a round of the tree that fills the device
ROUND_NS = {32: 45e3, 48: 70e3, 64: 55e3, 96: 80e3}  # a round, whatever there is to add: an inversion's time
ENTRY_NS = 0.038  # the way of one entry into its list, and of its pair to a name
BUCKET_ADDITIONS = 1.8  # two for its weighted sum, and one less in its list
LONG_LISTS, LONG_POINTS = (
    1000,
    100_000,
)  # that are added up by blocks, when the rounds are over, in the time of one


@dataclass(frozen=True)
class Table:
    """Bases together with their multiples: copy k, n places behind the one before, is 2^(window_bits k sets) times
    them, `sets` being a copies-th of the windows. All windows of a scalar then go to as many sets of buckets.
    """

    window_bits: int
    copies: int


@dataclass(frozen=True)
class Plan:
    """How sums over `batch` times n scalars are cut. window_bits: c; group: sets of buckets of each at a time; chunk:
    entries that the tree takes at a time; rounds: of the tree.
    """

    n: int
    batch: int
    window_bits: int
    windows: int
    copies: int
    group: int
    chunk: int
    rounds: int
    counts: Counts

    def part(self, first: int, count: int) -> Part:
        """Sets first .. first + count."""
        return Part(
            self.n, self.batch, self.window_bits, self.windows, first, count, self.copies, self.counts
        )

    @property
    def sets(self) -> int:
        """Of buckets: one for each window where there is no table."""
        return blocks(self.windows, self.copies)

    @property
    def points(self) -> int:
        """That one sum leaves: the components of each set, and the sum of the bases whose scalar is 1 or -1."""
        return self.sets * self.window_bits + 1

    @property
    def doublings(self) -> list[int]:
        """How often each of these points is to be doubled (gpu/msm.cu: S, U_0, U_1, ...) before all are added up."""
        of_set = [0, *range(self.window_bits - 1)]
        return [self.window_bits * u + e for u in range(self.sets) for e in of_set] + [0]


def window_ns(counts: Counts, scalar_bits: int, point_bytes: int, c: int, copies: int = 1) -> float:
    """What a sum over such scalars by windows of c bits takes."""
    windows, buckets = blocks(scalar_bits, c), 1 << (c - 1)
    entries = counts.full * windows + counts.small * min(windows, small_windows(c))
    sets, coordinate = blocks(windows, copies), point_bytes // 2
    additions = entries + BUCKET_ADDITIONS * buckets * sets
    rounds = _rounds(counts, scalar_bits, c, copies) + halvings(sets, c - 1)
    return entries * ENTRY_NS + additions * ADDITION_NS[coordinate] + rounds * ROUND_NS[coordinate]


def _rounds(counts: Counts, scalar_bits: int, c: int, copies: int) -> int:
    """For lists of mean length, and for what these leave of the units' to be less than a round's time. Also for those
    of the top window, of which there are fewer where it has fewer bits, if so many would take longer one by one.
    """
    of_units = (counts.units // LONG_POINTS).bit_length()
    mean = (counts.busy * copies) >> (c - 1)
    rounds = max(rounds_for(mean), of_units)
    top_bits = min(c - 1, scalar_bits - 1 - c * (blocks(scalar_bits, c) - 1))
    more = rounds_for(mean + (counts.full >> top_bits)) - rounds
    return rounds + more if 1 << top_bits > LONG_LISTS * more > 0 else rounds


def group_bytes(cut: Plan, group: int, point_bytes: int) -> int:
    """Device memory that `group` sets of such a plan take: lists, points of the tree, buckets and their halves."""
    entries, buckets = cut.part(0, group).most_entries, cut.batch * group << (cut.window_bits - 1)
    points = min(entries, cut.chunk) * (point_bytes // 2 + PAIR_BYTES)
    return entries * ENTRY_BYTES + points + buckets * (7 * point_bytes // 2 + 4 * (cut.rounds + 4))


@lru_cache(maxsize=64)
def plan(
    n: int,
    batch: int,
    scalar_bits: int,
    point_bytes: int,
    most_bytes: int,
    table: Table | None = None,
    counts: Counts | None = None,
) -> Plan:
    """The cheapest windows by window_ns, or those of the table, in groups that take most_bytes.

    counts: of the scalars by class, or all may be full. Half of the bytes are for the points of a chunk. A group is one
    more pass over the scalars, so there are as few as fit, of sizes as even as can be; a single set may take more.
    InvalidInput when not even one of each does fit 32-bit numbers.
    """
    named = n * (table.copies if table else 1)  # by entries
    if named > MAX_SCALARS or named * batch > MAX_ENTRIES:
        raise errors.InvalidInput(
            f"{batch} sums over {n} scalars{f' by {table.copies} copies' if table else ''}: a sum takes up to "
            f"{MAX_SCALARS}, a batch {MAX_ENTRIES} in all"
        )
    counts = counts or Counts(n, 0, 0)
    if table is None:
        widths = range(MIN_WINDOW_BITS, MAX_WINDOW_BITS + 1)
        c, copies = min(widths, key=lambda c: window_ns(counts, scalar_bits, point_bytes, c)), 1
    else:
        c, copies = table.window_bits, table.copies
    windows = blocks(scalar_bits, c)
    chunk = max(MIN_CHUNK, most_bytes // point_bytes)
    cut = Plan(n, batch, c, windows, copies, 1, chunk, _rounds(counts, scalar_bits, c, copies), counts)
    most = max(1, min(cut.sets, _sets_that_fit(cut, point_bytes, most_bytes)))
    return replace(cut, group=blocks(cut.sets, blocks(cut.sets, most)))


def _sets_that_fit(cut: Plan, point_bytes: int, most_bytes: int) -> int:
    """Both the bytes and the numbers of entries. The first sets have those of units, too."""
    one, two = (group_bytes(cut, group, point_bytes) for group in (1, 2))
    by_bytes = 1 + (most_bytes - one) // (two - one)
    one, two = (cut.part(0, group).most_entries for group in (1, 2))
    return min(by_bytes, 1 + (MAX_ENTRIES - one) // max(1, two - one))


@dataclass(frozen=True)
class Query:
    """One sum: scalar i goes with bases[i - skip]; the first `skip` scalars count for nothing.

    density: the bases are those of some scalars alone (then skip is 0). table: `bases` is one, of as many bases in each
    copy as there are scalars or, with a density, bases.
    """

    phase: str
    group: str
    bases: Buffer
    skip: int = 0
    density: Density | None = None
    table: Table | None = None


@dataclass(frozen=True)
class Classified:
    """The scalars of some sums, on the device and by class: all, and those of each density that was named."""

    everything: Classes
    some: dict[int, Classes]  # by the density's identity

    def of(self, density: Density | None) -> Classes:
        return self.some[id(density)] if density else self.everything


class Sums:
    """The multi-scalar sums of one curve on one lane. group_bytes: see GROUP_BYTES."""

    def __init__(self, lane: Lane, curve: str) -> None:
        self._lane = lane
        self._curve = curve
        self._bits = CURVES[curve].r.bit_length()
        self._lister = Lister(lane, curve)
        self._trees = {group: Tree(lane, curve, group) for group in ("g1", "g2")}
        self.group_bytes = min(GROUP_BYTES, lane.device.total_bytes // GROUP_SHARE)

    def run(
        self,
        scalars: Sequence[Buffer],
        n: int,
        queries: Sequence[Query],
        mark: Callable[[str], None],
        deliver: Callable[[Query, Plan, Buffer], None],
        counted: bool = False,
    ) -> None:
        """Enqueue the sums of each buffer's n CANONICAL scalars (n > 0) with each query's bases. See steps.

        counted: plans are made for what the scalars are, which waits for all that the lane has been given so far.
        """
        classified = self.classify(scalars, n, queries) if counted else None
        for _ in self.steps(scalars, n, queries, mark, deliver, classified):
            pass

    def steps(
        self,
        scalars: Sequence[Buffer],
        n: int,
        queries: Sequence[Query],
        mark: Callable[[str], None],
        deliver: Callable[[Query, Plan, Buffer], None],
        classified: Classified | None = None,
    ) -> Iterator[None]:
        """The same, of a query the sets of one group at a time: the next are enqueued when they are asked for.

        mark(phase) is called after what belongs to a phase has been enqueued, and without a name after waiting.
        deliver(query, plan, points) is called after all of a query has been: affine points, plan.points of each sum,
        in the order of `scalars`. classified: these scalars, as `classify` left them some time ago; waits for what it
        enqueued.
        """
        classified = classified or self._classify(scalars, n, queries, counted=False)
        for alike in _alike(queries):
            table, classes = alike[0].table, classified.of(alike[0].density)
            point = max(2 * coordinate_bytes(self._curve, query.group) for query in alike)
            counts = classes.counts()
            if counts is not None:
                mark("")
            cut = plan(classes.n, len(scalars), self._bits, point, self.group_bytes, table, counts)
            results = [
                self._lane.scratch(cut.batch * cut.points * 2 * coordinate_bytes(self._curve, query.group))
                for query in alike
            ]
            for first in range(0, cut.sets, cut.group):
                part = cut.part(first, min(cut.group, cut.sets - first))
                lists = self._lister.lists(classes, part)
                shape = (part.n_buckets, part.most_entries, cut.rounds, cut.chunk)
                counted = Counted(self._lane, self._curve, lists, *shape)
                mark("prep_msm")
                for query, result in zip(alike, results, strict=True):
                    self._sum(query, cut, part, lists, counted, result)
                    mark(query.phase)
                    if first + part.count == cut.sets:
                        deliver(query, cut, result)
                    yield
                del lists, counted  # the next group's take their place

    def classify(self, scalars: Sequence[Buffer], n: int, queries: Sequence[Query]) -> Classified:
        """Enqueue the first part of `steps`, so that its plans can be made for what the scalars are."""
        return self._classify(scalars, n, queries, counted=True)

    def _classify(
        self, scalars: Sequence[Buffer], n: int, queries: Sequence[Query], counted: bool
    ) -> Classified:
        everything = self._lister.classify(scalars, n, counted)
        densities = {id(query.density): query.density for query in queries if query.density}
        return Classified(
            everything,
            {key: self._lister.filtered(everything, density, counted) for key, density in densities.items()},
        )

    def _sum(
        self, query: Query, cut: Plan, part: Part, lists: Lists, counted: Counted, result: Buffer
    ) -> None:
        """Enqueue what a query leaves of a part."""
        tree, log_buckets = self._trees[query.group], cut.window_bits - 1
        buckets = tree.list_sums(query.bases, query.skip, lists, counted)
        halved, components = tree.halve(buckets, part.lists, log_buckets)
        point = 2 * coordinate_bytes(self._curve, query.group)
        units = np.uint64(buckets.address + point * (part.n_buckets - part.units)) if part.units else None
        where = (part.batch, part.count, part.first, cut.sets)
        tree.component_sums(halved, components, log_buckets + 1 - components, where, units, result)


def _alike(queries: Sequence[Query]) -> list[list[Query]]:
    """Those that walk the same lists together, in the order in which they come."""
    found: dict[tuple[int, Table | None], list[Query]] = {}
    for query in queries:
        found.setdefault((id(query.density), query.table), []).append(query)
    return list(found.values())
