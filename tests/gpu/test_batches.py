"""Several partitions in one launch, and kernels beside kernels: the sums of each are what they are alone."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from gpu.conftest import (
    assert_same_sums,
    cpu_sums,
    page_locked,
    prove,
    random_key,
    random_matrix,
    random_vectors,
    witness,
)

from cuzkd import errors
from cuzkd.backend.cpu import CpuBackend

pytestmark = pytest.mark.gpu

CURVES = ("bn254", "bls12_381")
KINDS = ["zeros", "ones", "minus ones", "one value", "bits and bytes", "one and a rest of zeros", "halves"]
ASIDE = [False, True]


@pytest.fixture(params=ASIDE, ids=["one stream", "two streams"])
def backend(gpu, request, monkeypatch):
    monkeypatch.setattr(gpu, "parallel_g2", request.param)
    return gpu


def uploads(gpu, loaded, vectors):
    return [gpu.upload(loaded, *map(page_locked, (a, b)), None, page_locked(z)) for a, b, z in vectors]


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("shape", [(0, 3, 1, 1), (6, 70, 7, 41), (12, 4000, 3, 3900)], ids=str)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_each_is_what_it_is_alone(backend, curve, shape, n):
    key = random_key(curve, *shape)
    vectors = [random_vectors(key, seed) for seed in range(n)]
    loaded = backend.load_key(key)
    runs = backend.launch_batch(uploads(backend, loaded, vectors))
    for run, (a, b, z) in reversed(list(zip(runs, vectors, strict=True))):
        assert_same_sums(run.result(), cpu_sums(key, a, b, z))
    loaded.close()


@pytest.mark.parametrize("curve", CURVES)
def test_edge_witnesses_beside_each_other(backend, curve):
    """Each kind beside its neighbours, in one batch of all, whole and in groups of one window."""
    key = random_key(curve, 8, 300, 5, 200)
    kinds = [witness(curve, key.n_wires, kind) for kind in KINDS]
    vectors = [(*random_vectors(key, seed)[:2], z) for seed, z in enumerate(kinds)]
    vectors.append((*(np.zeros_like(v) for v in vectors[0][:2]), vectors[0][2]))  # h is zero as well
    expected = [cpu_sums(key, *v) for v in vectors]
    loaded = backend.load_key(key)
    for group_bytes in (loaded.plan.group_bytes, 1):
        loaded.plan = replace(loaded.plan, group_bytes=group_bytes)
        runs = backend.launch_batch(uploads(backend, loaded, vectors))
        for run, alone in zip(runs, expected, strict=True):
            assert_same_sums(run.result(), alone)
    loaded.close()


def test_ways_of_crossing_may_differ_inside_a_batch(backend):
    key = random_key("bn254", 6, 70, 7, 41)
    matrices = [random_matrix("bn254", 41, 70, seed) for seed in (2, 3)]
    loaded = backend.load_key(key)
    backend.attach_matrices(loaded, *matrices)
    z = [random_vectors(key, seed)[2] for seed in range(3)]
    ab = [[CpuBackend().spmv("bn254", matrix, w) for matrix in matrices] for w in z]
    c = CpuBackend().field_op("bn254", "fr", "mul", *ab[2])
    runs = backend.launch_batch(
        [
            backend.upload(loaded, None, None, None, z[0]),
            backend.upload(loaded, *ab[1], None, z[1]),
            backend.upload(loaded, *ab[2], c, z[2]),
        ]
    )
    for run, w, (a, b) in zip(runs, z, ab, strict=True):
        assert_same_sums(run.result(), cpu_sums(key, a, b, w))
    loaded.close()


def test_batches_in_flight_together(backend):
    """Memory of one is not another's, whether its results are asked for or not."""
    key = random_key("bls12_381", 12, 4000, 3, 3900)
    vectors = [random_vectors(key, seed) for seed in range(4)]
    expected = [cpu_sums(key, *v) for v in vectors]
    loaded = backend.load_key(key)
    runs = []
    for turn in range(6):
        batch = backend.launch_batch(uploads(backend, loaded, [vectors[turn % 4], vectors[(turn + 1) % 4]]))
        if turn % 3 == 1:
            assert_same_sums(batch[1].result(), expected[(turn + 1) % 4])
        if turn % 3 == 2:
            runs.append((turn, batch))
    del batch
    for turn, (first, second) in runs:
        assert_same_sums(second.result(), expected[(turn + 1) % 4])
        assert_same_sums(first.result(), expected[turn % 4])
    loaded.close()


@pytest.mark.parametrize("n", [1, 3])
def test_spans_of_a_batch_count_nothing_twice(backend, n):
    key = random_key("bn254", 10, 900, 3, 1000)
    loaded = backend.load_key(key)
    vectors = [random_vectors(key, seed) for seed in range(n)]
    runs = backend.launch_batch(uploads(backend, loaded, vectors))
    sums = [run.result() for run in runs]
    rows = {"copy", "compute", *(["compute 2"] if backend.parallel_g2 else [])}
    for row in rows:
        spans = sorted((s for one in sums for s in one.spans if s.row == row), key=lambda s: s.begin_s)
        for before, after in pairwise(spans):
            slack = 1e-3 if row == "copy" else 1e-9  # uploads have an anchor each, a batch has one
            assert before.begin_s + before.seconds <= after.begin_s + slack
    for one in sums:
        assert {span.row for span in one.spans} == rows
        assert [s.phase for s in one.spans].count("ntt_h") == 1
        row_of_g2 = "compute 2" if backend.parallel_g2 else "compute"
        assert {s.row for s in one.spans if s.phase == "msm_b_g2"} == {row_of_g2}
        shared = [s.seconds for s in one.spans if s.phase == "msm_a"]
        assert shared == pytest.approx([s.seconds for s in sums[0].spans if s.phase == "msm_a"], abs=1e-9)
    loaded.close()


@pytest.mark.parametrize("n", [1, 2])
def test_every_kernel_belongs_to_a_phase(backend, in_no_phase, n):
    key = random_key("bn254", 6, 70, 7, 41)
    loaded = backend.load_key(key)
    given = uploads(backend, loaded, [random_vectors(key, seed) for seed in range(n)])
    assert in_no_phase(lambda: [run.result() for run in backend.launch_batch(given)]) == []
    loaded.close()


def test_what_is_no_batch(gpu):
    keys = [random_key("bn254", 6, 70, 7, 41, seed) for seed in (1, 2)]
    loaded = [gpu.load_key(key) for key in keys]
    pair = [uploads(gpu, one, [random_vectors(keys[0], 1)])[0] for one in loaded]
    for wrong in ([], [pair[0], pair[0]], pair):
        with pytest.raises(errors.InvalidInput, match=f"a batch of {len(wrong)}"):
            gpu.launch_batch(wrong)
    runs = [gpu.launch(upload) for upload in pair]  # nothing has happened to them
    for run, key in zip(runs, keys, strict=True):
        assert_same_sums(run.result(), cpu_sums(key, *random_vectors(keys[0], 1)))
    fresh = uploads(gpu, loaded[0], [random_vectors(keys[0], 1)])[0]
    loaded[1].close()
    second = uploads(gpu, loaded[0], [random_vectors(keys[0], 2)])[0]
    gpu.launch(second).result()
    with pytest.raises(errors.Unavailable, match="launched already"):
        gpu.launch_batch([fresh, second])
    assert_same_sums(gpu.launch(fresh).result(), cpu_sums(keys[0], *random_vectors(keys[0], 1)))
    loaded[0].close()


def test_of_some_size(gpu, monkeypatch):
    """2^18 rows, once: a batch of two, its vectors by way of a ring, G2 aside; several groups of windows."""
    from cuzkd.backend.cuda_ring import Ring

    key = random_key("bn254", 18, 250_000, 20, 260_000)
    rng = np.random.default_rng(3)
    small = random_vectors(random_key("bn254", 12, 4096, 0, 4096), 3)
    vectors = [
        [
            np.resize(rng.permutation(v), (n, 4))
            for v, n in zip(small, (260_000, 260_000, 250_000), strict=True)
        ]
        for _ in range(2)
    ]
    monkeypatch.setattr(gpu, "parallel_g2", True)
    loaded = gpu.load_key(key)
    loaded.plan = replace(loaded.plan, group_bytes=32 << 20)
    with Ring(gpu.gpu) as ring:
        batch = [gpu.upload(loaded, a, b, None, z, ring=ring) for a, b, z in vectors]
    runs = gpu.launch_batch(batch)
    for run, (a, b, z) in zip(runs, vectors, strict=True):
        expected = cpu_sums(key, a, b, z)
        assert_same_sums(run.result(), expected)
    assert_same_sums(prove(gpu, loaded, *vectors[0]), cpu_sums(key, *vectors[0]))
    loaded.close()
