"""A proving key on a device: its points, there or on their way through, and its constraint matrices where these are
to be evaluated there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from cuzkd.backend.cuda_density import read_wires
from cuzkd.backend.cuda_device import Buffer, Device
from cuzkd.backend.cuda_lists import Density
from cuzkd.backend.cuda_msm import Table
from cuzkd.backend.cuda_rows import DeviceMatrix
from cuzkd.backend.cuda_stream import Parking
from cuzkd.backend.protocol import U64, KeyShape
from cuzkd.curves.params import CURVES
from cuzkd.errors import Unavailable

if TYPE_CHECKING:
    from cuzkd.backend.cuda_plan import MemoryPlan


class CudaKey:
    """bases: of QUERIES those whose points are on the device, affine, as described in backend.protocol.KeyArrays. host:
    the others', in page-locked memory; undo: gives that back. plan: how its proofs use the device; None where nobody
    planned, and all is resident. densities: of those queries whose points at infinity were taken out of bases. tables:
    of those whose bases are the first copy of one (cuda_tables.py). parking: where its witnesses wait, if they must.

    Whatever filled the buffers has ended.
    """

    def __init__(
        self,
        device: Device,
        shape: KeyShape,
        bases: dict[str, Buffer],
        plan: MemoryPlan | None = None,
        host: Mapping[str, U64] | None = None,
        undo: Callable[[], None] = lambda: None,
        densities: Mapping[str, Density] | None = None,
        tables: Mapping[str, Table] | None = None,
        parking: Parking | None = None,
    ) -> None:
        self.shape = shape_alone(shape)
        self.bases = bases
        self.host = dict(host or {})
        self.densities = dict(densities or {})
        self.tables = dict(tables or {})
        self.plan = plan
        self.parking = parking
        self.matrices: tuple[DeviceMatrix, DeviceMatrix] | None = None  # A, B
        self.open = True
        self._undo = undo
        self._points_bytes = sum(buffer.nbytes for buffer in bases.values())
        self.resident_bytes = self._points_bytes
        self._device = device

    @property
    def streamed(self) -> tuple[str, ...]:
        """Queries whose points are not on the device."""
        return tuple(self.host)

    @property
    def host_bytes(self) -> int:
        """Of host memory that it keeps."""
        parked = self.parking.array.nbytes if self.parking else 0
        return sum(array.nbytes for array in self.host.values()) + parked

    @property
    def one_at_a_time(self) -> bool:
        """There is no room for the next upload beside a proof."""
        return self.plan is not None and self.plan.uploads == 1

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
        if not self.open:
            raise Unavailable(f"{query}: the key has been closed")
        if query in self.host:
            return self.host[query][begin : begin + count]
        limbs = CURVES[self.shape.curve].fq_limbs
        point = (2, 2, limbs) if query == "b_g2" else (2, limbs)
        nbytes, buffer = 8 * prod(point), self.bases[query]
        n = min(count, self.shape.shape_of(query)[0] - begin)
        if n <= 0:
            return np.empty((0, *point), np.uint64)
        with self._device.guard():
            if query in self.densities:
                return read_wires(self._device, self.densities[query], buffer, point, begin, n)
            return self._device.compute.get(buffer, (n, *point), begin * nbytes)

    def close(self) -> None:
        """Give the device memory back. Idempotent; a run in flight on it must have ended."""
        was_open, self.open = self.open, False
        self.bases, self.host, self.densities, self.matrices, self.parking = {}, {}, {}, None, None
        with self._device.guard():
            if was_open:
                self._undo()
            self._device.free_resident()


def shape_alone(shape: KeyShape) -> KeyShape:
    """One that comes with points would keep them in host memory."""
    return KeyShape(**{field.name: getattr(shape, field.name) for field in fields(KeyShape)})
