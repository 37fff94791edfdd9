"""The pair tree on the device: sums of the points in each of many lists, and of buckets by weight.

Problem: nearly all of a multi-scalar sum is additions of points, and an addition is cheapest between affine points that
share an inversion with a few hundred others; but lists have any length, which the host does not know.
Design: gpu/rounds.cu counts, for all rounds at once, what each list has to add in each, and names these pairs;
gpu/tree.cu does a round at a time, its pairs shared out evenly among as many blocks as the device holds. The host
chooses the number of rounds from the length that lists have in the mean, so that nearly all of them end as one point;
gpu/msm.cu adds up the few that remain. The weighted sum of a window's buckets is a few sums without weights, of which
the first halvings are rounds of the same tree.
Life of the data: lists and bases -> `points`, halved in place -> a sum of each list, affine -> components of each
window, affine, which the host puts together. Scratch is of the lane; nothing here waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Buffer, Lane, blocks
from cuzkd.backend.cuda_lists import Lists
from cuzkd.curves.params import CURVES

THREADS = 128  # of gpu/tree.cu
# By the bytes of a coordinate, measured on an H200:
BLOCKS = {32: 5, 48: 4, 64: 3, 96: 2}  # of its kernels on a multiprocessor: RESIDENT there
PAIRS_PER_THREAD = {32: 48, 48: 64, 64: 64, 96: 64}  # at most, to one inversion of a warp
SCAN_BLOCK, SCAN_THREADS = 4096, 512  # of gpu/rounds.cu
NAME_TILE, NAME_BLOCKS = 2048, 8  # of gpu/rounds.cu; for each processor
PAIR_BYTES = 12  # that one's names take: gpu/names.cuh
SUM_THREADS = 64  # of gpu/msm.cu
PIECE = 256  # points of a long list that one block adds
SUMS_PER_PROCESSOR = 8  # blocks of SUM_THREADS
SPARE_ROUNDS = 2  # beyond those that a list of mean length takes: random lists are then hardly ever long
MOST_ROUNDS = 30  # of gpu/tree.cu, whose lengths have 32 bits
LOG_LEFT = 14  # bits of a bucket's number that are left to blocks, at most; the others are halved
LOG_SLICE = 8  # buckets for one block, as a logarithm; at least 1
# Left to all blocks. From a quarter of it to four times as many, a sum of 2^20 (H200, BLS12-381) takes the same to 1 %.
BLOCK_ADDITIONS = 128_000


def coordinate_bytes(curve: str, group: str) -> int:
    """Bytes of one coordinate of a point."""
    return 8 * CURVES[curve].fq_limbs * (1 if group == "g1" else 2)


def rounds_for(mean: int) -> int:
    """Rounds for lists of so many entries in the mean."""
    return min(max(1, (max(mean, 1) - 1).bit_length() + SPARE_ROUNDS), MOST_ROUNDS)


def halvings(windows: int, log_buckets: int) -> int:
    """Rounds of the weighted sums of 2^log_buckets buckets of each window, before blocks take over."""

    def left(times: int) -> int:
        bits = log_buckets - times
        return windows * ((times + 1) * 2 + bits) << bits >> 1

    least = max(0, log_buckets - LOG_LEFT)
    return next((h for h in range(least, log_buckets) if left(h) <= BLOCK_ADDITIONS), log_buckets)


@dataclass(frozen=True)
class Rounds:
    """begins: for each of `rounds` rounds, and then for long lists, where each list's items begin; uint32[n_lists + 1]
    each. sources, targets: of the pairs of all rounds (gpu/names.cuh). entries: at most so many, and so many pairs.
    """

    rounds: int
    n_lists: int
    entries: int
    begins: Buffer
    sources: Buffer
    targets: Buffer

    def row(self, index: int) -> np.uint64:
        return np.uint64(self.begins.address + 4 * index * (self.n_lists + 1))

    def items(self, index: int) -> int:
        """Of a round, at most."""
        if index == 0:
            return (self.entries + min(self.entries, self.n_lists)) // 2
        return self.entries >> (index + 1)

    @property
    def pieces(self) -> int:
        """Of long lists, at most: each has more than 2^rounds entries."""
        return (self.entries >> self.rounds) + 1


class Counted:
    """Lists with up to `entries` entries, taken chunk_entries of them at a time, and the rounds of each chunk.

    A chunk ends where it ends, amid a list if need be. Where there is one alone, its rounds are counted once for all
    who walk the lists; else for each again, because they may take more memory than the lists.
    """

    def __init__(
        self,
        lane: Lane,
        curve: str,
        lists: Lists,
        n_lists: int,
        entries: int,
        rounds: int,
        chunk_entries: int,
    ) -> None:
        self.n_lists = n_lists
        self.chunk_entries = chunk_entries
        self._lane, self._curve, self._entries, self._rounds = lane, curve, entries, rounds
        self._only = self._counted(lists, entries) if self.chunks == 1 else None

    @property
    def chunks(self) -> int:
        return blocks(self._entries, self.chunk_entries)

    def chunk(self, lists: Lists, index: int) -> tuple[Lists, Rounds]:
        """Enqueue what is missing: the lists as far as they are in a chunk, and its rounds."""
        if self._only:
            return lists, self._only
        begin = index * self.chunk_entries
        end = min(begin + self.chunk_entries, self._entries)
        offsets = self._lane.scratch(4 * (self.n_lists + 1))
        shape = map(np.uint32, (self.n_lists, begin, end))
        module, grid = nvrtc.Module("rounds", self._curve), blocks(self.n_lists + 1, 256)
        self._lane.launch(module, "clip_offsets", grid, 256, lists.offsets, *shape, offsets)
        part = Lists(lists.entries.slice(4 * begin, 4 * (end - begin)), offsets)
        return part, self._counted(part, end - begin)

    def _counted(self, lists: Lists, entries: int) -> Rounds:
        return count_rounds(self._lane, self._curve, lists, self.n_lists, entries, self._rounds)


def count_rounds(lane: Lane, curve: str, lists: Lists, n_lists: int, entries: int, rounds: int) -> Rounds:
    """Enqueue the count of what lists have to add in each round, and the names of it. entries: at most so many."""
    module, grid = nvrtc.Module("rounds", curve), (blocks(n_lists, SCAN_BLOCK), rounds + 1)
    begins, pairs = lane.scratch(4 * (rounds + 1) * (n_lists + 1)), PAIR_BYTES // 3 * entries
    made = Rounds(rounds, n_lists, entries, begins, lane.scratch(2 * pairs), lane.scratch(pairs))
    sums = lane.scratch(4 * grid[0] * grid[1])
    shape = (lists.offsets, np.uint32(n_lists), np.uint32(rounds), np.uint32(PIECE), sums)
    lane.launch(module, "count_items", grid, SCAN_THREADS, *shape)
    lane.launch(module, "place_items", grid, SCAN_THREADS, *shape, begins)
    grid = min(blocks(made.items(0), NAME_TILE), NAME_BLOCKS * lane.device.processors), rounds
    to = made.sources, made.targets
    lane.launch(
        module, "name_pairs", grid, 256, lists.entries, lists.offsets, begins, np.uint32(n_lists), *to
    )
    return made


class Tree:
    """The pair tree of one curve and group on one lane. most: pairs of a thread for an inversion; blocks: at a time."""

    def __init__(self, lane: Lane, curve: str, group: str) -> None:
        self.curve = curve
        self.most = PAIRS_PER_THREAD[coordinate_bytes(curve, group)]
        self.blocks = lane.device.processors * BLOCKS[coordinate_bytes(curve, group)]
        self._lane = lane
        self._tree = nvrtc.Module("tree", curve, group=group)
        self._msm = nvrtc.Module("msm", curve, group=group)
        self._coordinate = coordinate_bytes(curve, group)

    def list_sums(self, bases: Buffer, skip: int, lists: Lists, counted: Counted) -> Buffer:
        """Enqueue the sum of each list; affine points, infinity for an empty one. Entry i stands for bases[i - skip],
        and below `skip` for nothing.
        """
        lane, point, n_lists = self._lane, 2 * self._coordinate, counted.n_lists
        sums = lane.zeros(point * n_lists)
        later = max(0, counted.chunks - 1)
        aside, lists_aside = lane.scratch(point * later), lane.scratch(4 * later)
        for index in range(counted.chunks):
            part, rounds = counted.chunk(lists, index)
            if index:
                begin, shape = np.uint32(index * counted.chunk_entries), (lists.offsets, np.uint32(n_lists))
                to = (
                    np.uint64(aside.address + point * (index - 1)),
                    np.uint64(lists_aside.address + 4 * (index - 1)),
                )
                lane.launch(self._msm, "put_aside", 1, 1, *shape, begin, sums, *to)
            self._add_up(bases, skip, part, rounds, sums)
        if later:
            lane.launch(self._msm, "add_aside", 1, 1, aside, lists_aside, np.uint32(later), sums)
        return sums

    def _add_up(self, bases: Buffer, skip: int, lists: Lists, rounds: Rounds, sums: Buffer) -> None:
        """Those of one chunk, of lists that have entries in it."""
        lane = self._lane
        points = lane.scratch(2 * self._coordinate * rounds.items(0))
        scratch = self._scratch(rounds.items(0))
        n_lists, most = np.uint32(rounds.n_lists), np.uint32(self.most)
        for index in range(rounds.rounds):
            lane.launch(
                self._tree, "add_round", self._grid(rounds.items(index)), THREADS,
                bases, np.uint32(skip), rounds.sources, rounds.targets, rounds.begins, n_lists,
                np.uint32(index), most, scratch, points, sums,
            )  # fmt: skip
        self._long(lists, rounds, points, sums)

    def _long(self, lists: Lists, rounds: Rounds, points: Buffer, sums: Buffer) -> None:
        lane, pieces = self._lane, rounds.row(rounds.rounds)
        partials = lane.scratch(4 * self._coordinate * rounds.pieces)
        grid = min(rounds.pieces, SUMS_PER_PROCESSOR * lane.device.processors)
        n_lists = np.uint32(rounds.n_lists)
        lane.launch(
            self._msm, "add_long", grid, SUM_THREADS,
            lists.offsets, pieces, rounds.row(0), n_lists, np.uint32(rounds.rounds), np.uint32(PIECE),
            points, partials, sums,
        )  # fmt: skip
        lane.launch(self._msm, "join_long", grid, SUM_THREADS, pieces, n_lists, partials, sums)

    def halve(self, buckets: Buffer, windows: int, log_buckets: int) -> tuple[Buffer, int]:
        """Halve the buckets of each window until few are left (`halvings`): [components, windows, left] points, and how
        many components there are.
        """
        lane, components, at = self._lane, 1, buckets
        for log in range(log_buckets, log_buckets - halvings(windows, log_buckets), -1):
            pairs = windows << (log - 1)
            out = lane.scratch(2 * self._coordinate * (components + 1) * pairs)
            items = components * pairs
            shape = (np.uint32(components), np.uint32(pairs), np.uint32(self.most))
            lane.launch(
                self._tree, "halve", self._grid(items), THREADS, at, *shape, self._scratch(items), out
            )
            at, components = out, components + 1
        return at, components

    def component_sums(
        self,
        halved: Buffer,
        components: int,
        log_left: int,
        part: tuple[int, int, int, int],
        units: np.uint64 | None,
        out: Buffer,
    ) -> None:
        """Enqueue the sums of gpu/msm.cu. part: sums, windows of each, the first of these, and windows in all."""
        lane, (batch, count, first, windows) = self._lane, part
        lists, n, log_slices = batch * count, components + log_left, max(0, log_left - LOG_SLICE)
        sliced = n << log_slices
        partials = lane.scratch(4 * self._coordinate * lists * sliced if log_slices else 0)
        where = tuple(map(np.uint32, (count, first, windows)))
        shape = (*map(np.uint32, (components, log_left, log_slices)), *where)
        grid = (sliced + (units is not None), lists)
        lane.launch(self._msm, "component_sums", grid, SUM_THREADS, halved, *shape, units, partials, out)
        if log_slices:
            lane.launch(
                self._msm,
                "join_slices",
                (n, lists),
                SUM_THREADS,
                partials,
                np.uint32(log_slices),
                *where,
                out,
            )

    def _grid(self, items: int) -> int:
        return min(blocks(items, THREADS), self.blocks)

    def _scratch(self, items: int) -> Buffer:
        """For the products of the pairs of a thread, of as many blocks as there are for so many items."""
        return self._lane.scratch(self._grid(items) * THREADS * self.most * self._coordinate)
