"""Proofs on the device: the same sums as on the processor, streams that do not get into each other's way."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from gpu.conftest import assert_same_sums, cpu_sums, prove, random_key, random_vectors

from cuzkd import errors
from cuzkd.backend.protocol import REDUCTIONS
from cuzkd.memory.budget import Budget
from cuzkd.memory.pool import PinnedPool
from cuzkd.memory.upstream import PagesUpstream, RegisteringUpstream

pytestmark = pytest.mark.gpu

PHASES = {"h2d", "ntt_h", "prep_msm", "msm_h", "msm_l", "msm_a", "msm_b_g1", "msm_b_g2", "d2h"}
SHAPES = [(0, 3, 1, 1), (1, 3, 0, 2), (6, 70, 7, 41), (12, 3000, 2, 3500)]  # log domain, wires, public, rows


@pytest.fixture(scope="module")
def keys():
    """One key per curve of a size at which a proof takes some milliseconds."""
    return {curve: random_key(curve, 12, 4000, 3, 3900) for curve in ("bn254", "bls12_381")}


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_equal_the_processors(gpu, curve, shape, reduction):
    key = random_key(curve, *shape, reduction=reduction)
    a, b, z = random_vectors(key, 7)
    expected = cpu_sums(key, a, b, z)
    loaded = gpu.load_key(key)
    try:
        sums = prove(gpu, loaded, a, b, z)
    finally:
        loaded.close()
    assert_same_sums(sums, expected)
    assert set(sums.phases_s) == PHASES and all(s >= 0 for s in sums.phases_s.values())
    assert sums.h2d_bytes == a.nbytes + b.nbytes + z.nbytes
    assert gpu.vector_rows(key) == len(a)


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
def test_fifty_times_the_same(gpu, keys, curve):
    """A result that moves would be a race."""
    vectors = random_vectors(keys[curve], 11)
    loaded = gpu.load_key(keys[curve])
    first = prove(gpu, loaded, *vectors)
    for _ in range(49):
        assert_same_sums(prove(gpu, loaded, *vectors), first)
    loaded.close()


def test_windows_in_several_groups(gpu, keys):
    """A budget too small for all windows changes nothing but the order of work."""
    key = keys["bls12_381"]
    vectors = random_vectors(key, 3)
    loaded = gpu.load_key(key)
    whole = prove(gpu, loaded, *vectors)
    loaded.plan = replace(loaded.plan, group_bytes=1)
    pieces = prove(gpu, loaded, *vectors)
    loaded.close()
    assert_same_sums(pieces, whole)
    phases = [[span.phase for span in sums.spans] for sums in (whole, pieces)]
    whole, cut = (of.count("prep_msm") for of in phases)
    # Lists for h; classes and lists for z, and both once more on the side.
    assert whole == 3 + 2 * gpu.parallel_g2 < cut


def test_vectors_are_free_once_they_have_landed(gpu, keys):
    """Leases go back after wait(), while kernels run; the next partition crosses meanwhile, from them."""
    from cuzkd.backend.cuda import register_host, unregister_host

    key = keys["bls12_381"]
    expected = [cpu_sums(key, *random_vectors(key, seed)) for seed in range(3)]
    loaded = gpu.load_key(key)
    budget = Budget(16 << 20)
    pool = PinnedPool(RegisteringUpstream(PagesUpstream(), register_host, unregister_host), budget)
    runs = []
    for seed in range(3):
        vectors = random_vectors(key, seed)
        leases = [pool.lease(v.nbytes) for v in vectors]
        arrays = [lease.array(np.uint64, v.shape) for lease, v in zip(leases, vectors, strict=True)]
        for array, vector in zip(arrays, vectors, strict=True):
            array[:] = vector
        upload = gpu.upload(loaded, arrays[0], arrays[1], None, arrays[2])
        del array, arrays
        upload.wait()
        for lease in leases:
            lease.release()  # wiped: kernels that still read host memory would see zeros
        runs.append(gpu.launch(upload))
    assert pool.stats().leased_bytes == 0 and pool.stats().quarantined_bytes == 0
    for run, sums in zip(runs, expected, strict=True):
        assert_same_sums(run.result(), sums)
    pool.close()
    assert budget.used_bytes == 0
    loaded.close()


def test_memory_stays_flat(gpu, keys):
    loaded = [gpu.load_key(key) for key in keys.values()]
    vectors = [random_vectors(key, 5) for key in keys.values()]
    held = []
    for turn in range(50):
        key, (a, b, z) = loaded[turn % 2], vectors[turn % 2]
        gpu.launch(gpu.upload(key, a, b, None, z)).result()
        held.append(gpu.memory().pool_bytes)
    assert held[-1] == held[9]
    for key in loaded:
        key.close()


def test_a_run_that_nobody_asks_keeps_its_memory_until_it_ends(gpu, keys):
    key = keys["bls12_381"]
    a, b, z = random_vectors(key, 8)
    loaded = gpu.load_key(key)
    for _ in range(4):
        gpu.launch(gpu.upload(loaded, a, b, None, z))
    sums = gpu.launch(gpu.upload(loaded, a, b, None, z)).result()
    assert_same_sums(sums, cpu_sums(key, a, b, z))
    loaded.close()


def test_what_cannot_be_launched_says_so(gpu, keys):
    key = keys["bn254"]
    a, b, z = random_vectors(key, 9)
    loaded = gpu.load_key(key)
    for vectors in ((a, b, None, z[:-1]), (a, b[:-1], None, z), (a, b, a[:-1], z), (a, None, None, z)):
        with pytest.raises(errors.InvalidInput, match="4000 wires"):
            gpu.upload(loaded, *vectors)
    with pytest.raises(errors.InvalidInput, match="4096 rows"):
        gpu.upload(loaded, *np.zeros((2, 4097, 4), np.uint64), None, z)
    with pytest.raises(errors.InvalidInput, match="no matrices"):
        gpu.upload(loaded, None, None, None, z)
    upload = gpu.upload(loaded, a, b, None, z)
    gpu.launch(upload).result()
    with pytest.raises(errors.Unavailable, match="launched already"):
        gpu.launch(upload)
    upload = gpu.upload(loaded, a, b, None, z)
    loaded.close()
    loaded.close()
    with pytest.raises(errors.Unavailable, match="key closed"):
        gpu.launch(upload)


def test_a_launch_that_breaks_off_leaves_the_others_right(gpu, keys, monkeypatch):
    from cuzkd.backend.cuda_msm import Sums

    key = keys["bls12_381"]
    vectors = [random_vectors(key, seed) for seed in (10, 11)]
    loaded = gpu.load_key(key)
    steps, whole = Sums.steps, []

    def once(*args):
        if whole:
            raise errors.Exhausted("device memory: all of it")
        whole.append(True)
        return steps(*args)

    before = gpu.launch(gpu.upload(loaded, *vectors[0][:2], None, vectors[0][2]))
    monkeypatch.setattr(Sums, "steps", once)
    broken = gpu.upload(loaded, *vectors[1][:2], None, vectors[1][2])
    with pytest.raises(errors.Exhausted, match="all of it"):
        gpu.launch(broken)
    monkeypatch.undo()
    with pytest.raises(errors.Unavailable, match="launched already"):
        gpu.launch(broken)  # its vectors may have been transformed
    assert_same_sums(prove(gpu, loaded, *vectors[1]), cpu_sums(key, *vectors[1]))
    assert_same_sums(before.result(), cpu_sums(key, *vectors[0]))
    loaded.close()


def test_memory_comes_back_although_a_run_is_remembered(gpu, keys):
    """A key's with close(), an upload's with its result."""
    key = keys["bn254"]
    a, b, z = random_vectors(key, 12)
    loaded = gpu.load_key(key)
    used = gpu.memory().used_bytes
    upload = gpu.upload(loaded, a, b, None, z)
    run = gpu.launch(upload)
    sums = run.result()
    assert gpu.memory().used_bytes <= used
    loaded.close()
    memory = gpu.memory()
    assert memory.used_bytes <= used - key.host_bytes
    assert memory.used_bytes <= memory.pool_bytes <= memory.total_bytes - memory.free_bytes
    assert run.result() is sums and upload.key is loaded


def test_a_key_that_does_not_fit_is_refused_and_the_device_goes_on(gpu, keys):
    from cuzkd.backend.cuda_device import Buffer

    with gpu.gpu.guard(), pytest.raises(errors.Exhausted, match="device memory"), gpu.gpu.guard():
        assert isinstance(gpu.gpu.compute.scratch(1 << 50), Buffer)
    one = np.ones((1, 4), np.uint64)
    assert np.array_equal(gpu.field_op("bn254", "fr", "sub", one, one), np.zeros((1, 4), np.uint64))


FAULT = """
import numpy as np
from cuzkd import errors
from cuzkd.backend import nvrtc
from cuzkd.backend.cuda import CudaBackend

backend = CudaBackend()
one = np.ones((4, 4), np.uint64)
backend.field_op("bn254", "fr", "add", one, one)
nowhere = np.uint64(4096)
with backend.gpu.guard():
    backend.gpu.compute.launch(nvrtc.Module("quotient", "bn254"), "make_c", (4, 1), 256, nowhere, np.uint64(1000))
for attempt in range(2):  # the error is there to stay
    try:
        backend.field_op("bn254", "fr", "add", one, one)
        print("no error")
    except errors.DeviceFault as error:
        print("fault:", error)
"""


def test_an_illegal_access_is_a_device_fault_in_that_process_alone(gpu):
    child = subprocess.run(
        [sys.executable, "-P", "-c", FAULT], capture_output=True, text=True, timeout=120, check=False
    )
    lines = child.stdout.splitlines()
    assert len(lines) == 2 and all(line.startswith("fault: CUDA") for line in lines), child
    one = np.ones((1, 4), np.uint64)
    assert np.array_equal(gpu.field_op("bn254", "fr", "sub", one, one), np.zeros((1, 4), np.uint64))
