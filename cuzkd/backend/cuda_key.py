"""A proving key in device memory: its points, and its constraint matrices where these are to be evaluated there."""

from __future__ import annotations

from dataclasses import fields
from math import prod

from cuzkd.backend.cuda_device import Buffer, Device
from cuzkd.backend.cuda_rows import DeviceMatrix
from cuzkd.backend.protocol import U64, KeyShape
from cuzkd.curves.params import CURVES
from cuzkd.errors import Unavailable


class CudaKey:
    """bases: for each of QUERIES its points, affine, as described in backend.protocol.KeyArrays.

    The buffers were allocated for the compute lane; whatever filled them has ended.
    """

    def __init__(self, device: Device, shape: KeyShape, bases: dict[str, Buffer]) -> None:
        # A shape alone: one that came with points would keep them in host memory.
        self.shape = KeyShape(**{field.name: getattr(shape, field.name) for field in fields(KeyShape)})
        self.bases = bases
        self.matrices: tuple[DeviceMatrix, DeviceMatrix] | None = None  # A, B
        self._points_bytes = sum(buffer.nbytes for buffer in bases.values())
        self.resident_bytes = self._points_bytes
        self._device = device

    def attach(self, a: DeviceMatrix, b: DeviceMatrix) -> None:
        """Keep A and B too, in the place of those that may be there. Counted as resident."""
        self.matrices = a, b
        self.resident_bytes = self._points_bytes + a.nbytes + b.nbytes

    def detach(self) -> None:
        """Give A and B up; a run in flight on them must have ended."""
        self.matrices = None
        self.resident_bytes = self._points_bytes
        with self._device.guard():
            self._device.free_resident()

    def read(self, query: str, begin: int, count: int) -> U64:
        """At most `count` points of a query from number `begin` on, [n, *point]; none behind its end."""
        if not self.bases:
            raise Unavailable(f"{query}: the key has been closed")
        limbs = CURVES[self.shape.curve].fq_limbs
        point = (2, 2, limbs) if query == "b_g2" else (2, limbs)
        nbytes, buffer = 8 * prod(point), self.bases[query]
        n = max(0, min(count, buffer.nbytes // nbytes - begin))
        with self._device.guard():
            return self._device.compute.get(buffer, (n, *point), begin * nbytes)

    def close(self) -> None:
        """Give the device memory back. Idempotent; a run in flight on it must have ended."""
        self.bases, self.matrices = {}, None
        with self._device.guard():
            self._device.free_resident()
