"""Classes and lists of scalars: what each bucket holds, against digits computed in plain Python."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from gpu.conftest import field_elements, witness

from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

pytest.importorskip("cupy")
from cuzkd.backend import cuda_lists
from cuzkd.backend.cuda_lists import Density, Lister, Part, ranks_of

pytestmark = pytest.mark.gpu

NEGATIVE = 1 << 31


@pytest.fixture
def lister(gpu, curve):
    with gpu.gpu.guard():
        yield Lister(gpu.gpu.compute, curve)


def words(gpu, buffer, n):
    """The first n 32-bit words of a buffer."""
    data = gpu.gpu.compute.get(buffer, (buffer.nbytes // 8,)).view(np.uint32)
    if n * 4 > data.nbytes:
        tail = gpu.gpu.compute.get(buffer, (1,), buffer.nbytes - 8).view(np.uint32)
        data = np.append(data, tail[1])
    return data[:n].tolist()


def folded(s, r):
    return (r - s, NEGATIVE) if s > r - s else (s, 0)


def signed_digits(s, c, windows):
    """Lowest first, each in [-2^(c-1), 2^(c-1) - 1], but for the last."""
    digits, half = [], 1 << (c - 1)
    for _ in range(windows - 1):
        digit = (s + half) % (2 * half) - half
        digits.append(digit)
        s = (s - digit) >> c
    return [*digits, s]


def expected_buckets(scalars, r, part, base=lambda i: i):
    """For each bucket of a part its entries, in any order. scalars: of each sum."""
    buckets = [Counter() for _ in range(part.n_buckets)]
    for j, values in enumerate(scalars):
        for i, value in enumerate(values):
            size, sign = folded(value, r)
            index = base(i)
            if index is None or size == 0:
                continue
            if size == 1:
                if part.units:
                    buckets[part.lists * part.buckets_per_window + j][index | sign] += 1
                continue
            for window, digit in enumerate(signed_digits(size, part.window_bits, part.windows)):
                number, copy = window % part.sets - part.first, window // part.sets
                if digit == 0 or not 0 <= number < part.count:
                    continue
                bucket = (j * part.count + number) * part.buckets_per_window + abs(digit) - 1
                entry = index + copy * part.n | sign
                buckets[bucket][entry ^ NEGATIVE if digit < 0 else entry] += 1
    return buckets


def check(gpu, lists, part, expected):
    offsets = words(gpu, lists.offsets, part.n_buckets + 1)
    sizes = [bucket.total() for bucket in expected]
    assert np.diff([0, *offsets]).tolist() == [0, *sizes]
    entries = words(gpu, lists.entries, offsets[-1])
    for bucket, begin, end in zip(expected, offsets, offsets[1:], strict=False):
        assert Counter(entries[begin:end]) == bucket


def ints(rows):
    return limbs.to_ints(rows)


def mixed(curve, n, seed):
    """Full, small, negative, units and zeros, and a few at the edges of classes and of windows."""
    r = CURVES[curve].r
    rng = np.random.default_rng(seed)
    full = ints(field_elements(rng, curve, n, 0.4))
    edges = [2, r - 2, (1 << 64) - 1, 1 << 64, r - (1 << 64), r + 1 - (1 << 64), (r - 1) // 2, (r + 1) // 2]
    edges += [1 << 63, (1 << 64) - (1 << 15), 1 << 253, (1 << 253) - 1, 0x8000, 0x7FFF, r - 1, 1]
    for i in range(0, n, 2):
        full[i] = int(rng.integers(0, 1 << 40)) if i % 4 else edges[i // 4 % len(edges)]
    return full


def part_of(curve, n, c, first=0, count=None, batch=1, copies=1):
    windows = -(-CURVES[curve].r.bit_length() // c)
    part = Part(n, batch, c, windows, first, 1, copies)
    count = part.sets - first if count is None else count
    return Part(n, batch, c, windows, first, count, copies)


def listed(gpu, lister, scalars, part):
    buffers = [gpu.gpu.compute.put(limbs.from_ints(values, limbs.FR_LIMBS)) for values in scalars]
    return lister.lists(lister.classify(buffers, part.n), part)


@pytest.mark.parametrize("n", [1, 31, 33, 300, 5000])
@pytest.mark.parametrize("c", [4, 8, 13])
def test_every_bucket(gpu, lister, curve, n, c):
    part = part_of(curve, n, c, count=None if n < 5000 else 3)
    values = mixed(curve, n, n)
    check(gpu, listed(gpu, lister, [values], part), part, expected_buckets([values], CURVES[curve].r, part))


@pytest.mark.parametrize("c", [5, 6, 7, 9, 11, 12, 13, 14])
def test_where_small_ones_end(gpu, lister, curve, c):
    """Their digits run into windows above 64 bits, but not further."""
    r = CURVES[curve].r
    sizes = [(1 << 64) - k for k in (1, 2, 1 << 63, 1 << 62, *(1 << (c * w - 1) for w in range(1, 64 // c)))]
    values = [v for s in sizes for v in (s, r - s, s - 1, r - s + 1)] + [1 << 64, r - (1 << 64)]
    for count in (1, 3):
        part = part_of(curve, len(values), c, 64 // c - 1, count)
        check(gpu, listed(gpu, lister, [values], part), part, expected_buckets([values], r, part))


@pytest.mark.parametrize("bins", [0, 6, 9])
def test_several_bins(gpu, lister, curve, bins, monkeypatch):
    monkeypatch.setattr(cuda_lists, "LOG_FEW_BINS", bins)
    monkeypatch.setattr(cuda_lists, "FEW_ENTRIES", 1)
    part = part_of(curve, 700, 10, count=4)
    values = mixed(curve, part.n, 1)
    check(gpu, listed(gpu, lister, [values], part), part, expected_buckets([values], CURVES[curve].r, part))


@pytest.mark.parametrize("copies", [2, 3, 26])
def test_tables(gpu, lister, curve, copies):
    """Several windows to a list, with bases further on; and their parts."""
    values, r = mixed(curve, 200, 5), CURVES[curve].r
    for first in range(part_of(curve, 200, 10, copies=copies).sets):
        part = part_of(curve, 200, 10, first, 1, copies=copies)
        check(gpu, listed(gpu, lister, [values], part), part, expected_buckets([values], r, part))


def test_parts_of_a_batch(gpu, lister, curve):
    r, n, c = CURVES[curve].r, 400, 8
    scalars = [mixed(curve, n, 2), [0] * n, [1] * n, [r - 1, 1] * (n // 2), mixed(curve, n, 3), [r // 3] * n]
    buffers = [gpu.gpu.compute.put(limbs.from_ints(values, limbs.FR_LIMBS)) for values in scalars]
    classes = lister.classify(buffers, n)
    for first in (0, 7, 14, 28):
        part = part_of(curve, n, c, first, min(7, 32 - first), batch=len(scalars))
        check(gpu, lister.lists(classes, part), part, expected_buckets(scalars, r, part))


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
def test_bases_of_some_scalars(gpu, lister, curve, share):
    r, n, c = CURVES[curve].r, 500, 8
    dense = np.random.default_rng(4).random(n) < share
    places = np.cumsum(dense) - 1
    scalars = [mixed(curve, n, 6), [1, 0] * (n // 2), mixed(curve, n, 7)]
    buffers = [gpu.gpu.compute.put(limbs.from_ints(values, limbs.FR_LIMBS)) for values in scalars]
    density = Density(gpu.gpu.compute.put(ranks_of(dense)), int(dense.sum()))
    classes = lister.filtered(lister.classify(buffers, n), density)
    for copies in (1, 32):
        part = part_of(curve, density.bases, c, batch=len(scalars), copies=copies)
        expected = expected_buckets(scalars, r, part, lambda i: int(places[i]) if dense[i] else None)
        check(gpu, lister.lists(classes, part), part, expected)


def test_a_block_of_many_tiles(gpu, lister, curve, monkeypatch):
    monkeypatch.setattr(cuda_lists, "BLOCKS_PER_PROCESSOR", 0)  # one for each sum
    monkeypatch.setattr(cuda_lists, "FILL_THREADS", ((0, 128),))
    monkeypatch.setattr(cuda_lists, "ORDER_THREADS", ((0, 64),))
    part = part_of(curve, 9000, 12, 3, 2)
    values = mixed(curve, part.n, 11)
    check(gpu, listed(gpu, lister, [values], part), part, expected_buckets([values], CURVES[curve].r, part))


@pytest.mark.parametrize("kind", ["zeros", "ones", "minus ones", "one value", "bits and bytes", "halves"])
def test_a_bin_of_many_chunks(gpu, lister, curve, kind, monkeypatch):
    """More entries of one bucket than one block orders."""
    monkeypatch.setattr(cuda_lists, "CHUNK", 500)
    n = 1200
    part = part_of(curve, n, 8, 0, 3, copies=11)
    values = ints(witness(curve, n, kind))
    lists = listed(gpu, lister, [values], part)
    check(gpu, lists, part, expected_buckets([values], CURVES[curve].r, part))


def test_classes_are_counted(gpu, lister, curve):
    r, n = CURVES[curve].r, 5000
    kinds = [0, 1, r - 1, 7, r - (1 << 63), (1 << 64) - 1, 1 << 64, r // 2]
    values = [kinds[i * i % len(kinds)] for i in range(n)]
    buffer = gpu.gpu.compute.put(limbs.from_ints(values, limbs.FR_LIMBS))
    classes = lister.classify([buffer, buffer], n)
    sizes = [folded(value, r)[0] for value in values]
    full, units = sum(s >> 64 > 0 for s in sizes), sizes.count(1)
    small = n - sizes.count(0) - units - full
    header = words(gpu, classes.header, 12)
    assert header[2:5] == header[8:11] == [full, small, units]


@pytest.mark.parametrize("copies", [1, 4])
def test_no_more_room_than_needed(gpu, lister, curve, copies):
    """The device's memory ends where counts say that entries do: the emulated one sees what is written behind it."""
    r, n, c = CURVES[curve].r, 900, 7
    dense = np.random.default_rng(8).random(n) < 0.4
    places = np.cumsum(dense) - 1
    scalars = [mixed(curve, n, 9), [1] * n, [5, 0, r - 1] * (n // 3)]
    buffers = [gpu.gpu.compute.put(limbs.from_ints(values, limbs.FR_LIMBS)) for values in scalars]
    density = Density(gpu.gpu.compute.put(ranks_of(dense)), int(dense.sum()))
    everything = lister.classify(buffers, n, counted=True)
    some = lister.filtered(everything, density, counted=True)
    for classes, base in (
        (everything, lambda i: i),
        (some, lambda i: int(places[i]) if dense[i] else None),
    ):
        counts = classes.counts()
        known = [[folded(v, r)[0] for i, v in enumerate(values) if base(i) is not None] for values in scalars]
        assert counts.full == max(sum(s >> 64 > 0 for s in sizes) for sizes in known)
        assert counts.small == max(sum(1 < s < 1 << 64 for s in sizes) for sizes in known)
        assert counts.units == max(sizes.count(1) for sizes in known)
        shape = part_of(curve, classes.n, c, batch=len(scalars), copies=copies)
        for first in range(0, shape.sets, 13):
            part = replace(shape, first=first, count=min(13, shape.sets - first), counts=counts)
            check(gpu, lister.lists(classes, part), part, expected_buckets(scalars, r, part, base))


def test_no_limit_is_passed():
    """Bins that kernels have room for, at any width and in any part."""
    for c in range(4, cuda_lists.MAX_WINDOW_BITS + 1):
        for count in range(1, -(-255 // c) + 1):
            part = part_of("bls12_381", 1 << 20, c, 0, count)
            bins = 1 << (c - 1 - part.low_bits)
            assert bins <= cuda_lists.MOST_BINS and count * bins <= cuda_lists.MOST_COUNTED
            assert part.low_bits <= cuda_lists.MOST_LOW_BITS
