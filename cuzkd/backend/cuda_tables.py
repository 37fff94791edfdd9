"""Tables of bases: their multiples by powers of two, made once on the device, so that all windows share their buckets.

Problem: the cheapest windows are wide ones, but each brings as many buckets as it has digits, and all of them have to
be summed by weight.
Design: copy k of a table is the bases times 2^(window_bits k sets). An entry then names a copy as well as a base, the
windows of a scalar go to `sets` sets of buckets, one or a few, and windows may be wider: a sixth of the additions less
at 2^20 points, which is a tenth of the time on an H200. It costs as many times the points' memory as there are copies,
so it has as many as its bytes allow.
Life of the data: points of a key -> doubled copy by copy, beside nothing else -> Query.bases.
"""

from __future__ import annotations

import numpy as np

from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Buffer, Device, Lane, blocks
from cuzkd.backend.cuda_lists import Counts
from cuzkd.backend.cuda_msm import MAX_SCALARS, MAX_WINDOW_BITS, MIN_WINDOW_BITS, Table, window_ns
from cuzkd.backend.cuda_tree import coordinate_bytes

THREADS, POINTS_SHARE = 128, 8  # of gpu/tables.cu, and of a thread there


def table_bytes(n: int, point_bytes: int, table: Table) -> int:
    """Of the table of n bases."""
    return n * table.copies * point_bytes


def best_table(n: int, scalar_bits: int, point_bytes: int, most_bytes: int) -> Table | None:
    """The cheapest table of n bases that takes at most most_bytes, for scalars of all sizes; None where none helps."""
    counts, best, least = Counts(n, 0, 0), None, 0.0
    for c in range(MIN_WINDOW_BITS, MAX_WINDOW_BITS + 1):
        windows = blocks(scalar_bits, c)
        for sets in range(1, windows + 1):
            copies = blocks(windows, sets)
            fits = copies == 1 or (copies * n * point_bytes <= most_bytes and copies * n <= MAX_SCALARS)
            cost = window_ns(counts, scalar_bits, point_bytes, c, copies)
            if fits and (least == 0 or cost < least):
                best, least = Table(c, copies), cost
    return best if best and best.copies > 1 else None


def make_table(
    lane: Lane, curve: str, group: str, points: Buffer, n: int, scalar_bits: int, table: Table, out: Buffer
) -> None:
    """Enqueue the making of a table of n points. out: table_bytes of them."""
    module, point = nvrtc.Module("tables", curve, group=group), 2 * coordinate_bytes(curve, group)
    sets = blocks(blocks(scalar_bits, table.window_bits), table.copies)
    grid, count = blocks(n, THREADS * POINTS_SHARE), np.uint64(n)
    source = np.uint64(points.address)
    for copy in range(table.copies):
        times, to = table.window_bits * sets if copy else 0, np.uint64(out.address + copy * n * point)
        lane.launch(module, "doubled", grid, THREADS, source, count, times, to)
        source = to


def resident_table(
    device: Device, curve: str, group: str, points: Buffer, n: int, scalar_bits: int, table: Table
) -> Buffer:
    """The table of n resident points, resident. Done on return."""
    device.load([nvrtc.Module("tables", curve, group=group)])
    out = device.put_pieces([table_bytes(n, 2 * coordinate_bytes(curve, group), table)], ())[0]
    make_table(device.compute, curve, group, points, n, scalar_bits, table, out)
    device.compute.synchronize()
    return out
