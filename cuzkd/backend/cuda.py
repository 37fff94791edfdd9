"""The CUDA backend: a proof's transforms and sums on one GPU.

Problem: the engine knows keys, uploads and runs; a device knows streams, memory and kernels.
Design: `CudaBackend` puts together what the files beside it make: lanes and memory (cuda_device.py), keys and
matrices (cuda_key.py, cuda_rows.py), uploads, launches and results (cuda_run.py), transforms (cuda_ntt.py) and
multi-scalar sums (cuda_msm.py). `upload` goes to the copy lane, `launch` enqueues behind it on the compute lane (of a
large proof the first steps; the others follow in result()) and waits for nothing. The first use of a domain or a curve
makes tables and loads kernels; `prepare` does that ahead of it, and load_key calls it. With `parallel_g2` the G2 sum
runs on the side lane beside the others, on lists of its own.
Life of the data: cuda_run.py.
What memory that takes, for any key: cuda_plan.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from math import prod
from pathlib import Path

import numpy as np

from cuzkd import errors
from cuzkd.backend import cpu, cuda_ops, nvrtc
from cuzkd.backend.cuda_density import thin_out
from cuzkd.backend.cuda_device import Buffer, Device, DeviceMemory, Lane, register_host, unregister_host
from cuzkd.backend.cuda_key import CudaKey, shape_alone
from cuzkd.backend.cuda_msm import Plan, Query, Sums, Table
from cuzkd.backend.cuda_ntt import FR_BYTES, Transforms
from cuzkd.backend.cuda_plan import MARGIN, DryRun, MemoryPlan, plan_for, with_table
from cuzkd.backend.cuda_receiver import CudaReceiver
from cuzkd.backend.cuda_ring import Ring
from cuzkd.backend.cuda_rows import WIRE_BITS, DeviceMatrix, packed_bytes
from cuzkd.backend.cuda_run import Batch, CudaRun
from cuzkd.backend.cuda_stream import Parking
from cuzkd.backend.cuda_tables import resident_table
from cuzkd.backend.cuda_upload import CudaUpload
from cuzkd.backend.protocol import U64, KeyArrays, KeyShape, SparseMatrix, Vram
from cuzkd.curves.params import CURVES

__all__ = ["CudaBackend", "CudaKey", "CudaRun", "CudaUpload", "Ring", "register_host", "unregister_host"]

# Of a circuit: below, the processor makes a and b in less time than three more launches take. Not measured yet.
EVALUATED_ROWS = 1 << 14
# Bytes that a lane keeps beside what was planned: small buffers take more than they are asked for.
ROUNDING = 64 << 10


class CudaBackend:
    """backend.protocol.Backend on one GPU; see there for what each method takes and gives.

    limit_bytes: device memory that it uses at most; 0: what is free now. parallel_g2: the G2 sum of B beside the other
    sums of its proof, on a second stream, where there is room. Read at every launch. tables: the H query of a key
    becomes a table where there is room, and it helps.
    """

    name = "cuda"
    in_place = False
    scratch_c = False
    takes_pieces = True

    def __init__(
        self,
        index: int = 0,
        cache_dir: Path | None = None,
        *,
        parallel_g2: bool = True,
        limit_bytes: int = 0,
        tables: bool = True,
    ) -> None:
        self.gpu = Device(index, cache_dir, limit_bytes)
        self.device = self.gpu.uuid
        self.device_name = self.gpu.name
        self.vram_total_bytes = self.gpu.total_bytes
        self.parallel_g2 = parallel_g2
        self.tables = tables
        self._dry_run = lru_cache(maxsize=16)(lambda shape: DryRun(shape, self.gpu))
        self._lock = threading.Lock()  # over the three below
        self._transforms: dict[tuple[str, int], Transforms] = {}
        self._sums: dict[tuple[str, str, int], Sums] = {}
        self._in_flight: list[Batch] = []

    def transforms(self, curve: str, root_family: int) -> Transforms:
        """Those of the compute lane."""
        with self._lock:
            made = Transforms(self.gpu.compute, curve, root_family)
            return self._transforms.setdefault((curve, root_family), made)

    def sums(self, curve: str, lane: Lane, group_bytes: int = 0) -> Sums:
        """group_bytes: those of Sums, or its own choice."""
        with self._lock:
            sums = self._sums.get((curve, lane.name, group_bytes))
            if sums is None:
                sums = self._sums[curve, lane.name, group_bytes] = Sums(lane, curve)
                sums.group_bytes = group_bytes or sums.group_bytes
            return sums

    def combine(self, curve: str, group: str, left: Sequence[tuple[Plan, U64]]) -> U64:
        """What Sums.run left of one sum, or of its parts, as one affine point: each point doubled as often as its plan
        says, and all added up.

        words: plan.points affine points. Done on the host, whose processors double points far sooner.
        """
        lq = CURVES[curve].fq_limbs
        shape = (2, lq) if group == "g1" else (2, 2, lq)
        points = np.concatenate([words.reshape(plan.points, *shape) for plan, words in left])
        times = np.array([times for plan, _ in left for times in plan.doublings], np.uint32)
        return cpu.sum_of_doublings(curve, group, points, times)

    def memory(self) -> DeviceMemory:
        """Of the device, now."""
        with self.gpu.guard():
            return self.gpu.memory()

    def vram(self) -> Vram:
        """Asks CUDA: DeviceFault once it has failed for good."""
        memory = self.memory()
        return Vram(memory.free_bytes, memory.total_bytes)

    def trim(self) -> None:
        with self.gpu.guard():
            self.gpu.free_unused()

    def planned_bytes(self, key: CudaKey, uploads: int) -> int:
        """Device memory that a stream of proofs with this key takes, `uploads` of them there at a time. CUDA's own few
        hundred megabytes are not in it.
        """
        plan = key.plan or self._dry_run(key.shape).of(MemoryPlan(uploads, self.parallel_g2))
        return replace(plan, uploads=min(uploads, plan.uploads)).total_bytes

    def _plan(
        self, shape: KeyShape, matrix_bytes: int | None = None, table: Table | None = None
    ) -> MemoryPlan:
        return plan_for(self._dry_run(shape), self.gpu.room_bytes, self.parallel_g2, matrix_bytes, table)

    def _reserve(self, plan: MemoryPlan, uploads: int | None = None) -> None:
        """Have every lane keep what a proof takes, so that none asks for memory any more; uploads: for so many."""
        gpu, crossing = self.gpu, plan.upload_bytes * (plan.uploads if uploads is None else uploads)
        needs = (gpu.compute, plan.scratch_bytes), (gpu.side, plan.side_bytes), (gpu.copy, crossing)
        for lane, nbytes in needs:
            if nbytes:
                lane.reserve(nbytes + nbytes // MARGIN + ROUNDING)

    def plan_within(self, nbytes: int) -> None:
        """As if the device had so much memory: keys are planned for it from now on. Called when none is in use."""
        gpu = self.gpu
        with gpu.guard():
            gpu.drain()
            with self._lock:
                self._transforms, self._sums = {}, {}
            self._dry_run.cache_clear()
            gpu.limit_bytes = gpu.total_bytes = gpu.room_bytes = nbytes

    def stay_within(self) -> None:
        """Refuse memory beyond that."""
        with self.gpu.guard():
            self.gpu.pool.set_limit(size=self.gpu.limit_bytes)

    # -- keys --

    def vector_rows(self, key: KeyShape) -> int:
        return key.n_rows or key.domain

    def warm_up(self, curve: str) -> None:
        with self.gpu.guard():
            self.gpu.load(nvrtc.proving_modules(curve))

    def prepare(self, key: KeyShape) -> None:
        """Compile what a proof with such a key runs and make its domain's tables, so that no proof waits for them."""
        self.warm_up(key.curve)
        with self.gpu.guard():
            with self.gpu.compute.lasting():
                self.transforms(key.curve, key.root_family).prepare(key.log_domain)
            self.gpu.free_resident()  # a smaller table that was there before

    def load_key(self, key: KeyArrays) -> CudaKey:
        """Prepared, too, and with all memory that its proofs will take. A key that would not fit if it were alone is
        streamed: it keeps those arrays that are not on the device, page-locked.

        InvalidKey when its shapes disagree, NeverFits when the device is too small for any such proof, Exhausted when
        it has too little memory left.
        """
        cpu.check_key(key)
        return self._receive(key, key).finish()

    def adopt(self, key: CudaKey) -> CudaKey:
        """A key that was made on this device, as load_key would have left it. The one given is used up."""
        self.prepare(key.shape)
        with self.gpu.guard():
            plan = self._planned(key.shape)
            if plan.streamed:
                raise errors.NeverFits(f"a key made on the device does not fit it: {plan.total_bytes} bytes")
            adopted = self._finish(key.shape, plan, key.bases, {}, lambda: None)
            self.gpu.free_unused()  # what its making left, and the points that were taken out of it
            self._reserve(plan)
            return adopted

    def receive(self, key: KeyShape) -> CudaReceiver:
        return self._receive(key, None)

    def kept_bytes(self, key: KeyShape) -> int:
        plan = self._plan(shape_alone(key))
        parked = FR_BYTES * key.n_wires if plan.parked else 0
        return parked + sum(8 * prod(key.shape_of(query)) for query in plan.streamed)

    def _receive(self, key: KeyShape, whole: KeyArrays | None) -> CudaReceiver:
        self.prepare(key)
        shape = shape_alone(key)
        return CudaReceiver(self.gpu, shape, self._planned(shape), self._finish, whole)

    def _planned(self, shape: KeyShape) -> MemoryPlan:
        """With a table where there is room for one."""
        plan = self._plan(shape)
        return with_table(self._dry_run(shape), plan, self.gpu.room_bytes) if self.tables else plan

    def _finish(
        self,
        shape: KeyShape,
        plan: MemoryPlan,
        bases: dict[str, Buffer],
        host: dict[str, U64],
        undo: Callable[[], None],
        parking: Parking | None = None,
    ) -> CudaKey:
        """All points have come. Without the table where others have its room."""
        densities = {} if plan.streamed else thin_out(self.gpu, shape, bases)
        if plan.table is not None:
            bits, points = CURVES[shape.curve].r.bit_length(), bases["h_g1"]
            try:
                bases["h_g1"] = resident_table(
                    self.gpu, shape.curve, "g1", points, shape.domain, bits, plan.table
                )
            except errors.Exhausted:
                plan = self._plan(shape)
            del points
            self.gpu.free_resident()
        tables = {} if plan.table is None else {"h_g1": plan.table}
        self._reserve(plan)
        return CudaKey(self.gpu, shape, bases, plan, host, undo, densities, tables, parking)

    def attach_matrices(self, key: CudaKey, a: SparseMatrix, b: SparseMatrix) -> None:
        """Keep the constraint matrices A and B beside the key, so that z alone need travel (upload of None, None).

        InvalidKey when they do not fit the key or each other, or an index is out of bounds.
        """
        shape, sizes = key.shape, [(m.n_rows, m.n_cols) for m in (a, b)]
        if sizes[0] != sizes[1] or a.n_rows > shape.domain or a.n_cols != shape.n_wires:
            raise errors.InvalidKey(
                f"matrices of (rows, columns) {sizes}: the key takes up to {shape.domain} rows, "
                f"as many of A as of B, and {shape.n_wires} columns"
            )
        if key.parking is not None:
            raise errors.Exhausted(
                "device memory: there is no room for matrices beside a proof with this key"
            )
        with self.gpu.guard():
            self.gpu.load([nvrtc.Module("rows", shape.curve)])
            key.attach(*(DeviceMatrix.of(shape.curve, m, self.gpu) for m in (a, b)))

    def keep_matrices(self, key: CudaKey, a: SparseMatrix, b: SparseMatrix) -> bool:
        """attach_matrices, where the product is more than its launches and the device has room for it."""
        if a.n_rows < EVALUATED_ROWS or a.n_cols > 1 << WIRE_BITS or key.streamed:
            return False
        before = key.plan
        try:
            plan = self._plan(key.shape, packed_bytes(a) + packed_bytes(b), key.tables.get("h_g1"))
        except errors.NeverFits:
            return False
        try:
            self.attach_matrices(key, a, b)
            with self.gpu.guard():
                self.gpu.free_unused()  # what was kept for vectors that are not going to cross
                self._reserve(plan)
        except errors.Exhausted:
            key.detach()
            with self.gpu.guard():
                self.gpu.free_unused()
                if before is not None:
                    self._reserve(before)
            return False
        key.plan = plan
        return True

    def detach_matrices(self, key: CudaKey) -> None:
        """Give that memory back. A run in flight on them must have ended."""
        key.detach()

    # -- proving --

    def upload(
        self, key: CudaKey, a: U64 | None, b: U64 | None, c: U64 | None, z: U64, *, ring: Ring | None = None
    ) -> CudaUpload:
        """ring: by way of it, from any host memory; all has landed on return then.

        InvalidInput when the vectors do not fit the key, or a and b are None and the key has no matrices.
        """
        with self.gpu.guard():
            self._settle(last=key.one_at_a_time)
            return CudaUpload(self.gpu, key, a, b, c, z, ring)

    def launch(self, upload: CudaUpload) -> CudaRun:
        return self.launch_batch([upload])[0]

    def launch_batch(self, uploads: Sequence[CudaUpload]) -> list[CudaRun]:
        """Launch several partitions of one key: their quotients one after another, their sums together.

        The results are their own, and all there at once. InvalidInput when there are no uploads, one is there twice, or
        their keys differ.
        """
        if not uploads or len(set(map(id, uploads))) < len(uploads):
            raise errors.InvalidInput(f"a batch of {len(uploads)}: expected one upload or more, each once")
        if any(upload.key is not uploads[0].key for upload in uploads):
            raise errors.InvalidInput(f"a batch of {len(uploads)}: expected uploads for one key")
        if not all(upload.launchable for upload in uploads):
            raise errors.Unavailable("nothing to launch: the upload was launched already, or its key closed")
        with self.gpu.guard():
            free, plan = self._settle(), uploads[0].key.plan
            try:
                if free and plan is not None:
                    # What lanes kept may have been given up; without it the batch asks for piece after piece.
                    with suppress(errors.Exhausted):
                        self._reserve(plan, uploads=0)
                batch = Batch(self, tuple(uploads))
            except BaseException:
                self.gpu.drain()  # what has been enqueued works in the memory that is let go now
                raise
            with self._lock:
                self._in_flight.append(batch)
        return [CudaRun(self.gpu, batch, i) for i in range(len(uploads))]

    def _settle(self, last: bool = False) -> bool:
        """Let go of the memory of runs that have ended and, to uploads behind their kernels, of those that others
        follow (last: of the last one, too). Is nothing of what lanes keep in use?
        """
        with self._lock:
            self._in_flight = [batch for batch in self._in_flight if not batch.settle()]
            for batch in self._in_flight if last else self._in_flight[:-1]:
                batch.yield_to(self.gpu.copy)
            return all(batch.enqueued for batch in self._in_flight)

    def close(self) -> None:
        """Wait for what is in flight and give all memory back."""
        with self.gpu.guard():
            self.gpu.drain()
            with self._lock:
                self._in_flight, self._transforms, self._sums = [], {}, {}
            self.gpu.free_unused()

    # -- plain operations --

    def field_op(self, curve: str, fld: str, op: str, a: U64, b: U64 | None = None) -> U64:
        with self.gpu.guard():
            return cuda_ops.field_op(self.gpu.compute, curve, fld, op, a, b)

    def point_op(self, curve: str, group: str, op: str, p: U64, q: U64 | None = None) -> U64:
        with self.gpu.guard():
            return cuda_ops.point_op(self.gpu.compute, curve, group, op, p, q)

    def scalar_mul(self, curve: str, group: str, points: U64, scalars: U64) -> U64:
        with self.gpu.guard():
            return cuda_ops.scalar_mul(self.gpu.compute, curve, group, points, scalars)

    def spmv(self, curve: str, matrix: SparseMatrix, z: U64) -> U64:
        with self.gpu.guard():
            return cuda_ops.spmv(self.gpu.compute, curve, matrix, z)

    def ntt(
        self, curve: str, values: U64, root_family: int, *, inverse: bool = False, shift: int | None = None
    ) -> U64:
        with self.gpu.guard():
            return self.transforms(curve, root_family).transform(values, inverse, shift)

    def quotient(self, curve: str, a: U64, b: U64, root_family: int, reduction: str = "circom") -> U64:
        with self.gpu.guard():
            n, lane = len(a), self.gpu.compute
            vectors = lane.scratch(3 * n * FR_BYTES)
            for i, part in enumerate((a, b)):
                lane.copy_in(vectors.address + i * n * FR_BYTES, np.ascontiguousarray(part))
            self.transforms(curve, root_family).quotient(vectors.address, n.bit_length() - 1, reduction)
            return lane.get(vectors, (n, 4))

    def msm(self, curve: str, group: str, bases: U64, scalars: U64) -> U64:
        if len(bases) == 0:
            return np.zeros(bases.shape[1:], np.uint64)
        with self.gpu.guard():
            lane = self.gpu.compute
            query = Query("msm", group, lane.put(bases))
            found: list[U64] = []

            def deliver(_: Query, plan: Plan, points: Buffer) -> None:
                words = lane.get(points, (points.nbytes // 8,))
                found.append(self.combine(curve, group, [(plan, words)]))

            how = ([lane.put(scalars)], len(scalars), [query], lambda _: None, deliver)
            self.sums(curve, lane).run(*how, counted=True)
            return found[0]
