"""A module in CuPy's place: as much of it as cuzkd/backend calls, over the emulated device."""

import contextlib
import os
import sys
from types import ModuleType, SimpleNamespace

from emulation import kernels, memory, streams

from cuzkd.backend import nvrtc


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


class CUDADriverError(CUDARuntimeError):
    pass


def _properties(index):
    return {
        "name": b"emulated",
        "uuid": bytes(16),
        "totalGlobalMem": memory.TOTAL_BYTES,
        "multiProcessorCount": 4,
        "sharedMemPerBlockOptin": 227 << 10,
        "major": kernels.ARCH[0],
        "minor": kernels.ARCH[1],
    }


RUNTIME = SimpleNamespace(
    CUDARuntimeError=CUDARuntimeError,
    driverGetVersion=lambda: 1000 * kernels.version()[0],
    getDeviceCount=lambda: 1,
    getDeviceProperties=_properties,
    hostRegister=memory.host_register,
    hostUnregister=memory.host_unregister,
    memGetInfo=memory.memory_info,
    memcpyAsync=memory.memcpy_async,
    memcpyDeviceToHost=memory.DEVICE_TO_HOST,
    memcpyHostToDevice=memory.HOST_TO_DEVICE,
    memsetAsync=memory.memset_async,
)
CUDA = {
    "Device": lambda index: contextlib.nullcontext(),
    "Event": streams.Event,
    "Memory": memory.Memory,
    "MemoryPointer": memory.whole,
    "MemoryPool": memory.MemoryPool,
    "PinnedMemory": memory.PinnedMemory,
    "PinnedMemoryPointer": memory.whole,
    "PinnedMemoryPool": memory.PinnedMemoryPool,
    "Stream": streams.Stream,
    "alloc_pinned_memory": memory.PinnedMemory,
    "driver": SimpleNamespace(CUDADriverError=CUDADriverError),
    "get_elapsed_time": streams.get_elapsed_time,
    "memory": SimpleNamespace(OutOfMemoryError=memory.OutOfMemoryError),
    "runtime": RUNTIME,
}


def install(policy):
    """Give this process, for the rest of its life, an emulated device. policy: of streams.Schedule."""
    assert "cupy" not in sys.modules, "CuPy has been imported already"
    streams.choose(policy)
    cupy, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    vars(cuda).update(CUDA)
    cupy.cuda, cupy.RawModule = cuda, kernels.RawModule
    sys.modules |= {"cupy": cupy, "cupy.cuda": cuda}
    os.environ["CUPY_CACHE_DIR"] = str(kernels.cache_dir())
    nvrtc.version, nvrtc.compile_module = kernels.version, kernels.compile_module
