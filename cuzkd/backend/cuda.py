"""The CUDA backend: a proof's transforms and sums on one GPU.

Problem: the vectors of the next proof should cross while the kernels of this one run, and the host vectors be
free again the moment they have crossed.
Design: `upload` enqueues copies on the copy stream into buffers of the proof's own and records an event;
`launch` lets the compute stream wait for that event and enqueues everything up to the copy of the window sums
back, without waiting for anything itself (its first use of a domain or a curve makes tables and loads
kernels; load_key does that ahead of it). `Run.result` combines each sum's windows on the host, a few dozen
points, as soon as they are there, beside the kernels of the next sum.
Life of the data: a, b (exact rows, zero-filled to the domain here) and room for c in one device buffer; a
becomes h. Both streams use it, so it lives until the run's last event: result() drops it, and of a run that
the caller dropped without asking for its result the backend keeps it that long.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from cuzkd import errors
from cuzkd.backend import cpu, cuda_ops, nvrtc
from cuzkd.backend.cuda_device import Buffer, Device, register_host, unregister_host
from cuzkd.backend.cuda_msm import Plan, Query, Sums
from cuzkd.backend.cuda_ntt import FR_BYTES, Transforms
from cuzkd.backend.protocol import U64, KeyArrays, MsmSums, SparseMatrix
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES

__all__ = ["CudaBackend", "register_host", "unregister_host"]

SUM_OF_PHASE = {"msm_h": "h_g1", "msm_l": "l_g1", "msm_a": "a_g1", "msm_b_g1": "b_g1", "msm_b_g2": "b_g2"}
QUERIES = tuple(SUM_OF_PHASE.values())


class CudaKey:
    """A key in device memory."""

    def __init__(self, device: Device, arrays: KeyArrays) -> None:
        self.arrays = arrays
        buffers = device.put_resident([getattr(arrays, name) for name in QUERIES])
        self.bases: dict[str, Buffer] = dict(zip(QUERIES, buffers, strict=True))
        self.resident_bytes = sum(b.nbytes for b in buffers)
        self._device = device

    def close(self) -> None:
        """Give the device memory back. Idempotent; a run in flight on it must have ended."""
        self.bases = {}
        with self._device.guard():
            self._device.free_unused()


class CudaUpload:
    """a, b and z of one partition on their way into two device buffers: a, b and room for c; z."""

    def __init__(self, device: Device, key: CudaKey, a: U64, b: U64, z: U64) -> None:
        arrays, rows = key.arrays, len(a)
        if rows > arrays.domain or a.shape != b.shape or len(z) != arrays.n_wires:
            raise errors.InvalidInput(
                f"a {a.shape}, b {b.shape}, z {z.shape}: the key takes up to {arrays.domain} rows "
                f"and {arrays.n_wires} wires"
            )
        self.key = key
        self._device = device
        self._hosts: tuple[U64, ...] = (a, b, z)  # alive until their copies have landed
        column = arrays.domain * FR_BYTES
        vectors = device.allocate(3 * column, device.copy)
        scalars = device.allocate(z.nbytes, device.copy)
        self.buffers: tuple[Buffer, Buffer] | None = vectors, scalars  # until the run has ended
        self.began, self.landed = cupy.cuda.Event(), cupy.cuda.Event(block=True)
        self.began.record(device.copy)
        for at, part in ((vectors.address, a), (vectors.address + column, b)):
            device.copy_in(at, part, device.copy)
        device.copy_in(scalars.address, z, device.copy)
        self.landed.record(device.copy)
        self.h2d_bytes = a.nbytes + b.nbytes + z.nbytes
        # (address, bytes) after the rows of a and of b. Cleared at launch: clearing is a kernel, and on the copy stream
        # it would wait for those of the proof before, and the copies behind it.
        self.padding = [(vectors.address + i * column + a.nbytes, column - a.nbytes) for i in range(2)]

    def wait(self) -> None:
        """Block until the copies have landed; the host arrays may be reused then."""
        with self._device.guard():
            self.landed.synchronize()
        self._hosts = ()


class _Clock:
    """Events on the compute stream between phases; what lies between two is the phase named at the second."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._marks: list[tuple[str, Any]] = []
        self.mark("")

    def mark(self, phase: str) -> None:
        event = cupy.cuda.Event(block=True)
        event.record(self._stream)
        self._marks.append((phase, event))

    @property
    def last(self) -> Any:
        return self._marks[-1][1]

    def seconds(self) -> dict[str, float]:
        """Time of each phase; call when the last event has happened."""
        out: dict[str, float] = {}
        for (_, begin), (phase, end) in pairwise(self._marks):
            out[phase] = out.get(phase, 0.0) + elapsed_s(begin, end)
        return out


def elapsed_s(begin: Any, end: Any) -> float:
    return float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3


@dataclass(frozen=True)
class _Delivery:
    """The points that one sum left, on their way to page-locked memory; there once `arrived` has happened."""

    query: Query
    plan: Plan
    host: Any
    nbytes: int
    arrived: Any


class CudaRun:
    """One proof's kernels, enqueued, and the memory that its window sums come back to."""

    def __init__(self, backend: CudaBackend, upload: CudaUpload) -> None:
        device, key, arrays = backend.gpu, upload.key, upload.key.arrays
        if upload.buffers is None or not key.bases:
            raise errors.Unavailable("nothing to launch: the upload was proved already, or its key closed")
        vectors, scalars = upload.buffers
        self._backend = backend
        self._curve = arrays.curve
        self._device = device
        self._upload = upload
        self._sums: MsmSums | None = None
        self._deliveries: list[_Delivery] = []
        device.compute.wait_event(upload.landed)
        self._clock = clock = _Clock(device.compute)
        for address, nbytes in upload.padding:
            device.clear(address, nbytes, device.compute)
        backend.transforms(arrays.curve, arrays.root_family).quotient(vectors.address, arrays.log_domain)
        clock.mark("ntt_h")
        bases, sums = key.bases, backend.sums(arrays.curve)
        over_h = [Query("msm_h", "g1", bases["h_g1"])]
        over_z = [  # the longest to combine first: that hides behind the others
            Query("msm_b_g2", "g2", bases["b_g2"]),
            Query("msm_b_g1", "g1", bases["b_g1"]),
            Query("msm_a", "g1", bases["a_g1"]),
            Query("msm_l", "g1", bases["l_g1"], skip=arrays.n_public + 1),
        ]
        sums.run(vectors, arrays.domain, over_h, clock.mark, self._deliver)
        sums.run(scalars, arrays.n_wires, over_z, clock.mark, self._deliver)

    def _deliver(self, query: Query, plan: Plan, points: Buffer) -> None:
        host = cupy.cuda.alloc_pinned_memory(points.nbytes)
        self._device.copy_out(host.ptr, points, points.nbytes)
        self._clock.mark("d2h")
        self._deliveries.append(_Delivery(query, plan, host, points.nbytes, self._clock.last))

    @property
    def done(self) -> bool:
        """Has the last kernel ended?"""
        return bool(self._clock.last.done)

    def result(self) -> MsmSums:
        """Block until the sums are there. Raises DeviceFault when the device failed."""
        if self._sums is None:
            with self._device.guard():
                self._sums = self._combine()
            self._upload.buffers = None
            self._deliveries = []
        return self._sums

    def _combine(self) -> MsmSums:
        found: dict[str, U64] = {}
        for sent in self._deliveries:
            sent.arrived.synchronize()
            words = np.frombuffer(sent.host, np.uint64, sent.nbytes // 8)
            point = self._backend.combine(self._curve, sent.query.group, sent.plan, words)
            found[SUM_OF_PHASE[sent.query.phase]] = point
        h2d = elapsed_s(self._upload.began, self._upload.landed)
        phases = {"h2d": h2d, **self._clock.seconds()}
        return MsmSums(**found, phases_s=phases, h2d_bytes=self._upload.h2d_bytes)


class CudaBackend:
    """backend.protocol.Backend on one GPU; see there for what each method takes and gives."""

    name = "cuda"
    in_place = False
    scratch_c = False

    def __init__(self, index: int = 0, cache_dir: Path | None = None) -> None:
        self.gpu = Device(index, cache_dir)
        self.device = self.gpu.uuid
        self.device_name = self.gpu.name
        self.vram_total_bytes = self.gpu.total_bytes
        self._host = cpu.CpuBackend()
        self._lock = threading.Lock()  # over the three below
        self._transforms: dict[tuple[str, int], Transforms] = {}
        self._sums: dict[str, Sums] = {}
        self._in_flight: list[CudaRun] = []

    def transforms(self, curve: str, root_family: int) -> Transforms:
        with self._lock:
            return self._transforms.setdefault((curve, root_family), Transforms(self.gpu, curve, root_family))

    def sums(self, curve: str) -> Sums:
        with self._lock:
            return self._sums.setdefault(curve, Sums(self.gpu, curve))

    def combine(self, curve: str, group: str, plan: Plan, words: U64) -> U64:
        """What Sums.run left of one sum, as one affine point: the sum of 2^(c v) window_v, plus the units.

        words: plan.windows + 1 affine points. Done on the host, whose processors double points far sooner.
        """
        lq = CURVES[curve].fq_limbs
        shape = (2, lq) if group == "g1" else (2, 2, lq)
        points = words.reshape(plan.windows + 1, *shape).copy()
        r = CURVES[curve].r
        weights = [pow(2, plan.window_bits * v, r) for v in range(plan.windows)] + [1]
        scalars = limbs.from_ints(weights, limbs.FR_LIMBS)
        return self._host.msm(curve, group, points, scalars)

    # -- proving --

    def vector_rows(self, key: KeyArrays) -> int:
        return key.n_rows or key.domain

    def warm_up(self, curve: str) -> None:
        with self.gpu.guard():
            self.gpu.load(nvrtc.proving_modules(curve))

    def load_key(self, key: KeyArrays) -> CudaKey:
        """Also compiles what a proof on its curve runs and makes its domain's tables, so that no proof waits
        for them.

        InvalidKey when its shapes disagree, Exhausted when the device has too little memory left.
        """
        cpu.check_key(key)
        with self.gpu.guard():
            self.gpu.load(nvrtc.proving_modules(key.curve))
            self.transforms(key.curve, key.root_family).prepare(key.log_domain)
            return CudaKey(self.gpu, key)

    def upload(self, key: CudaKey, a: U64, b: U64, c: U64 | None, z: U64) -> CudaUpload:
        """c is not used: it is made on the device."""
        with self.gpu.guard():
            return CudaUpload(self.gpu, key, a, b, z)

    def launch(self, upload: CudaUpload) -> CudaRun:
        with self.gpu.guard():
            run = CudaRun(self, upload)
            with self._lock:
                self._in_flight = [r for r in self._in_flight if not r.done] + [run]
            return run

    def close(self) -> None:
        """Wait for what is in flight and give all memory back."""
        with self.gpu.guard():
            self.gpu.compute.synchronize()
            with self._lock:
                self._in_flight, self._transforms = [], {}
            self.gpu.free_unused()

    # -- plain operations --

    def field_op(self, curve: str, fld: str, op: str, a: U64, b: U64 | None = None) -> U64:
        with self.gpu.guard():
            return cuda_ops.field_op(self.gpu, curve, fld, op, a, b)

    def point_op(self, curve: str, group: str, op: str, p: U64, q: U64 | None = None) -> U64:
        with self.gpu.guard():
            return cuda_ops.point_op(self.gpu, curve, group, op, p, q)

    def scalar_mul(self, curve: str, group: str, points: U64, scalars: U64) -> U64:
        with self.gpu.guard():
            return cuda_ops.scalar_mul(self.gpu, curve, group, points, scalars)

    def spmv(self, curve: str, matrix: SparseMatrix, z: U64) -> U64:
        with self.gpu.guard():
            return cuda_ops.spmv(self.gpu, curve, matrix, z)

    def ntt(
        self, curve: str, values: U64, root_family: int, *, inverse: bool = False, shift: int | None = None
    ) -> U64:
        with self.gpu.guard():
            return self.transforms(curve, root_family).transform(values, inverse, shift)

    def quotient(self, curve: str, a: U64, b: U64, root_family: int) -> U64:
        with self.gpu.guard():
            n = len(a)
            vectors = self.gpu.scratch(3 * n * FR_BYTES)
            for i, part in enumerate((a, b)):
                self.gpu.copy_in(
                    vectors.address + i * n * FR_BYTES, np.ascontiguousarray(part), self.gpu.compute
                )
            self.transforms(curve, root_family).quotient(vectors.address, n.bit_length() - 1)
            return self.gpu.get(vectors, (n, 4))

    def msm(self, curve: str, group: str, bases: U64, scalars: U64) -> U64:
        if len(bases) == 0:
            return np.zeros(bases.shape[1:], np.uint64)
        with self.gpu.guard():
            query = Query("msm", group, self.gpu.put(bases))
            found: list[U64] = []

            def deliver(_: Query, plan: Plan, points: Buffer) -> None:
                words = self.gpu.get(points, (points.nbytes // 8,))
                found.append(self.combine(curve, group, plan, words))

            self.sums(curve).run(self.gpu.put(scalars), len(scalars), [query], lambda _: None, deliver)
            return found[0]
