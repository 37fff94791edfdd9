"""One partition on the device, or several of one key at once: upload, kernels, sums.

Problem: the vectors of the next proof should cross while the kernels of this one run, and the host vectors be
free again the moment they have crossed.
Design: a `CudaUpload` enqueues copies on the copy lane into buffers of its own and records an event. A `Batch`
lets the compute lane wait for those of its uploads and enqueues everything up to the copy of the window sums
back, without waiting for anything itself; its uploads share the launches of their multi-scalar sums. A
`CudaRun` is what one upload gets of it: it combines each sum's windows on the host, a few dozen points, as soon
as they are there, beside the kernels of the next sum.
What has been enqueued cannot be called back, and a large proof takes seconds: so a batch is enqueued in steps (a
quotient, the windows that one sum has in one group), all at once where the domain is small, else one ahead of
the step that runs, by whoever waits for a result. When all its runs are cancelled no further step is begun.
Life of the data: the columns a, b (exact rows, zero-filled to the domain here) and c, or room for it, in one
device buffer; a becomes h. Several lanes use it, and the witness, so both live until the batch's last event: the first
result() drops them, and of runs that the caller dropped without asking for a result (which cancels them) the
backend keeps them that long. Columns made on the device are of the compute lane alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
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
from cuzkd.backend.cuda_rows import planes
from cuzkd.backend.cuda_spans import Clock
from cuzkd.backend.protocol import U64, MsmSums, Span

if TYPE_CHECKING:
    from cuzkd.backend.cuda import CudaBackend

# Of a domain, as a logarithm: from here on steps are enqueued one at a time. A proof of 2^21 takes a tenth of a second.
PACED_LOG_DOMAIN = 22
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
    """The kernels of some uploads of one key, enqueued or about to be, and the memory that their window sums come to.

    Lock: over the steps; whoever holds it may wait for the device.
    """

    def __init__(self, backend: CudaBackend, uploads: Sequence[CudaUpload]) -> None:
        self.uploads = uploads
        self._backend = backend
        self._key = uploads[0].key
        self._clocks = [Clock(backend.gpu.compute)]
        self._deliveries: list[_Delivery] = []
        self._held = [upload.take() for upload in uploads]  # until the last event
        self._unwanted: set[int] = set()  # runs that were cancelled
        self._lock = threading.Lock()
        self._failed: errors.CuzkdError | None = None
        self._steps: Iterator[None] | None = self._enqueue(parallel_g2=backend.parallel_g2)
        self._ends: list[Any] = []  # of the steps so far, on the compute lane
        paced = self._key.shape.log_domain >= PACED_LOG_DOMAIN
        while self._steps is not None and not (paced and len(self._ends) == 2):
            self._step()

    def _enqueue(self, parallel_g2: bool) -> Iterator[None]:
        """A step at a time."""
        shape, bases, witnesses = self._key.shape, self._key.bases, [memory.z for memory in self._held]
        quotients = []
        for run in range(len(self.uploads)):
            quotients.append(self._quotient(run))
            yield
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
            for _ in self._sum(side, self._clocks[1], witnesses, shape.n_wires, [b_g2]):
                pass  # at once: it runs beside the others, and nobody waits for its parts
        else:
            over_z.insert(0, b_g2)  # the longest to combine first: that hides behind the others
        yield from self._sum(compute, self._clocks[0], quotients, shape.domain, over_h)
        yield from self._sum(compute, self._clocks[0], witnesses, shape.n_wires, over_z)

    def _step(self) -> None:
        """Enqueue the next step, if there is one."""
        assert self._steps is not None
        if next(self._steps, self) is self:
            self._steps = None
        else:
            self._ends.append(self._clocks[0].last)

    def _go_on(self) -> None:
        """Enqueue all steps that are left, the one after next when one ends, for as long as a run is wanted."""
        with self._lock:
            if self._failed is not None:
                raise errors.from_code(self._failed.code, str(self._failed))
            try:
                with self._backend.gpu.guard():
                    while self._steps is not None and not self.unwanted:
                        self._ends[-2].synchronize()
                        self._step()
            except errors.CuzkdError as error:  # that of all runs
                self._failed = errors.from_code(error.code, str(error))
                self._backend.gpu.drain()  # what has been enqueued works in the memory that is let go now
                self._steps, self._held = None, []
                raise

    @property
    def unwanted(self) -> bool:
        """Have all its runs been cancelled?"""
        return len(self._unwanted) == len(self.uploads)

    def cancel(self, run: int) -> None:
        self._unwanted.add(run)

    def _check(self, run: int) -> None:
        """Raise Cancelled if the run was; of the last one only when the device has done what was enqueued."""
        if run not in self._unwanted:
            return
        if self.unwanted:
            with self._lock:
                for clock in self._clocks:
                    clock.last.synchronize()
                self._steps, self._held = None, []
        raise errors.Cancelled("cancelled while its sums were computed")

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
        matrices, shape = self._key.matrices, self._key.shape
        assert matrices is not None  # the upload looked, and the key has not been closed since
        bits = planes(lane, shape.curve, z, shape.n_wires)
        for i, matrix in enumerate(matrices):
            matrix.multiply(lane, z, buffer.address + i * shape.domain * FR_BYTES, bits)
        return Columns(buffer, matrices[0].n_rows, len(matrices))

    def _sum(
        self, lane: Lane, clock: Clock, scalars: list[Buffer], n: int, queries: list[Query]
    ) -> Iterator[None]:
        sums = self._backend.sums(self._key.shape.curve, lane)
        return sums.steps(scalars, n, queries, clock.mark, partial(self._deliver, lane, clock))

    def _deliver(self, lane: Lane, clock: Clock, query: Query, plan: Plan, points: Buffer) -> None:
        host = lane.device.locked(points.nbytes)
        lane.copy_out(host.ptr, points, points.nbytes)
        clock.mark("d2h")
        sent = _Delivery(query.phase, query.group, plan, host, points.nbytes, clock.last)
        self._deliveries.append(sent)  # nothing in it keeps the key's memory

    def settle(self) -> bool:
        """Has the last kernel of each lane ended, and comes no other? Its memory is let go then."""
        over = (self._steps is None or self.unwanted) and all(clock.last.done for clock in self._clocks)
        if over:
            self._steps, self._held = None, []
        return over

    def sums(self, run: int) -> MsmSums:
        """Those of one upload; blocks until they are there, and lets go of the uploads' memory."""
        self._check(run)
        self._go_on()
        self._check(run)  # steps are missing if it was cancelled meanwhile
        found: dict[str, U64] = {}
        pending = list(self._deliveries)
        while pending:
            sent = next((s for s in pending if s.arrived.done), pending[0])
            pending.remove(sent)
            sent.arrived.synchronize()
            self._check(run)
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

    def cancel(self) -> None:
        """result() ends with the step that runs, and the one that is enqueued behind it."""
        batch = self._batch
        if batch is not None:
            batch.cancel(self._index)

    def __del__(self) -> None:
        self.cancel()  # nobody can ask for its sums any more

    def result(self) -> MsmSums:
        """Block until the sums are there. Raises DeviceFault when the device failed, Cancelled after cancel().

        Spans: rows "copy", "compute" and, for a sum that ran beside the others, "compute 2". What a batch of B did for
        all its runs at once appears in each as one B-th of the time, one run's piece after another's (Clock.spans).
        """
        if self._batch is not None:
            with self._device.guard():
                self._sums = self._batch.sums(self._index)
            self._batch = None
        assert self._sums is not None
        return self._sums
