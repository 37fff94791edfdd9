"""A proof's five sums by the CPU backend equal the reference's; what it refuses; several callers at once."""

import gc
import threading
import weakref
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from kernels.conftest import known_points, scalars

from cuzkd.backend import cpu
from cuzkd.backend.protocol import REDUCTIONS, KeyArrays
from cuzkd.backend.reference import ReferenceBackend
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import Cancelled, InvalidKey

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
def test_sums_equal_the_reference(
    curve, log_domain, n_wires, n_public, parallel_g2, reduction, rng, monkeypatch
):
    monkeypatch.setattr(cpu, "threads", lambda: 2)  # wherever this runs
    monkeypatch.setattr(cpu, "SIDE_BY_SIDE", range(4))
    k = key(curve, log_domain, n_wires, n_public, rng, reduction)
    a, b, z = vectors(k, rng)
    got, expected = prove(cpu.CpuBackend(parallel_g2), k, a, b, z), prove(ReferenceBackend(), k, a, b, z)
    for name in SUMS:
        assert np.array_equal(getattr(got, name), getattr(expected, name)), name
    assert set(got.phases_s) == PHASES and got.h2d_bytes == 0
    rows = {span.row for span in got.spans}
    assert rows == ({"compute", "compute 2"} if parallel_g2 else {"compute"})


def test_large_sums_have_the_threads_to_themselves(monkeypatch, rng):
    """One after the other, the quotient's first: then the scalars of one vector are prepared at a time."""
    k = key("bn254", 3, 12, 4, rng)
    v = vectors(k, rng)
    monkeypatch.setattr(cpu, "threads", lambda: 2)
    monkeypatch.setattr(cpu, "SIDE_BY_SIDE", range(4))
    small = prove(cpu.CpuBackend(), k, *v)
    monkeypatch.setattr(cpu, "SIDE_BY_SIDE", range(3))
    large = prove(cpu.CpuBackend(), k, *v)
    assert all(np.array_equal(getattr(small, name), getattr(large, name)) for name in SUMS)
    assert [(span.phase, span.row) for span in large.spans] == [
        (phase, "compute")
        for phase in ("ntt_h", "prep_msm", "msm_h", "prep_msm", "msm_b_g2", "msm_l", "msm_a", "msm_b_g1")
    ]


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


def launched(backend, k, a, b, z):
    c = np.empty_like(a) if backend.scratch_c else None
    return backend.launch(backend.upload(backend.load_key(k), a.copy(), b.copy(), c, z))


@pytest.mark.parametrize("backend", [cpu.CpuBackend(), cpu.CpuBackend(parallel_g2=False), ReferenceBackend()])
def test_a_cancelled_run_has_no_sums_and_disturbs_nobody(backend, curve, rng, monkeypatch):
    monkeypatch.setattr(cpu, "threads", lambda: 2)
    monkeypatch.setattr(cpu, "SIDE_BY_SIDE", range(4))
    k = key(curve, 3, 12, 4, rng)
    v = vectors(k, rng)
    cancelled, other, late = (launched(backend, k, *v) for _ in range(3))
    cancelled.cancel()
    for _ in range(2):
        with pytest.raises(Cancelled):
            cancelled.result()
        cancelled.cancel()
    sums = late.result()
    late.cancel()
    assert late.result() is sums
    for name in SUMS:
        assert np.array_equal(getattr(other.result(), name), getattr(sums, name)), name


def test_a_cancelled_run_keeps_no_vectors(rng):
    """Wherever it was: pinned memory is the next one's at once, not when Python next looks for cycles."""
    k = key("bn254", 10, 900, 3, rng)
    v = vectors(k, rng)
    loaded, backend = cpu.CpuBackend().load_key(k), cpu.CpuBackend()
    kept = []
    gc.disable()
    try:
        for turn in range(40):
            a, b, c, z = (vector.copy() for vector in (v[0], v[1], v[0], v[2]))
            alive = [weakref.ref(vector) for vector in (a, b, c, z)]
            run = backend.launch(backend.upload(loaded, a, b, c, z))
            timer = threading.Timer(0.0003 * turn, run.cancel)
            timer.start()
            with suppress(Cancelled):
                run.result()
            timer.join()
            del a, b, c, z, run, timer
            kept += [turn for vector in alive if vector() is not None]
    finally:
        gc.enable()
    assert not kept


def test_a_run_is_cancelled_while_others_work(rng):
    """At all kinds of moments, beside runs that nobody cancels, in one pool."""
    k = key("bls12_381", 10, 900, 3, rng)
    v = vectors(k, rng)
    backend = cpu.CpuBackend()
    expected = prove(backend, k, *v)
    wrong, outcomes = [], []

    def work(cancel_after_s):
        for turn in range(6):
            run = launched(backend, k, *v)
            if cancel_after_s is not None:
                threading.Timer(cancel_after_s * turn, run.cancel).start()
            try:
                got = run.result()
            except Cancelled:
                outcomes.append(cancel_after_s)
                continue
            wrong.extend(n for n in SUMS if not np.array_equal(getattr(got, n), getattr(expected, n)))

    callers = [threading.Thread(target=work, args=(after,)) for after in (None, 0.003, None, 0.02)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong and outcomes and None not in outcomes


@pytest.mark.parametrize("call", ["msm", "prepare_scalars", "quotient"])
def test_one_long_call_is_left_in_its_middle(call, rng):
    """With one thread each takes far longer than until the flag is set, and none of them is cut into calls.

    On a busy machine the flag may be set too late all the same: then again.
    """
    native, n = cpu._native, 1 << 18
    values = np.resize(scalars([rng.randrange(CURVES["bls12_381"].r) for _ in range(512)]), (n, 4))
    few = np.resize(
        known_points("bls12_381", "g2", [rng.randrange(1 << 60) for _ in range(64)]), (n, 2, 2, 6)
    )
    prepared, many = native.prepare_scalars("bls12_381", values), np.resize(values, (8 * n, 4))
    out, a, b, c = np.empty((2, 2, 6), np.uint64), *(values.copy() for _ in range(3))
    calls = {
        "msm": lambda flag: native.msm("bls12_381", "g2", few, prepared, 0, out, flag),
        "prepare_scalars": lambda flag: native.prepare_scalars("bls12_381", many, flag),
        "quotient": lambda flag: native.quotient("bls12_381", a, b, c, 5, "circom", flag),
    }

    def left():
        flag = native.CancelFlag()
        timer = threading.Timer(0.005, flag.set)
        timer.start()
        try:
            calls[call](flag)
        except native.Cancelled:
            return True
        finally:
            timer.join()
        return False

    width = cpu.threads()
    cpu.set_threads(1)
    try:
        assert any(left() for _ in range(20))
    finally:
        cpu.set_threads(width)


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
