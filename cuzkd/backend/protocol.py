"""What a backend is: the array contract between the floors above and whatever does the arithmetic.

Three backends hold to it: `reference` (plain Python ints, the oracle), `cpu` (native, threaded) and `cuda`.
Laws in tests/ are written once against this file and run over every backend and curve.

Arrays, unless a docstring says otherwise, are C-contiguous `numpy.uint64`, little-endian limbs:

    field elements   [n, L]        Fr: L = 4; Fq: L = 4 (bn254) or 6 (bls12_381); Fq2: [n, 2, Lq] as (c0, c1)
    affine points    [n, 2, Lq] (G1), [n, 2, 2, Lq] (G2); infinity is all zero
    form             Montgomery, R = 2^(64 L), always fully reduced (< modulus)
    scalars          MSM and witness scalars are the exception: CANONICAL, < r, and every name or docstring says so

Curve names are "bn254" and "bls12_381", groups "g1" and "g2", fields "fr", "fq", "fq2".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidKey

U64 = NDArray[np.uint64]
U32 = NDArray[np.uint32]

ROOT_FAMILIES = (5, 7)  # that keys are known to be of: circom's on both curves, bellman's on BLS12-381
REDUCTIONS = ("circom", "bellman")  # KeyShape.reduction
QUERIES = ("a_g1", "b_g1", "b_g2", "l_g1", "h_g1")  # the points of a key: fields of KeyArrays


@dataclass(frozen=True)
class SparseMatrix:
    """Rows of a constraint matrix, compressed by row, coefficients by value.

    row_ptr  uint64[n_rows + 1]; row i holds entries row_ptr[i] .. row_ptr[i+1]
    cols     uint32[nnz], wire index < n_cols
    coeff    uint32[nnz], index into table
    table    uint64[k, 4], the distinct coefficients as v * R^2 mod r (TWICE Montgomery, as in a .zkey), so that one
             Montgomery product with a canonical witness value gives the product in Montgomery form.
             table[0] is always +1 and table[1] always -1 (k >= 2), so that kernels may treat them without a product.
    """

    n_cols: int
    row_ptr: U64
    cols: U32
    coeff: U32
    table: U64

    @property
    def n_rows(self) -> int:
        return len(self.row_ptr) - 1


@dataclass(frozen=True, kw_only=True)
class KeyShape:
    """What is to be known of a Groth16 proving key beside its points. Raises InvalidKey for another reduction.

    root_family: the quadratic non-residue that the roots of unity come from (5 for circom on both curves, 7 bellman).
    n_rows: rows that synthesis makes, constraints and those of the public wires (at most the domain); 0 = the domain.
    reduction: what the h scalars are, C being the interpolation of a o b and Z = X^n - 1:
        "circom"   the values of A B - C on the odd coset of the doubled domain, as snarkjs has it
        "bellman"  the coefficients of (A B - C)/Z, as libsnark, bellman and arkworks have it; the last one is zero
    """

    curve: str
    root_family: int
    reduction: str
    log_domain: int
    n_wires: int
    n_public: int
    n_rows: int = 0

    def __post_init__(self) -> None:
        if self.reduction not in REDUCTIONS:
            raise InvalidKey(f"reduction: expected 'circom' or 'bellman', got '{self.reduction}'")
        r = CURVES[self.curve].r if self.curve in CURVES else 0
        if r and pow(self.root_family, (r - 1) // 2, r) != r - 1:
            raise InvalidKey(f"root_family: expected a quadratic non-residue, got {self.root_family}")

    @property
    def domain(self) -> int:
        return 1 << self.log_domain

    @property
    def points_bytes(self) -> int:
        """Of all points of the key, wherever they are."""
        return sum(8 * prod(self.shape_of(query)) for query in QUERIES)

    @property
    def host_bytes(self) -> int:
        """Bytes of points in host memory: none, where a key was made on its device."""
        return 0

    def shape_of(self, query: str) -> tuple[int, ...]:
        """Of the array of one of QUERIES."""
        n_private = self.n_wires - self.n_public - 1
        n = {"l_g1": n_private, "h_g1": self.domain}.get(query, self.n_wires)
        point = (2, 2) if query == "b_g2" else (2,)
        return (n, *point, CURVES[self.curve].fq_limbs)


@dataclass(frozen=True, kw_only=True)
class KeyArrays(KeyShape):
    """The bulk of a Groth16 proving key, as a backend needs it. u, v, w: the QAP polynomials of a wire at tau.

    a_g1   [n_wires]                 [u_i(tau)]_1
    b_g1   [n_wires]                 [v_i(tau)]_1
    b_g2   [n_wires], G2             [v_i(tau)]_2
    l_g1   [n_wires - n_public - 1]  [(beta u_i + alpha v_i + w_i)/delta]_1, private wires only
    h_g1   [2^log_domain]            circom reduction: [L_{2i+1}(tau)/delta]_1, L the Lagrange basis of the domain of
                                     twice the size (FORMATS: section 9 of a .zkey)
                                     bellman reduction: [tau^i Z(tau)/delta]_1, the last one infinity
    Points at infinity are allowed anywhere and contribute nothing.
    """

    a_g1: U64
    b_g1: U64
    b_g2: U64
    l_g1: U64
    h_g1: U64

    @property
    def host_bytes(self) -> int:
        return sum(getattr(self, query).nbytes for query in QUERIES)


@dataclass(frozen=True)
class Span:
    """A stretch of work on one partition. phase: one of PHASES in engine/job.py. row: who did it, a thread's name, or
    "copy", "compute" and "compute 2" for a device's streams. begin_s: on the clock of time.monotonic().
    """

    phase: str
    row: str
    begin_s: float
    seconds: float

    @property
    def end_s(self) -> float:
        return self.begin_s + self.seconds


def seconds_by_phase(spans: Iterable[Span]) -> dict[str, float]:
    """The time of each phase, in the order in which they begin.

    What several spans cover at once is shared between them, so that the phases of a partition add up to the time in
    which something was done for it, whatever ran beside what.
    """
    listed = sorted(spans, key=lambda span: span.begin_s)
    out = dict.fromkeys((span.phase for span in listed), 0.0)
    under_way: list[Span] = []
    edges = sorted({time for span in listed for time in (span.begin_s, span.end_s)})
    waiting = deque(listed)
    for begin, end in pairwise(edges):
        under_way = [span for span in under_way if span.end_s > begin]
        while waiting and waiting[0].begin_s <= begin:
            span = waiting.popleft()
            if span.end_s > begin:
                under_way.append(span)
        for span in under_way:
            out[span.phase] += (end - begin) / len(under_way)
    return out


@dataclass(frozen=True)
class MsmSums:
    """The five multi-scalar sums of one proof, affine (shape [2, Lq] or [2, 2, Lq]), and what they cost.

    a_g1 = <z, A>, b_g1 = <z, B1>, b_g2 = <z, B2>, l_g1 = <z_private, L>, h_g1 = <h, H>.
    spans: h2d, ntt_h, prep_msm, msm_h, msm_l, ..., d2h, as they happened.
    h2d_bytes: bytes that crossed to the device for this proof (0 on the CPU).
    """

    a_g1: U64
    b_g1: U64
    b_g2: U64
    l_g1: U64
    h_g1: U64
    spans: Sequence[Span] = ()
    h2d_bytes: int = 0

    @property
    def phases_s(self) -> dict[str, float]:
        return seconds_by_phase(self.spans)


def nothing() -> None:
    """What is called where nobody needs to be told."""


class LoadedKey(Protocol):
    """A key on a device. Opaque above this floor, but for these."""

    resident_bytes: int  # of the device's memory

    @property
    def host_bytes(self) -> int:
        """Of the arrays that it was loaded from, those that it goes on reading: they are not to be changed."""

    @property
    def one_at_a_time(self) -> bool:
        """The device has no room for an upload beside a proof."""

    def close(self) -> None:
        """Give its memory back. Idempotent; a run in flight on it must have ended."""


@dataclass(frozen=True)
class Vram:
    """Bytes of a device's own memory, as it says itself: others' use is counted, too. Zeros where it has none."""

    free_bytes: int = 0
    total_bytes: int = 0

    @property
    def used_bytes(self) -> int:
        return self.total_bytes - self.free_bytes


class Receiver(Protocol):
    """A key on its way to a device, piece by piece. Ends with finish() or close()."""

    def memory(self, nbytes: int) -> memoryview:
        """What pieces are to be read into: pieces in it cross fastest. It is there until the end."""

    def into(self, query: str, begin: int, data: memoryview) -> None:
        """Bytes of a query from byte `begin` on; taken when this returns. From any thread, several at once; beside
        proofs.
        """

    def finish(self) -> LoadedKey:
        """All have come. Raises as Backend.load_key."""

    def close(self) -> None:
        """Give back what it has taken. Idempotent, and nothing after finish()."""


class Run(Protocol):
    """One proof's kernels, enqueued."""

    def result(self, device_free: Callable[[], None] = nothing) -> MsmSums:
        """Block (GIL released) until the sums are there. On the CPU this is where the work is done.

        device_free: called, maybe several times, when so little is left to be done that another partition had better be
        launched behind it; never, where there is no memory for that or nothing to be gained.
        Raises DeviceFault when the device failed, Exhausted when its memory was too small, Cancelled after cancel().
        """

    def cancel(self) -> None:
        """Nobody wants the sums: unless they are there by then, result() soon raises Cancelled. Called from any thread,
        any number of times; never blocks. Runs that were launched together with this one go on.
        """


class Upload(Protocol):
    """One partition's vectors on their way to the device."""

    def wait(self) -> None:
        """Block until the copies have landed. After it the host arrays may be reused, unless `in_place`."""


class Backend(Protocol):
    """A device that proves, and the plain operations that its tests compare."""

    name: str  # "reference", "cpu", "cuda"
    device: str  # "cpu", or the GPU's UUID
    device_name: str  # for people: processor or card
    in_place: bool  # works in the host vectors themselves (overwrites a, b, c); they come back after result()
    takes_pieces: bool  # keys may come piece by piece: receive() and kept_bytes() are there

    # -- proving: upload (copy stream) -> launch (compute stream) -> result --

    def vector_rows(self, key: KeyShape) -> int:
        """Rows that the host vectors a, b (and c) must have: the domain where `in_place`, else what synthesis makes."""

    @property
    def scratch_c(self) -> bool:
        """True: launch() wants a third host vector c as working space even when c is derived (in-place backends)."""

    def warm_up(self, curve: str) -> None:
        """Do now what the first proof over this curve would wait for: kernels are compiled, or taken from the cache."""

    def load_key(self, key: KeyArrays) -> LoadedKey: ...

    def receive(self, key: KeyShape) -> Receiver:
        """Begin with the points of a key. Raises as load_key."""

    def kept_bytes(self, key: KeyShape) -> int:
        """LoadedKey.host_bytes of a key of this shape."""

    def keep_matrices(self, key: LoadedKey, a: SparseMatrix, b: SparseMatrix) -> bool:
        """Keep the constraint matrices A and B beside a loaded key, where that pays and there is room: True, and
        a = A z, b = B z need not be given to upload() from now on. They stay until the key is closed. False: nothing
        was done. Raises InvalidKey where they do not fit the key or each other.
        """

    def upload(self, key: LoadedKey, a: U64 | None, b: U64 | None, c: U64 | None, z: U64) -> Upload:
        """Start moving one partition's vectors. Never waits for kernels that are running.

        a, b: uint64[rows, 4] Montgomery, rows as by vector_rows(); rows past the constraints are zero.
        c: working space of the same shape where scratch_c. A device takes c = C z if it is given, and makes a o b if
        it is None. z: uint64[n_wires, 4] CANONICAL. a and b are None where the device has the matrices and makes them.
        On cuda all of them must lie in page-locked memory to be fast; nothing checks that they do.
        """

    def launch(self, upload: Upload) -> Run:
        """Enqueue quotient and MSMs of an uploaded partition. Called with the device mutex held; returns at once."""

    def launch_batch(self, uploads: Sequence[Any]) -> Sequence[Run]:
        """Launch several partitions of one key (Upload) together, where the device gains by it. When the result of one
        is there the device is done with all.
        """

    def vram(self) -> Vram:
        """Of the device, now."""

    def trim(self) -> None:
        """Give back whatever device memory is kept for reuse and not in use. May wait for kernels that run."""

    def close(self) -> None: ...

    # -- plain operations on host arrays: what the laws in tests/ compare (each uploads and downloads by itself) --

    def field_op(self, curve: str, fld: str, op: str, a: U64, b: U64 | None = None) -> U64:
        """op: add sub mul sqr neg inv (Montgomery; inv(0) = 0), to_mont (canonical in), from_mont (canonical out)."""

    def point_op(self, curve: str, group: str, op: str, p: U64, q: U64 | None = None) -> U64:
        """op: add, double, neg. Affine in, affine out, element by element; every exceptional case is right."""

    def scalar_mul(self, curve: str, group: str, points: U64, scalars: U64) -> U64:
        """Element by element; scalars CANONICAL [n, 4]."""

    def ntt(
        self, curve: str, values: U64, root_family: int, *, inverse: bool = False, shift: int | None = None
    ) -> U64:
        """Transform of 2^k values, natural order in and out; a new array.

        forward: coefficient i is first multiplied by shift^i (shift: a plain int in [1, r), None = 1), so the result
        holds the evaluations on shift * <w>. inverse: the exact inverse of that.
        """

    def quotient(self, curve: str, a: U64, b: U64, root_family: int, reduction: str = "circom") -> U64:
        """The scalars of the H sum, CANONICAL [n, 4], natural order; a, b Montgomery [n = 2^k, 4], C through a o b.

        "circom": h_i = (A B - C)(w_2n^(2i+1)). "bellman": the coefficients of (A B - C)/(X^n - 1), the last one zero.
        ValueError for another reduction.
        """

    def msm(self, curve: str, group: str, bases: U64, scalars: U64) -> U64:
        """sum scalars_i * bases_i, affine [2, Lq] / [2, 2, Lq]; scalars CANONICAL; empty input gives infinity."""

    def spmv(self, curve: str, matrix: SparseMatrix, z: U64) -> U64:
        """matrix . z: z CANONICAL [n_cols, 4] -> Montgomery [n_rows, 4]."""
