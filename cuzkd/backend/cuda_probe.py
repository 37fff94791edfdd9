"""What a device and its driver can do at best, or cost at least: figures that a bench holds its own against."""

from __future__ import annotations

import time

import cupy

from cuzkd.backend.cuda_device import Device


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
