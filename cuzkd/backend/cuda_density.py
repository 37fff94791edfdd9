"""Queries of a key in device memory without the points at infinity.

Problem: a wire that does not occur in A or B has the point at infinity in these queries: often half of B's points, and
three quarters of it in a Filecoin key. They take memory, entries in lists, and places in the pair tree, where adding
nothing takes as long as adding something.
Design: when a key has been loaded, bits say which wires have a point (for B1 and B2 the same ones, as far as the key is
right: a point in one of them is enough), and the others' points move together. A sum over such a query has the wires'
entries filtered by those bits (cuda_lists.Density). Where nearly all wires have a point, nothing changes: A and L go on
sharing their lists.
Life of the data: resident points -> bits and ranks, kept with the key -> fewer resident points; the first ones are
dropped when these are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from cuzkd import errors
from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_device import Buffer, Device, blocks
from cuzkd.backend.cuda_lists import Density
from cuzkd.backend.protocol import U64, KeyShape

TOGETHER = (("b_g1", "b_g2"), ("a_g1",))  # have points for the same wires
MOST_DENSE = (
    0.85  # of the wires have a point; above that, lists of its own cost more than they save. To be measured
)
THREADS = 512


def thin_out(device: Device, shape: KeyShape, bases: dict[str, Buffer]) -> dict[str, Density]:
    """Replace in `bases` the queries that have points at infinity in number by their other points. Done on return.

    The densities of those queries. A query that there is no memory to move stays as it is.
    """
    found: dict[str, Density] = {}
    for queries in TOGETHER:
        if not all(query in bases for query in queries):
            continue
        density = _find(device, shape, {query: bases[query] for query in queries})
        if not 0 < density.bases <= MOST_DENSE * shape.n_wires:
            continue
        try:
            moved = {query: _gathered(device, shape, query, bases[query], density) for query in queries}
        except errors.Exhausted:
            continue
        bases.update(moved)
        found.update(dict.fromkeys(queries, density))
        device.free_resident()
    return found


def read_wires(
    device: Device, density: Density, bases: Buffer, point: tuple[int, ...], begin: int, count: int
) -> U64:
    """The points of wires begin .. begin + count, those at infinity included: uint64[count, *point]."""
    out = np.zeros((count, *point), np.uint64)
    if count == 0:
        return out
    first = begin // 32
    ranks = device.compute.get(density.ranks, (blocks(begin + count, 32) - first,), 8 * first)
    bits, before = ranks.view(np.uint32).reshape(-1, 2).T
    dense = np.unpackbits(np.ascontiguousarray(bits).view(np.uint8), bitorder="little").astype(np.bool_)
    skipped, wanted = np.split(dense, [begin - 32 * first])
    place, nbytes = int(before[0]) + int(skipped.sum()), 8 * prod(point)
    there = int(wanted[:count].sum())
    out[wanted[:count]] = device.compute.get(bases, (there, *point), place * nbytes)
    return out


def _find(device: Device, shape: KeyShape, bases: Mapping[str, Buffer]) -> Density:
    lane, module, n = device.compute, nvrtc.Module("density", shape.curve), shape.n_wires
    ranks = device.put_resident([np.zeros((blocks(n, 32), 2), np.uint32)])[0]
    total = lane.scratch(8)
    for number, (query, points) in enumerate(bases.items()):
        size = (np.uint32(n), np.uint32(_words(shape, query)))
        lane.launch(module, "find_finite", blocks(n, THREADS), THREADS, points, *size, int(number > 0), ranks)
    lane.launch(module, "count_before", 1, THREADS, ranks, np.uint32(blocks(n, 32)), total)
    return Density(ranks, int(lane.get(total, (1,))[0]))


def _gathered(device: Device, shape: KeyShape, query: str, points: Buffer, density: Density) -> Buffer:
    lane, n, words = device.compute, shape.n_wires, _words(shape, query)
    out = device.put_pieces([8 * words * density.bases], ())[0]
    size = (np.uint32(n), np.uint32(words))
    grid = min(blocks(n * words, THREADS), 32 * device.processors)
    lane.launch(
        nvrtc.Module("density", shape.curve),
        "gather_points",
        grid,
        THREADS,
        points,
        *size,
        density.ranks,
        out,
    )
    lane.synchronize()  # the caller drops `points`
    return out


def _words(shape: KeyShape, query: str) -> int:
    """Of a point, 64 bits each."""
    return prod(shape.shape_of(query)[1:])
