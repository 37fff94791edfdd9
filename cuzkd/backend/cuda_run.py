"""One partition on the device, or several of one key at once: upload, kernels, sums.

Problem: the vectors of the next proof should cross while the kernels of this one run, and the host vectors be
free again the moment they have crossed.
Design: a `CudaUpload` enqueues copies on the copy lane into buffers of its own and records an event. A `Batch`
lets the compute lane wait for those of its uploads and enqueues everything up to the copy of the window sums
back, without waiting for anything itself; its uploads share the launches of their multi-scalar sums. A
`CudaRun` is what one upload gets of it: it combines each sum's windows on the host, a few dozen points, as soon
as they are there, beside the kernels of the next sum.
Life of the data: the columns a, b (exact rows, zero-filled to the domain here) and c, or room for it, in one
device buffer; a becomes h. Several lanes use it, and the witness, so both live until the batch's last event: the first
result() drops them, and of runs that the caller dropped without asking for a result the backend keeps them that
long. Columns made on the device are of the compute lane alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from cuzkd import errors
from cuzkd.backend.cuda_device import Buffer, Device, Lane
from cuzkd.backend.cuda_key import CudaKey
from cuzkd.backend.cuda_msm import Plan, Query
from cuzkd.backend.cuda_ntt import FR_BYTES
from cuzkd.backend.cuda_ring import Ring
from cuzkd.backend.cuda_spans import Clock
from cuzkd.backend.protocol import U64, MsmSums, Span

if TYPE_CHECKING:
    from cuzkd.backend.cuda import CudaBackend

SUM_OF_PHASE = {"msm_h": "h_g1", "msm_l": "l_g1", "msm_a": "a_g1", "msm_b_g1": "b_g1", "msm_b_g2": "b_g2"}


@dataclass(frozen=True)
class Columns:
    """The domain's columns a, b, c in one buffer. Rows of the first `given` are as many as there are constraints, and
    what lies behind them is to be cleared; what lies in the others does not matter.
    """

    buffer: Buffer
    rows: int
    given: int


@dataclass(frozen=True)
class Memory:
    """The witness of an upload, and its columns where they are not to be made on the device."""

    z: Buffer
    columns: Columns | None


class CudaUpload:
    """a, b, c and z of one partition on their way to the device, those of them that travel."""

    def __init__(
        self,
        device: Device,
        key: CudaKey,
        a: U64 | None,
        b: U64 | None,
        c: U64 | None,
        z: U64,
        ring: Ring | None,
    ) -> None:
        vectors = _require_fitting(key, a, b, c, z)
        self.key = key
        self._device = device
        self._hosts = (*vectors, z)  # alive until their copies have landed
        lane, column = device.copy, key.shape.domain * FR_BYTES
        copies, columns = [], None
        if vectors:
            buffer = lane.scratch(3 * column)
            columns = Columns(buffer, len(vectors[0]), len(vectors))
            copies = [(buffer.address + i * column, vector) for i, vector in enumerate(vectors)]
        scalars = lane.scratch(z.nbytes)
        copies.append((scalars.address, z))
        self._memory: Memory | None = Memory(scalars, columns)
        self.anchor = device.anchor()
        self.began, self.landed = cupy.cuda.Event(), cupy.cuda.Event(block=True)
        lane.record(self.began)
        if ring is not None:
            ring.copy_in(copies, after=self.began)
        else:
            for address, array in copies:
                lane.copy_in(address, array)
        lane.record(self.landed)
        self.h2d_bytes = sum(array.nbytes for _, array in copies)

    @property
    def launchable(self) -> bool:
        return self._memory is not None and bool(self.key.bases)

    def take(self) -> Memory:
        """What kernels need, for the one launch that there is."""
        memory, self._memory = self._memory, None
        assert memory is not None  # launchable
        return memory

    def wait(self) -> None:
        """Block until the copies have landed; the host arrays may be reused then."""
        with self._device.guard():
            self.landed.synchronize()
        self._hosts = ()

    @property
    def span(self) -> Span:
        return self.anchor.span("h2d", self._device.copy.name, self.began, self.landed)


def _require_fitting(key: CudaKey, a: U64 | None, b: U64 | None, c: U64 | None, z: U64) -> list[U64]:
    """The vectors that travel beside z: none, a and b, or all three. InvalidInput where they do not fit the key."""
    shape, given = key.shape, [None if v is None else v.shape for v in (a, b, c)]
    vectors = [v for v in (a, b, c) if v is not None]
    if not vectors and key.matrices is None:
        raise errors.InvalidInput(
            "a and b: None, but the key has no matrices on the device to make them from"
        )
    paired = (a is None) == (b is None) and not (a is None and c is not None)
    rows = vectors[0].shape[0] if vectors else 0
    fitting = rows <= shape.domain and all(v.shape == (rows, 4) for v in vectors)
    if not paired or not fitting or z.shape != (shape.n_wires, 4):
        raise errors.InvalidInput(
            f"a, b, c {given}, z {z.shape}: the key takes up to {shape.domain} rows of a and b, of all three "
            f"or of none, and {shape.n_wires} wires"
        )
    return vectors


@dataclass(frozen=True, eq=False)
class _Delivery:
    """The points that one sum of each upload left, on their way to page-locked memory; there once `arrived` has
    happened.
    """

    phase: str
    group: str
    plan: Plan
    host: Any
    nbytes: int
    arrived: Any


class Batch:
    """The kernels of some uploads of one key, enqueued, and the memory that their window sums come back to."""

    def __init__(self, backend: CudaBackend, uploads: Sequence[CudaUpload]) -> None:
        self.uploads = uploads
        self._backend = backend
        self._key = uploads[0].key
        self._clocks = [Clock(backend.gpu.compute)]
        self._deliveries: list[_Delivery] = []
        self._held = [upload.take() for upload in uploads]  # until the last event
        self._enqueue(parallel_g2=backend.parallel_g2)

    def _enqueue(self, parallel_g2: bool) -> None:
        shape, bases, witnesses = self._key.shape, self._key.bases, [memory.z for memory in self._held]
        quotients = [self._quotient(run) for run in range(len(self.uploads))]
        over_h = [Query("msm_h", "g1", bases["h_g1"])]
        b_g2 = Query("msm_b_g2", "g2", bases["b_g2"])
        over_z = [
            Query("msm_b_g1", "g1", bases["b_g1"]),
            Query("msm_a", "g1", bases["a_g1"]),
            Query("msm_l", "g1", bases["l_g1"], skip=shape.n_public + 1),
        ]
        compute, side = self._backend.gpu.compute, self._backend.gpu.side
        if parallel_g2:
            for upload in self.uploads:
                side.wait(upload.landed)
            self._clocks.append(Clock(side))
            self._clocks[1].begin()
            self._sum(side, self._clocks[1], witnesses, shape.n_wires, [b_g2])
        else:
            over_z.insert(0, b_g2)  # the longest to combine first: that hides behind the others
        self._sum(compute, self._clocks[0], quotients, shape.domain, over_h)
        self._sum(compute, self._clocks[0], witnesses, shape.n_wires, over_z)

    def _quotient(self, run: int) -> Buffer:
        """The scalars of one upload's H sum, in the first column of its buffer."""
        lane, clock, shape = self._backend.gpu.compute, self._clocks[0], self._key.shape
        memory, column = self._held[run], shape.domain * FR_BYTES
        columns = memory.columns
        lane.wait(self.uploads[run].landed)
        clock.begin()
        if columns is None:
            columns = self._evaluate(lane, memory.z, lane.scratch(3 * column))
            clock.mark("spmv", run)
        at, filled = columns.buffer.address, columns.rows * FR_BYTES
        # Here, not beside the copies: clearing is a kernel, and would wait for those of the proof before.
        for i in range(columns.given):
            lane.clear(at + i * column + filled, column - filled)
        transforms = self._backend.transforms(shape.curve, shape.root_family)
        transforms.quotient(at, shape.log_domain, shape.reduction, with_c=columns.given == 3)
        clock.mark("ntt_h", run)
        return columns.buffer

    def _evaluate(self, lane: Lane, z: Buffer, buffer: Buffer) -> Columns:
        """A z and B z."""
        matrices = self._key.matrices
        assert matrices is not None  # the upload looked, and the key has not been closed since
        for i, matrix in enumerate(matrices):
            matrix.multiply(lane, z, buffer.address + i * self._key.shape.domain * FR_BYTES)
        return Columns(buffer, matrices[0].n_rows, len(matrices))

    def _sum(self, lane: Lane, clock: Clock, scalars: list[Buffer], n: int, queries: list[Query]) -> None:
        sums = self._backend.sums(self._key.shape.curve, lane)
        sums.run(scalars, n, queries, clock.mark, partial(self._deliver, lane, clock))

    def _deliver(self, lane: Lane, clock: Clock, query: Query, plan: Plan, points: Buffer) -> None:
        host = cupy.cuda.alloc_pinned_memory(points.nbytes)
        lane.copy_out(host.ptr, points, points.nbytes)
        clock.mark("d2h")
        sent = _Delivery(query.phase, query.group, plan, host, points.nbytes, clock.last)
        self._deliveries.append(sent)  # nothing in it keeps the key's memory

    @property
    def done(self) -> bool:
        """Has the last kernel of each lane ended?"""
        return all(clock.last.done for clock in self._clocks)

    def sums(self, run: int) -> MsmSums:
        """Those of one upload; blocks until they are there, and lets go of the uploads' memory."""
        found: dict[str, U64] = {}
        pending = list(self._deliveries)
        while pending:
            sent = next((s for s in pending if s.arrived.done), pending[0])
            pending.remove(sent)
            sent.arrived.synchronize()
            words = np.frombuffer(sent.host, np.uint64, sent.nbytes // 8).reshape(len(self.uploads), -1)
            point = self._backend.combine(self._key.shape.curve, sent.group, sent.plan, words[run])
            found[SUM_OF_PHASE[sent.phase]] = point
        self._held = []
        upload, anchor = self.uploads[run], self.uploads[-1].anchor
        spans = [upload.span]
        for clock in self._clocks:
            spans += clock.spans(anchor, run, len(self.uploads))
        spans.sort(key=lambda span: span.begin_s)
        return MsmSums(**found, spans=spans, h2d_bytes=upload.h2d_bytes)


class CudaRun:
    """What one upload gets of a batch."""

    def __init__(self, device: Device, batch: Batch, index: int) -> None:
        self._device = device
        self._batch: Batch | None = batch  # until its sums are here
        self._index = index
        self._sums: MsmSums | None = None

    def result(self) -> MsmSums:
        """Block until the sums are there. Raises DeviceFault when the device failed.

        Spans: rows "copy", "compute" and, for a sum that ran beside the others, "compute 2". What a batch of B did for
        all its runs at once appears in each as one B-th of the time, one run's piece after another's (Clock.spans).
        """
        if self._batch is not None:
            with self._device.guard():
                self._sums = self._batch.sums(self._index)
            self._batch = None
        assert self._sums is not None
        return self._sums
