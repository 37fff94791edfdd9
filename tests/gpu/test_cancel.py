"""Proofs that are enqueued step by step, and proofs that nobody wants any more."""

import pytest
from gpu.conftest import assert_same_sums, cpu_sums, page_locked, prove, random_key, random_vectors

from cuzkd import errors

pytestmark = pytest.mark.gpu


@pytest.fixture(params=[False, True], ids=["one stream", "two streams"])
def paced(gpu, request, monkeypatch):
    """A backend that enqueues one step at a time, in many small ones, and counts them."""
    from cuzkd.backend import cuda_run

    monkeypatch.setattr(gpu, "parallel_g2", request.param)
    monkeypatch.setattr(cuda_run, "PACED_LOG_DOMAIN", 0)
    sums = gpu.sums
    monkeypatch.setattr(gpu, "sums", lambda curve, lane, group_bytes: sums(curve, lane, 1))
    return gpu


@pytest.fixture
def steps(monkeypatch):
    """What is done before each step: a list of functions, one for each; and how many there were."""
    from cuzkd.backend.cuda_run import Batch

    step, planned = Batch._step, []

    def counted(batch):
        if type(batch) is Batch:  # and not one of a dry run
            counted.n += 1
            if planned:
                planned.pop(0)()
        step(batch)

    counted.n = 0
    counted.planned = planned
    monkeypatch.setattr(Batch, "_step", counted)
    return counted


def uploads(gpu, loaded, vectors):
    return [gpu.upload(loaded, *map(page_locked, (a, b)), None, page_locked(z)) for a, b, z in vectors]


@pytest.mark.parametrize("curve", ["bn254", "bls12_381"])
@pytest.mark.parametrize("n", [1, 3])
def test_step_by_step_the_sums_are_the_same(paced, steps, curve, n):
    key = random_key(curve, 6, 70, 7, 41)
    vectors = [random_vectors(key, seed) for seed in range(n)]
    loaded = paced.load_key(key)
    runs = paced.launch_batch(uploads(paced, loaded, vectors))
    assert steps.n == 2
    for run, (a, b, z) in reversed(list(zip(runs, vectors, strict=True))):
        assert_same_sums(run.result(), cpu_sums(key, a, b, z))
    assert steps.n > 20
    loaded.close()


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_cancelled_run_ends_with_its_step_and_leaves_nothing(paced, steps, after):
    key = random_key("bn254", 6, 70, 7, 41)
    vectors = random_vectors(key, 1)
    loaded = paced.load_key(key)
    assert_same_sums(prove(paced, loaded, *vectors), cpu_sums(key, *vectors))
    used, whole = paced.memory().used_bytes, steps.n
    steps.n = 0
    (run,) = paced.launch_batch(uploads(paced, loaded, [vectors]))
    if after:
        steps.planned += [lambda: None] * (after - 1) + [run.cancel]
    else:
        run.cancel()
    for _ in range(2):
        with pytest.raises(errors.Cancelled):
            run.result()
    run.cancel()
    assert steps.n == 2 + after < whole
    assert paced.memory().used_bytes <= used
    assert_same_sums(prove(paced, loaded, *vectors), cpu_sums(key, *vectors))
    loaded.close()


@pytest.mark.parametrize("all_at_once", [False, True])
def test_others_of_the_batch_go_on(paced, steps, monkeypatch, all_at_once):
    from cuzkd.backend import cuda_run

    if all_at_once:
        monkeypatch.setattr(cuda_run, "PACED_LOG_DOMAIN", 22)
    key = random_key("bls12_381", 6, 70, 7, 41)
    vectors = [random_vectors(key, seed) for seed in range(3)]
    loaded = paced.load_key(key)
    runs = paced.launch_batch(uploads(paced, loaded, vectors))
    runs[0].cancel()
    steps.planned += [lambda: None] * 5 + [runs[2].cancel]
    with pytest.raises(errors.Cancelled):
        runs[0].result()
    assert_same_sums(runs[1].result(), cpu_sums(key, *vectors[1]))
    runs[1].cancel()  # too late
    assert_same_sums(runs[1].result(), cpu_sums(key, *vectors[1]))
    if all_at_once:
        assert_same_sums(runs[2].result(), cpu_sums(key, *vectors[2]))
    else:
        with pytest.raises(errors.Cancelled):
            runs[2].result()
    loaded.close()


def test_a_run_that_was_dropped_is_as_good_as_cancelled(paced, steps):
    key = random_key("bn254", 6, 70, 7, 41)
    vectors = random_vectors(key, 1)
    loaded = paced.load_key(key)
    prove(paced, loaded, *vectors)
    used, steps.n = paced.memory().used_bytes, 0
    for _ in range(3):
        paced.launch_batch(uploads(paced, loaded, [vectors]))
    assert steps.n == 6
    paced.gpu.drain()
    uploads(paced, loaded, [vectors])[0].wait()  # its memory may be theirs
    assert not paced._in_flight
    assert_same_sums(prove(paced, loaded, *vectors), cpu_sums(key, *vectors))
    assert paced.memory().used_bytes <= used
    loaded.close()


@pytest.mark.parametrize("error", [errors.Exhausted("all of it"), RuntimeError("all of it")], ids=repr)
def test_what_breaks_off_between_two_steps_is_told_to_all(paced, steps, error):
    key = random_key("bn254", 6, 70, 7, 41)
    vectors = [random_vectors(key, seed) for seed in range(2)]
    loaded = paced.load_key(key)
    used = paced.memory().used_bytes

    def full():
        raise error

    runs = paced.launch_batch(uploads(paced, loaded, vectors))
    steps.planned += [lambda: None, full]
    for run in runs:
        with pytest.raises((type(error), errors.CuzkdError), match="all of it"):
            run.result()
    assert paced.memory().used_bytes <= used
    assert_same_sums(prove(paced, loaded, *vectors[0]), cpu_sums(key, *vectors[0]))
    loaded.close()


def test_memory_of_the_device_and_what_is_kept_for_reuse(gpu):
    key = random_key("bn254", 6, 70, 7, 41)
    loaded = gpu.load_key(key)
    prove(gpu, loaded, *random_vectors(key, 1))
    vram = gpu.vram()
    assert 0 < vram.used_bytes < vram.total_bytes == gpu.vram_total_bytes
    assert gpu.memory().pool_bytes > gpu.memory().used_bytes
    gpu.trim()
    assert gpu.memory().pool_bytes - gpu.memory().used_bytes < 1 << 20
    assert_same_sums(prove(gpu, loaded, *random_vectors(key, 2)), cpu_sums(key, *random_vectors(key, 2)))
    loaded.close()
