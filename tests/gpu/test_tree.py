"""The pair tree: sums of lists of any length, of points that exceptional cases are made of, however it is cut."""

import random

import numpy as np
import pytest

from cuzkd.backend import cpu
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

pytest.importorskip("cupy")
from cuzkd.backend import cuda_msm, cuda_tree
from cuzkd.backend.cuda_lists import Lists
from cuzkd.backend.cuda_tree import Counted, Tree

pytestmark = pytest.mark.gpu

NEGATIVE = 1 << 31
LENGTHS = [0, 0, 1, 2, 3, 0, 4, 5, 7, 8, 9, 15, 1, 1, 0, 16, 17, 33, 130, 2, 0, 64, 300, 1, 0]


def multiples(curve, group, logs):
    scalars = limbs.from_ints([k % CURVES[curve].r for k in logs], limbs.FR_LIMBS)
    return cpu.fixed_base_mul(curve, group, scalars)


def sums_of(gpu, tree, bases, skip, lists, rounds, chunk=1 << 20):
    """On the device, of lists of entries. [lists, *point]"""
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.uint32)
    entries = np.array([entry for one in lists for entry in one] or [0], np.uint32)
    lane = gpu.gpu.compute
    there = Lists(lane.put(entries), lane.put(offsets))
    counted = Counted(lane, tree.curve, there, len(lists), len(entries), rounds, chunk)
    sums = tree.list_sums(lane.put(bases), skip, there, counted)
    return lane.get(sums, (len(lists), *bases.shape[1:]))


def value(logs, skip, entry):
    index = (entry & ~NEGATIVE) - skip
    return 0 if index < 0 else -logs[index] if entry & NEGATIVE else logs[index]


# Logarithms of the bases: 0 is infinity, and entries have signs.
BASES = {
    "random": lambda rng, r: [rng.randrange(r) for _ in range(50)],
    "equal, opposite, none": lambda rng, r: [5, 5, -5, 0, 5, 10, 0, -10],
    "all one": lambda rng, r: [1] * 10,
    "none": lambda rng, r: [0] * 10,
    "small": lambda rng, r: list(range(-3, 4)),
}


@pytest.mark.parametrize(
    "kind, rounds",
    [
        *(("random", rounds) for rounds in (1, 3, 9)),
        *(("equal, opposite, none", rounds) for rounds in (1, 9)),
        *((kind, 3) for kind in ("all one", "none", "small")),
    ],
)
def test_sums_of_lists(gpu, curve, group, kind, rounds, monkeypatch):
    monkeypatch.setattr(cuda_tree, "PIECE", 16)
    rng, r = random.Random(rounds), CURVES[curve].r
    logs, skip = BASES[kind](rng, r), 3
    signs = (0, NEGATIVE) if kind != "all one" else (0,)
    lists = [[rng.randrange(len(logs) + skip) | rng.choice(signs) for _ in range(n)] for n in LENGTHS]
    with gpu.gpu.guard():
        tree = Tree(gpu.gpu.compute, curve, group)
        got = sums_of(gpu, tree, multiples(curve, group, logs), skip, lists, rounds)
    expected = [sum(value(logs, skip, entry) for entry in one) for one in lists]
    assert np.array_equal(got, multiples(curve, group, expected))


@pytest.mark.parametrize("most, blocks", [(1, 1), (2, 1), (3, 2), (64, 3)])
def test_however_pairs_are_shared_out(gpu, most, blocks):
    """Several turns of a block, turns without pairs, blocks without any."""
    curve, group, rng = "bn254", "g1", random.Random(most)
    logs = [rng.randrange(CURVES[curve].r) for _ in range(40)]
    lists = [[rng.randrange(40) for _ in range(n)] for n in [1500, 0, 3, *[2] * 150, 700]]
    with gpu.gpu.guard():
        tree = Tree(gpu.gpu.compute, curve, group)
        tree.most, tree.blocks = most, blocks
        got = sums_of(gpu, tree, multiples(curve, group, logs), 0, lists, 4)
    assert np.array_equal(got, multiples(curve, group, [sum(logs[e] for e in one) for one in lists]))


@pytest.mark.parametrize("chunk", [1, 7, 200, 618, 619])
def test_chunk_by_chunk(gpu, curve, group, chunk, monkeypatch):
    """Lists that go on in the next chunk, or in many, and chunks that end with a list; and there is room for more."""
    monkeypatch.setattr(cuda_tree, "PIECE", 16)
    rng, r = random.Random(chunk), CURVES[curve].r
    logs = [0, *(rng.randrange(r) for _ in range(20))]
    lengths = [0, 16, 2, 0, 20, 1] if chunk == 1 else LENGTHS
    lists = [[rng.randrange(21) | rng.choice((0, NEGATIVE)) for _ in range(n)] for n in lengths]
    with gpu.gpu.guard():
        tree = Tree(gpu.gpu.compute, curve, group)
        got = sums_of(gpu, tree, multiples(curve, group, logs), 0, lists, 2, chunk)
    expected = [sum(value(logs, 0, entry) for entry in one) for one in lists]
    assert np.array_equal(got, multiples(curve, group, expected))


def test_no_list_at_all(gpu, curve, group):
    with gpu.gpu.guard():
        tree = Tree(gpu.gpu.compute, curve, group)
        bases = multiples(curve, group, [1, 2])
        assert not sums_of(gpu, tree, bases, 0, [[], [], []], 3).any()


@pytest.mark.parametrize(
    "windows, log_left, log_slice",
    [(1, 0, 8), (3, 1, 8), (1, 3, 8), (3, 3, 1), (3, 6, 2), (1, 6, 5), (3, 6, 8)],
)
def test_weighted_sums_of_buckets(gpu, curve, group, log_left, log_slice, windows, monkeypatch):
    """Components of two sums' windows, put together as the host does it, with units behind the buckets."""
    monkeypatch.setattr(cuda_tree, "LOG_LEFT", log_left)
    monkeypatch.setattr(cuda_tree, "LOG_SLICE", log_slice)
    rng, log, batch = random.Random(windows), 6, 2
    logs = [
        [rng.choice([0, 1, 1, rng.randrange(1 << 200)]) for _ in range(1 << log)] for _ in range(2 * windows)
    ]
    units = [7, 0]
    point = multiples(curve, group, [1]).nbytes
    with gpu.gpu.guard():
        lane = gpu.gpu.compute
        tree = Tree(lane, curve, group)
        buckets = lane.put(multiples(curve, group, [k for one in logs for k in one] + units))
        per_sum = windows * (log + 1) + 1
        out = lane.scratch(batch * per_sum * point)
        halved, components = tree.halve(buckets, batch * windows, log)
        at = np.uint64(buckets.address + ((batch * windows * point) << log))
        tree.component_sums(halved, components, log + 1 - components, (batch, windows, 0, windows), at, out)
        got = lane.get(out, (batch * per_sum, point // 8))
    expected = []
    for j in range(batch):
        for window in logs[j * windows : (j + 1) * windows]:
            expected += [sum(window)]
            expected += [sum(k for b, k in enumerate(window) if b >> i & 1) for i in range(log)]
        expected += [units[j]]
    assert np.array_equal(got, multiples(curve, group, expected).reshape(got.shape))


@pytest.mark.parametrize("kind", ["random", "ones", "small"])
def test_a_sum_of_many_chunks(gpu, curve, group, kind, monkeypatch):
    """Sets in groups, entries in chunks, and buckets halved, as it is for sums that fill a card."""
    monkeypatch.setattr(cuda_msm, "MIN_CHUNK", 64)
    monkeypatch.setattr(cuda_tree, "LOG_LEFT", 2)
    rng, r = random.Random(1), CURVES[curve].r
    n = 300
    logs = [rng.choice([0, 1, rng.randrange(r)]) for _ in range(n)]
    by = [
        rng.randrange(r) if kind == "random" else 1 if kind == "ones" else rng.randrange(-9, 9) % r
        for _ in logs
    ]
    with gpu.gpu.guard():
        monkeypatch.setattr(gpu.sums(curve, gpu.gpu.compute), "group_bytes", 1)
    cuda_msm.plan.cache_clear()
    try:
        got = gpu.msm(curve, group, multiples(curve, group, logs), limbs.from_ints(by, limbs.FR_LIMBS))
    finally:
        cuda_msm.plan.cache_clear()
    assert np.array_equal(
        got[None], multiples(curve, group, [sum(k * s for k, s in zip(logs, by, strict=True))])
    )
