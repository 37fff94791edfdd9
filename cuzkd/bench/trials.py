"""One operation, once, timed: on the processor by the clock, on a device by its events. For `cuzkd bench micro`.

Both classes have the same methods. Each prepares operands where the operation finds them in a proof (on a device: in
its memory) and returns a `Trial`, which runs it once and says how many seconds that took. Operands are random and
full-size unless they are scalars of another kind; which values they have decides nothing else.

On a device what counts runs from an event before the first kernel to one after the last, so short operations show
the time that Python takes to launch them (8 us a kernel). Transforms and quotients show less of it: each is enqueued
behind one of its kind, and while that runs the host gets ahead. What the host adds to a sum, combining some hundred
points, is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np

from cuzkd.backend import cpu
from cuzkd.backend.protocol import U64, Backend, SparseMatrix
from cuzkd.curves.params import CURVES
from cuzkd.formats.zkey import ROOT_FAMILY

Trial = Callable[[], float]
FR_BYTES = 32
CHAIN_ROUNDS = 256  # products of one chain: so many that its loads and stores are nothing
_SEED = 1  # the same operands in every run


@lru_cache(maxsize=1)
def elements(modulus: int, n: int) -> U64:
    """n numbers below it, random, as limbs; all but those that begin with its highest limb are possible. Not to be
    changed: the last ones are kept, gigabytes that several trials and their check want one after another.
    """
    words = (modulus.bit_length() + 63) // 64
    out = np.random.default_rng(_SEED).integers(0, 1 << 64, (n, words), np.uint64)
    out[:, -1] %= np.uint64(modulus >> (64 * (words - 1)))
    return out


def scalars(curve: str, n: int, kind: str) -> U64:
    """CANONICAL [n, 4]. kind: "random" or one of those below."""
    if kind == "random":
        return elements(CURVES[curve].r, n)
    most = {"bits": 2, "bytes": 256}[kind]
    out = np.zeros((n, 4), np.uint64)
    out[:, 0] = np.random.default_rng(_SEED).integers(0, most, n, np.uint64)
    return out


class Trials(Protocol):
    """The operations. fld: "fr" or "fq"; n: items, a power of two for transforms; vectors are in Montgomery form."""

    how: str  # how time is taken, for people
    chains: Mapping[str, int]  # ways of products in registers, and how many of them one chain has

    def product(self, curve: str, fld: str, n: int) -> Trial:
        """n products, element by element."""

    def chain(self, curve: str, fld: str, way: str, n: int) -> Trial | None:
        """n chains of products, operands in registers. None for fewer than one block has."""

    def transform(self, curve: str, n: int) -> Trial:
        """One transform."""

    def quotient(self, curve: str, n: int, reduction: str) -> Trial:
        """The scalars of the H sum from a and b."""

    def lists(self, curve: str, n: int, kind: str) -> Trial:
        """What all sums over n scalars have in common: their digits, listed by bucket."""

    def sum(self, curve: str, group: str, n: int, kind: str) -> Trial:
        """A multi-scalar sum over n distinct points that are there already."""

    def sum_by_table(self, curve: str, group: str, n: int) -> Trial | None:
        """The same with random scalars by the best table that half of the free memory holds. None where none helps."""

    def table(self, curve: str, group: str, n: int) -> Trial | None:
        """The making of that table."""

    def total(self, curve: str, group: str, n: int, by_table: bool = False) -> U64:
        """What such a sum of random scalars, done once, comes to: affine. Its points are the generator times the same
        scalars.
        """

    def table_bytes(self, curve: str, group: str, n: int) -> int:
        """Of that table; 0 where none helps."""

    def multiples(self, curve: str, group: str, n: int) -> Trial:
        """n multiples of the generator."""

    def rows(self, curve: str, matrix: SparseMatrix, z: U64) -> Trial:
        """matrix . z"""

    def check(self, curve: str, group: str, n: int) -> Trial | None:
        """Are n points on their curve and of order r? None where that is not done."""


class OnHost:
    """All threads of the native pool; the clock around the call, which allocates what it returns."""

    how = "clock around the call, all threads; transforms and quotients copy their operands first"
    chains: Mapping[str, int] = {}

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._points: dict[tuple[str, str], U64] = {}

    def product(self, curve: str, fld: str, n: int) -> Trial:
        modulus = CURVES[curve].r if fld == "fr" else CURVES[curve].q
        a = elements(modulus, n)
        return _clocked(self._backend.field_op, curve, fld, "mul", a, a[::-1].copy())

    def chain(self, curve: str, fld: str, way: str, n: int) -> None:
        """Operands of a processor lie in its memory."""

    def transform(self, curve: str, n: int) -> Trial:
        return _clocked(self._backend.ntt, curve, elements(CURVES[curve].r, n), ROOT_FAMILY)

    def quotient(self, curve: str, n: int, reduction: str) -> Trial:
        a = elements(CURVES[curve].r, n)
        return _clocked(self._backend.quotient, curve, a, a, ROOT_FAMILY, reduction)

    def lists(self, curve: str, n: int, kind: str) -> Trial:
        return _clocked(cpu._native.prepare_scalars, curve, scalars(curve, n, kind))

    def sum(self, curve: str, group: str, n: int, kind: str) -> Trial:
        return _clocked(
            self._backend.msm, curve, group, self._bases(curve, group, n), scalars(curve, n, kind)
        )

    def sum_by_table(self, curve: str, group: str, n: int) -> None:
        """A processor has no tables."""

    table = sum_by_table

    def total(self, curve: str, group: str, n: int, by_table: bool = False) -> U64:
        return self._backend.msm(curve, group, self._bases(curve, group, n), scalars(curve, n, "random"))

    def table_bytes(self, curve: str, group: str, n: int) -> int:
        return 0

    def multiples(self, curve: str, group: str, n: int) -> Trial:
        return _clocked(cpu.fixed_base_mul, curve, group, scalars(curve, n, "random"))

    def rows(self, curve: str, matrix: SparseMatrix, z: U64) -> Trial:
        out = np.empty((matrix.n_rows, 4), np.uint64)
        return _clocked(cpu.spmv_into, curve, matrix, z, out, 0, matrix.n_rows)

    def check(self, curve: str, group: str, n: int) -> Trial:
        return _clocked(cpu.check_points, curve, group, self._bases(curve, group, n), True)

    def _bases(self, curve: str, group: str, n: int) -> U64:
        """n points, made once for the largest n that was asked for."""
        found = self._points.get((curve, group))
        if found is None or len(found) < n:
            found = self._points[curve, group] = cpu.fixed_base_mul(curve, group, scalars(curve, n, "random"))
        return found[:n]


def _clocked(work: Callable[..., Any], *args: Any) -> Trial:
    def trial() -> float:
        began = time.perf_counter()
        work(*args)
        return time.perf_counter() - began

    return trial


class OnDevice:
    """The kernels of backend/cuda*.py on its compute lane, operands in device memory."""

    how = (
        "CUDA events around the kernels, operands in device memory; transforms in the kernels' own order, and "
        "they and quotients behind one of their kind"
    )

    def __init__(self, backend: Any) -> None:
        from cuzkd.backend import cuda_ops

        self.chains: Mapping[str, int] = dict.fromkeys(cuda_ops.CHAINS, CHAIN_ROUNDS) | {"inverses": 1}
        self._backend = backend
        self._gpu = backend.gpu
        self._lane = backend.gpu.compute
        self._points: dict[tuple[str, str], tuple[int, Any]] = {}
        self._chosen: tuple[Any, Any] = None, None  # whose best table was looked for last, and that
        self._made: Any = None  # which takes seconds

    def product(self, curve: str, fld: str, n: int) -> Trial:
        """Two operands are read from device memory, and the product is written there."""
        from cuzkd.backend import cuda_ops, nvrtc

        a = self._put(elements(CURVES[curve].r if fld == "fr" else CURVES[curve].q, n))
        module, op = nvrtc.Module("fields", curve, field=fld), cuda_ops.FIELD_OPS.index("mul")
        out = self._scratch(a.nbytes)
        grid = -(-n // 256)
        return self._timed(
            lambda: self._lane.launch(module, "field_op", grid, 256, op, a, a, out, np.uint64(n))
        )

    def chain(self, curve: str, fld: str, way: str, n: int) -> Trial | None:
        from cuzkd.backend import cuda_ops

        n_blocks = n // cuda_ops.CHAIN_THREADS
        if n_blocks == 0:
            return None
        modulus = CURVES[curve].r if fld == "fr" else CURVES[curve].q
        values, rounds = self._put(elements(modulus, 2 * n)), self.chains[way]
        return self._timed(lambda: cuda_ops.chain(self._lane, curve, fld, way, values, n_blocks, rounds))

    def transform(self, curve: str, n: int) -> Trial:
        """Natural order in, reversed out."""
        vector = self._put(elements(CURVES[curve].r, n))
        log_n = n.bit_length() - 1
        transforms = self._transforms(curve, log_n)
        return self._timed(lambda: transforms.down(vector.address, log_n), in_a_stream=True)

    def quotient(self, curve: str, n: int, reduction: str) -> Trial:
        a = elements(CURVES[curve].r, n)
        vectors = self._put(np.stack([a, a, a]))
        log_n = n.bit_length() - 1
        transforms = self._transforms(curve, log_n)
        return self._timed(lambda: transforms.quotient(vectors.address, log_n, reduction), in_a_stream=True)

    def lists(self, curve: str, n: int, kind: str) -> Trial:
        """With the windows of a sum in G1 over scalars of which nothing is known."""
        from cuzkd.backend.cuda_lists import Lister
        from cuzkd.backend.cuda_msm import plan

        values, lister = self._put(scalars(curve, n, kind)), Lister(self._lane, curve)
        most_bytes = self._backend.sums(curve, self._lane).group_bytes
        cut = plan(n, 1, CURVES[curve].r.bit_length(), self._point_bytes(curve, "g1"), most_bytes)

        def work() -> None:
            classes = lister.classify([values], n)
            for first in range(0, cut.sets, cut.group):
                lister.lists(classes, cut.part(first, min(cut.group, cut.sets - first)))

        return self._timed(work)

    def sum(self, curve: str, group: str, n: int, kind: str) -> Trial:
        return self._sum(curve, self._query(curve, group, n), n, kind)

    def sum_by_table(self, curve: str, group: str, n: int) -> Trial | None:
        if (table := self._best_table(curve, group, n)) is None:
            return None
        return self._sum(curve, self._query(curve, group, n, table), n, "random")

    def table(self, curve: str, group: str, n: int) -> Trial | None:
        table = self._best_table(curve, group, n)
        if table is None:
            return None
        out = self._made or self._table_room(curve, group, n, table)
        return self._timed(self._making(curve, group, n, table, out))

    def total(self, curve: str, group: str, n: int, by_table: bool = False) -> U64:
        query = self._query(curve, group, n, self._best_table(curve, group, n) if by_table else None)
        values, found = self._put(scalars(curve, n, "random")), []

        def deliver(_: Any, plan: Any, points: Any) -> None:
            words = self._lane.get(points, (points.nbytes // 8,))
            found.append(self._backend.combine(curve, group, [(plan, words)]))

        with self._gpu.guard():
            self._backend.sums(curve, self._lane).run([values], n, [query], lambda _: None, deliver)
        total: U64 = found[0]
        return total

    def table_bytes(self, curve: str, group: str, n: int) -> int:
        from cuzkd.backend import cuda_tables

        table = self._best_table(curve, group, n)
        return cuda_tables.table_bytes(n, self._point_bytes(curve, group), table) if table else 0

    def _query(self, curve: str, group: str, n: int, table: Any = None) -> Any:
        """Over n points, or their table, which is made."""
        from cuzkd.backend.cuda_msm import Query

        if table is None:
            return Query("sum", group, self._bases(curve, group, n))
        if self._made is None:
            self._made = self._table_room(curve, group, n, table)
            with self._gpu.guard():
                self._making(curve, group, n, table, self._made)()
        return Query("sum", group, self._made, table=table)

    def _sum(self, curve: str, query: Any, n: int, kind: str) -> Trial:
        values = self._put(scalars(curve, n, kind))
        sums = self._backend.sums(curve, self._lane)
        return self._timed(
            lambda: sums.run(
                [values], n, [query], lambda _: None, lambda query, plan, points: None, kind != "random"
            )
        )

    def _best_table(self, curve: str, group: str, n: int) -> Any:
        from cuzkd.backend import cuda_tables

        if self._chosen[0] != (curve, group, n):
            self._made = None
            self._backend.trim()  # what an earlier one left is free
            room, bits = self._backend.vram().free_bytes // 2, CURVES[curve].r.bit_length()
            best = cuda_tables.best_table(n, bits, self._point_bytes(curve, group), room)
            self._chosen = (curve, group, n), best
        return self._chosen[1]

    def _table_room(self, curve: str, group: str, n: int, table: Any) -> Any:
        from cuzkd.backend import cuda_tables

        return self._scratch(cuda_tables.table_bytes(n, self._point_bytes(curve, group), table))

    def _making(self, curve: str, group: str, n: int, table: Any, out: Any) -> Callable[[], None]:
        """What enqueues it."""
        from cuzkd.backend import cuda_tables

        shape = (n, CURVES[curve].r.bit_length(), table)
        points = self._bases(curve, group, n)
        return partial(cuda_tables.make_table, self._lane, curve, group, points, *shape, out)

    def _point_bytes(self, curve: str, group: str) -> int:
        from cuzkd.backend.cuda_tree import coordinate_bytes

        return 2 * coordinate_bytes(curve, group)

    def multiples(self, curve: str, group: str, n: int) -> Trial:
        with self._gpu.guard():
            table = self._multiples(curve, group)
        values = self._put(scalars(curve, n, "random"))
        return self._timed(lambda: table.of(values.address, n))

    def rows(self, curve: str, matrix: SparseMatrix, z: U64) -> Trial:
        from cuzkd.backend.cuda_rows import DeviceMatrix

        with self._gpu.guard():
            there = DeviceMatrix.of(curve, matrix, self._gpu)
        witness, out = self._put(z), self._scratch(FR_BYTES * matrix.n_rows)
        return self._timed(lambda: there.multiply(self._lane, witness, out.address))

    def check(self, curve: str, group: str, n: int) -> None:
        """Points are checked by the processor, when a key is added."""

    def _timed(self, work: Callable[[], Any], in_a_stream: bool = False) -> Trial:
        """in_a_stream: behind another one, so that the device does not wait for the host to enqueue it."""
        from cuzkd.backend.cuda_spans import Clock

        def trial() -> float:
            with self._gpu.guard():
                anchor, clock = self._gpu.anchor(), Clock(self._lane)
                before = work() if in_a_stream else None
                clock.begin()
                kept = work()
                clock.mark("trial")
                clock.last.synchronize()
                del before, kept
                (span,) = clock.spans(anchor, 0, 1)
                return span.seconds

        return trial

    def _put(self, array: U64) -> Any:
        with self._gpu.guard():
            return self._lane.put(array)

    def _scratch(self, nbytes: int) -> Any:
        with self._gpu.guard():
            return self._lane.scratch(nbytes)

    def _transforms(self, curve: str, log_n: int) -> Any:
        transforms = self._backend.transforms(curve, ROOT_FAMILY)
        with self._gpu.guard():
            transforms.prepare(log_n)
        return transforms

    def _multiples(self, curve: str, group: str) -> Any:
        from cuzkd.backend import cuda_setup

        return cuda_setup._Multiples(self._lane, curve, group)

    def _bases(self, curve: str, group: str, n: int) -> Any:
        """At least n points, made on the device once for the largest n that was asked for."""
        size, found = self._points.get((curve, group), (0, None))
        if size < n:
            self._points.pop((curve, group), None)
            values = self._put(scalars(curve, n, "random"))
            with self._gpu.guard():
                found = self._multiples(curve, group).of(values.address, n)
                self._lane.synchronize()
            self._points[curve, group] = n, found
        return found


def of(backend: Backend) -> Trials:
    """The ones for a backend."""
    return OnDevice(backend) if backend.name == "cuda" else OnHost(backend)
