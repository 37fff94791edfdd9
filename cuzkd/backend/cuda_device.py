"""One GPU as the CUDA backend sees it: lanes, memory, kernels, copies, and what becomes of CUDA's errors.

Problem: CUDA fails late and for good. After an illegal access every call of the process fails; out of memory
does not mean that the device is broken; and a buffer freed too early is corrupted in silence.
Design: everything that touches the device runs inside `Device.guard()`, which selects the device for the thread and
turns CUDA's errors into DeviceFault (replace the process) or Exhausted (not now). Work goes to a `Lane`, a stream
with everything that is issued on it: `copy` for vectors on their way in, `keys` for points of keys that do not fit,
`compute` for everything else, `side` for kernels that may run beside those of `compute`. Memory comes from one pool,
whose free blocks belong to the stream that they were allocated for, so that a scratch buffer dropped while its
kernels still run is reused by later work of that lane only. A buffer used on several lanes has to be kept until all
of them are done with it (cuda_run.py does). What the pool has to ask CUDA for is counted, and bounded where a limit
is set; `Lane.reserve` asks for it ahead of the work, in one piece. Kernels come from cubins (nvrtc.py), loaded once
per process.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from cuzkd import errors
from cuzkd.backend import nvrtc
from cuzkd.backend.cuda_name import device_uuid
from cuzkd.backend.cuda_ring import Ring
from cuzkd.backend.cuda_spans import Anchor
from cuzkd.backend.protocol import U64

LOG_LOCKED = 16  # bytes of page-locked memory at a time, at least, as a logarithm
SHARED_BYTES = 160 << 10  # of shared memory, that a launch asks for at most
DECLARED_BYTES = 4 << 10  # beside those, in kernels that ask
MEMORY_ALLOCATION = 2  # cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY
Grid = int | tuple[int, int]  # blocks of a launch


class Buffer:
    """A range of device memory. Goes back to the pool with its last reference, and that of its slices."""

    def __init__(self, pointer: Any, nbytes: int, offset: int = 0) -> None:
        self._pointer = pointer
        self._offset = offset
        self.address = int(pointer.ptr) + offset
        self.nbytes = nbytes

    def slice(self, offset: int, nbytes: int) -> Buffer:
        """Bytes of it from `offset` on, in place."""
        if not 0 <= offset <= self.nbytes - nbytes:
            raise ValueError(f"{nbytes} bytes from {offset} on asked of a buffer of {self.nbytes}")
        return Buffer(self._pointer, nbytes, self._offset + offset)


@dataclass(frozen=True)
class DeviceMemory:
    """pool_bytes: held by this process's pool, used_bytes: of those, not free for its next buffers. free_bytes: what
    the device has left for anybody, total_bytes: what it has.
    """

    pool_bytes: int
    used_bytes: int
    free_bytes: int
    total_bytes: int


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


class Lane:
    """A stream and what is issued on it, in the order of the calls. All of it inside Device.guard().

    name: whose row its spans are. Nothing here waits, but for `get` and `synchronize`.
    """

    def __init__(self, device: Device, name: str) -> None:
        self.device = device
        self.name = name
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._lasting: list[Buffer] | None = None  # of such a block, those made so far

    # -- order --

    def record(self, event: Any) -> None:
        event.record(self.stream)

    def event(self) -> Any:
        """One that happens when what was issued so far is done; whoever waits for it sleeps."""
        event = cupy.cuda.Event(block=True)
        event.record(self.stream)
        return event

    def wait(self, event: Any) -> None:
        """What is issued from now on runs after what the event was recorded behind."""
        self.stream.wait_event(event)

    def synchronize(self) -> None:
        """Block until everything issued so far is done."""
        self.stream.synchronize()

    # -- memory --

    def scratch(self, nbytes: int) -> Buffer:
        """Uninitialised memory for work on this lane. Exhausted when the device has no more."""
        lasting = self._lasting
        with self.stream if lasting is None else self.device.resident:
            buffer = self.device.buffer(nbytes)
        if lasting is not None:
            lasting.append(buffer)
            usable = cupy.cuda.Event(disable_timing=True)
            usable.record(self.device.resident)
            self.wait(usable)
        return buffer

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """Buffers of this block are there to stay: they take nothing of what the lane keeps for its work, and are
        dropped, if at all, when no kernel works on them any more. Ends with synchronize(); nobody else uses the lane
        meanwhile.
        """
        self._lasting = []
        try:
            yield
            self.synchronize()
        finally:
            self._lasting = None

    def reserve(self, nbytes: int) -> None:
        """Have the pool keep that much for buffers of this lane, in one piece, unless it has: work that is planned to
        take no more asks CUDA for nothing. Exhausted when the device has no more.
        """
        self.scratch(nbytes)

    def zeros(self, nbytes: int) -> Buffer:
        buffer = self.scratch(nbytes)
        self.clear(buffer.address, nbytes)
        return buffer

    def clear(self, address: int, nbytes: int) -> None:
        if nbytes:
            cupy.cuda.runtime.memsetAsync(address, 0, nbytes, self.stream.ptr)

    # -- copies --

    def copy_in(self, address: int, array: np.ndarray[Any, Any]) -> None:
        """Host to device. Asynchronous when the array lies in page-locked memory, else done on return."""
        if not array.flags.c_contiguous:
            raise ValueError(f"a copy of {array.shape}: expected an array in one piece")
        if array.nbytes:
            kind = cupy.cuda.runtime.memcpyHostToDevice
            cupy.cuda.runtime.memcpyAsync(address, array.ctypes.data, array.nbytes, kind, self.stream.ptr)

    def copy_out(self, address: int, buffer: Buffer, nbytes: int, offset: int = 0) -> None:
        """Bytes of the buffer from `offset` on to host memory. Asynchronous where that is page-locked."""
        if not 0 <= offset <= buffer.nbytes - nbytes:
            raise ValueError(f"{nbytes} bytes from {offset} on asked of a buffer of {buffer.nbytes}")
        if nbytes:
            kind = cupy.cuda.runtime.memcpyDeviceToHost
            cupy.cuda.runtime.memcpyAsync(address, buffer.address + offset, nbytes, kind, self.stream.ptr)

    def put(self, array: np.ndarray[Any, Any]) -> Buffer:
        """A host array (of any kind) as a device buffer."""
        array = np.ascontiguousarray(array)
        buffer = self.scratch(array.nbytes)
        self.copy_in(buffer.address, array)
        return buffer

    def get(self, buffer: Buffer, shape: tuple[int, ...], offset: int = 0) -> U64:
        """What a buffer holds, from byte `offset` on, once this lane is through."""
        out = np.empty(shape, np.uint64)
        self.copy_out(out.ctypes.data, buffer, out.nbytes, offset)
        self.synchronize()
        return out

    # -- kernels --

    def launch(
        self, module: nvrtc.Module, name: str, grid: Grid, block: int, *args: Any, shared_bytes: int = 0
    ) -> None:
        """Enqueue a kernel.

        args: Buffer or None for pointers (numpy.uint64 for an address inside one), int for C's int, numpy
        scalars else. shared_bytes: of shared memory that a block has beside what the kernel declares.
        """
        kernel = self.device.kernel(module, name)
        size = grid if isinstance(grid, tuple) else (grid,)
        with self.stream:
            kernel(size, (block,), tuple(map(_argument, args)), shared_mem=shared_bytes)


def _argument(value: Any) -> Any:
    if isinstance(value, Buffer):
        return np.uint64(value.address)
    if value is None:
        return np.uint64(0)
    return np.int32(value) if isinstance(value, int) else value


class Device:
    """GPU number `index` of this process.

    limit_bytes: of device memory that its pool takes at most; 0: whatever there is. total_bytes: that, or the device's.
    room_bytes: what its pool may take, as things were when this was made. processors: multiprocessors. shared_bytes: of
    shared memory, that a launch may ask for in a block.
    allocations: how often CUDA was asked for memory, of the device or page-locked, by way of the two pools.
    """

    def __init__(self, index: int = 0, cache_dir: Path | None = None, limit_bytes: int = 0) -> None:
        self.index = index
        self.limit_bytes = limit_bytes
        self.allocations = 0
        # Hardware queues, read when CUDA starts. Streams that share one wait for each other, and by default there are
        # 8: fewer than lanes and a ring's streams together.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:  # no driver, or no device that it knows
            raise errors.Unavailable(f"no CUDA device: {error}") from error
        if index >= count:
            raise errors.Unavailable(f"GPU {index} asked for, {count} present")
        with self.guard():
            properties = cupy.cuda.runtime.getDeviceProperties(index)
            self.name: str = properties["name"].decode()
            self.uuid = f"GPU-{device_uuid(index, bytes(properties['uuid']))}"
            memory = int(properties["totalGlobalMem"])
            self.total_bytes = min(memory, limit_bytes or memory)
            free, _ = cupy.cuda.runtime.memGetInfo()
            self.room_bytes = min(int(free), limit_bytes or memory)
            self.processors = int(properties["multiProcessorCount"])
            # Some of a block's is declared by its kernel.
            self.shared_bytes = min(SHARED_BYTES, int(properties["sharedMemPerBlockOptin"]) - DECLARED_BYTES)
            self.pool = cupy.cuda.MemoryPool(self._allocate)
            if limit_bytes:
                self.pool.set_limit(size=limit_bytes)
            self._locked = cupy.cuda.PinnedMemoryPool(self._allocate_locked)
            self.copy, self.compute = Lane(self, "copy"), Lane(self, "compute")
            self.side, self.keys = Lane(self, "compute 2"), Lane(self, "keys")
            self._idle, self.resident = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        self.cubins = nvrtc.CubinCache(f"sm_{properties['major']}{properties['minor']}", cache_dir)
        self._modules: dict[nvrtc.Module, Any] = {}
        self._kernels: dict[tuple[nvrtc.Module, str], Any] = {}
        self._lock = threading.Lock()  # over the two dictionaries

    @contextmanager
    def guard(self) -> Iterator[None]:
        """This device for the calling thread; CUDA's errors as ours."""
        with _translated(), cupy.cuda.Device(self.index):
            yield

    def anchor(self) -> Anchor:
        """Now, by the device and by the host. Takes some tens of microseconds, whatever else the device does: its
        stream is one that nothing runs on.
        """
        event = cupy.cuda.Event()  # not a blocking one: waking up would take longer than all the rest
        before = time.monotonic()
        event.record(self._idle)
        event.synchronize()
        return Anchor(event, (before + time.monotonic()) / 2)

    def drain(self) -> None:
        """Block until everything issued so far on any lane is done."""
        for lane in (self.copy, self.compute, self.side, self.keys):
            lane.synchronize()

    # -- memory --

    def _allocate(self, nbytes: int) -> Any:
        self.allocations += 1
        return cupy.cuda.MemoryPointer(cupy.cuda.Memory(nbytes), 0)

    def _allocate_locked(self, nbytes: int) -> Any:
        self.allocations += 1
        return cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(nbytes), 0)

    def buffer(self, nbytes: int) -> Buffer:
        """Uninitialised memory of the current stream. What other streams keep is given up for it before it is refused:
        where there is no limit the pool does so itself. Exhausted, also inside of a guard.
        """
        with _translated():
            try:
                pointer = self.pool.malloc(max(nbytes, 1))
            except cupy.cuda.memory.OutOfMemoryError:
                if not self.limit_bytes:
                    raise
                self.free_unused()
                pointer = self.pool.malloc(max(nbytes, 1))
        return Buffer(pointer, nbytes)

    def locked(self, nbytes: int) -> Any:
        """Page-locked memory for results, with `ptr`; numpy.frombuffer reads it. It goes back with its last reference.

        In few sizes, so that what one proof gives back serves the next, whose results may be somewhat longer.
        """
        return self._locked.malloc(1 << max(LOG_LOCKED, (nbytes - 1).bit_length()))

    def memory(self) -> DeviceMemory:
        """free_bytes: within the limit."""
        free, total = map(int, cupy.cuda.runtime.memGetInfo())
        pool, used = int(self.pool.total_bytes()), int(self.pool.used_bytes())
        if self.limit_bytes:
            free, total = min(free, max(0, self.limit_bytes - pool)), min(total, self.limit_bytes)
        return DeviceMemory(pool, used, free, total)

    def free_unused(self) -> None:
        """Give the pool's free blocks back to the device, those that lanes keep for their next work as well."""
        self.pool.free_all_blocks()

    def free_resident(self) -> None:
        """Give back what resident arrays left."""
        self.pool.free_all_blocks(self.resident)

    def put_resident(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[Buffer]:
        """Host arrays of any kind and in any memory (mapped files, say) as device buffers. Done on return."""
        return self.put_pieces([array.nbytes for array in arrays], ((i, 0, a) for i, a in enumerate(arrays)))

    def put_pieces(
        self, sizes: Sequence[int], pieces: Iterable[tuple[int, int, np.ndarray[Any, Any]]]
    ) -> list[Buffer]:
        """Buffers of so many bytes, filled by pieces: (number of the buffer, first byte, array). A piece is asked for
        when the one before has crossed, and let go then; done on return. They take nothing of what lanes keep, and may
        be dropped once no kernel works on them any more.
        """
        buffers = self.resident_buffers(sizes)
        with Ring(self) as ring:
            for number, offset, array in pieces:
                ring.copy_in([(buffers[number].slice(offset, array.nbytes).address, array)])
        return buffers

    def resident_buffers(self, sizes: Sequence[int]) -> list[Buffer]:
        """Uninitialised, for any lane, once the kernels that run now have ended, which is waited for."""
        with self.resident:
            buffers = [self.buffer(nbytes) for nbytes in sizes]
        before = cupy.cuda.Event(disable_timing=True)
        self.compute.record(before)  # kernels of a buffer that lay there before may still run
        self.resident.wait_event(before)
        self.resident.synchronize()
        return buffers

    # -- kernels --

    def load(self, modules: Iterable[nvrtc.Module]) -> None:
        """Compile (all at once) and load what is not loaded yet."""
        with self._lock:
            missing = [m for m in modules if m not in self._modules]
            if missing:
                for module, path in self.cubins.get_all(missing).items():
                    self._modules[module] = cupy.RawModule(path=str(path))

    def kernel(self, module: nvrtc.Module, name: str) -> Any:
        """A function of a module, which is loaded first where it is not."""
        kernel = self._kernels.get((module, name))
        if kernel is None:
            self.load([module])
            kernel = self._modules[module].get_function(name)
            if kernel.shared_size_bytes <= DECLARED_BYTES:  # others declare all that they want
                kernel.max_dynamic_shared_size_bytes = self.shared_bytes
            self._kernels[module, name] = kernel
        return kernel


def blocks(n: int, block: int) -> int:
    """Grid size for one thread per item, at least one block."""
    return max(1, -(-n // block))
