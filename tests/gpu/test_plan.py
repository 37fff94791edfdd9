"""How sums are cut, at sizes that no test can run: what fits 32-bit numbers and the budget. Needs CuPy, but no GPU."""

import pytest

from cuzkd import errors

pytest.importorskip("cupy")
from cuzkd.backend.cuda_msm import MAX_ENTRIES, MAX_SCALARS, plan

GIB = 1 << 30
G1, G2 = 4 * 48, 4 * 96  # bytes of a bucket on BLS12-381


@pytest.mark.parametrize("batch", [1, 2, 3, 10, 31])
@pytest.mark.parametrize("n", [1, 2, 1000, 1 << 20, 130_278_869, 1 << 27])
@pytest.mark.parametrize("group_bytes", [1, GIB, 4 * GIB, 1 << 50])
def test_groups_fit(n, batch, group_bytes):
    cut = plan(n, batch, 255, 132, G2, group_bytes)
    assert n * batch * cut.group <= MAX_ENTRIES
    size = batch * cut.group * (4 * n + G2 * cut.buckets_per_window)
    assert cut.group == 1 or size <= group_bytes
    assert cut.windows * cut.window_bits >= 255 > (cut.windows - 1) * cut.window_bits
    groups = -(-cut.windows // cut.group)
    assert cut.group * groups - cut.windows < groups, "one group less would do, or they are uneven"
    assert cut.threads % 128 == 0 and cut.threads <= 132 * 2048
    assert batch * (cut.group * cut.buckets_per_window + 1) < MAX_ENTRIES


def test_a_batch_takes_as_much_as_the_sums_in_it(monkeypatch):
    alone, three = (plan(1 << 27, batch, 255, 132, G1, 4 * GIB) for batch in (1, 3))
    assert alone.window_bits == three.window_bits
    assert (alone.group, three.group) == (5, 2)


def test_what_no_plan_can_do():
    for n, batch in ((MAX_SCALARS + 1, 1), (1 << 27, 32), (MAX_SCALARS, 3)):
        with pytest.raises(errors.InvalidInput, match=f"{batch} sums over {n} scalars"):
            plan(n, batch, 255, 132, G1, GIB)
    assert plan(MAX_SCALARS, 2, 255, 132, G1, GIB).group == 1
