"""What a device and its driver are, and can do at best, or cost at least: figures for benches and the doctor."""

from __future__ import annotations

import time

import cupy

from cuzkd import errors
from cuzkd.backend.cuda_device import Device


def cuda_version() -> tuple[int, int]:
    """(major, minor) of the newest CUDA that the driver speaks."""
    version = int(cupy.cuda.runtime.driverGetVersion())
    return version // 1000, version % 1000 // 10


def architectures() -> list[str]:
    """Of the devices that this process sees, each once: sm_90, .... Raises Unavailable where there are none."""
    runtime = cupy.cuda.runtime
    try:
        found = [runtime.getDeviceProperties(i) for i in range(runtime.getDeviceCount())]
    except runtime.CUDARuntimeError as error:
        raise errors.Unavailable(f"no CUDA device: {error}") from error
    return sorted({f"sm_{properties['major']}{properties['minor']}" for properties in found})


def copy_seconds(device: Device, address: int, nbytes: int, repeats: int) -> list[float]:
    """Times of bare copies of page-locked host memory at `address` to the device, with nothing beside them.

    By events on the copy lane. Raises Exhausted when the device has no nbytes left.
    """
    seconds = []
    with device.guard():
        target = device.copy.scratch(nbytes)
        for _ in range(repeats):
            began, landed = cupy.cuda.Event(), cupy.cuda.Event(block=True)
            device.copy.record(began)
            cupy.cuda.runtime.memcpyAsync(
                target.address, address, nbytes, cupy.cuda.runtime.memcpyHostToDevice, device.copy.stream.ptr
            )
            device.copy.record(landed)
            landed.synchronize()
            seconds.append(float(cupy.cuda.get_elapsed_time(began, landed)) / 1e3)
        del target
        device.free_unused()
    return seconds


def host_alloc_seconds(device: Device, nbytes: int) -> tuple[float, float]:
    """Seconds that the driver's own allocator of page-locked memory takes to make nbytes, and to free them."""
    with device.guard():
        began = time.monotonic()
        address = cupy.cuda.runtime.hostAlloc(nbytes, 0)
        made = time.monotonic()
        cupy.cuda.runtime.freeHost(address)
        return made - began, time.monotonic() - made
