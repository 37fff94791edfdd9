"""What a device is called for good: its UUID, by which provers and devices find each other again after a restart."""

from __future__ import annotations

import ctypes
import uuid

from cuzkd import errors


def device_uuid(index: int, told: bytes) -> uuid.UUID:
    """`told` is CuPy's word, cut at its first zero byte, of which one device in sixteen has one: then the driver's."""
    if len(told) < 16:
        driver = ctypes.CDLL("libcuda.so.1")
        handle, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if code := driver.cuDeviceGet(ctypes.byref(handle), index) or driver.cuDeviceGetUuid_v2(
            found, handle
        ):
            raise errors.DeviceFault(f"the driver tells no UUID of device {index}: CUDA error {code}")
        told = bytes(found)
    return uuid.UUID(bytes=told[:16])
