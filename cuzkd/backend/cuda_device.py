"""One GPU as the CUDA backend sees it: streams, memory, kernels, copies, and what becomes of CUDA's errors.

Problem: CUDA fails late and for good. After an illegal access every call of the process fails; out of memory
does not mean that the device is broken; and a buffer freed too early is corrupted in silence.
Design: everything that touches the device runs inside `Device.guard()`, which selects the device for the
thread and turns CUDA's errors into DeviceFault (replace the process) or Exhausted (not now). Two streams:
`copy` for vectors on their way in, `compute` for everything else. Memory comes from one pool, whose free
blocks belong to the stream that they were allocated for, so that a scratch buffer dropped while its kernels
still run is reused by later kernels of that stream only. A buffer used on both streams has to be kept until
the compute stream is done with it (cuda.py does). Kernels come from cubins (nvrtc.py), loaded once per
process.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from cuzkd import errors
from cuzkd.backend import nvrtc
from cuzkd.backend.protocol import U64

MEMORY_ALLOCATION = 2  # cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY
RING_CHUNK_BYTES = 8 << 20
RING_CHUNKS = 4


class Buffer:
    """A range of device memory. Goes back to the pool with its last reference."""

    def __init__(self, pointer: Any, nbytes: int) -> None:
        self._pointer = pointer
        self.address = int(pointer.ptr)
        self.nbytes = nbytes


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise errors.Exhausted(f"device memory: {error}") from error
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        if error.status == MEMORY_ALLOCATION:
            raise errors.Exhausted(f"memory for the device: {error}") from error
        raise errors.DeviceFault(f"CUDA: {error}") from error


def register_host(address: int, nbytes: int) -> None:
    """Page-lock a range of host memory for every device (cudaHostRegister). For the pool's upstream."""
    with _translated():
        cupy.cuda.runtime.hostRegister(address, nbytes, 0)


def unregister_host(address: int) -> None:
    """Undo register_host of the range that begins at address."""
    with _translated():
        cupy.cuda.runtime.hostUnregister(address)


class Device:
    """GPU number `index` of this process."""

    def __init__(self, index: int = 0, cache_dir: Path | None = None) -> None:
        self.index = index
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:  # no driver, or no device that it knows
            raise errors.Unavailable(f"no CUDA device: {error}") from error
        if index >= count:
            raise errors.Unavailable(f"GPU {index} asked for, {count} present")
        with self.guard():
            properties = cupy.cuda.runtime.getDeviceProperties(index)
            self.name: str = properties["name"].decode()
            self.uuid = f"GPU-{uuid.UUID(bytes=bytes(properties['uuid'])[:16])}"
            self.total_bytes = int(properties["totalGlobalMem"])
            self.processors = int(properties["multiProcessorCount"])
            self.copy = cupy.cuda.Stream(non_blocking=True)
            self.compute = cupy.cuda.Stream(non_blocking=True)
            self._pool = cupy.cuda.MemoryPool()
        self._cubins = nvrtc.CubinCache(f"sm_{properties['major']}{properties['minor']}", cache_dir)
        self._modules: dict[nvrtc.Module, Any] = {}
        self._kernels: dict[tuple[nvrtc.Module, str], Any] = {}
        self._lock = threading.Lock()  # over the two dictionaries

    @contextmanager
    def guard(self) -> Iterator[None]:
        """This device for the calling thread; CUDA's errors as ours."""
        with _translated(), cupy.cuda.Device(self.index):
            yield

    # -- memory --

    def allocate(self, nbytes: int, stream: Any) -> Buffer:
        """Uninitialised memory for work on `stream`. Exhausted when the device has no more."""
        with stream:
            return Buffer(self._pool.malloc(max(nbytes, 1)), nbytes)

    def scratch(self, nbytes: int) -> Buffer:
        """Memory for kernels: allocate() on the compute stream."""
        return self.allocate(nbytes, self.compute)

    def zeros(self, nbytes: int) -> Buffer:
        buffer = self.scratch(nbytes)
        self.clear(buffer.address, nbytes, self.compute)
        return buffer

    def clear(self, address: int, nbytes: int, stream: Any) -> None:
        if nbytes:
            cupy.cuda.runtime.memsetAsync(address, 0, nbytes, stream.ptr)

    def pool_bytes(self) -> int:
        """Device memory held by the pool, used and free blocks together."""
        return int(self._pool.total_bytes())

    def free_unused(self) -> None:
        """Give the pool's free blocks back to the device."""
        self._pool.free_all_blocks()

    # -- copies --

    def copy_in(self, address: int, array: np.ndarray[Any, Any], stream: Any) -> None:
        """Host to device. Asynchronous when the array lies in page-locked memory, else done on return."""
        if array.nbytes:
            kind = cupy.cuda.runtime.memcpyHostToDevice
            cupy.cuda.runtime.memcpyAsync(address, array.ctypes.data, array.nbytes, kind, stream.ptr)

    def copy_out(self, address: int, buffer: Buffer, nbytes: int) -> None:
        """The buffer's first bytes to host memory, on the compute stream. Asynchronous where that is page-locked."""
        if nbytes > buffer.nbytes:
            raise ValueError(f"{nbytes} bytes asked of a buffer of {buffer.nbytes}")
        if nbytes:
            kind = cupy.cuda.runtime.memcpyDeviceToHost
            cupy.cuda.runtime.memcpyAsync(address, buffer.address, nbytes, kind, self.compute.ptr)

    def put(self, array: np.ndarray[Any, Any]) -> Buffer:
        """A host array (of any kind) as a device buffer for the compute stream."""
        array = np.ascontiguousarray(array)
        buffer = self.scratch(array.nbytes)
        self.copy_in(buffer.address, array, self.compute)
        return buffer

    def get(self, buffer: Buffer, shape: tuple[int, ...]) -> U64:
        """What a buffer holds once the compute stream is through."""
        out = np.empty(shape, np.uint64)
        self.copy_out(out.ctypes.data, buffer, out.nbytes)
        self.compute.synchronize()
        return out

    def put_resident(self, arrays: Iterable[U64]) -> list[Buffer]:
        """Host arrays (mapped files, say) as device buffers, by way of a small ring of page-locked chunks.

        One chunk is filled while those before it cross. Done on return.
        """
        ring = [cupy.cuda.alloc_pinned_memory(RING_CHUNK_BYTES) for _ in range(RING_CHUNKS)]
        views = [np.frombuffer(chunk, np.uint8, RING_CHUNK_BYTES) for chunk in ring]
        crossed = [cupy.cuda.Event(disable_timing=True) for _ in ring]
        turn, buffers = 0, []
        for array in arrays:
            source = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            buffer = self.scratch(source.nbytes)
            buffers.append(buffer)
            for begin in range(0, source.nbytes, RING_CHUNK_BYTES):
                part = source[begin : begin + RING_CHUNK_BYTES]
                slot = turn % RING_CHUNKS
                turn += 1
                crossed[slot].synchronize()
                views[slot][: part.nbytes] = part
                self.copy_in(buffer.address + begin, views[slot][: part.nbytes], self.compute)
                crossed[slot].record(self.compute)
        self.compute.synchronize()
        return buffers

    # -- kernels --

    def load(self, modules: Iterable[nvrtc.Module]) -> None:
        """Compile (all at once) and load what is not loaded yet."""
        with self._lock:
            missing = [m for m in modules if m not in self._modules]
            if missing:
                for module, path in self._cubins.get_all(missing).items():
                    self._modules[module] = cupy.RawModule(path=str(path))

    def launch(
        self, module: nvrtc.Module, name: str, grid: int | tuple[int, int], block: int, *args: Any
    ) -> None:
        """Enqueue a kernel on the compute stream.

        args: Buffer or None for pointers (numpy.uint64 for an address inside one), int for C's int, numpy
        scalars else.
        """
        kernel = self._kernels.get((module, name))
        if kernel is None:
            self.load([module])
            kernel = self._kernels[module, name] = self._modules[module].get_function(name)
        with self.compute:
            kernel(grid if isinstance(grid, tuple) else (grid,), (block,), tuple(map(_argument, args)))


def _argument(value: Any) -> Any:
    if isinstance(value, Buffer):
        return np.uint64(value.address)
    if value is None:
        return np.uint64(0)
    return np.int32(value) if isinstance(value, int) else value


def blocks(n: int, block: int) -> int:
    """Grid size for one thread per item, at least one block."""
    return max(1, -(-n // block))
