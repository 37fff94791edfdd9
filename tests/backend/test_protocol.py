"""How spans become seconds by phase."""

import random
from itertools import pairwise

import pytest

from cuzkd.backend.protocol import Span, seconds_by_phase


def test_what_overlaps_is_shared():
    spans = [Span("msm_a", "compute", 0.0, 2.0), Span("msm_b_g2", "compute 2", 1.0, 2.0)]
    assert seconds_by_phase(spans) == {"msm_a": 1.5, "msm_b_g2": 1.5}
    assert seconds_by_phase([Span("d2h", "compute", 1.0, 0.0)]) == {"d2h": 0.0}
    assert seconds_by_phase([]) == {}


def test_phases_keep_the_order_in_which_they_begin():
    spans = [
        Span("b", "x", 3.0, 1.0),
        Span("a", "x", 5.0, 1.0),
        Span("c", "x", 1.0, 1.0),
        Span("b", "x", 7.0, 2.0),
    ]
    assert list(seconds_by_phase(spans).items()) == [("c", 1.0), ("b", 3.0), ("a", 1.0)]


@pytest.mark.parametrize("seed", range(20))
def test_they_add_up_to_the_time_covered(seed):
    """Against a count on a grid: each step of it goes in equal parts to the spans that cover it."""
    rng = random.Random(seed)
    spans = [
        Span(rng.choice("abc"), "x", begin, end - begin)
        for begin, end in (sorted(rng.sample(range(40), 2)) for _ in range(rng.randrange(9)))
    ]
    expected = dict.fromkeys((span.phase for span in spans), 0.0)
    for step, _ in pairwise(range(41)):
        here = [span for span in spans if span.begin_s <= step < span.begin_s + span.seconds]
        for span in here:
            expected[span.phase] += 1 / len(here)
    assert seconds_by_phase(spans) == pytest.approx(expected)
