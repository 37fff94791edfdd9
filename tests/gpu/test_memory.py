"""Device memory: what was planned suffices, running proofs ask for none, and keys that do not fit are streamed."""

import mmap
import weakref
from contextlib import suppress
from dataclasses import replace

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
)

from cuzkd import errors
from cuzkd.backend.cpu import CpuBackend
from cuzkd.backend.protocol import QUERIES

pytestmark = pytest.mark.gpu

TINY, SMALL, PUBLIC = (1, 3, 0, 2), (6, 70, 7, 41), (6, 70, 69, 41)  # log domain, wires, public, rows
SLOT_BYTES = 1 << 13
SLACK = 2 << 20  # of an allocator that is not the planned one


@pytest.fixture
def narrow(gpu, monkeypatch):
    """make(key, streamed, ...): a backend with as much room as proofs with a key take where those queries are
    streamed."""
    from cuzkd.backend import cuda_plan
    from cuzkd.backend.cuda import CudaBackend

    made = []

    def make(key, streamed, **how):
        dry = cuda_plan.DryRun(key, gpu.gpu)
        plan = dry.of(cuda_plan.MemoryPlan(1, False, 1, streamed, **({"slot_bytes": SLOT_BYTES} | how)))
        backend = CudaBackend(limit_bytes=plan.total_bytes + SLACK)
        made.append(backend)
        monkeypatch.setattr(backend, "_plan", lambda shape, matrix_bytes=None: plan)
        return backend

    yield make
    for backend in made:
        backend.close()


@pytest.mark.parametrize(
    ("curve", "shape", "streamed"),
    [
        *(("bls12_381", shape, QUERIES) for shape in (TINY, SMALL, PUBLIC)),
        *(("bn254", SMALL, streamed) for streamed in (("h_g1",), ("b_g2", "l_g1"), ("a_g1", "h_g1"))),
    ],
    ids=str,
)
def test_streamed_keys(narrow, curve, shape, streamed):
    """Chunk by chunk, whichever queries pass through, the sums are the same."""
    key = random_key(curve, *shape)
    backend = narrow(key, streamed)
    loaded = backend.load_key(key)
    assert set(loaded.streamed) == set(streamed) and loaded.one_at_a_time
    assert loaded.host_bytes == sum(getattr(key, name).nbytes for name in streamed)
    for seed in (1, 2):
        a, b, z = random_vectors(key, seed)
        assert_same_sums(prove(backend, loaded, a, b, z), cpu_sums(key, a, b, z))
    for query in QUERIES:
        assert np.array_equal(loaded.read(query, 1, 5), getattr(key, query)[1:6])
    loaded.close()


def test_a_witness_that_waits_on_the_host(narrow):
    """Where there is room for it only once the quotient is made; and for one at a time."""
    key = random_key("bn254", 9, 70, 7, 200)
    backend = narrow(key, QUERIES, parked=True)
    loaded = backend.load_key(key)
    assert loaded.host_bytes == key.host_bytes + 70 * 32
    a, b, z = random_vectors(key, 1)
    upload = backend.upload(loaded, a, b, None, z)
    with pytest.raises(errors.Exhausted, match="one upload at a time"):
        backend.upload(loaded, a, b, None, z)
    upload.wait()
    expected = cpu_sums(key, a, b, z)
    z[:] = 0  # nobody looks there any more
    assert upload.h2d_bytes == a.nbytes + b.nbytes + z.nbytes
    assert_same_sums(backend.launch(upload).result(), expected)
    del upload
    a, b, z = random_vectors(key, 3)
    backend.upload(loaded, a, b, None, z)  # and never launched
    assert_same_sums(prove(backend, loaded, a, b, z), cpu_sums(key, a, b, z))
    matrices = [random_matrix("bn254", 200, 70, seed) for seed in (2, 3)]
    with pytest.raises(errors.Exhausted, match="no room for matrices"):
        backend.attach_matrices(loaded, *matrices)
    loaded.close()


def test_a_batch_and_cancels_of_a_streamed_key(narrow):
    key = random_key("bn254", *SMALL)
    backend = narrow(key, QUERIES)
    loaded = backend.load_key(key)
    vectors = [random_vectors(key, seed) for seed in range(2)]
    backend.launch(backend.upload(loaded, *vectors[0][:2], None, vectors[0][2])).cancel()
    backend.gpu.pool.set_limit(size=1 << 32)
    runs = backend.launch_batch([backend.upload(loaded, a, b, None, z) for a, b, z in vectors])
    runs[0].cancel()
    assert_same_sums(runs[1].result(), cpu_sums(key, *vectors[1]))
    with pytest.raises(errors.Cancelled):
        runs[0].result()
    loaded.close()


@pytest.mark.parametrize("evaluating", [False, True], ids=["given", "evaluated"])
@pytest.mark.parametrize("beside", [False, True], ids=["one stream", "two streams"])
def test_proofs_ask_for_no_memory(gpu, monkeypatch, evaluating, beside):
    """Once a key is loaded, neither the device nor the host is asked for any, but for results the first time."""
    from cuzkd.backend import cuda

    monkeypatch.setattr(gpu, "parallel_g2", beside)
    monkeypatch.setattr(cuda, "EVALUATED_ROWS", 0)
    key = random_key("bn254", *SMALL)
    loaded = gpu.load_key(key)
    matrices = [random_matrix("bn254", key.n_rows, key.n_wires, seed) for seed in (2, 3)]
    assert not evaluating or gpu.keep_matrices(loaded, *matrices)
    before = gpu.memory().pool_bytes
    for turn in range(3):
        a, b, z = map(page_locked, random_vectors(key, turn))
        given = (None, None, None, z) if evaluating else (a, b, None, z)
        asked = gpu.gpu.allocations
        first, second = (gpu.upload(loaded, *given) for _ in range(2))  # the next one, beside the first
        sums = gpu.launch(first).result()
        assert_same_sums(gpu.launch(second).result(), sums)
        assert gpu.memory().pool_bytes == before
        assert turn == 0 or gpu.gpu.allocations == asked
        if evaluating:
            a, b = (CpuBackend().spmv("bn254", matrix, z) for matrix in matrices)
        assert_same_sums(sums, cpu_sums(key, a, b, z))
    loaded.close()


@pytest.mark.parametrize(
    ("evaluating", "beside", "paced"),
    [(False, False, False), (True, True, False), (False, True, True), (True, False, True)],
    ids=["given", "evaluated, two streams", "given, two streams, in steps", "evaluated, in steps"],
)
def test_the_next_is_launched_while_the_last_sum_runs(gpu, monkeypatch, evaluating, beside, paced):
    """And the one after it is uploaded, into the memory of the first."""
    from cuzkd.backend import cuda, cuda_run

    monkeypatch.setattr(gpu, "parallel_g2", beside)
    monkeypatch.setattr(cuda, "EVALUATED_ROWS", 0)
    monkeypatch.setattr(cuda_run, "PACED_LOG_DOMAIN", 0 if paced else 30)
    key = random_key("bn254", *SMALL)
    loaded = gpu.load_key(key)
    matrices = [random_matrix("bn254", key.n_rows, key.n_wires, seed) for seed in (2, 3)]
    assert not evaluating or gpu.keep_matrices(loaded, *matrices)
    before, turns = gpu.memory().pool_bytes, 6
    vectors = [tuple(map(page_locked, random_vectors(key, seed))) for seed in range(3)]

    def upload(turn):
        a, b, z = vectors[turn % 3]
        return gpu.upload(loaded, *((None, None) if evaluating else (a, b)), None, z)

    def follow():
        if len(runs) == len(sums) + 1:
            runs.append(gpu.launch(ready.pop()))
            ready.append(upload(len(runs)))

    runs, sums = [gpu.launch(upload(0))], []
    ready = [upload(1)]
    while len(sums) < turns:
        sums.append(runs[len(sums)].result(follow))
        assert len(runs) == len(sums) + 1
        assert gpu.memory().pool_bytes == before
    for turn, found in enumerate(sums):
        a, b, z = vectors[turn % 3]
        if evaluating:
            a, b = (CpuBackend().spmv("bn254", matrix, z) for matrix in matrices)
        assert_same_sums(found, cpu_sums(key, a, b, z))
    runs.clear()
    ready.clear()
    gpu.gpu.drain()
    loaded.close()


def test_a_key_with_room_for_one_upload_keeps_the_device_until_its_sums_are_there(narrow, in_no_phase):
    key = random_key("bn254", *SMALL)
    backend = narrow(key, QUERIES)
    loaded = backend.load_key(key)
    a, b, z = random_vectors(key, 1)
    upload, runs, told = backend.upload(loaded, a, b, None, z), [], []
    assert in_no_phase(lambda: runs.append(backend.launch(upload))) == []  # chunk by chunk
    assert_same_sums(runs[0].result(lambda: told.append(True)), cpu_sums(key, a, b, z))
    assert loaded.one_at_a_time and not told
    loaded.close()


def test_such_a_key_finds_the_room_of_the_one_before(gpu):
    """Which lets go of the device while its last sum runs."""
    keys = [random_key("bn254", log, 900, 3, 1000) for log in (10, 11)]
    first, second = map(gpu.load_key, keys)
    second.plan = replace(second.plan, uploads=1)
    vectors = [tuple(map(page_locked, random_vectors(key, 1))) for key in keys]
    used, runs = gpu.memory().used_bytes, []

    def follow():
        if not runs:
            a, b, z = vectors[1]
            upload = gpu.upload(second, a, b, None, z)
            assert gpu.memory().used_bytes <= used + second.plan.upload_bytes + 1024
            runs.append(gpu.launch(upload))

    a, b, z = vectors[0]
    found = gpu.launch(gpu.upload(first, a, b, None, z)).result(follow), runs[0].result()
    for sums, key, given in zip(found, keys, vectors, strict=True):
        assert_same_sums(sums, cpu_sums(key, *given))
    first.close()
    second.close()


def test_a_parked_witness_stays_until_its_proof_is_made(gpu, narrow):
    """Whatever was launched behind it: the host would write where it waits, before the device reads it."""
    from cuzkd.backend import cuda_plan

    keys = [random_key("bn254", *shape) for shape in (SMALL, (9, 70, 7, 200))]
    backend = narrow(keys[0], QUERIES)
    behind = backend.load_key(keys[0])
    dry = cuda_plan.DryRun(keys[1], gpu.gpu)
    plan = dry.of(cuda_plan.MemoryPlan(1, False, 1, QUERIES, slot_bytes=SLOT_BYTES, parked=True))
    backend._plan = lambda shape, matrix_bytes=None: plan
    backend.gpu.limit_bytes = 0
    backend.gpu.pool.set_limit(size=1 << 32)
    parked = backend.load_key(keys[1])
    first, second, third = (
        tuple(map(page_locked, random_vectors(key, seed)))
        for key, seed in ((keys[1], 1), (keys[0], 2), (keys[1], 3))
    )
    run = backend.launch(backend.upload(parked, first[0], first[1], None, first[2]))
    other = backend.launch(backend.upload(behind, second[0], second[1], None, second[2]))
    with suppress(errors.Exhausted):  # unless the first has ended
        backend.upload(parked, third[0], third[1], None, third[2])
    assert_same_sums(run.result(), cpu_sums(keys[1], *first))
    assert_same_sums(other.result(), cpu_sums(keys[0], *second))
    backend.gpu.drain()  # copies of the third, where it was taken
    behind.close()
    parked.close()


def test_matrices_that_find_no_room_are_left_on_the_host(gpu, narrow, monkeypatch):
    from cuzkd.backend import cuda

    monkeypatch.setattr(cuda, "EVALUATED_ROWS", 0)
    key = random_key("bn254", *SMALL)
    a, b, z = random_vectors(key, 1)
    matrices = [random_matrix("bn254", key.n_rows, key.n_wires, seed) for seed in (2, 3)]
    loaded = gpu.load_key(key)
    before, resident = loaded.plan, loaded.resident_bytes
    with monkeypatch.context() as tight:
        tight.setattr(gpu.gpu, "room_bytes", 1 << 16)
        assert not gpu.keep_matrices(loaded, *matrices)  # planned, it does not fit
    asked = []

    def full(plan):
        asked.append(plan)
        if len(asked) == 1:
            raise errors.Exhausted("device memory: others have it")

    with monkeypatch.context() as tight:
        tight.setattr(gpu, "_reserve", full)
        assert not gpu.keep_matrices(loaded, *matrices)  # nor when it comes to it
    assert asked[0].evaluating and asked[1] is before
    assert (loaded.plan, loaded.matrices, loaded.resident_bytes) == (before, None, resident)
    assert_same_sums(prove(gpu, loaded, a, b, z), cpu_sums(key, a, b, z))
    loaded.close()
    streamed = narrow(key, ("h_g1",))
    passing = streamed.load_key(key)
    assert not streamed.keep_matrices(passing, *matrices)
    passing.close()


def test_within_a_limit_lanes_give_up_what_they_keep(gpu):
    """CuPy's pool refuses at once what is beyond a limit."""
    from cuzkd.backend.cuda import CudaBackend

    backend = CudaBackend(limit_bytes=4 << 20)
    with backend.gpu.guard():
        backend.gpu.side.reserve(3 << 20)
        held = backend.gpu.compute.scratch(3 << 20)
        with pytest.raises(errors.Exhausted):
            backend.gpu.side.scratch(3 << 20)
        del held
        backend.gpu.resident_buffers([3 << 20])
    assert backend.memory().pool_bytes < 4 << 20
    backend.close()


def test_pages_of_a_key_are_there_until_the_driver_has_let_go_of_them(narrow, monkeypatch):
    from cuzkd.backend import cuda_receiver

    key, there = random_key("bn254", *SMALL), []
    pages = np.frombuffer(mmap.mmap(-1, key.h_g1.nbytes), np.uint64).reshape(key.h_g1.shape)
    pages[...] = key.h_g1
    backend, alive, unregister = narrow(key, ("h_g1",)), weakref.ref(pages), cuda_receiver.unregister_host

    def watched(address):
        there.append(alive() is not None)
        unregister(address)

    monkeypatch.setattr(cuda_receiver, "unregister_host", watched)
    loaded = backend.load_key(replace(key, h_g1=pages))
    assert loaded.host["h_g1"] is pages
    del pages
    loaded.close()
    assert there == [True]


def test_a_table_that_finds_no_room_leaves_smaller_circuits_right(monkeypatch):
    from cuzkd.backend.cuda import CudaBackend
    from cuzkd.backend.cuda_key import shape_alone

    backend, key = CudaBackend(), random_key("bn254", *SMALL)
    loaded, (a, b, z) = backend.load_key(key), random_vectors(key, 1)
    buffer, table_bytes = backend.gpu.buffer, 64 << 12

    def full(nbytes):
        if nbytes >= table_bytes:
            raise MemoryError("all of it")
        return buffer(nbytes)

    with monkeypatch.context() as tight:
        tight.setattr(backend.gpu, "buffer", full)
        with pytest.raises(MemoryError):
            backend.prepare(replace(shape_alone(key), log_domain=12))
    assert_same_sums(prove(backend, loaded, a, b, z), cpu_sums(key, a, b, z))
    backend.close()


def test_points_that_find_no_room_to_be_moved_stay_as_they_are(monkeypatch):
    """Neither thinned out nor made a table of, when the pool refuses the memory for it."""
    import cupy

    from cuzkd.backend import cuda, cuda_density, cuda_msm, cuda_plan

    class Pool:
        full = False

        def __init__(self, pool):
            self._pool = pool

        def __getattr__(self, name):
            return getattr(self._pool, name)

        def malloc(self, nbytes):
            if Pool.full:
                raise cupy.cuda.memory.OutOfMemoryError(nbytes, 0, 0)
            return self._pool.malloc(nbytes)

    def in_a_full_pool(module, name):
        do = getattr(module, name)

        def tried(*args):
            tries.append(name)
            Pool.full = True
            try:
                return do(*args)
            finally:
                Pool.full = False

        monkeypatch.setattr(module, name, tried)

    tries = []
    in_a_full_pool(cuda_density, "_gathered")
    in_a_full_pool(cuda, "resident_table")
    monkeypatch.setattr(cuda_msm, "ROUND_NS", dict.fromkeys(cuda_msm.ROUND_NS, 1.0))
    monkeypatch.setattr(cuda_plan, "LEAST_TABLE", 1)
    cuda_msm.plan.cache_clear()
    backend, key = cuda.CudaBackend(), random_key("bn254", *SMALL)
    key.a_g1[:40] = 0
    backend.gpu.pool = Pool(backend.gpu.pool)
    loaded = backend.load_key(key)
    assert tries == ["_gathered", "resident_table"]
    assert not loaded.densities and not loaded.tables and loaded.plan.table is None
    a, b, z = random_vectors(key, 1)
    assert_same_sums(prove(backend, loaded, a, b, z), cpu_sums(key, a, b, z))
    loaded.close()
    backend.close()
    cuda_msm.plan.cache_clear()


def test_what_was_given_up_is_kept_again(gpu):
    """trim() takes what lanes keep; the next proof asks for that at once, and those behind it for nothing."""
    key = random_key("bn254", *SMALL)
    loaded, (a, b, z) = gpu.load_key(key), map(page_locked, random_vectors(key, 1))
    prove(gpu, loaded, a, b, z)
    gpu.trim()
    asked = gpu.gpu.allocations
    upload = gpu.upload(loaded, a, b, None, z)
    crossed = gpu.gpu.allocations
    assert_same_sums(gpu.launch(upload).result(), cpu_sums(key, a, b, z))
    assert crossed > asked and gpu.gpu.allocations - crossed <= 2  # one for each lane of kernels
    loaded.close()


def test_what_fits_no_way_is_said_with_numbers(gpu):
    from cuzkd.backend.cuda import CudaBackend

    backend = CudaBackend(limit_bytes=1 << 16)
    with pytest.raises(
        errors.NeverFits, match=r"at least \d+ bytes of device memory; there are \d+ of 65536"
    ):
        backend.load_key(random_key("bn254", *SMALL))
    backend.close()
