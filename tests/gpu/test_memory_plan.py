"""Memory and launches of proofs, planned at sizes that no test can run, for cards of several sizes. Needs CuPy, no
GPU."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cuzkd import errors
from cuzkd.backend.protocol import QUERIES, KeyShape

pytest.importorskip("cupy")
from cuzkd.backend.cuda_plan import MARGIN, DryRun, MemoryPlan, _misfit, arena_bytes, plan_for
from cuzkd.backend.cuda_stream import chunks, point_bytes

GIB = 1 << 30
MATRICES = 3_200_000_000  # bytes of A and B of that partition
PARTITION = KeyShape(
    curve="bls12_381", root_family=7, reduction="bellman", log_domain=27,
    n_wires=130_148_591, n_public=1, n_rows=130_278_871,
)  # fmt: skip
SMALL = KeyShape(
    curve="bn254", root_family=5, reduction="circom", log_domain=12, n_wires=3000, n_public=1, n_rows=3000
)


def card(gib):
    return SimpleNamespace(processors=132, total_bytes=gib * GIB, shared_bytes=160 << 10)


def planned(shape, gib, matrix_bytes=None):
    dry = DryRun(shape, card(gib))
    plan = plan_for(dry, gib * GIB, True, matrix_bytes)
    assert plan.total_bytes <= gib * GIB - gib * GIB // MARGIN
    return plan


def test_a_partition_on_a_large_card():
    """The key resident, the next upload beside a proof, given a and b or making them."""
    for matrix_bytes in (None, MATRICES):
        plan = planned(PARTITION, 139, matrix_bytes)
        assert (plan.uploads, plan.streamed, plan.evaluating) == (2, (), matrix_bytes is not None)
        assert plan.resident_bytes == PARTITION.points_bytes + (matrix_bytes or 0)


@pytest.mark.parametrize("gib", [80, 48, 24])
def test_a_partition_on_smaller_cards(gib):
    plan = planned(PARTITION, gib)
    assert plan.streamed and not plan.parallel_g2
    kept = sum(
        point_bytes(PARTITION, q) * PARTITION.shape_of(q)[0] for q in QUERIES if q not in plan.streamed
    )
    assert plan.resident_bytes == kept
    with pytest.raises(errors.NeverFits):  # matrices, too
        plan_for(DryRun(PARTITION, card(gib)), gib * GIB, True, MATRICES)


@pytest.mark.parametrize("gib", [16, 24])
def test_circuits_of_2_to_the_26_fit_small_cards(gib):
    half = replace(PARTITION, log_domain=26, n_wires=65_000_000, n_rows=66_000_000)
    assert planned(half, gib).uploads >= 1


def test_a_partition_on_a_card_of_16_gib():
    """The witness waits on the host until the quotient has left room for it."""
    plan = planned(PARTITION, 16)
    assert plan.parked and plan.streamed == QUERIES and plan.uploads == 1
    assert plan.upload_bytes == 3 * 32 * PARTITION.domain


def test_what_fits_nowhere_is_said():
    with pytest.raises(errors.NeverFits, match=r"2\^27 rows and 130148591 wires take at least \d+ bytes"):
        planned(PARTITION, 8)


def test_several_threads_may_plan_at_once():
    """Of two circuits of one shape, say, whose keys come at the same time."""
    dry, ways = DryRun(SMALL, card(139)), [MemoryPlan(1, beside) for beside in (False, True)] * 8
    expected = {way: dry.of(way) for way in ways}
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(dry.of, ways)) == [expected[way] for way in ways]


def test_small_proofs_take_few_launches():
    """A launch takes the interpreter some eight microseconds."""
    dry = DryRun(SMALL, card(139))
    before = sum(lane.launches for lane in dry.lanes.values())
    dry.of(
        MemoryPlan(2, True, streamed=QUERIES, slot_bytes=1 << 30)
    )  # one dry run, in as many chunks as there must be
    assert sum(lane.launches for lane in dry.lanes.values()) - before <= 100


@pytest.mark.parametrize("slot_bytes", [1 << 14, 1 << 20, 1 << 30])
@pytest.mark.parametrize("streamed", [QUERIES, ("b_g2",), ("h_g1", "l_g1"), ()], ids=str)
def test_chunks_cover_every_point_once(streamed, slot_bytes):
    points = dict.fromkeys(QUERIES, 0)
    scalars = {True: 0, False: 0}
    for chunk in chunks(SMALL, streamed, slot_bytes):
        assert chunk.begin == scalars[chunk.over_h]
        scalars[chunk.over_h] += chunk.count
        passing = 0
        for piece in chunk.pieces:
            assert piece.first == points[piece.query] and piece.skip + piece.count == chunk.count
            points[piece.query] += piece.count
            if piece.query in streamed:
                passing += piece.count * point_bytes(SMALL, piece.query)
        assert passing <= slot_bytes
    assert scalars == {True: SMALL.domain, False: SMALL.n_wires}
    assert points == {query: SMALL.shape_of(query)[0] for query in QUERIES}


def test_a_block_that_was_planned_serves_what_it_was_planned_for():
    rng = random.Random(1)
    for _ in range(200):
        sizes, trace, there = [], [], []
        for _ in range(60):
            if there and rng.random() < 0.45:
                trace.append(~there.pop(rng.randrange(len(there))))
            else:
                there.append(len(sizes))
                trace.append(len(sizes))
                sizes.append(rng.choice((1, 3, 10, 100)))
        block = arena_bytes(sizes, trace)
        assert _misfit(sizes, trace, block) is None
        live = [0]
        for i in trace:
            live.append(live[-1] + (sizes[i] if i >= 0 else -sizes[~i]))
        assert max(live) <= block <= 2 * max(live)
    assert arena_bytes([], []) == 0
