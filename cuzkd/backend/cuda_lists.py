"""Lists of base indices ordered by bucket, made on the device from the scalars of multi-scalar sums.

Problem: a sum adds, for every bucket of every window, the bases whose scalars have that digit there; so the entries
(index and sign) of each bucket have to lie together, without the host ever knowing how many there are. Real scalars
are mostly 0, 1 and small, and several sums share them.
Design (gpu/digits.cu): scalars are sorted into classes once, for all sums over them and all groups of windows. Zeros
are forgotten, 1 and -1 make a list of their own, which needs no sorting, small ones have no digits in upper windows,
and lists of those windows do not look at them. Sums whose bases belong to some of the scalars alone (a `Density`) have
classes filtered from the others'. The digits of a part are sorted in two levels, bins and then buckets, by blocks that
count and order them in shared memory. A batch has the windows of its sums side by side: nothing after the listing knows
of it.
Life of the data: canonical scalars -> Classes, as long as there are sums over them to enqueue -> for each part of the
windows its Lists, dropped by the caller when the sums that walk them have been enqueued. All of one lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Buffer, Lane, blocks

# Of gpu/digits.cu.
THREADS = 512
TILE = 4096  # scalars that a block has in hand
FILL_ITEMS = 8  # digits, for each thread of fill_bins
CLASSES_BYTES = 24  # of one sum: where its scalars lie, how many are full, small, units
MOST_BINS = 1 << 10  # of a list
MOST_COUNTED = 12000  # bins of the lists of one sum
MOST_LOW_BITS = 13  # buckets of a bin, as a logarithm
PADDING = 16  # places behind lists by bin: they are read by 16 bytes
# As counted, and run so on an H200. Kernels before these took the same with half or twice as many bins, or blocks.
BIN_ENTRIES = 1 << 15  # of a bin, on average, where that makes no more bins than
LOG_BINS = 9  # of a list, as a logarithm: the more, the shorter the runs of one that blocks write
LOG_FEW_BINS = 6  # at least, or threads would wait for each other's counts, if bins then have
FEW_ENTRIES = 1 << 12
CHUNK = (1 << 15) + (3 << 9)  # entries of a bin that one block orders in shared memory, at most
# Threads of a block, each from a number on; a multiprocessor has room for 1024 in all.
FILL_THREADS = (256, 1024), (0, 512)  # by the bins of a list: the more threads, the longer their runs
ORDER_THREADS = (24000, 1024), (0, 512)  # by the entries of a chunk: there is one large one at a time
BLOCKS_PER_PROCESSOR = 2  # that go through the scalars

ENTRY_BYTES = (
    4 + 4 + 2
)  # of a list, for each scalar and window: when ordered, and by bin with a key before that
MAX_WINDOW_BITS = 24


def small_windows(window_bits: int) -> int:
    """Windows that scalars below 2^64 have digits in (msm.cuh)."""
    return -(-66 // window_bits)


@dataclass(frozen=True)
class Counts:
    """Scalars of each class (gpu/digits.cu) that a sum of a batch has at most."""

    full: int
    small: int
    units: int

    @property
    def busy(self) -> int:
        """Those with digits."""
        return self.full + self.small


@dataclass(frozen=True)
class Part:
    """Lists first .. first + count of each of `batch` sums with n bases.

    A scalar has `windows` windows of window_bits bits. Where there is one copy of the bases, each has a list. Where
    there are tables, copy k of the bases (n places behind the one before) being their multiples by
    2^(window_bits k sets), a list has every sets-th window. counts: of the sums' classes, where they are known: lists
    get no more room than these need.
    """

    n: int
    batch: int
    window_bits: int
    windows: int
    first: int
    count: int
    copies: int = 1
    counts: Counts | None = None

    @property
    def sets(self) -> int:
        """Lists of a sum, over all its parts."""
        return -(-self.windows // self.copies)

    @property
    def lists(self) -> int:
        """Of the whole batch. List v of sum j is number j * count + v - first."""
        return self.batch * self.count

    @property
    def units(self) -> int:
        """Lists of the scalars 1 and -1, one for each sum, behind all buckets: with the first lists alone."""
        return self.batch if self.first == 0 else 0

    @property
    def buckets_per_window(self) -> int:
        return 1 << (self.window_bits - 1)

    @property
    def n_buckets(self) -> int:
        return self.lists * self.buckets_per_window + self.units

    @property
    def busy(self) -> int:
        """Scalars with digits that a sum has at most."""
        return self.counts.busy if self.counts else self.n

    @property
    def most_entries(self) -> int:
        units = (
            self.counts.units if self.counts else 0
        )  # else there is room: those that are units have no digits
        return self.lists * self.copies * self.busy + self.units * units

    @property
    def low_bits(self) -> int:
        """Buckets of a bin, as a logarithm."""
        bits, last = self.window_bits - 1, max(0, self.copies * self.busy - 1)
        few = min(LOG_FEW_BINS, (last // FEW_ENTRIES).bit_length())
        bins = min(LOG_BINS, max(few, (last // BIN_ENTRIES).bit_length()))
        low = min(MOST_LOW_BITS, max(0, bits - bins))
        while self.count << (bits - low) > MOST_COUNTED:
            low += 1
        return low

    def chunk(self, shared_bytes: int) -> int:
        """Entries of a bin that one block orders: all of it, where scalars are random and bins no larger than CHUNK."""
        mean = self.copies * self.busy >> (self.window_bits - 1 - self.low_bits)
        return min(CHUNK, mean + mean // 32 + 512, shared_bytes // 4 - (1 << self.low_bits) - 8)


@dataclass(frozen=True)
class Density:
    """Which of the scalars have a base. ranks: `ranks_of`; bases: how many."""

    ranks: Buffer
    bases: int


def ranks_of(dense: np.ndarray[Any, np.dtype[np.bool_]]) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """uint32[ceil(n / 32), 2] from bool[n]: 32 scalars each, whether they have a base (bit i is scalar i), and how many
    before them have.
    """
    padded = np.zeros(-(-len(dense) // 32) * 32, np.bool_)
    padded[: len(dense)] = dense
    bits = np.packbits(padded, bitorder="little").view(np.uint32)
    counts = np.bitwise_count(bits).astype(np.uint32)
    return np.stack([bits, np.cumsum(counts, dtype=np.uint32) - counts], axis=1)


@dataclass(frozen=True)
class Classes:
    """The scalars of `batch` sums, sorted by class. n: room for the entries of each; the number of its bases."""

    n: int
    batch: int
    header: Buffer  # for each sum uint64 (its scalars' address), uint32[4] (full, small, units, 0)
    others: Buffer
    units: Buffer
    ranks: Buffer | None
    scalars: Sequence[Buffer]  # kept
    read: Any = None  # the header in page-locked memory
    arrived: Any = None  # the event behind that

    def counts(self) -> Counts | None:
        """Blocks until the device has counted them. None where it was not asked to (`counted`)."""
        if self.arrived is None:
            return None
        self.arrived.synchronize()
        words = np.frombuffer(self.read, np.uint32, CLASSES_BYTES // 4 * self.batch).reshape(self.batch, -1)
        full, small, units = (int(words[:, place].max()) for place in (2, 3, 4))
        return Counts(full, small, units)


@dataclass(frozen=True)
class Lists:
    """Entries of a part, ordered by bucket; offsets has one more than there are buckets. An entry is the index of a
    base, with the sign in its top bit.
    """

    entries: Buffer
    offsets: Buffer


def _threads(choice: Sequence[tuple[int, int]], n: int) -> int:
    return next(threads for least, threads in choice if n >= least)


class Lister:
    """Makes the lists of one curve's scalars on one lane."""

    def __init__(self, lane: Lane, curve: str) -> None:
        self._lane = lane
        self._digits = nvrtc.Module("digits", curve)

    def classify(self, scalars: Sequence[Buffer], n: int, counted: bool = False) -> Classes:
        """Enqueue the sorting of each buffer's n CANONICAL scalars into classes. They are kept, and not changed.

        counted: and the way of their counts to the host.
        """
        out = self._classes(n, scalars, None)
        for j, values in enumerate(scalars):
            places = [
                np.uint64(buffer.address + j * size)
                for buffer, size in ((out.header, CLASSES_BYTES), (out.others, 4 * n), (out.units, 4 * n))
            ]
            grid, size = blocks(n, TILE), np.uint32(n)
            self._lane.launch(self._digits, "classify_scalars", grid, THREADS, values, size, *places)
        return self._counted(out) if counted else out

    def filtered(self, classes: Classes, density: Density, counted: bool = False) -> Classes:
        """Those of the scalars that have a base in the density. Entries of their lists are indices of these bases."""
        out = self._classes(density.bases, classes.scalars, density.ranks)
        self._lane.launch(
            self._digits, "filter_classes", self._grid(classes), THREADS,
            classes.header, classes.others, classes.units, np.uint32(classes.n),
            density.ranks, np.uint32(density.bases), out.header, out.others, out.units,
        )  # fmt: skip
        return self._counted(out) if counted else out

    def lists(self, classes: Classes, part: Part) -> Lists:
        """Enqueue the making of a part's lists."""
        assert (classes.n, classes.batch) == (part.n, part.batch) and 4 <= part.window_bits <= MAX_WINDOW_BITS
        lane, low = self._lane, part.low_bits
        ordered = part.lists * part.buckets_per_window  # buckets; those of the units are behind them
        bins = ordered >> low
        counts = lane.zeros(4 * (bins + ordered))
        in_buckets = np.uint64(counts.address + 4 * bins)
        starts, chunks = lane.scratch(4 * (bins + 1)), lane.scratch(4 * (bins + 1))
        offsets = lane.scratch(4 * (part.n_buckets + 1))
        tail = np.uint64(offsets.address + 4 * ordered)
        room = part.most_entries + PADDING
        by_bin, keys = lane.scratch(4 * room), lane.scratch(2 * room)
        entries = lane.scratch(4 * part.most_entries)

        shares, batch = self._grid(classes)
        rows = lane.scratch(4 * shares * bins)
        source = (classes.header, classes.others, np.uint32(classes.n))
        shape = (part.window_bits, part.windows, part.sets, part.first, part.count, low, np.uint32(part.busy))
        digits = entries  # until fill_bins has ended
        lane.launch(
            self._digits, "count_bins", (shares, batch), THREADS, *source, *shape, counts, rows, digits
        )  # fmt: skip
        chunk = part.chunk(lane.device.shared_bytes)
        lane.launch(
            self._digits, "scan_bins", 1, THREADS,
            counts, np.uint32(bins), np.uint32(chunk), classes.header, np.uint32(part.units), starts, chunks, tail,
        )  # fmt: skip
        threads = _threads(FILL_THREADS, bins // part.lists)
        lane.launch(
            self._digits, "fill_bins", (part.lists, shares), threads,
            *source, classes.ranks, *shape, np.uint32(part.n), digits, starts, rows, by_bin, keys,
            shared_bytes=4 * (3 * MOST_BINS + 2 * FILL_ITEMS * threads),
        )  # fmt: skip

        most = bins + part.most_entries // chunk  # chunks
        rows = lane.scratch(4 * most << low)
        found = (starts, chunks, np.uint32(bins), np.uint32(chunk), low, in_buckets, rows)
        threads = _threads(ORDER_THREADS, chunk)
        lane.launch(self._digits, "count_buckets", most, threads, keys, *found)
        lane.launch(
            self._digits, "fill_buckets", most, threads, by_bin, keys, *found, offsets, entries,
            shared_bytes=4 * (max(4, 1 << low) + max(chunk + 3, 1 << low)),
        )  # fmt: skip
        if part.units:
            where = (classes.units, np.uint32(classes.n), tail, entries)
            lane.launch(self._digits, "place_units", (shares, batch), THREADS, classes.header, *where)
        return Lists(entries, offsets)

    def _counted(self, classes: Classes) -> Classes:
        header, lane = classes.header, self._lane
        read = lane.device.locked(header.nbytes)
        lane.copy_out(read.ptr, header, header.nbytes)
        return replace(classes, read=read, arrived=lane.event())

    def _classes(self, n: int, scalars: Sequence[Buffer], ranks: Buffer | None) -> Classes:
        """Room for them; the counts are zero."""
        lane, batch = self._lane, len(scalars)
        header = lane.zeros(CLASSES_BYTES * batch)
        others, units = lane.scratch(4 * n * batch), lane.scratch(4 * n * batch)
        return Classes(n, batch, header, others, units, ranks, tuple(scalars))

    def _grid(self, classes: Classes) -> tuple[int, int]:
        """Of kernels that go through the classes' entries: some blocks for each sum, which share them out."""
        most = max(1, self._lane.device.processors * BLOCKS_PER_PROCESSOR // classes.batch)
        return min(blocks(classes.n, TILE), most), classes.batch
