"""The device's busy time: a union, whatever the order in which partitions end."""

import random

import pytest

from cuzkd.backend.protocol import Span
from cuzkd.bench import timeline
from cuzkd.engine.prover.occupancy import KEPT, Occupancy


def span(begin_s, end_s, row="compute", phase="msm_h"):
    return Span(phase, row, begin_s, end_s - begin_s)


def test_copies_are_no_work_and_streams_beside_each_other_count_once():
    occupancy = Occupancy()
    assert occupancy.add([span(0, 1, "copy", "h2d")]) is None
    work = occupancy.add(
        [span(0, 1, "copy", "h2d"), span(1, 3), span(2, 4, "compute 2"), span(6, 7), span(7, 7, phase="d2h")]
    )
    assert (work.begin_s, work.end_s, work.busy_s) == (1, 7, 4) and occupancy.seconds == 4


@pytest.mark.parametrize("seed", range(5))
def test_what_partitions_add_is_the_union_in_any_order(seed):
    chance = random.Random(seed)
    partitions = []
    for number in range(20):
        begins = [number + chance.random() * 2 for _ in range(chance.randrange(1, 4))]
        partitions.append([span(begin, begin + chance.random() / 3) for begin in begins])
    chance.shuffle(partitions)
    occupancy, seen, before = Occupancy(), [], 0.0
    for spans in partitions:
        seen += spans
        added = occupancy.add(spans).busy_s
        assert occupancy.seconds == pytest.approx(before + added) and added >= 0
        before = occupancy.seconds
        assert occupancy.seconds == pytest.approx(timeline.length(timeline.kernels(seen)), abs=1e-4)


def test_the_far_past_is_forgotten_but_for_its_sum():
    occupancy = Occupancy()
    for number in range(10 * KEPT):
        occupancy.add([span(number, number + 0.5)])
    assert occupancy.seconds == 5 * KEPT and len(occupancy._intervals) == KEPT
    assert occupancy.add([span(0.5, 1)]).busy_s == 0  # nobody knows any more
    assert occupancy.add([span(10 * KEPT - 1, 10 * KEPT)]).busy_s == 0.5


def test_intervals_of_one_stream_touch_in_spite_of_rounding():
    occupancy, at_s = Occupancy(), 1e6 / 3
    for _ in range(1000):
        occupancy.add([span(at_s, at_s + 0.0123)])
        at_s += 0.0123 + 1e-10
    assert len(occupancy._intervals) == 1 and occupancy.seconds == pytest.approx(12.3)
