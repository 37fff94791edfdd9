"""How sums are cut, at sizes that no test can run: what fits 32-bit numbers and the budget. Needs CuPy, but no GPU."""

from types import SimpleNamespace

import pytest

from cuzkd import errors

pytest.importorskip("cupy")
from cuzkd.backend.cuda_device import Buffer
from cuzkd.backend.cuda_lists import Counts
from cuzkd.backend.cuda_msm import (
    MAX_ENTRIES,
    MAX_SCALARS,
    Query,
    Sums,
    Table,
    group_bytes,
    plan,
    window_ns,
)
from cuzkd.backend.cuda_plan import DryLane

GIB = 1 << 30
G1, G2 = 2 * 48, 2 * 96  # bytes of a point on BLS12-381
TABLES = [None, Table(20, 13), Table(22, 3)]


@pytest.mark.parametrize("table", TABLES, ids=str)
@pytest.mark.parametrize("batch", [1, 2, 3, 10, 31])
@pytest.mark.parametrize("n", [1, 2, 1000, 1 << 20, 130_278_869, 1 << 27])
@pytest.mark.parametrize("most", [1, GIB, 4 * GIB, 1 << 50])
def test_groups_fit(n, batch, most, table):
    if table and (n * table.copies > MAX_SCALARS or n * batch * table.copies > MAX_ENTRIES):
        with pytest.raises(errors.InvalidInput, match=f"{batch} sums over {n} scalars"):
            plan(n, batch, 255, G2, most, table)
        return
    cut = plan(n, batch, 255, G2, most, table)
    part = cut.part(0, cut.group)
    assert part.most_entries <= MAX_ENTRIES and part.n_buckets < MAX_ENTRIES
    assert cut.group == 1 or group_bytes(cut, cut.group, G2) <= most
    assert cut.windows * cut.window_bits >= 255 > (cut.windows - 1) * cut.window_bits
    assert cut.sets * cut.copies >= cut.windows > (cut.sets - 1) * cut.copies and cut.sets == part.sets
    groups = -(-cut.sets // cut.group)
    assert cut.group * groups - cut.sets < groups, "one group less would do, or they are uneven"
    assert len(cut.doublings) == cut.points and max(cut.doublings) < 255 + cut.window_bits


def test_a_batch_takes_as_much_as_the_sums_in_it():
    alone, three = (plan(1 << 24, batch, 255, G1, 4 * GIB) for batch in (1, 3))
    assert alone.window_bits == three.window_bits
    assert alone.group > three.group


def test_wider_windows_for_more_points():
    widths = [plan(1 << log, 1, 255, G1, GIB).window_bits for log in range(0, 28)]
    assert widths == sorted(widths) and widths[10] <= 11 and widths[20] in (15, 16, 17) and widths[27] >= 20


def test_no_width_is_cheaper():
    for n in (1000, 1 << 20, 1 << 26):
        cut = plan(n, 1, 254, G1, GIB)
        costs = {c: window_ns(Counts(n, 0, 0), 254, G1, c) for c in range(4, 23)}
        assert costs[cut.window_bits] == min(costs.values())


@pytest.mark.parametrize("table", TABLES, ids=str)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "counts",
    [Counts(0, 0, 0), Counts(0, 0, 1 << 26), Counts(1 << 22, 1 << 23, 1 << 25), Counts(0, 1 << 20, 7)],
    ids=str,
)
def test_plans_for_what_is_there(counts, batch, table):
    n = 100_000_000
    known, unknown = (plan(n, batch, 255, G2, 4 * GIB, table, found) for found in (counts, None))
    assert known.window_bits <= unknown.window_bits and known.group >= unknown.group
    part = known.part(0, known.group)
    assert part.most_entries <= MAX_ENTRIES
    assert part.most_entries >= batch * (known.group * known.copies * counts.busy + counts.units)
    assert known.group == 1 or group_bytes(known, known.group, G2) <= 4 * GIB
    assert counts.units >> known.rounds < 100_000, "what is left of the units is added one by one"


def test_what_no_plan_can_do():
    for n, batch in ((MAX_SCALARS + 1, 1), (1 << 27, 32), (MAX_SCALARS, 3)):
        with pytest.raises(errors.InvalidInput, match=f"{batch} sums over {n} scalars"):
            plan(n, batch, 255, G1, GIB)
    assert plan(MAX_SCALARS, 2, 255, G1, GIB).group == 1


def test_rounds_for_a_top_window_of_few_bits():
    """Its lists are long: thousands of them are halved until they are short, some hundred are added up one by one."""
    wide, few = plan(1 << 24, 1, 255, G1, 1 << 50), plan(1 << 16, 1, 255, G1, 1 << 50)
    assert (wide.window_bits, few.window_bits) == (20, 13)
    assert 1 << wide.rounds > (1 << 24) >> (254 - 12 * 20)
    assert 1 << few.rounds < (1 << 16) >> (254 - 19 * 13)


@pytest.mark.parametrize(
    "log, table", [(10, None), (16, None), (20, None), (20, Table(20, 13)), (22, None)], ids=str
)
def test_few_launches(log, table):
    """On a card of 140 GB. They are what a sum of few points takes its time for."""
    lane = DryLane(SimpleNamespace(processors=132, total_bytes=140 * GIB, shared_bytes=160 << 10), "dry")
    buffer = Buffer(SimpleNamespace(ptr=0), 1 << 50)
    query = Query("sum", "g1", buffer, table=table)
    left = []
    Sums(lane, "bls12_381").run(
        [buffer], 1 << log, [query], lambda _: None, lambda *found: left.append(found)
    )
    (_, cut, points), *_ = left
    assert len(left) == 1 and points.nbytes == G1 * cut.points
    assert 10 < lane.launches < 40
