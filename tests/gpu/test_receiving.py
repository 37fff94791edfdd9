"""Keys that come piece by piece: from a key file, in any order, from several threads, resident and streamed."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gpu.conftest import assert_same_sums, cpu_sums, prove, random_key, random_vectors

from cuzkd import errors
from cuzkd.backend.protocol import QUERIES
from cuzkd.circuits import builtin, keyfile
from cuzkd.circuits.registry import Registry
from cuzkd.groth16 import setup

pytestmark = pytest.mark.gpu


def give(receiver, key, size):
    """All of a key, the last piece first."""
    pieces = [
        (name, begin, getattr(key, name).reshape(-1).view(np.uint8)[begin : begin + size])
        for name in QUERIES
        for begin in range(0, getattr(key, name).nbytes, size)
    ]

    def one(piece):
        name, begin, data = piece
        memory = receiver.memory(data.nbytes)
        memory[:] = data.tobytes()
        receiver.into(name, begin, memory)
        memory[:] = bytes(data.nbytes)  # taken

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(one, reversed(pieces)))


@pytest.mark.parametrize("streamed", [(), ("b_g2", "h_g1"), QUERIES], ids=str)
def test_pieces_in_any_order(gpu, monkeypatch, streamed):
    from cuzkd.backend import cuda_plan

    key = random_key("bn254", 6, 70, 7, 41)
    if streamed:
        dry = cuda_plan.DryRun(key, gpu.gpu)
        plan = dry.of(cuda_plan.MemoryPlan(1, False, 0, streamed, 1 << 14))
        monkeypatch.setattr(gpu, "_plan", lambda shape: plan)
    receiver = gpu.receive(key)
    give(receiver, key, 1000)
    loaded = receiver.finish()
    receiver.close()  # nothing after finish()
    assert gpu.kept_bytes(key) == loaded.host_bytes == sum(getattr(key, name).nbytes for name in streamed)
    vectors = random_vectors(key, 1)
    assert_same_sums(prove(gpu, loaded, *vectors), cpu_sums(key, *vectors))
    loaded.close()


def test_a_key_file_is_never_whole_in_host_memory(gpu, tmp_path, monkeypatch):
    made = setup.setup(builtin.constraints("bn254", 10))
    registry = Registry(tmp_path)
    registry.install("chain", made, source="built in")
    monkeypatch.setattr(keyfile.KeyFile, "read", None)  # of points, by whichever way
    circuit = registry.open("chain")
    loaded = circuit.load_on(gpu)
    for query in QUERIES:
        assert np.array_equal(loaded.read(query, 0, 1 << 10), getattr(made.arrays, query))
    loaded.close()


def test_what_breaks_off_leaves_nothing(gpu, tmp_path):
    made = setup.setup(builtin.constraints("bn254", 10))
    registry = Registry(tmp_path)
    registry.install("chain", made, source="built in")
    circuit = registry.open("chain")
    circuit.load_on(gpu).close()
    used = gpu.memory().used_bytes
    with circuit.path.open("r+b") as file:  # behind the matrices lie the points
        file.seek(-4096, 2)
        file.write(b"altered")
    with pytest.raises(errors.InvalidKey, match="section h_g1"):
        registry.open("chain").load_on(gpu)
    assert gpu.memory().used_bytes == used
