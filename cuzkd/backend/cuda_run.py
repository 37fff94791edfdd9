"""One partition on the device, or several of one key at once: kernels, and what they sum to.

Problem: the kernels of a large proof take seconds, cannot be called back once they are enqueued, and nobody may wait
for them but whoever wants the result.
Design: a `Batch` lets the compute lane wait for its uploads (cuda_upload.py) and enqueues everything up to the copy of
the window sums back, without waiting for anything itself; its uploads share the launches of their multi-scalar sums. A
`CudaRun` is what one upload gets of it: it combines the points that each sum left, on the host, as soon as they are
there, beside the kernels of the next sum (cuda_arrivals.py).
A batch is enqueued in steps (a quotient, the windows that one sum has in one group), all at once where the domain is
small, else one ahead of the step that runs, by whoever waits for a result. When all its runs are cancelled no further
step is begun. While its last sum runs the next batch may be launched, so that the device finds its kernels when it is
through with these.
Life of the data: the columns a, b (exact rows, zero-filled to the domain here) and c, or room for it, in one device
buffer; a becomes h, and where the key is streamed its points pass through the other two (cuda_stream.py). Several lanes
use it, and the witness, so both live until the batch's last event: the first result() drops them, and of runs that the
caller dropped without asking for a result (which cancels them) the backend keeps them that long. Columns made on the
device are of the compute lane alone. What is uploaded while two batches are in flight takes the older one's memory,
and on the copy lane waits for the end of its kernels (yield_to).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzkd import errors
from cuzkd.backend.cuda_arrivals import Arrivals
from cuzkd.backend.cuda_device import Buffer, Device, Lane
from cuzkd.backend.cuda_msm import Classified, Query, Sums
from cuzkd.backend.cuda_ntt import FR_BYTES
from cuzkd.backend.cuda_rows import planes
from cuzkd.backend.cuda_spans import Clock
from cuzkd.backend.cuda_stream import ALIGNED, OVER_Z, SLOTS, Chunk, Conveyor, Parked, chunks, point_bytes
from cuzkd.backend.cuda_upload import Columns, CudaUpload
from cuzkd.backend.protocol import U64, MsmSums, nothing

if TYPE_CHECKING:
    from cuzkd.backend.cuda import CudaBackend

# Of a domain, as a logarithm: from here on steps are enqueued one at a time. A proof of 2^21 takes a tenth of a second.
PACED_LOG_DOMAIN = 22
PHASES = {"h_g1": "msm_h", "l_g1": "msm_l", "a_g1": "msm_a", "b_g1": "msm_b_g1", "b_g2": "msm_b_g2"}
SUM_OF_PHASE = {phase: query for query, phase in PHASES.items()}


class Batch:
    """The kernels of some uploads of one key, enqueued or about to be, and the memory that their window sums come to.

    paced: a step is enqueued when the one before the last has ended; by default, where the domain is large.
    Lock: over the steps; whoever holds it may wait for the device.
    """

    def __init__(
        self, backend: CudaBackend, uploads: Sequence[CudaUpload], paced: bool | None = None
    ) -> None:
        self.uploads = uploads
        self._backend = backend
        self._key = uploads[0].key
        self._clocks = [Clock(backend.gpu.compute)]
        self._arrivals = Arrivals(backend, self._key.shape.curve)
        self._held = [upload.take() for upload in uploads]  # until the last event
        self._unwanted: set[int] = set()  # runs that were cancelled
        self._lock = threading.Lock()
        self._failed: errors.CuzkdError | None = None
        self._brought: list[Any] = []  # the event of the last points of the key that were sent for
        plan = self._key.plan
        beside = backend.parallel_g2 and (plan is None or plan.parallel_g2)
        self._steps: Iterator[None] | None = self._enqueue(parallel_g2=beside)
        self._ends: list[Any] = []  # of the steps so far, on the compute lane
        paced = self._key.shape.log_domain >= PACED_LOG_DOMAIN if paced is None else paced
        while self._steps is not None and not (paced and len(self._ends) == 2):
            self._step()

    def _enqueue(self, parallel_g2: bool) -> Iterator[None]:
        """A step at a time."""
        shape, compute, side = self._key.shape, self._backend.gpu.compute, self._backend.gpu.side
        # A parked one comes later.
        witnesses = [memory.z for memory in self._held if isinstance(memory.z, Buffer)]
        quotients: list[Buffer] = []
        over_z: list[tuple[Lane, Clock, list[Query], Classified]] = []
        if not self._key.streamed:
            queries = [self._query(name) for name in OVER_Z]
            if parallel_g2:
                self._clocks.append(Clock(side))
                beside = [q for q in queries if q.density and q.density is queries[0].density] or queries[:1]
                queries = queries[len(beside) :]  # B1 shares B2's lists where these are not those of A and L
                over_z.append(self._classify(side, self._clocks[1], witnesses, beside))
            over_z.append(self._classify(compute, self._clocks[0], witnesses, queries))
        for run in range(len(self.uploads)):
            quotients.append(self._quotient(run))
            yield
        if self._key.streamed:
            yield from self._enqueue_chunks(quotients, witnesses)
            return
        if parallel_g2:
            lane, clock, queries, classified = over_z.pop(0)
            for _ in self._sum(lane, clock, witnesses, shape.n_wires, queries, classified):
                pass  # at once: it runs beside the others, and nobody waits for its parts
        yield from self._sum(compute, self._clocks[0], quotients, shape.domain, [self._query("h_g1")])
        lane, clock, queries, classified = over_z.pop(0)
        yield from self._sum(lane, clock, witnesses, shape.n_wires, queries, classified)

    def _classify(
        self, lane: Lane, clock: Clock, witnesses: list[Buffer], queries: list[Query]
    ) -> tuple[Lane, Clock, list[Query], Classified]:
        """The first that is enqueued: what the witnesses are like has come to the host when their sums are planned."""
        for upload in self.uploads:
            lane.wait(upload.landed)
        clock.begin()
        classified = self._sums(lane).classify(witnesses, self._key.shape.n_wires, queries)
        clock.mark("prep_msm")
        return lane, clock, queries, classified

    def _query(self, name: str) -> Query:
        """Over all of its scalars."""
        skip = self._key.shape.n_public + 1 if name == "l_g1" else 0
        density, table = self._key.densities.get(name), self._key.tables.get(name)
        return Query(PHASES[name], _group(name), self._key.bases[name], skip, density, table)

    def _enqueue_chunks(self, quotients: list[Buffer], witnesses: list[Buffer]) -> Iterator[None]:
        """The sums of a key whose points are not all on the device: as many chunks ahead as there are buffers."""
        assert self._key.plan is not None  # what is streamed was planned to be
        gpu, slot_bytes = self._backend.gpu, self._key.plan.slot_bytes
        column = self._key.shape.domain * FR_BYTES
        spare = quotients[0].slice(column, 2 * column)  # of the other two columns nothing is wanted any more
        if not witnesses:
            parked, spare = (
                spare.slice(0, self._parked_bytes),
                spare.slice(self._parked_bytes, spare.nbytes - self._parked_bytes),
            )
            self._bring_parked(parked)
            witnesses = [parked]
        if SLOTS * slot_bytes > spare.nbytes:
            spare = gpu.compute.scratch(SLOTS * slot_bytes)
        slots = [spare.slice(i * slot_bytes, slot_bytes) for i in range(SLOTS)]
        conveyor = Conveyor(gpu.keys, gpu.compute, slots)
        coming: deque[tuple[Chunk, dict[str, Buffer], int, Any]] = deque()
        for chunk in self._chunks(slot_bytes):
            coming.append((chunk, *conveyor.bring(self._passing(chunk))))
            self._brought = [coming[-1][-1]]
            if len(coming) == SLOTS - 1:
                yield from self._chunk(conveyor, quotients, witnesses, *coming.popleft())
        while coming:
            yield from self._chunk(conveyor, quotients, witnesses, *coming.popleft())

    @property
    def _parked_bytes(self) -> int:
        return -(-FR_BYTES * self._key.shape.n_wires // ALIGNED) * ALIGNED

    def _bring_parked(self, into: Buffer) -> None:
        """The witness, to where kernels that are enqueued by now leave room for it."""
        gpu, (memory,) = self._backend.gpu, self._held
        assert isinstance(memory.z, Parked)
        gpu.keys.wait(gpu.compute.event())
        gpu.keys.copy_in(into.address, memory.z.array)
        landed = gpu.keys.event()
        self._brought = [landed]
        gpu.compute.wait(landed)

    def _chunks(self, slot_bytes: int) -> Iterator[Chunk]:
        return chunks(self._key.shape, self._key.streamed, slot_bytes)

    def _passing(self, chunk: Chunk) -> dict[str, U64]:
        host = self._key.host
        return {p.query: host[p.query][p.first : p.first + p.count] for p in chunk.pieces if p.query in host}

    def _chunk(
        self,
        conveyor: Conveyor,
        quotients: list[Buffer],
        witnesses: list[Buffer],
        chunk: Chunk,
        there: dict[str, Buffer],
        slot: int,
        landed: Any,
    ) -> Iterator[None]:
        compute, clock = self._backend.gpu.compute, self._clocks[0]
        compute.wait(landed)
        clock.begin()
        queries = []
        for piece in chunk.pieces:
            bases = there.get(piece.query)
            if bases is None:
                size = point_bytes(self._key.shape, piece.query)
                bases = self._key.bases[piece.query].slice(piece.first * size, piece.count * size)
            queries.append(Query(PHASES[piece.query], _group(piece.query), bases, skip=piece.skip))
        at, nbytes = chunk.begin * FR_BYTES, chunk.count * FR_BYTES
        scalars = [whole.slice(at, nbytes) for whole in (quotients if chunk.over_h else witnesses)]
        yield from self._sum(compute, clock, scalars, chunk.count, queries)
        conveyor.release(slot)

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
            except BaseException as error:  # that of all runs
                known = error if isinstance(error, errors.CuzkdError) else errors.CuzkdError(repr(error))
                self._failed = errors.from_code(known.code, str(known))
                try:
                    self._backend.gpu.drain()  # what has been enqueued works in the memory that is let go now
                finally:
                    self._steps, self._held = None, []
                raise

    @property
    def enqueued(self) -> bool:
        """To the last step: then it keeps nothing of what lanes have for their work."""
        return self._steps is None

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
                last = self._last
            for event in last:
                event.synchronize()
            with self._lock:
                self._steps, self._held = None, []
        raise errors.Cancelled("cancelled while its sums were computed")

    @property
    def _last(self) -> list[Any]:
        """When all of these have happened, nothing of what was enqueued works any more."""
        return [*(clock.last for clock in self._clocks), *self._brought]

    def _quotient(self, run: int) -> Buffer:
        """The scalars of one upload's H sum, in the first column of its buffer."""
        lane, clock, shape = self._backend.gpu.compute, self._clocks[0], self._key.shape
        memory, column = self._held[run], shape.domain * FR_BYTES
        columns = memory.columns
        lane.wait(self.uploads[run].landed)
        clock.begin()
        if columns is None:
            assert isinstance(memory.z, Buffer)  # no matrices beside a parked witness
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

    def _sums(self, lane: Lane) -> Sums:
        plan = self._key.plan
        return self._backend.sums(self._key.shape.curve, lane, plan.group_bytes if plan else 0)

    def _sum(
        self,
        lane: Lane,
        clock: Clock,
        scalars: list[Buffer],
        n: int,
        queries: list[Query],
        classified: Classified | None = None,
    ) -> Iterator[None]:
        deliver = partial(self._arrivals.deliver, lane, clock)
        return self._sums(lane).steps(scalars, n, queries, clock.mark, deliver, classified)

    def settle(self) -> bool:
        """Has the last kernel of each lane ended, and comes no other? Its memory is let go then. Waits for nothing."""
        if not self._lock.acquire(blocking=False):  # somebody is about to enqueue a step
            return False
        try:
            over = (self._steps is None or self.unwanted) and all(event.done for event in self._last)
            if over:
                self._steps, self._held = None, []
            return over
        finally:
            self._lock.release()

    def yield_to(self, lane: Lane) -> None:
        """Let go of the uploads' memory now, unless more is to be enqueued: what this lane is given from now on runs
        after the last kernel. Of what the host writes that does not hold, so a parked witness stays. Waits for nothing.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._held and self.enqueued and not any(isinstance(m.z, Parked) for m in self._held):
                for event in self._last:
                    lane.wait(event)
                self._held = []
        finally:
            self._lock.release()

    def sums(self, run: int, device_free: Callable[[], None]) -> MsmSums:
        """Those of one upload; blocks until they are there, and lets go of the uploads' memory."""
        self._check(run)
        self._go_on()
        self._check(run)  # steps are missing if it was cancelled meanwhile
        compute, runs = self._backend.gpu.compute, len(self.uploads)
        last = nothing if self._key.one_at_a_time else device_free
        arrived = self._arrivals.points(compute, run, runs, partial(self._check, run), last)
        found = {SUM_OF_PHASE[phase]: point for phase, point in arrived.items()}
        shape = self._key.shape
        for name in PHASES.keys() - found.keys():
            points = shape.shape_of(name)
            if points[0]:
                raise errors.CuzkdError(f"{name}: a sum over {points[0]} points was never enqueued")
            found[name] = np.zeros(points[1:], np.uint64)
        self._held = []
        upload, anchor = self.uploads[run], self.uploads[-1].anchor
        spans = [upload.span]
        for clock in self._clocks:
            spans += clock.spans(anchor, run, runs)
        spans.sort(key=lambda span: span.begin_s)
        return MsmSums(**found, spans=spans, h2d_bytes=upload.h2d_bytes)


def _group(query: str) -> str:
    return "g2" if query == "b_g2" else "g1"


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

    def result(self, device_free: Callable[[], None] = nothing) -> MsmSums:
        """Block until the sums are there. Raises DeviceFault when the device failed, Cancelled after cancel().

        Spans: rows "copy", "compute" and, for a sum that ran beside the others, "compute 2". What a batch of B did for
        all its runs at once appears in each as one B-th of the time, one run's piece after another's (Clock.spans).
        """
        if self._batch is not None:
            with self._device.guard():
                self._sums = self._batch.sums(self._index, device_free)
            self._batch = None
        assert self._sums is not None
        return self._sums
