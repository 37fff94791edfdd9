"""Multi-scalar sums, by closed form: the bases' logarithms are known, so the sum is one multiple of the generator."""

import numpy as np
import pytest
from kernels.conftest import known_points, multiple, same, scalars

from cuzkd.backend import cpu
from cuzkd.curves.params import CURVES

SIZES = [0, 1, 2, 3, 16, 17, 31, 32, 33, 64, 65, 255, 257]


def check(backend, curve, group, logs, by):
    r = CURVES[curve].r
    got = backend.msm(curve, group, known_points(curve, group, logs), scalars(by))
    total = sum(k * s for k, s in zip(logs, by, strict=True)) % r
    same(got[None], multiple(curve, group, total)[None])


@pytest.mark.parametrize("n", SIZES)
def test_random(backend, curve, group, n, rng):
    r = CURVES[curve].r
    check(backend, curve, group, [rng.randrange(r) for _ in range(n)], [rng.randrange(r) for _ in range(n)])


SCALARS = {
    "zero": lambda r, i, rng: 0,
    "one": lambda r, i, rng: 1,
    "minus one": lambda r, i, rng: r - 1,
    "equal": lambda r, i, rng: r // 3,
    "around a half": lambda r, i, rng: (r - 1) // 2 + i % 3 - 1,
    "powers of two": lambda r, i, rng: pow(2, i, r),
    "one bucket": lambda r, i, rng: 2,
    "small": lambda r, i, rng: i % 7,
    "small negative": lambda r, i, rng: -(i % 7) % r,
    "bits": lambda r, i, rng: rng.randrange(2),
    "top window": lambda r, i, rng: (r >> 1) - (1 << 240) + i,
    "all ones below": lambda r, i, rng: (1 << (i % 253 + 1)) - 1,
    "mixed": lambda r, i, rng: rng.choice([0, 1, r - 1, 2, r - 2, rng.randrange(r)]),
}


@pytest.mark.parametrize("kind", SCALARS)
def test_scalars(backend, curve, group, kind, rng):
    r = CURVES[curve].r
    by = [SCALARS[kind](r, i, rng) for i in range(300)]
    check(backend, curve, group, [rng.randrange(r) for _ in by], by)


LOGS = {
    "infinity": lambda i: 0,
    "equal": lambda i: 5,
    "opposite": lambda i: 5 if i % 2 else -5,
    "some infinity": lambda i: i % 3,
    "doubles": lambda i: 1 << (i % 8),
    "in order": lambda i: i,
}


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("by", ["one", "equal", "bits", "mixed"])
def test_bases(backend, curve, group, kind, by, rng):
    r = CURVES[curve].r
    n = 200
    check(
        backend, curve, group, [LOGS[kind](i) for i in range(n)], [SCALARS[by](r, i, rng) for i in range(n)]
    )


@pytest.mark.parametrize("n", [4095, 9000])
def test_more_than_a_batch(backend, curve, group, n, rng):
    """Buckets longer than the adder's buffer, several tasks, and all three classes of scalars."""
    r = CURVES[curve].r
    logs = [rng.randrange(r) for _ in range(n)]
    check(backend, curve, group, logs, [rng.randrange(r) if i % 3 else 3 for i in range(n)])
    check(backend, curve, group, logs, [1 if i % 5 else r - 1 for i in range(n)])


@pytest.mark.parametrize("infinite", [0, 3], ids=["all finite", "a third infinite"])
@pytest.mark.parametrize("first", [0, 5])
def test_bases_that_no_cache_holds(build, curve, first, infinite, rng):
    """They are copied together first: entries then mean other places, with and without gaps, and from `first` on."""
    r, n = CURVES[curve].r, 50_000
    logs = [0 if infinite and i % infinite == 1 else rng.randrange(r) for i in range(n)]
    by = [rng.choice([1, r - 1, rng.randrange(r), rng.randrange(r)]) for i in range(n)]
    prepared = build.prepare_scalars(curve, scalars(by))
    out = known_points(curve, "g1", [0])[0]
    build.msm(curve, "g1", known_points(curve, "g1", logs)[first:], prepared, first, out)
    total = sum(k * s for k, s in zip(logs[first:], by[first:], strict=True)) % r
    same(out[None], multiple(curve, "g1", total)[None])


def test_any_number_of_threads_gives_the_same_point(curve, group, rng):
    r = CURVES[curve].r
    logs, by = ([rng.randrange(r) for _ in range(1500)] for _ in range(2))
    bases, width = known_points(curve, group, logs), cpu.threads()
    results = []
    try:
        for threads in (1, 2, 7):
            cpu.set_threads(threads)
            results.append(cpu.CpuBackend().msm(curve, group, bases, scalars(by)))
    finally:
        cpu.set_threads(width)
    assert all(np.array_equal(results[0], other) for other in results)


def test_scalars_that_are_not_reduced_are_refused(curve):
    bases = known_points(curve, "g1", [1, 2])
    with pytest.raises(ValueError, match="element 1 is not below r"):
        cpu.CpuBackend().msm(curve, "g1", bases, scalars([1, CURVES[curve].r]))


def test_shapes_are_refused(curve):
    bases = known_points(curve, "g1", [1, 2])
    with pytest.raises(ValueError, match=r"bases: expected shape \[3, 2, "):
        cpu.CpuBackend().msm(curve, "g1", bases, scalars([1, 2, 3]))
    with pytest.raises(TypeError):
        cpu.CpuBackend().msm(curve, "g1", bases.astype(np.int64), scalars([1, 2]))
    with pytest.raises(TypeError):
        cpu.CpuBackend().msm(curve, "g1", known_points(curve, "g1", range(4))[::2], scalars([1, 2]))


def test_zeros_and_ones_cost_no_bucket_work(curve, rng):
    """What enters buckets is decided when scalars are made ready, once for all sums over a witness."""
    r = CURVES[curve].r
    full = [rng.randrange(2, r - 1) for _ in range(100)]
    easy = [0] * 3000 + [1] * 2000 + [r - 1] * 500
    alone = cpu._native.prepare_scalars(curve, scalars(full))
    mixed = full + easy
    rng.shuffle(mixed)
    together = cpu._native.prepare_scalars(curve, scalars(mixed))
    assert 0 < alone.bucket_entries == together.bucket_entries
    assert (alone.ones, together.ones, together.count) == (0, 2500, len(mixed))
    assert cpu._native.prepare_scalars(curve, scalars(easy)).bucket_entries == 0
