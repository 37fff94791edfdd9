"""Keys whose points at infinity are taken out on the device: which ones, what is read of them, and their sums."""

import numpy as np
import pytest
from gpu.conftest import assert_same_sums, cpu_sums, page_locked, prove, random_key, random_vectors

pytest.importorskip("cupy")
from cuzkd.backend import cuda_density
from cuzkd.backend.protocol import QUERIES

pytestmark = pytest.mark.gpu

CURVES = ("bn254", "bls12_381")
SHARES = {  # of the wires that have a point in A, and in B
    "half of B": (1.0, 0.5),
    "both": (0.3, 0.2),
    "one wire of B": (0.9, 0.0),
    "nearly all": (0.99, 0.95),
}


def thin_key(curve, a, b, n_wires=300):
    """A key with points at infinity; wire 40 has one everywhere."""
    key = random_key(curve, 8, n_wires, 5, 200, seed=7)
    rng = np.random.default_rng(3)
    for queries, share in ((("a_g1",), a), (("b_g1", "b_g2"), b)):
        missing = rng.random(n_wires) >= share
        missing[40] = False
        for query in queries:
            points = getattr(key, query)
            points[points.reshape(n_wires, -1).sum(axis=1) == 0] = points[40]
            points[missing] = 0
    return key


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_sums_and_points_are_the_same(gpu, curve, shares):
    key = thin_key(curve, *SHARES[shares])
    whole = sum(getattr(key, query).nbytes for query in QUERIES)
    loaded = gpu.load_key(key)
    thin = {
        q
        for q, share in zip(("a_g1", "b_g1"), SHARES[shares], strict=True)
        if share < cuda_density.MOST_DENSE
    }
    thin |= {"b_g2"} & {q.replace("g1", "g2") for q in thin}
    assert set(loaded.densities) == thin
    assert loaded.resident_bytes == whole - sum(
        getattr(key, q)[0].nbytes * (key.n_wires - d.bases) for q, d in loaded.densities.items()
    )
    for seed in range(2):
        a, b, z = random_vectors(key, seed)
        assert_same_sums(prove(gpu, loaded, a, b, z), cpu_sums(key, a, b, z))
    for query in QUERIES:
        points, n = getattr(key, query), len(getattr(key, query))
        for begin, count in (
            (0, n),
            (31, 2),
            (32, 64),
            (45, 0),
            (n - 10, 50),
            (5, 1),
            (n, 3),
        ):
            assert np.array_equal(loaded.read(query, begin, count), points[begin : begin + count])
    loaded.close()


def test_a_point_in_one_of_the_two_is_enough(gpu):
    key = thin_key("bn254", 1.0, 0.4)
    key.b_g1[:60:2] = key.b_g1[40]
    key.b_g2[1:60:2] = key.b_g2[40]
    loaded = gpu.load_key(key)
    assert loaded.densities["b_g1"] is loaded.densities["b_g2"]
    a, b, z = random_vectors(key, 1)
    assert_same_sums(prove(gpu, loaded, a, b, z), cpu_sums(key, a, b, z))
    assert np.array_equal(loaded.read("b_g2", 0, 300), key.b_g2)
    loaded.close()


@pytest.mark.parametrize("beside", [False, True], ids=["one stream", "two streams"])
def test_batches_of_them(gpu, monkeypatch, beside):
    monkeypatch.setattr(gpu, "parallel_g2", beside)
    key = thin_key("bls12_381", 0.5, 0.3)
    loaded = gpu.load_key(key)
    vectors = [random_vectors(key, seed) for seed in range(3)]
    vectors[1][2][:] = 0
    vectors[2][2][:, 1:] = 0
    vectors[2][2][:, 0] = 1
    for _ in range(3):
        runs = gpu.launch_batch([gpu.upload(loaded, a, b, None, z) for a, b, z in vectors])
        for run, (a, b, z) in zip(runs, vectors, strict=True):
            assert_same_sums(run.result(), cpu_sums(key, a, b, z))
    loaded.close()


@pytest.mark.parametrize("beside", [False, True], ids=["one stream", "two streams"])
def test_their_proofs_ask_for_no_memory(gpu, monkeypatch, beside):
    monkeypatch.setattr(gpu, "parallel_g2", beside)
    key = thin_key("bn254", 0.8, 0.4)
    loaded = gpu.load_key(key)
    assert set(loaded.densities) == {"a_g1", "b_g1", "b_g2"}
    for turn in range(4):
        a, b, z = map(page_locked, random_vectors(key, turn))
        asked = gpu.gpu.allocations
        sums = gpu.launch(gpu.upload(loaded, a, b, None, z)).result()
        assert turn < 2 or gpu.gpu.allocations == asked  # for results of a proof and of the one before
        assert_same_sums(sums, cpu_sums(key, a, b, z))
    loaded.close()
