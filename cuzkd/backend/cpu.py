"""The CPU backend: the protocol over the native module, and the host services that every machine uses.

Problem: one proof is six or seven transforms and five multi-scalar sums; synthesis, setup and verification need native
speed too.
Design: all arithmetic is in `kernels/_native` (threads, no GIL; native.py chooses its build); this file gives it arrays
and keeps time. It works in place: the quotient overwrites a, b and c; a partition needs three domain-sized vectors, no
fourth.
Life: upload() only remembers the arrays; Run.result() does the work, in its caller's thread and the pool.
"""

from __future__ import annotations

import platform
import queue
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from cuzkd.backend import native
from cuzkd.backend.protocol import (
    QUERIES,
    U32,
    U64,
    KeyArrays,
    KeyShape,
    MsmSums,
    Span,
    SparseMatrix,
    Vram,
    nothing,
)
from cuzkd.errors import Cancelled, InvalidKey

build, _native = native.chosen()  # build: its name, of native.BUILDS
LIMBS = {"bn254": {"fr": 4, "fq": 4}, "bls12_381": {"fr": 4, "fq": 6}}


def _element_shape(curve: str, fld: str) -> tuple[int, ...]:
    return (2, LIMBS[curve]["fq"]) if fld == "fq2" else (LIMBS[curve][fld],)


def _point_shape(curve: str, group: str) -> tuple[int, ...]:
    return (2, *_element_shape(curve, "fq" if group == "g1" else "fq2"))


@contextmanager
def _matrix_errors() -> Iterator[None]:
    try:
        yield
    except IndexError as error:
        raise InvalidKey(str(error)) from None


# -- host services -------------------------------------------------------------------------------------------


def set_threads(n: int) -> None:
    """Width of the native pool of this process, the calling thread included; less where the system gives no more."""
    _native.set_threads(n)


def threads() -> int:
    """Width of the native pool; at start the number of processors that this process may use."""
    return int(_native.threads())


def copy_witness(curve: str, raw: Any, out: U64) -> int:
    """Copy n 32-byte little-endian integers into out uint64[n, 4], checking each as it passes.

    raw: any buffer of exactly 32 n bytes, at any alignment. Returns the index of the first element >= r, or
    -1; after an index the rest of `out` may not have been written.
    """
    return int(_native.copy_witness(curve, np.frombuffer(raw, dtype=np.uint8), out))


def spmv_into(
    curve: str,
    matrix: SparseMatrix,
    z: U64,
    out: U64,
    row_begin: int,
    row_end: int,
    short_rows: bool = True,
) -> None:
    """Rows [row_begin, row_end) of matrix . z into those of out (Montgomery); z: CANONICAL [n_cols, 4].

    short_rows: units are summed without products and zeros skipped (kernels/sparse.cuh); False for benches alone.
    Raises InvalidKey when an index of the matrix is out of bounds; rows may then have been written.
    """
    if len(z) != matrix.n_cols:
        raise ValueError(f"z: expected {matrix.n_cols} rows, got {len(z)}")
    product = _native.spmv if short_rows else _native.spmv_by_products
    with _matrix_errors():
        product(curve, matrix.row_ptr, matrix.cols, matrix.coeff, matrix.table, z, out, row_begin, row_end)


def first_mismatch(curve: str, a: U64, b: U64, c: U64, begin: int, end: int) -> int:
    """First row in [begin, end) with a * b != c, or -1. Montgomery [rows, 4]."""
    return int(_native.first_mismatch(curve, a, b, c, begin, end))


def fixed_base_mul(curve: str, group: str, scalars: U64) -> U64:
    """scalars (CANONICAL [n, 4]) times the group's generator, affine."""
    out = np.empty((len(scalars), *_point_shape(curve, group)), np.uint64)
    _native.fixed_base_mul(curve, group, scalars, out)
    return out


def sum_of_doublings(curve: str, group: str, points: U64, times: U32) -> U64:
    """The sum of 2^times[i] points[i], affine; as many doublings as the largest of `times`, on the calling thread."""
    out = np.empty(_point_shape(curve, group), np.uint64)
    _native.sum_of_doublings(curve, group, points, times, out)
    return out


def check_points(curve: str, group: str, points: U64, subgroup: bool = False) -> int:
    """First point with a coordinate >= q, off the curve, or (subgroup) not of order r; -1 when all are good.

    Infinity (all zero) is good. The order of few points is checked by an endomorphism, less than 0.1 ms each; of many
    by random sums, some microseconds each: a point of another order is then missed with probability at most 2^-64, and
    a good one never called bad (kernels/cpu/subgroup.hpp).
    """
    return int(_native.check_points(curve, group, points, subgroup))


def pairing_check(curve: str, g1: U64, g2: U64) -> bool:
    """Is the product of e(g1_i, g2_i) one?

    Affine [n, 2, L] and [n, 2, 2, L], on the curve and of order r (unchecked); infinity counts as 1.
    """
    return bool(_native.pairing_check(curve, g1, g2))


def pairing(curve: str, p: U64, q: U64) -> U64:
    """e(p, q) for p [2, L], q [2, 2, L], as U64[12, L] CANONICAL.

    Element k is the coefficient of w^k in Fq[w]/(w^12 - 18 w^6 + 82) (bn254) or (w^12 - 2 w^6 + 2)
    (bls12_381), raised to exactly (q^12 - 1)/r: the same value as py_ecc's.
    """
    out = np.empty((12, LIMBS[curve]["fq"]), np.uint64)
    _native.pairing(curve, p[None], q[None], out)
    return out


# -- the backend ---------------------------------------------------------------------------------------------


class CpuKey:
    """A key as the CPU uses it: the caller's arrays themselves (often a mapped file). Nothing is copied."""

    def __init__(self, arrays: KeyArrays) -> None:
        self.arrays = arrays
        points = (arrays.a_g1, arrays.b_g1, arrays.b_g2, arrays.l_g1, arrays.h_g1)
        self.resident_bytes = self.host_bytes = sum(p.nbytes for p in points)
        self.one_at_a_time = False

    def close(self) -> None:
        """Nothing is held."""


class CpuUpload:
    """One partition's vectors, remembered until result()."""

    def __init__(self, key: CpuKey, a: U64, b: U64, c: U64, z: U64) -> None:
        self.key, self.a, self.b, self.c, self.z = key, a, b, c, z

    def wait(self) -> None:
        """Nothing travels."""


# Domains, as logarithms. Small sums leave threads idle at their ends, so two of them run at a time; the smallest are
# over before another thread is there, and two large ones would only take more memory.
SIDE_BY_SIDE = range(7, 18)
PHASE_OF = {"h_g1": "msm_h", "l_g1": "msm_l", "a_g1": "msm_a", "b_g1": "msm_b_g1", "b_g2": "msm_b_g2"}
OF_WITNESS = ("b_g2", "l_g1", "a_g1", "b_g1")  # the longest first


class CpuRun:
    """One proof, done when result() is called. parallel_g2: small sums run two at a time (the name is the CUDA
    backend's, where it is the sum in G2 that runs beside the others: benches turn either off by it).
    """

    def __init__(self, upload: CpuUpload, parallel_g2: bool = True) -> None:
        self._upload = upload
        small = upload.key.arrays.log_domain in SIDE_BY_SIDE
        self._side_by_side = parallel_g2 and small and threads() > 1
        self._cancel = _native.CancelFlag()
        self._spans: list[Span] = []
        self._sums: MsmSums | None = None
        self._beside: list[Future[Any]] = []

    def cancel(self) -> None:
        self._cancel.set()

    def result(self, device_free: Callable[[], None] = nothing) -> MsmSums:
        """Cancelled comes some tens of milliseconds after cancel(). The vectors are rubbish then."""
        if self._sums is None:
            try:
                self._sums = self._prove()
            except _native.Cancelled:
                raise Cancelled("cancelled while its sums were computed") from None
            finally:
                self._forget()
        return self._sums

    def _prove(self) -> MsmSums:
        """The sum over the quotient is one line of work, those over the witness another: one after the other, and then
        the scalars of one vector are there at a time (100 bytes and more for each), or side by side, and whoever is
        through with one takes from what is left of the other.
        """
        up, key = self._upload, self._upload.key.arrays
        sums: dict[str, U64] = {}
        left = queue.SimpleQueue[str]()
        for query in OF_WITNESS:
            left.put(query)

        def over_quotient() -> None:
            sums["h_g1"] = self._msm("compute", "h_g1", self._prepared("compute", up.a))

        def over_witness(row: str, prepared: Callable[[], Any]) -> None:
            scalars = prepared()
            with suppress(queue.Empty):
                while query := left.get_nowait():
                    sums[query] = self._msm(row, query, scalars, key.n_public + 1 if query == "l_g1" else 0)

        self._timed(
            "ntt_h", "compute", _native.quotient, key.curve, up.a, up.b, up.c, key.root_family, key.reduction
        )
        if self._side_by_side:
            with ThreadPoolExecutor(1) as beside:
                witness = beside.submit(self._prepared, "compute 2", up.z)
                rest = beside.submit(over_witness, "compute 2", witness.result)
                self._beside = [witness, rest]
                over_quotient()
                over_witness("compute", witness.result)
                rest.result()
        else:
            over_quotient()
            over_witness("compute", partial(self._prepared, "compute", up.z))
        return MsmSums(
            a_g1=sums["a_g1"],
            b_g1=sums["b_g1"],
            b_g2=sums["b_g2"],
            l_g1=sums["l_g1"],
            h_g1=sums["h_g1"],
            spans=self._spans,
        )

    def _forget(self) -> None:
        """What went wrong beside holds frames, and these hold it and the vectors, which would live on for a while."""
        while self._beside:
            if error := self._beside.pop().exception():
                traceback.clear_frames(error.__traceback__)

    def _timed(self, phase: str, row: str, work: Callable[..., Any], *args: Any) -> Any:
        """What the native call returns."""
        begin = time.monotonic()
        value = work(*args, self._cancel)
        self._spans.append(Span(phase, row, begin, time.monotonic() - begin))
        return value

    def _prepared(self, row: str, scalars: U64) -> Any:
        return self._timed("prep_msm", row, _native.prepare_scalars, self._upload.key.arrays.curve, scalars)

    def _msm(self, row: str, query: str, scalars: Any, first: int = 0) -> U64:
        """The bases of a query, over scalars from `first` on."""
        key, group = self._upload.key.arrays, query[-2:]
        out = np.empty(_point_shape(key.curve, group), np.uint64)
        self._timed(
            PHASE_OF[query], row, _native.msm, key.curve, group, getattr(key, query), scalars, first, out
        )
        return out


class CpuBackend:
    """`backend.protocol.Backend` on the processor. `scratch_c`: the third vector is working space."""

    name = "cpu"
    device = "cpu"
    in_place = True
    scratch_c = True
    takes_pieces = False

    def __init__(self, parallel_g2: bool = True) -> None:
        """parallel_g2: see CpuRun."""
        self.parallel_g2 = parallel_g2
        self.device_name = native.cpuinfo("model name") or platform.machine()

    def vector_rows(self, key: KeyShape) -> int:
        return key.domain

    def warm_up(self, curve: str) -> None:
        """Nothing is compiled."""

    def keep_matrices(self, key: CpuKey, a: SparseMatrix, b: SparseMatrix) -> bool:
        """Host code makes a and b."""
        return False

    def load_key(self, key: KeyArrays) -> CpuKey:
        check_key(key)
        return CpuKey(key)

    def upload(self, key: CpuKey, a: U64 | None, b: U64 | None, c: U64 | None, z: U64) -> CpuUpload:
        if a is None or b is None or c is None:
            raise ValueError("the cpu backend takes a, b and a third vector of working space")
        rows = key.arrays.domain
        for name, vector, n in (("a", a, rows), ("b", b, rows), ("c", c, rows), ("z", z, key.arrays.n_wires)):
            if vector.shape != (n, 4):
                raise ValueError(f"{name}: expected shape {(n, 4)}, got {vector.shape}")
        return CpuUpload(key, a, b, c, z)

    def launch(self, upload: CpuUpload) -> CpuRun:
        return CpuRun(upload, self.parallel_g2)

    def launch_batch(self, uploads: Sequence[CpuUpload]) -> list[CpuRun]:
        return [self.launch(upload) for upload in uploads]

    def vram(self) -> Vram:
        return Vram()

    def trim(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is held; the native pool belongs to the process."""

    def field_op(self, curve: str, fld: str, op: str, a: U64, b: U64 | None = None) -> U64:
        out = np.empty((len(a), *_element_shape(curve, fld)), np.uint64)
        _native.field_op(curve, fld, op, a, b, out)
        return out

    def point_op(self, curve: str, group: str, op: str, p: U64, q: U64 | None = None) -> U64:
        out = np.empty((len(p), *_point_shape(curve, group)), np.uint64)
        _native.point_op(curve, group, op, p, q, out)
        return out

    def scalar_mul(self, curve: str, group: str, points: U64, scalars: U64) -> U64:
        out = np.empty((len(points), *_point_shape(curve, group)), np.uint64)
        _native.scalar_mul(curve, group, points, scalars, out)
        return out

    def ntt(
        self, curve: str, values: U64, root_family: int, *, inverse: bool = False, shift: int | None = None
    ) -> U64:
        words = (1 if shift is None else shift).to_bytes(32, "little")
        out = values.copy()
        _native.ntt(curve, out, root_family, inverse, np.frombuffer(words, np.uint64).reshape(1, 4))
        return out

    def quotient(self, curve: str, a: U64, b: U64, root_family: int, reduction: str = "circom") -> U64:
        h = a.copy()
        _native.quotient(curve, h, b.copy(), np.empty_like(h), root_family, reduction)
        return h

    def msm(self, curve: str, group: str, bases: U64, scalars: U64) -> U64:
        out = np.empty(_point_shape(curve, group), np.uint64)
        _native.msm(curve, group, bases, _native.prepare_scalars(curve, scalars), 0, out)
        return out

    def spmv(self, curve: str, matrix: SparseMatrix, z: U64) -> U64:
        out = np.empty((matrix.n_rows, 4), np.uint64)
        spmv_into(curve, matrix, z, out, 0, matrix.n_rows)
        return out


def check_key(key: KeyArrays) -> None:
    """Shapes must agree with the counts before native code sees them; raises InvalidKey."""
    if key.n_rows > key.domain:
        raise InvalidKey(f"n_rows: {key.n_rows} rows do not fit into a domain of {key.domain}")
    for query in QUERIES:
        expected, shape = key.shape_of(query), getattr(key, query).shape
        if shape != expected:
            raise InvalidKey(f"{query}: expected shape {expected}, got {shape}")
