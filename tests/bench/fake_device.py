"""A device without a device: it copies vectors at upload, proves on the processor, and keeps a driver's books.

The sums are real (CpuBackend on copies of its own), so proofs verify only if what was copied was right. The driver
refuses ranges that overlap or that it does not know, and says of every vector that is uploaded whether it lay in
page-locked memory just then.
"""

import threading
import time
from dataclasses import dataclass, replace

import numpy as np

from cuzkd.backend import cpu
from cuzkd.backend.protocol import Span, nothing
from cuzkd.errors import DeviceFault, Exhausted

FR_BYTES = 32


class Driver:
    """Page-locked ranges. log: ("register" | "unregister", address, bytes), and whatever others append."""

    def __init__(self):
        self._lock = threading.Lock()
        self.ranges = {}
        self.log = []
        self.refuse_after = 1 << 62  # bytes in all

    def register(self, address, nbytes):
        with self._lock:
            for other, size in self.ranges.items():
                if address < other + size and other < address + nbytes:
                    raise DeviceFault(f"{nbytes} bytes at {address:x} overlap a registered range")
            if sum(self.ranges.values()) + nbytes > self.refuse_after:
                raise Exhausted("no more memory can be page-locked")
            self.ranges[address] = nbytes
            self.log.append(("register", address, nbytes))

    def unregister(self, address):
        with self._lock:
            if address not in self.ranges:
                raise DeviceFault(f"{address:x} is not registered")
            self.log.append(("unregister", address, self.ranges.pop(address)))

    def locked(self, array):
        """Is all of it in one registered range?"""
        begin, end = array.ctypes.data, array.ctypes.data + array.nbytes
        with self._lock:
            return any(at <= begin and end <= at + size for at, size in self.ranges.items())


@dataclass
class Arrived:
    """One upload: extents of z, a, b, c as they came, and what was seen of it."""

    extents: list
    locked: list  # of each, was it page-locked?
    held: bool  # was the device its own?
    ring: object


class FakeUpload:
    def __init__(self, key, vectors, span, nbytes):
        self.key, self.vectors, self.span, self.nbytes = key, vectors, span, nbytes

    def wait(self):
        """It is there."""


class FakeRun:
    def __init__(self, upload):
        self._upload = upload
        self._run = cpu.CpuRun(cpu.CpuUpload(upload.key, *upload.vectors))

    def cancel(self):
        self._run.cancel()

    def result(self, device_free=nothing):
        sums = self._run.result()
        return replace(sums, spans=[self._upload.span, *sums.spans], h2d_bytes=self._upload.nbytes)


class FakeDevice(cpu.CpuBackend):
    """backend.protocol.Backend, with the extensions of the CUDA one: matrices on the device, rings."""

    name = "fake"
    device = "fake-0"
    in_place = False
    scratch_c = False

    def __init__(self, driver=None):
        super().__init__()
        self.device_name = "a fake"
        self.driver = driver or Driver()
        self.arrived = []
        self.matrices = None
        self.mutex = None  # to see whether it is held
        self.fail_at = None  # number of an upload that goes wrong

    def vector_rows(self, key):
        return key.n_rows

    def attach_matrices(self, key, a, b):
        self.matrices = a, b

    def detach_matrices(self, key):
        self.matrices = None

    def upload(self, key, a, b, c, z, *, ring=None):
        began = time.monotonic()
        given = [vector for vector in (z, a, b, c) if vector is not None]
        at = [(vector.ctypes.data, vector.nbytes) for vector in given]
        held = self.mutex is not None and self.mutex.busy
        self.arrived.append(Arrived(at, [self.driver.locked(vector) for vector in given], held, ring))
        self.driver.log.append(("upload", given[0].ctypes.data, sum(vector.nbytes for vector in given)))
        if self.fail_at == len(self.arrived):
            raise Exhausted("the device has no room")
        if a is None:
            a, b = (self.spmv(key.arrays.curve, matrix, z) for matrix in self.matrices)
        if c is not None and cpu.first_mismatch(key.arrays.curve, a, b, c, 0, len(c)) >= 0:
            raise DeviceFault("c is not a o b")
        padded = [np.zeros((key.arrays.domain, 4), np.uint64) for _ in range(3)]
        padded[0][: len(a)], padded[1][: len(b)] = a, b
        span = Span("h2d", "copy", began, time.monotonic() - began)
        return FakeUpload(key, (*padded, z.copy()), span, sum(vector.nbytes for vector in given))

    def launch(self, upload):
        return FakeRun(upload)
