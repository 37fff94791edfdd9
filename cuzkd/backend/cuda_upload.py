"""One partition's vectors on their way to the device.

Problem: the vectors of the next proof should cross while the kernels of this one run, and the host vectors be free
again the moment they have crossed.
Design: a `CudaUpload` enqueues copies on the copy lane into buffers of its own and records an event, which whatever
works on them waits for (cuda_run.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import cupy

from cuzkd import errors
from cuzkd.backend.cuda_device import Buffer, Device
from cuzkd.backend.cuda_key import CudaKey
from cuzkd.backend.cuda_ntt import FR_BYTES
from cuzkd.backend.cuda_ring import Ring
from cuzkd.backend.cuda_stream import Parked
from cuzkd.backend.protocol import U64, Span


@dataclass(frozen=True)
class Columns:
    """The domain's columns a, b, c in one buffer. Rows of the first `given` are as many as there are constraints, and
    what lies behind them is to be cleared; what lies in the others does not matter.
    """

    buffer: Buffer
    rows: int
    given: int


@dataclass(frozen=True)
class Memory:
    """The witness of an upload, there or parked on the host, and its columns where they are not to be made on the
    device.
    """

    z: Buffer | Parked
    columns: Columns | None


class CudaUpload:
    """a, b, c and z of one partition on their way to the device, those of them that travel."""

    def __init__(
        self,
        device: Device,
        key: CudaKey,
        a: U64 | None,
        b: U64 | None,
        c: U64 | None,
        z: U64,
        ring: Ring | None,
    ) -> None:
        vectors = _require_fitting(key, a, b, c, z)
        self.key = key
        self._device = device
        self._hosts = (*vectors, z)  # alive until their copies have landed
        lane, column = device.copy, key.shape.domain * FR_BYTES
        copies, columns = [], None
        if vectors:
            buffer = lane.scratch(3 * column)
            columns = Columns(buffer, len(vectors[0]), len(vectors))
            copies = [(buffer.address + i * column, vector) for i, vector in enumerate(vectors)]
        scalars: Buffer | Parked
        if key.parking is not None:
            scalars = key.parking.park(z)
        else:
            scalars = lane.scratch(z.nbytes)
            copies.append((scalars.address, z))
        self._memory: Memory | None = Memory(scalars, columns)
        self.anchor = device.anchor()
        self.began, self.landed = cupy.cuda.Event(), cupy.cuda.Event(block=True)
        lane.record(self.began)
        if ring is not None:
            ring.copy_in(copies, after=self.began)
        else:
            for address, array in copies:
                lane.copy_in(address, array)
        lane.record(self.landed)
        self.h2d_bytes = sum(array.nbytes for array in (*vectors, z))

    @property
    def launchable(self) -> bool:
        return self._memory is not None and self.key.open

    def take(self) -> Memory:
        """What kernels need, for the one launch that there is."""
        memory, self._memory = self._memory, None
        assert memory is not None  # launchable
        return memory

    def wait(self) -> None:
        """Block until the copies have landed; the host arrays may be reused then."""
        with self._device.guard():
            self.landed.synchronize()
        self._hosts = ()

    @property
    def span(self) -> Span:
        return self.anchor.span("h2d", self._device.copy.name, self.began, self.landed)


def _require_fitting(key: CudaKey, a: U64 | None, b: U64 | None, c: U64 | None, z: U64) -> list[U64]:
    """The vectors that travel beside z: none, a and b, or all three. InvalidInput where they do not fit the key."""
    shape, given = key.shape, [None if v is None else v.shape for v in (a, b, c)]
    vectors = [v for v in (a, b, c) if v is not None]
    if not vectors and key.matrices is None:
        raise errors.InvalidInput(
            "a and b: None, but the key has no matrices on the device to make them from"
        )
    paired = (a is None) == (b is None) and not (a is None and c is not None)
    rows = vectors[0].shape[0] if vectors else 0
    fitting = rows <= shape.domain and all(v.shape == (rows, 4) for v in vectors)
    if not paired or not fitting or z.shape != (shape.n_wires, 4):
        raise errors.InvalidInput(
            f"a, b, c {given}, z {z.shape}: the key takes up to {shape.domain} rows of a and b, of all three "
            f"or of none, and {shape.n_wires} wires"
        )
    return vectors
