"""Sums of lists of points by vectors (kernels/cpu/batch_lanes.hpp): every exceptional pair in every place of a vector.

The same lists go through the vectors, emulated on any machine and, in the slow set, real where the processor has
them, and through the adder that takes points one by one; that one's sums are held against plain multiples of the
generator.
"""

import ctypes
import itertools
import subprocess

import numpy as np
import pytest
from kernels.conftest import known_points
from kernels.test_lanes import BUILDS, EACH_BUILD, FLAGS, HEADERS, HERE

from cuzkd.backend import native
from cuzkd.curves.params import CURVES


@pytest.fixture(scope="session", params=EACH_BUILD)
def library(request, tmp_path_factory):
    if request.param == "real" and "ifma" not in native.usable():
        pytest.skip("this processor has no AVX-512 IFMA")
    out = tmp_path_factory.mktemp("sums") / "probe.so"
    source = str(HERE / "sums_probe.cpp")
    subprocess.run(
        ["g++", *FLAGS, *BUILDS[request.param], "-pthread", f"-I{HEADERS}", source, "-o", str(out)],
        check=True,
    )
    return ctypes.CDLL(str(out))


def check(library, curve, group, logs, lists):
    """logs: of the points; lists: of signed positions, k + 1 for point k, -(k + 1) for its negative."""
    points = known_points(curve, group, logs)
    entries = np.array([(abs(e) - 1) << 1 | (e < 0) for row in lists for e in row], np.uint32)
    lengths = np.array([len(row) for row in lists], np.uint32)
    sums = [np.full((len(lists), *points.shape[1:]), 7, np.uint64) for _ in range(2)]
    arrays = [a.ctypes.data_as(ctypes.c_void_p) for a in (points, entries, lengths, *sums)]
    arrays.insert(3, ctypes.c_size_t(len(lists)))
    assert library.probe(f"{curve} {group}".encode(), *arrays) == 0
    total = [sum(logs[abs(e) - 1] * (1 if e > 0 else -1) for e in row) for row in lists]
    expected = known_points(curve, group, total)
    for got, way in zip(sums, ("vectors", "one by one"), strict=True):
        wrong = np.flatnonzero((got != expected).reshape(len(lists), -1).any(axis=1))
        assert not len(wrong), (
            f"{way}: {len(wrong)} of {len(lists)} lists differ, first {lists[wrong[0]][:9]}"
        )


def test_every_short_list_of_a_few_points(library, curve, group):
    """All of up to four from: infinity, P, -P, 2P, Q. In one call they meet in the same vectors."""
    logs = [0, 5, -5, 10, 77]
    signed = [1, 2, -2, 4, 5]
    lists = [list(row) for n in range(5) for row in itertools.product(signed, repeat=n)]
    check(library, curve, group, logs, lists)


def test_one_exception_in_each_lane(library, curve, group, rng):
    """In lists that are alike otherwise, so that a vector holds seven plain lanes and one that is not."""
    logs = [0, *(rng.randrange(1, 1 << 60) for _ in range(40))]
    lists = []
    for lane, kind in itertools.product(range(16), range(4)):
        block = [[2 + (3 * i + j) % 40 for j in range(5)] for i in range(16)]
        a, b = block[lane][:2]
        block[lane] = [[a, 1, b, 3, 4], [a, a, b, 3, 4], [a, -a, b, 3, 4], [1, 1, a, -a, 1]][kind]
        lists += block
    check(library, curve, group, logs, lists)


@pytest.mark.parametrize(
    "lengths",
    [
        [1],
        [3000],
        [0, 0, 0],
        [1, 2, 3, 900, 0, 1],
        [7] * 9,
        [40] * 63 + [400] * 2,
        [2] * 2500,
        list(range(130)),
        [129, 128, 127, 17, 16, 15] * 12,
    ],
)
def test_lists_of_any_lengths(library, curve, lengths, rng):
    """Single ones and none, longer than a walk may be, more than there are lanes, across the steps read at once."""
    logs = [rng.randrange(CURVES[curve].r) for _ in range(60)]
    lists = [[rng.choice([-1, 1]) * rng.randrange(1, 61) for _ in range(n)] for n in lengths]
    check(library, curve, "g1", logs, lists)


def test_long_lists_of_equal_and_opposite_points(library, curve, group):
    """Sums that double, vanish and begin again, many times."""
    logs = [9, 18, -9]
    lists = [[1] * 200, [1, -1] * 100, [1, 3] * 77, [1, 1, -2] * 70, [2, -1, -1, 1] * 60, [-1] * 129]
    check(library, curve, group, logs, lists)
