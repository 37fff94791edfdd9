"""A proof's five sums by the CPU backend equal the reference's; what it refuses; several callers at once."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from kernels.conftest import known_points, scalars

from cuzkd.backend import cpu
from cuzkd.backend.protocol import REDUCTIONS, KeyArrays
from cuzkd.backend.reference import ReferenceBackend
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidKey

PHASES = {"ntt_h", "prep_msm", "msm_h", "msm_l", "msm_a", "msm_b_g1", "msm_b_g2"}
SUMS = ("a_g1", "b_g1", "b_g2", "l_g1", "h_g1")


def key(curve, log_domain, n_wires, n_public, rng, reduction="circom"):
    """Points without meaning, a fifth of them infinity."""

    def points(group, n):
        return known_points(
            curve, group, [rng.randrange(1 << 60) if rng.random() < 0.8 else 0 for _ in range(n)]
        )

    return KeyArrays(
        curve=curve, root_family=5 if reduction == "circom" else 7, reduction=reduction, log_domain=log_domain,
        n_wires=n_wires, n_public=n_public,
        a_g1=points("g1", n_wires), b_g1=points("g1", n_wires), b_g2=points("g2", n_wires),
        l_g1=points("g1", n_wires - n_public - 1), h_g1=points("g1", 1 << log_domain),
    )  # fmt: skip


def vectors(k, rng):
    r = CURVES[k.curve].r
    a, b = (limbs.to_montgomery([rng.randrange(r) for _ in range(k.domain)], r) for _ in range(2))
    z = scalars([1, *(rng.choice([0, 0, 1, 1, r - 1, 9, rng.randrange(r)]) for _ in range(k.n_wires - 1))])
    return a, b, z


def prove(backend, k, a, b, z):
    c = np.empty_like(a) if backend.scratch_c else None
    upload = backend.upload(backend.load_key(k), a.copy(), b.copy(), c, z)
    upload.wait()
    return backend.launch(upload).result()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("parallel_g2", [False, True])
@pytest.mark.parametrize(("log_domain", "n_wires", "n_public"), [(0, 1, 0), (1, 3, 2), (3, 12, 4)])
def test_sums_equal_the_reference(curve, log_domain, n_wires, n_public, parallel_g2, reduction, rng):
    k = key(curve, log_domain, n_wires, n_public, rng, reduction)
    a, b, z = vectors(k, rng)
    got, expected = prove(cpu.CpuBackend(parallel_g2), k, a, b, z), prove(ReferenceBackend(), k, a, b, z)
    for name in SUMS:
        assert np.array_equal(getattr(got, name), getattr(expected, name)), name
    assert set(got.phases_s) == PHASES and got.h2d_bytes == 0
    rows = {span.phase: span.row for span in got.spans}
    assert rows.pop("msm_b_g2") == ("compute 2" if parallel_g2 else "compute") and set(rows.values()) == {
        "compute"
    }


def test_several_callers_share_the_threads(rng):
    """Proofs of both curves at once, while the pool changes its width under them: every caller gets its own sums."""
    keys = [key("bn254", 8, 200, 3, rng), key("bls12_381", 7, 150, 1, rng)]
    inputs = [vectors(k, rng) for k in keys]
    backend = cpu.CpuBackend()
    expected = [prove(backend, k, *v) for k, v in zip(keys, inputs, strict=True)]
    wrong = []

    def work(which):
        for _ in range(5):
            got = prove(backend, keys[which], *inputs[which])
            wrong.extend(n for n in SUMS if not np.array_equal(getattr(got, n), getattr(expected[which], n)))

    callers = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    width = cpu.threads()
    try:
        for caller in callers:
            caller.start()
        for threads in (1, 4, 2, 3, 1, 2):
            cpu.set_threads(threads)
        for caller in callers:
            caller.join()
    finally:
        cpu.set_threads(width)
    assert not wrong and cpu.threads() == width


def test_keys_and_vectors_of_wrong_shape_are_refused(curve, rng):
    backend, k = cpu.CpuBackend(), key(curve, 2, 6, 1, rng)
    for name in SUMS:
        with pytest.raises(InvalidKey, match=name):
            backend.load_key(replace(k, **{name: getattr(k, name)[:-1]}))
    with pytest.raises(InvalidKey, match="reduction"):
        replace(k, reduction="libsnark")
    with pytest.raises(InvalidKey, match="n_rows"):
        backend.load_key(replace(k, n_rows=5))
    a, b, z = vectors(k, rng)
    loaded = backend.load_key(k)
    with pytest.raises(ValueError, match="third vector"):
        backend.upload(loaded, a, b, None, z)
    with pytest.raises(ValueError, match="b: expected shape"):
        backend.upload(loaded, a, b[:-1], a.copy(), z)


def test_names_are_refused():
    backend, x = cpu.CpuBackend(), np.zeros((1, 4), np.uint64)
    with pytest.raises(ValueError, match="unknown operation 'pow'"):
        backend.field_op("bn254", "fr", "pow", x)
    with pytest.raises(ValueError, match="'add' takes two operands"):
        backend.field_op("bn254", "fr", "add", x)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        cpu.set_threads(0)
