"""Every configuration makes the daemon's vectors and proofs; the rule; what is said."""

import json
from functools import partial

import numpy as np
import pytest
from bench.fake_device import FakeDevice

from cuzkd.backend.cpu import CpuBackend
from cuzkd.bench import campaign, growing, pipeline, subject
from cuzkd.bench.campaign import PER_PARTITION, ByProducts, Column, Options, judge
from cuzkd.bench.growing import Growth, OrdinaryPages, OrdinarySynthesis
from cuzkd.bench.pipeline import Setting
from cuzkd.bench.slabs import Pinning
from cuzkd.engine.job import PHASES
from cuzkd.engine.prover import synthesis
from cuzkd.engine.prover.transfer import ZeroCopy
from cuzkd.errors import InvalidInput, UnsatisfiedWitness
from cuzkd.memory.hints import CapacityHints

N = 1100
ROWS = 64  # so that vectors of this size grow several times


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(synthesis, "BLOCK_ROWS", ROWS)
    monkeypatch.setattr(growing, "START_ROWS", 8)


@pytest.fixture(scope="module", params=["bn254", "bls12_381"])
def bed(request, tmp_path_factory):
    with subject.make(request.param, N, CpuBackend(), tmp_path_factory.mktemp("witnesses"), 2) as made:
        yield made


class Watched(ZeroCopy):
    """Keeps a copy of what would cross."""

    def __init__(self, backend):
        super().__init__(backend)
        self.seen = []

    def upload(self, partition):
        made = partition.made
        self.seen.append([vector.copy() for vector in (made.a, made.b, made.z)])
        super().upload(partition)


def proved(bed, count, **how):
    """Vectors of `count` partitions and the pool's figures after them. The finaliser has verified every proof."""
    transfer = Watched(bed.backend)
    with pipeline.opened(bed, Setting(transfer=transfer, **how)) as prover:
        runs = [prover.run(1) for _ in range(count)]
    assert runs[-1].pool.leased_bytes == 0
    return transfer.seen, runs[-1].pool


def test_growing_vectors_are_the_daemons(bed):
    expected, _ = proved(bed, 2)
    growth = Growth()
    how = {"upstream": OrdinaryPages(), "synthesis": partial(OrdinarySynthesis, growth)}
    seen, pool = proved(bed, 2, **how)
    for got, wanted in zip(seen, expected, strict=True):
        assert all(np.array_equal(one, other) for one, other in zip(got, wanted, strict=True))
    # From 8 rows to a block of 64, and doubled from there; all of a, b and c, in both partitions.
    doublings = (bed.key.arrays.domain // ROWS).bit_length() - 1
    assert growth.moves == 2 * 3 * (1 + doublings)
    assert pool.quarantined_bytes == 0 and pool.slabs_made > 2


def test_with_hints_only_the_first_partition_grows(bed):
    growth = Growth(CapacityHints(None))
    how = {"upstream": OrdinaryPages(), "synthesis": partial(OrdinarySynthesis, growth)}
    proved(bed, 1, **how)
    learned, moves = growth.hints.get(bed.digest), growth.moves
    assert learned == bed.key.arrays.domain and moves > 0
    _, pool = proved(bed, 2, **how)
    assert growth.moves == moves
    assert pool.peak_leased_bytes == bed.lease_bytes  # not a row too many
    assert pool.slabs_made == 2  # nothing is kept from one partition to the next


def test_rows_by_products_are_the_daemons(bed):
    (expected,), _ = proved(bed, 1)
    (got,), _ = proved(bed, 1, host=ByProducts())
    assert all(np.array_equal(one, other) for one, other in zip(got, expected, strict=True))


# -- the rule ------------------------------------------------------------------------------------------------


def column(name, times):
    return Column(name, campaign.Way(), Growth(), [{PER_PARTITION: time} for time in times])


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        ([9.0, 9.1, 9.0, 8.9, 9.0], True),  # a tenth less, always
        ([11.0, 11.0, 11.0, 11.0, 11.0], False),  # slower
        ([10.0, 10.0, 10.0, 10.0, 10.0], False),  # nothing
        ([9.0, 11.0, 8.0, 12.0, 9.5], False),  # less in the median, but who knows
        ([5.0, 9.0, 9.0, 9.0, 30.0], True),  # one bad round and one good one
    ],
)
def test_a_step_is_kept_if_its_gain_is_more_than_its_spread(after, kept):
    assert judge(column("before", [10.0] * 5), column("after", after)).kept is kept


def test_rounds_are_compared_with_themselves():
    """A machine that becomes slower and slower hides no gain, and makes none."""
    drifting = [10.0, 20.0, 40.0, 30.0, 80.0]
    verdict = judge(column("before", drifting), column("after", [time - 1 for time in drifting]))
    assert verdict.kept and verdict.gain.median == pytest.approx(1) and verdict.gain.width == pytest.approx(0)
    assert not judge(column("before", drifting), column("after", drifting)).kept


def test_too_few_runs_are_refused():
    with pytest.raises(InvalidInput, match="runs: expected at least 2, got 1"):
        campaign.run(CpuBackend(), Options(runs=1), print)


# -- the whole -----------------------------------------------------------------------------------------------


def options(tmp_path, **more):
    return Options(curve="bn254", n_constraints=N, partitions=2, runs=2, folder=tmp_path, **more)


def test_on_the_processor(tmp_path):
    said = []
    report = campaign.run(CpuBackend(), options(tmp_path), said.append)
    numbers = json.loads(report.json())
    names = [one["name"] for one in numbers["configurations"]]
    assert names == ["plain", "short rows", "pre-sizing", "B_G2 beside", "daemon"]
    assert numbers["skipped"] == {"pinning": "needs a device"}
    assert "skipped: needs a device" in report.text() and "INSECURE" in report.markdown()
    steps, phases = report.tables
    assert [row[0] for row in steps.rows] == [*names[:-1], "pinning", "daemon"]
    assert {"synthesis", "msm_b_g2", "verify", "gpu_wait"} <= {row[0] for row in phases.rows}
    assert {row[0] for row in phases.rows} <= {PER_PARTITION, "device busy, %", *PHASES}
    for one in numbers["configurations"]:
        assert len(one["rounds"]) == 2 and all(seen["msm_h"] > 0 for seen in one["rounds"])
        assert one["spread"][PER_PARTITION]["least"] == min(seen[PER_PARTITION] for seen in one["rounds"])
        assert (one["moves"] > 0) == (one["name"] in ("plain", "short rows"))
        assert one["kept"] in ({None} if one["name"] in ("plain", "daemon") else {True, False})
    assert len(said) == 3 and not any(tmp_path.iterdir())


def test_no_witness_is_made_while_something_is_measured(tmp_path, monkeypatch):
    """However few partitions a run has."""
    measure, there = campaign._measure, []

    def counted(bed, *how):
        there.append(len(list(bed.folder.iterdir())))
        return measure(bed, *how)

    monkeypatch.setattr(campaign, "_measure", counted)
    few = Options(curve="bn254", n_constraints=1024, partitions=1, runs=2, folder=tmp_path)
    campaign.run(CpuBackend(), few, print)
    assert set(there) == {campaign.DISTINCT}


class SeenDevice(FakeDevice):
    """Remembers the order of sums that each partition was launched with."""

    def __init__(self):
        super().__init__()
        self.beside = []

    def launch(self, upload):
        self.beside.append(self.parallel_g2)
        return super().launch(upload)


def test_on_a_device_each_step_is_taken(tmp_path):
    backend = SeenDevice()
    pinning = Pinning(backend.driver.register, backend.driver.unregister)
    report = campaign.run(backend, options(tmp_path), print, pinning)
    assert [row[0] for row in report.tables[0].rows] == [
        "plain", "short rows", "pre-sizing", "B_G2 beside", "pinning", "daemon",
    ]  # fmt: skip
    assert report.numbers["skipped"] == {}
    # Two partitions a run, and one more of each configuration in the first round.
    turns = [[3] * 6, [2] * 6]
    beside, pinned, columns = [], [], []
    for turn in turns:
        for which, count in enumerate(turn):
            beside += [which in (3, 4, 5)] * count
            pinned += [which == 4] * count
            columns += [4 if which < 5 else 3] * count
    assert backend.beside == beside and backend.parallel_g2 is True
    assert [all(one.locked) for one in backend.arrived] == pinned
    assert [any(one.locked) for one in backend.arrived] == pinned
    assert [len(one.extents) for one in backend.arrived] == columns
    assert not backend.driver.ranges


def test_a_step_that_is_wrong_has_no_time(tmp_path, monkeypatch):
    right = ByProducts.spmv_into

    def wrong(self, curve, matrix, z, out, row_begin, row_end):
        right(self, curve, matrix, z, out, row_begin, row_end)
        out[row_begin, 0] ^= np.uint64(1)

    monkeypatch.setattr(ByProducts, "spmv_into", wrong)
    backend = CpuBackend()
    with pytest.raises(UnsatisfiedWitness, match="constraint 0"):
        campaign.run(backend, options(tmp_path), print)
    assert backend.parallel_g2 is True and not any(tmp_path.iterdir())
