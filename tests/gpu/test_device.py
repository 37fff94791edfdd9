"""How a device is named."""

import ctypes
import uuid
from types import SimpleNamespace

import pytest

from cuzkd import errors
from cuzkd.backend.cuda_name import device_uuid

REAL = uuid.UUID("818109b4-e50d-6a00-d1e6-4510ad9275c1")  # with a byte that ends a string


def driver(code=0):
    def get(handle, index):
        handle._obj.value = 40 + index
        return 0

    def get_uuid(to, handle):
        ctypes.memmove(to, REAL.bytes, 16)
        return code if handle.value == 42 else 101

    return SimpleNamespace(cuDeviceGet=get, cuDeviceGetUuid_v2=get_uuid)


def test_a_uuid_as_cupy_tells_it():
    assert device_uuid(0, bytes(range(1, 17)) + b"rubbish") == uuid.UUID(bytes=bytes(range(1, 17)))


def test_a_uuid_that_cupy_cuts_at_its_zero(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver())
    assert device_uuid(2, REAL.bytes[:7]) == REAL


def test_a_driver_that_tells_none(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(100))
    with pytest.raises(errors.DeviceFault, match="no UUID of device 2: CUDA error 100"):
        device_uuid(2, b"")
