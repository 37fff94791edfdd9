"""Lists of base indices ordered by bucket, made on the device from the scalars of multi-scalar sums.

Problem: a sum adds, for every bucket of every window, the bases whose scalars have that digit there; so the entries
(index and sign) of each bucket have to lie together, without the host ever knowing how many there are.
Design: gpu/digits.cu counts the entries of each bucket, scans the counts, and places the entries. A batch has the
windows of its sums side by side: nothing after the listing knows the difference. Scalars 1 and -1 have no digits; they
come in one more list per sum, behind all buckets.
Life of the data: canonical scalars -> counts -> offsets and entries, dropped by the caller when the sums that walk them
have been enqueued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Buffer, Lane, blocks

SCAN_BLOCK = 4096  # counts per block of gpu/digits.cu's scan
SCAN_THREADS = 512
NONE = np.uint32(0xFFFFFFFF)  # no bucket, in both sources


@dataclass(frozen=True)
class Part:
    """Windows first .. first + count, of `windows` of window_bits bits, of each of `batch` sums over n scalars."""

    n: int
    batch: int
    window_bits: int
    windows: int
    first: int
    count: int

    @property
    def lists(self) -> int:
        """Windows of the whole batch. Window v of sum j is number j * count + v - first."""
        return self.batch * self.count

    @property
    def units(self) -> int:
        """Lists of the scalars 1 and -1, one for each sum, behind all buckets: with the first windows alone."""
        return self.batch if self.first == 0 else 0

    @property
    def buckets_per_window(self) -> int:
        return 1 << (self.window_bits - 1)

    @property
    def n_buckets(self) -> int:
        return self.lists * self.buckets_per_window + self.units


@dataclass(frozen=True)
class Lists:
    """Entries of a part, ordered by bucket; offsets has one more than there are buckets. An entry is the index of a
    scalar, with the sign in its top bit.
    """

    entries: Buffer
    offsets: Buffer


class Lister:
    """Makes the lists of one curve's scalars on one lane."""

    def __init__(self, lane: Lane, curve: str) -> None:
        self._lane = lane
        self._digits = nvrtc.Module("digits", curve)

    def lists(self, scalars: Sequence[Buffer], part: Part) -> Lists:
        """Enqueue the listing of a part. scalars: part.batch buffers of part.n CANONICAL scalars each."""
        lane, n_buckets = self._lane, part.n_buckets
        counts = lane.zeros(4 * n_buckets)
        offsets, cursors = lane.scratch(4 * (n_buckets + 1)), lane.scratch(4 * n_buckets)
        entries = lane.scratch(4 * part.n * part.lists)
        scan = blocks(n_buckets, SCAN_BLOCK)
        sums = lane.scratch(4 * scan)
        self._each_entry("count_entries", scalars, part, counts)
        size = np.uint32(n_buckets)
        lane.launch(self._digits, "scan_blocks", scan, SCAN_THREADS, counts, size, sums)
        lane.launch(self._digits, "scan_sums", 1, SCAN_THREADS, sums, np.uint32(scan))
        lane.launch(self._digits, "scan_apply", scan, SCAN_THREADS, counts, size, sums, offsets, cursors)
        self._each_entry("place_entries", scalars, part, cursors, entries)
        return Lists(entries, offsets)

    def _each_entry(self, kernel: str, scalars: Sequence[Buffer], part: Part, *out: Buffer) -> None:
        """Over the digits of every sum, which has its own buckets and its own list of ones."""
        grid = min(blocks(part.n, 256), self._lane.device.processors * 8)
        shape = (np.uint32(part.n), part.window_bits, part.windows, part.first, part.count)
        for j, values in enumerate(scalars):
            buckets = np.uint32(j * part.count * part.buckets_per_window)
            units = np.uint32(part.n_buckets - part.units + j) if part.units else NONE
            self._lane.launch(self._digits, kernel, grid, 256, values, *shape, buckets, units, *out)
