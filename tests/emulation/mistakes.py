"""Mistakes made on purpose, each of which the emulated device has to show under the lazy policy.

test_emulated.py runs this. Every test also runs without its mistake, and then the sums are right.
"""

from dataclasses import replace

import numpy as np
import pytest
from gpu.conftest import cpu_sums, page_locked, random_key, random_vectors

pytestmark = pytest.mark.gpu

ALL = {"a_g1", "b_g1", "b_g2", "l_g1", "h_g1"}


@pytest.fixture(scope="module")
def key():
    return random_key("bn254", 6, 70, 7, 41)


@pytest.fixture
def loaded(gpu, key, monkeypatch):
    monkeypatch.setattr(gpu, "parallel_g2", False)
    loaded = gpu.load_key(key)
    yield loaded
    loaded.close()


@pytest.fixture(params=[False, True], ids=["as it is", "with the mistake"])
def mistaken(request):
    return request.param


def wrong_sums(gpu, run, key, vectors):
    """Names of the sums that are not the processor's. Kernels run now, as far as they do not wait, then copies."""
    for lane in (gpu.gpu.side, gpu.gpu.compute, gpu.gpu.copy):
        lane.synchronize()
    got, expected = run.result(), cpu_sums(key, *vectors)
    return {name for name in ALL if not np.array_equal(getattr(got, name), getattr(expected, name))}


def upload(gpu, loaded, vectors, **how):
    a, b, z = (page_locked(vector) for vector in vectors)
    return gpu.upload(loaded, a, b, None, z, **how), (a, b, z)


def test_kernels_that_do_not_wait_for_their_vectors(gpu, loaded, key, mistaken, monkeypatch):
    if mistaken:
        monkeypatch.setattr(gpu.gpu.compute, "wait", lambda event: None)
    vectors = random_vectors(key, 1)
    run = gpu.launch(upload(gpu, loaded, vectors)[0])
    assert wrong_sums(gpu, run, key, vectors) == (ALL if mistaken else set())


def test_a_second_stream_that_does_not_wait(gpu, loaded, key, mistaken, monkeypatch):
    monkeypatch.setattr(gpu, "parallel_g2", True)
    loaded.plan = replace(loaded.plan, parallel_g2=True)
    side, launch = gpu.gpu.side, gpu.gpu.side.launch

    def at_once(
        *kernel, **more
    ):  # on the other stream somebody waits for counts of the witness, and so for its copy
        launch(*kernel, **more)
        side.synchronize()

    monkeypatch.setattr(side, "launch", at_once)
    if mistaken:
        monkeypatch.setattr(side, "wait", lambda event: None)
    vectors = random_vectors(key, 1)
    run = gpu.launch(upload(gpu, loaded, vectors)[0])
    assert wrong_sums(gpu, run, key, vectors) == ({"b_g2"} if mistaken else set())


def test_a_ring_that_does_not_wait_for_its_memory(gpu, loaded, key, mistaken, monkeypatch):
    from cuzkd.backend.cuda_ring import Ring

    copy_in = Ring.copy_in
    if mistaken:
        monkeypatch.setattr(Ring, "copy_in", lambda ring, copies, after: copy_in(ring, copies))
    vectors = random_vectors(key, 1)
    with Ring(gpu.gpu, 2, 4096) as ring:
        run = gpu.launch(upload(gpu, loaded, vectors, ring=ring)[0])
    assert wrong_sums(gpu, run, key, vectors) == (ALL if mistaken else set())


def test_memory_let_go_while_kernels_need_it(gpu, loaded, key, mistaken):
    vectors = random_vectors(key, 1)
    run = gpu.launch(upload(gpu, loaded, vectors)[0])
    if mistaken:
        run._batch._held.clear()
    gpu.gpu.copy.synchronize()  # memory that has come back is poison now
    assert wrong_sums(gpu, run, key, vectors) == (ALL if mistaken else set())


def test_host_vectors_changed_before_they_have_crossed(gpu, loaded, key, mistaken):
    vectors = random_vectors(key, 1)
    crossing, (_, _, z) = upload(gpu, loaded, vectors)
    if not mistaken:
        crossing.wait()
    z[:] = 1
    assert wrong_sums(gpu, gpu.launch(crossing), key, vectors) == (ALL - {"h_g1"} if mistaken else set())
