"""The ways in which vectors get to the device: whatever crosses, and however, the sums are the same."""

import time
from itertools import pairwise

import numpy as np
import pytest
from gpu.conftest import (
    assert_same_sums,
    cpu_sums,
    prove,
    random_key,
    random_matrix,
    random_vectors,
)

from cuzkd import errors
from cuzkd.backend.cpu import CpuBackend
from cuzkd.backend.protocol import REDUCTIONS

pytestmark = pytest.mark.gpu

CURVES = ("bn254", "bls12_381")
SHAPES = [(1, 3, 0, 2), (6, 70, 7, 41), (12, 3000, 2, 3500)]  # log domain, wires, public, rows
PIECE = 4096


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_third_vector_is_taken_as_it_is(gpu, curve, shape, reduction):
    key = random_key(curve, *shape, reduction=reduction)
    a, b, z = random_vectors(key, 1)
    loaded = gpu.load_key(key)
    derived = prove(gpu, loaded, a, b, z)
    product = CpuBackend().field_op(curve, "fr", "mul", a, b)
    given = prove(gpu, loaded, a, b, z, c=product)
    other = prove(gpu, loaded, a, b, z, c=np.zeros_like(a))
    loaded.close()
    assert_same_sums(given, derived)
    assert given.h2d_bytes == derived.h2d_bytes + product.nbytes
    assert np.array_equal(other.a_g1, derived.a_g1)
    assert not np.array_equal(other.h_g1, derived.h_g1)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_vectors_made_on_the_device(gpu, curve, shape):
    key = random_key(curve, *shape)
    matrices = [random_matrix(curve, key.n_rows, key.n_wires, seed) for seed in (2, 3)]
    loaded = gpu.load_key(key)
    points = loaded.resident_bytes
    gpu.attach_matrices(loaded, *matrices)
    assert points == key.host_bytes < loaded.resident_bytes
    for seed in (4, 5):  # the second finds the memory of the first
        z = random_vectors(key, seed)[2]
        a, b = (CpuBackend().spmv(curve, matrix, z) for matrix in matrices)
        sums = prove(gpu, loaded, None, None, z)
        assert_same_sums(sums, cpu_sums(key, a, b, z))
        assert sums.h2d_bytes == z.nbytes
        assert [span.row for span in sums.spans if span.phase == "spmv"] == ["compute"]
        assert_same_sums(prove(gpu, loaded, a, b, z), sums)  # it may still be given them
    loaded.close()


def test_matrices_that_do_not_fit(gpu):
    key = random_key("bn254", 6, 70, 7, 41)
    loaded = gpu.load_key(key)
    fitting = random_matrix("bn254", 41, 70, 1)
    for other in (random_matrix("bn254", 40, 70, 1), random_matrix("bn254", 41, 69, 1)):
        with pytest.raises(errors.InvalidKey, match="70 columns"):
            gpu.attach_matrices(loaded, fitting, other)
    with pytest.raises(errors.InvalidKey, match="64 rows"):
        gpu.attach_matrices(loaded, *[random_matrix("bn254", 65, 70, 1)] * 2)
    fitting.cols[3] = 70
    with pytest.raises(errors.InvalidKey, match="entry 3 is out of bounds"):
        gpu.attach_matrices(loaded, fitting, fitting)
    z = random_vectors(key, 1)[2]
    with pytest.raises(errors.InvalidInput, match="no matrices"):
        gpu.upload(loaded, None, None, None, z)
    before = loaded.resident_bytes
    whole = random_matrix("bn254", 41, 70, 2)
    gpu.attach_matrices(loaded, whole, whole)
    assert loaded.resident_bytes > before
    gpu.detach_matrices(loaded)
    assert loaded.resident_bytes == before
    with pytest.raises(errors.InvalidInput, match="no matrices"):
        gpu.upload(loaded, None, None, None, z)
    loaded.close()


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_vectors_by_way_of_a_ring(gpu, workers):
    from cuzkd.backend.cuda_ring import Ring

    key = random_key("bls12_381", 12, 4000, 3, 3900)
    loaded = gpu.load_key(key)
    runs, expected = [], []
    with Ring(gpu.gpu, workers, PIECE) as ring:
        for seed in range(3):
            a, b, z = random_vectors(key, seed)
            expected.append(cpu_sums(key, a, b, z))
            upload = gpu.upload(loaded, a, b, None, z, ring=ring)
            for vector in (a, b, z):
                vector[:] = 0  # it has landed: nobody looks there any more
            runs.append(gpu.launch(upload))
    for run, sums in zip(runs, expected, strict=True):
        assert_same_sums(run.result(), sums)
        assert [span.row for span in run.result().spans if span.phase == "h2d"] == ["copy"]
    loaded.close()


def on_host(device, buffer):
    out = np.empty(buffer.nbytes, np.uint8)
    device.compute.copy_out(out.ctypes.data, buffer, out.nbytes)
    device.compute.synchronize()
    return out


def patterns(sizes, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, n, np.uint8) for n in sizes]


def test_pieces_of_a_ring(gpu):
    """Arrays that end short of a piece, with it and behind it; more workers than pieces and fewer; none at all."""
    from cuzkd.backend.cuda_ring import Ring

    sizes = [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 7, 100 * PIECE + 13]
    with gpu.gpu.guard():
        with Ring(gpu.gpu, 3, PIECE) as ring:
            for turn in range(3):
                arrays = patterns(sizes[turn:], turn)
                buffers = [gpu.gpu.compute.zeros(array.nbytes + 1) for array in arrays]
                gpu.gpu.compute.synchronize()
                ring.copy_in([(b.address, a) for b, a in zip(buffers, arrays, strict=True)])
                for buffer, array in zip(buffers, arrays, strict=True):
                    assert np.array_equal(on_host(gpu.gpu, buffer), np.append(array, np.uint8(0)))
            ring.copy_in([])
        with pytest.raises(RuntimeError, match="closed"):
            ring.copy_in([(buffers[0].address, arrays[0])])


def test_resident_arrays(gpu, tmp_path):
    """Of any type, in mapped files, and not in one piece; around the real size of a ring's pieces."""
    from cuzkd.backend.cuda_ring import PIECE_BYTES

    arrays = patterns([0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 10 * PIECE_BYTES + 5], 1)
    path = tmp_path / "points"
    path.write_bytes(arrays[-1].tobytes())
    mapped = np.memmap(path, np.uint8, "r")
    words = np.arange(3 << 20, dtype=np.uint32).reshape(-1, 3)[:, ::2]
    with gpu.gpu.guard():
        buffers = gpu.gpu.put_resident([*arrays, mapped, words])
        for buffer, array in zip(buffers, [*arrays, mapped, words], strict=True):
            assert np.array_equal(on_host(gpu.gpu, buffer), np.frombuffer(array.tobytes(), np.uint8))


def test_what_goes_wrong_in_a_worker_is_the_callers(gpu, monkeypatch):
    import cupy

    from cuzkd.backend import cuda_ring

    enqueue, calls = cuda_ring._enqueue, []

    def fail_once(*args):
        calls.append(args)
        if len(calls) == 5:
            raise cupy.cuda.runtime.CUDARuntimeError(700)
        enqueue(*args)

    [array] = patterns([64 * PIECE], 1)
    with gpu.gpu.guard():
        buffer = gpu.gpu.compute.zeros(array.nbytes)
        gpu.gpu.compute.synchronize()
        with cuda_ring.Ring(gpu.gpu, 2, PIECE) as ring:
            monkeypatch.setattr(cuda_ring, "_enqueue", fail_once)
            with pytest.raises(errors.DeviceFault, match="CUDA"):
                ring.copy_in([(buffer.address, array)])
            assert len(calls) < 64  # the other worker did not go on
            ring.copy_in([(buffer.address, array)])
            assert np.array_equal(on_host(gpu.gpu, buffer), array)


@pytest.mark.parametrize("beside", [False, True])
def test_spans_lie_in_time(gpu, monkeypatch, beside):
    """On the host's clock, between the calls; on a row one after another."""
    monkeypatch.setattr(gpu, "parallel_g2", beside)
    key = random_key("bls12_381", 12, 4000, 3, 3900)
    a, b, z = random_vectors(key, 1)
    loaded = gpu.load_key(key)
    prove(gpu, loaded, a, b, z)
    slack = 1e-3  # an anchor is known to some tens of microseconds
    for _ in range(3):
        began = time.monotonic()
        upload = gpu.upload(loaded, a, b, None, z)
        upload.wait()
        landed = time.monotonic()
        time.sleep(0.05)  # between upload and launch there may be a wait for the device
        launched = time.monotonic()
        sums = gpu.launch(upload).result()
        ended = time.monotonic()
        rows = ["copy", "compute", *(["compute 2"] if beside else [])]
        by_row = {row: [s for s in sums.spans if s.row == row] for row in rows}
        assert sum(map(len, by_row.values())) == len(sums.spans)
        [h2d] = by_row.pop("copy")
        assert began - slack <= h2d.begin_s and h2d.begin_s + h2d.seconds <= landed + slack
        for kernels in by_row.values():
            assert launched - slack <= kernels[0].begin_s
            assert kernels[-1].begin_s + kernels[-1].seconds <= ended + slack
            for before, after in pairwise(kernels):
                assert before.begin_s + before.seconds <= after.begin_s + 1e-9
        assert list(sums.spans) == sorted(sums.spans, key=lambda span: span.begin_s)
        assert all(span.seconds >= 0 for span in sums.spans)
        alone_s, shared_s = sum(s.seconds for s in sums.spans), sum(sums.phases_s.values())
        assert shared_s < 0.99 * alone_s if beside else shared_s == pytest.approx(alone_s)
    loaded.close()
