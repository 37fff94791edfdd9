"""Tables of bases: what is in them, that sums by them are the same sums, and how they are chosen."""

import random

import numpy as np
import pytest
from gpu.conftest import assert_same_sums, cpu_sums, prove, random_key, random_matrix, random_vectors, witness

from cuzkd.backend import cpu
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

pytest.importorskip("cupy")
from cuzkd.backend import cuda_msm, cuda_plan
from cuzkd.backend.cuda_lists import Counts
from cuzkd.backend.cuda_msm import Query, Table, window_ns
from cuzkd.backend.cuda_tables import best_table, make_table, table_bytes

GIB = 1 << 30


def multiples(curve, group, logs):
    r = CURVES[curve].r
    return cpu.fixed_base_mul(curve, group, limbs.from_ints([k % r for k in logs], limbs.FR_LIMBS))


def made(gpu, curve, group, points, table):
    lane = gpu.gpu.compute
    size = table_bytes(len(points), points[0].nbytes, table)
    out = lane.scratch(size)
    bits = CURVES[curve].r.bit_length()
    make_table(lane, curve, group, lane.put(points), len(points), bits, table, out)
    return out


@pytest.mark.gpu
@pytest.mark.parametrize("table", [Table(11, 3), Table(13, 20), Table(7, 1)], ids=str)
def test_copies(gpu, curve, group, table):
    logs = [0, 1, 5, -1, random.Random(1).randrange(1 << 200), *range(2, 1034)]
    points = multiples(curve, group, logs)
    with gpu.gpu.guard():
        out = made(gpu, curve, group, points, table)
        got = gpu.gpu.compute.get(out, (table.copies, *points.shape))
    windows = -(-CURVES[curve].r.bit_length() // table.window_bits)
    step = table.window_bits * -(-windows // table.copies)
    for copy in range(table.copies):
        assert np.array_equal(got[copy], multiples(curve, group, [k << (step * copy) for k in logs]))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["random", "bits and bytes"])
@pytest.mark.parametrize("table", [Table(8, 32), Table(9, 4)], ids=str)
@pytest.mark.parametrize("group_bytes", [1, GIB])
def test_sums(gpu, curve, group, table, kind, group_bytes, monkeypatch):
    """Of two witnesses at once, by a table, with lists of one set at a time and of all."""
    rng, r, n = random.Random(2), CURVES[curve].r, 100
    logs = [rng.choice([0, 1, rng.randrange(r)]) for _ in range(n)]
    values = [
        limbs.from_ints([rng.randrange(r) for _ in range(n)], limbs.FR_LIMBS)
        if kind == "random"
        else witness(curve, n, kind)
        for _ in range(2)
    ]
    points = multiples(curve, group, logs)
    found = []
    with gpu.gpu.guard():
        lane = gpu.gpu.compute
        sums = gpu.sums(curve, lane)
        monkeypatch.setattr(sums, "group_bytes", group_bytes)
        query = Query("msm", group, made(gpu, curve, group, points, table), table=table)

        def deliver(_, plan, left):
            words = lane.get(left, (2, left.nbytes // 16))
            times = np.array(plan.doublings, np.uint32)
            for one in words:
                there = one.reshape(plan.points, *points.shape[1:])
                found.append(cpu.sum_of_doublings(curve, group, there, times))

        sums.run([lane.put(v) for v in values], n, [query], lambda _: None, deliver)
    expected = [sum(k * s for k, s in zip(logs, limbs.to_ints(v), strict=True)) for v in values]
    assert np.array_equal(np.stack(found), multiples(curve, group, expected))


@pytest.mark.gpu
def test_a_key_with_a_table(curve, monkeypatch):
    """Its H sum is what it is without, its points are read as they came, and matrices find room beside it."""
    from cuzkd.backend.cuda import CudaBackend

    monkeypatch.setattr(
        cuda_msm, "ROUND_NS", dict.fromkeys(cuda_msm.ROUND_NS, 1.0)
    )  # so that small keys get one
    monkeypatch.setattr(cuda_plan, "LEAST_TABLE", 1)
    cuda_msm.plan.cache_clear()
    key = random_key(curve, 6, 70, 7, 41)
    a, b, z = random_vectors(key, 1)
    expected = cpu_sums(key, a, b, z)
    backends = [CudaBackend(tables=tables) for tables in (True, False)]
    try:
        keys = [backend.load_key(key) for backend in backends]
        assert keys[0].tables["h_g1"].copies > 1 and not keys[1].tables
        assert keys[0].resident_bytes > keys[1].resident_bytes
        for backend, loaded in zip(backends, keys, strict=True):
            assert_same_sums(prove(backend, loaded, a, b, z), expected)
            assert np.array_equal(loaded.read("h_g1", 0, 100), key.h_g1)
        matrices = [random_matrix(curve, 41, 70, seed) for seed in (2, 3)]
        monkeypatch.setattr("cuzkd.backend.cuda.EVALUATED_ROWS", 0)
        assert backends[0].keep_matrices(keys[0], *matrices)
        assert keys[0].plan.table == keys[0].tables["h_g1"] and keys[0].plan.evaluating
        made = [cpu.CpuBackend().spmv(curve, matrix, z) for matrix in matrices]
        assert_same_sums(prove(backends[0], keys[0], None, None, z), cpu_sums(key, *made, z))
    finally:
        cuda_msm.plan.cache_clear()
        for backend in backends:
            backend.close()


@pytest.mark.parametrize("n", [1, 1000, 1 << 20, 1 << 24, 1 << 27])
@pytest.mark.parametrize("bytes_", [0, 1 << 20, GIB, 16 * GIB, 64 * GIB])
def test_the_best_table_that_fits(n, bytes_):
    table = best_table(n, 255, 96, bytes_)
    alone = min(window_ns(Counts(n, 0, 0), 255, 96, c) for c in range(4, 23))
    if table is None:
        assert bytes_ < 2 * 96 * n or n < 1 << 10
        return
    assert table_bytes(n, 96, table) <= bytes_
    assert window_ns(Counts(n, 0, 0), 255, 96, table.window_bits, table.copies) < alone


def test_what_tables_are_for():
    assert best_table(1 << 20, 255, 96, 2 * GIB).copies in (12, 13, 14)
    assert best_table(1 << 20, 255, 96, GIB // 2).copies < 6
    assert best_table(1 << 20, 255, 96, 0) is None
