"""Arithmetic over spans against a count on a fine grid, and the trace that a browser gets."""

import json
import random
from itertools import pairwise

import pytest

from cuzkd.backend.protocol import Span
from cuzkd.bench import timeline


def spans(row, phase, *intervals):
    return [Span(phase, row, begin, end - begin) for begin, end in intervals]


def covered(intervals, point):
    return any(begin <= point < end for begin, end in intervals)


@pytest.mark.parametrize("seed", range(20))
def test_union_and_difference_agree_with_counting(seed):
    rng = random.Random(seed)
    first, second = (
        [tuple(sorted(rng.sample(range(60), 2))) for _ in range(rng.randrange(8))] for _ in range(2)
    )
    cover = timeline.union(second)
    assert all(a[1] < b[0] for a, b in pairwise(cover))
    points = [i + 0.5 for i in range(60)]
    assert timeline.length(timeline.union(first)) == sum(covered(first, p) for p in points)
    left = timeline.uncovered(first, cover)
    assert [covered(left, p) for p in points] == [
        covered(first, p) and not covered(second, p) for p in points
    ]
    window = (10, 40)
    inside = timeline.clipped(first, window)
    assert [covered(inside, p) for p in points] == [covered(first, p) and 10 <= p < 40 for p in points]


def test_busy_counts_kernels_on_all_streams_once():
    work = spans("compute", "ntt_h", (0, 2), (6, 8)) + spans("compute 2", "msm_b_g2", (1, 4))
    work += spans("compute", "d2h", (4, 5)) + spans("synthesis-0", "synthesis", (0, 8))
    assert timeline.busy(work) == pytest.approx(6 / 8)
    assert timeline.busy([]) == timeline.exposed([]) == 0


def test_exposed_is_what_no_kernel_covers_after_the_first():
    work = spans("compute", "msm_h", (2, 4), (6, 12))
    moved = spans("copy", "h2d", (0, 2), (3, 5), (7, 9))  # the first can be covered by nothing
    assert timeline.exposed(work + moved) == pytest.approx(1 / 10)
    assert timeline.exposed(work) == 0


def test_trace(tmp_path):
    named = [
        ("a", span) for span in spans("compute", "msm_h", (5, 6)) + spans("synthesis-1", "witness", (4, 5))
    ]
    timeline.write_trace(tmp_path / "t.json", named)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    work = [event for event in events if event["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"]) for e in work] == [("witness", 0.0, 1e6), ("msm_h", 1e6, 1e6)]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert [names[e["tid"]] for e in work] == ["synthesis-1", "compute"]
    assert sorted(names, key=lambda tid: tid) == [0, 1] and names[0] == "synthesis-1"
