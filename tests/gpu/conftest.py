"""What the tests of the device share. They run with `pytest -m gpu` on a machine that has one."""

import numpy as np
import pytest

from cuzkd.backend.protocol import KeyArrays, SparseMatrix
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

DIFFERENT_POINTS = 4096  # of a key; a longer one repeats them


@pytest.fixture(scope="session")
def gpu():
    """The backend on the first GPU. Imported here: other machines have no CuPy to import."""
    from cuzkd.backend.cuda import CudaBackend

    backend = CudaBackend()
    yield backend
    backend.close()


def field_elements(rng, curve, n, share_small=0.5):
    """uint64[n, 4] below r, a share of them 0 or 1, as in a real witness."""
    r = CURVES[curve].r
    values = [int.from_bytes(rng.bytes(32), "little") % r for _ in range(n)]
    small = rng.random(n) < share_small
    values = [int(rng.integers(2)) if s else v for s, v in zip(small, values, strict=True)]
    return np.frombuffer(b"".join(v.to_bytes(32, "little") for v in values), np.uint64).reshape(n, 4).copy()


def random_key(curve, log_domain, n_wires, n_public, n_rows, seed=1, reduction="circom"):
    """Shapes of a key with points that have no further meaning; some at infinity."""
    from cuzkd.backend import cpu

    rng = np.random.default_rng(seed)

    def points(group, n):
        out = cpu.fixed_base_mul(curve, group, field_elements(rng, curve, min(n, DIFFERENT_POINTS), 0))
        out[rng.random(len(out)) < 0.1] = 0
        return np.resize(out, (n, *out.shape[1:]))

    return KeyArrays(
        curve=curve, root_family=5 if reduction == "circom" else 7, reduction=reduction, log_domain=log_domain,
        n_wires=n_wires, n_public=n_public, n_rows=n_rows,
        a_g1=points("g1", n_wires), b_g1=points("g1", n_wires), b_g2=points("g2", n_wires),
        l_g1=points("g1", n_wires - n_public - 1), h_g1=points("g1", 1 << log_domain),
    )  # fmt: skip


def random_vectors(key, seed):
    """a, b with as many rows as synthesis makes, and z."""
    rng = np.random.default_rng(seed)
    rows = key.n_rows or key.domain
    return (
        field_elements(rng, key.curve, rows),
        field_elements(rng, key.curve, rows),
        field_elements(rng, key.curve, key.n_wires, 0.8),
    )


def witness(curve, n, kind):
    """uint64[n, 4] CANONICAL of one kind: what lists and buckets look like for it is far from random."""
    r = CURVES[curve].r
    patterns = {
        "zeros": [0],
        "ones": [1],
        "minus ones": [r - 1],
        "one value": [r // 3],
        "bits and bytes": [0, 1, 1, 0, r - 1, 255, 0, 7],
        "one and a rest of zeros": [1, *[0] * (n - 1)],
        "halves": [(r - 1) // 2, (r + 1) // 2, r - 2, 2],
    }
    return np.resize(limbs.from_ints(patterns[kind], limbs.FR_LIMBS), (n, 4))


def random_matrix(curve, n_rows, n_cols, seed):
    """Rows of none to five entries; +1 and -1 are the most frequent coefficients."""
    rng = np.random.default_rng(seed)
    r = CURVES[curve].r
    values = [1, r - 1, *(int.from_bytes(rng.bytes(32), "little") % r for _ in range(20))]
    counts = rng.integers(0, 6, n_rows)
    nnz = int(counts.sum())
    return SparseMatrix(
        n_cols=n_cols,
        row_ptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64),
        cols=rng.integers(0, n_cols, nnz).astype(np.uint32),
        coeff=(rng.integers(0, len(values), nnz) * rng.integers(0, 2, nnz)).astype(np.uint32),
        table=limbs.to_montgomery([(v << 256) % r for v in values], r),
    )


@pytest.fixture
def in_no_phase(monkeypatch):
    """in_no_phase(function): names of the kernels that it launches, and that no span of their lane covers."""
    from cuzkd.backend.cuda_device import Lane
    from cuzkd.backend.cuda_spans import Clock

    launch, mark = Lane.launch, Clock._mark
    since, lost = {}, []

    def launched(lane, module, name, *args, **how):
        since.setdefault(lane.name, []).append(name)
        return launch(lane, module, name, *args, **how)

    def marked(clock, phase, of_run):
        names = since.pop(clock._lane.name, [])
        if not phase:
            lost.extend(names)
        return mark(clock, phase, of_run)

    monkeypatch.setattr(Lane, "launch", launched)
    monkeypatch.setattr(Clock, "_mark", marked)

    def found(function):
        since.clear()
        lost.clear()
        function()
        return lost + [name for names in since.values() for name in names]

    return found


def cpu_sums(key, a, b, z):
    """The same partition by the CPU backend, in vectors of its own."""
    from cuzkd.backend.cpu import CpuBackend

    backend = CpuBackend()
    padded = [np.zeros((key.domain, 4), np.uint64) for _ in range(3)]
    for vector, part in zip(padded, (a, b), strict=False):
        vector[: len(part)] = part
    return backend.launch(backend.upload(backend.load_key(key), *padded, z)).result()


def page_locked(array):
    """A copy of an array that crosses without anybody waiting for it."""
    import cupy

    memory = np.frombuffer(cupy.cuda.alloc_pinned_memory(array.nbytes), array.dtype, array.size)
    memory[:] = array.reshape(-1)
    return memory.reshape(array.shape)


def prove(backend, loaded, a, b, z, c=None, **how):
    return backend.launch(backend.upload(loaded, a, b, c, z, **how)).result()


def assert_same_sums(got, expected):
    for name in ("a_g1", "b_g1", "b_g2", "l_g1", "h_g1"):
        assert np.array_equal(getattr(got, name), getattr(expected, name)), name
