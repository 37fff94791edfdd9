"""A key on its way to the device, whole or piece by piece.

Problem: the points of a key for 2^27 constraints are 75 GB. In host memory they would be there only to be copied, and
many machines with such a device have less.
Design: room for the points is taken first, as the key's plan says: device memory, and page-locked memory for queries
that are going to be streamed. Whoever reads a file calls `into` from as many threads as it reads with; each piece
crosses from the memory that it was read into, on the lane that streamed points use, beside the kernels of other keys'
proofs.
Life of the data: file -> page-locked piece -> device, or its place in host memory; `finish` makes it a key.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from math import prod

import numpy as np
from numpy.typing import NDArray

from cuzkd.backend.cuda_device import Buffer, Device, register_host, unregister_host
from cuzkd.backend.cuda_key import CudaKey
from cuzkd.backend.cuda_plan import MemoryPlan
from cuzkd.backend.cuda_stream import Parking
from cuzkd.backend.protocol import QUERIES, U64, KeyArrays, KeyShape
from cuzkd.curves.limbs import FR_LIMBS
from cuzkd.memory.upstream import PAGE_BYTES, PagesUpstream, RegisteringUpstream

Finish = Callable[
    [KeyShape, MemoryPlan, dict[str, Buffer], dict[str, U64], Callable[[], None], Parking | None], CudaKey
]


class CudaReceiver:
    """backend.protocol.Receiver. finish: makes a key of shape, plan, points here and there, and what gives the latter
    back. whole: a key whose points are in host memory: they have all come then, and its arrays stay where they are.
    """

    def __init__(
        self,
        device: Device,
        shape: KeyShape,
        plan: MemoryPlan,
        finish: Finish,
        whole: KeyArrays | None = None,
    ) -> None:
        self._device, self._shape, self._plan, self._finish = device, shape, plan, finish
        self._pieces, self._kept = ExitStack(), ExitStack()
        self._host: dict[str, U64] = {}
        self._bases: dict[str, Buffer] = {}
        self._parking: Parking | None = None
        resident = [name for name in QUERIES if name not in plan.streamed]
        try:
            with device.guard():
                for name in plan.streamed:
                    self._host[name] = self._in_host_memory(name, whole)
                if whole is not None:
                    buffers = device.put_resident([getattr(whole, name) for name in resident])
                else:
                    buffers = device.resident_buffers([8 * prod(shape.shape_of(name)) for name in resident])
                self._bases = dict(zip(resident, buffers, strict=True))
                if plan.parked:
                    self._parking = Parking(self._pages((shape.n_wires, FR_LIMBS)))
        except BaseException:
            self.close()
            raise

    def _in_host_memory(self, name: str, whole: KeyArrays | None) -> U64:
        """Room for a query's points or, of a whole key, these, where they are if they begin a page."""
        if whole is None:
            return self._pages(self._shape.shape_of(name))
        array: U64 = getattr(whole, name)
        address = array.ctypes.data
        if array.nbytes and address % PAGE_BYTES == 0 and array.flags.c_contiguous:
            register_host(address, array.nbytes)
            self._kept.callback(lambda: unregister_host(array.ctypes.data))  # which keeps it until then
            return array
        copy = self._pages(array.shape)
        copy[...] = array
        return copy

    def _pages(self, shape: tuple[int, ...]) -> U64:
        return _locked_pages(8 * prod(shape), self._kept).view(np.uint64).reshape(shape)

    def memory(self, nbytes: int) -> memoryview:
        with self._device.guard():
            return _locked_pages(nbytes, self._pieces).data

    def into(self, query: str, begin: int, data: memoryview) -> None:
        piece = np.frombuffer(data, np.uint8)
        if query in self._host:
            self._host[query].reshape(-1).view(np.uint8)[begin : begin + piece.nbytes] = piece
            return
        keys = self._device.keys
        with self._device.guard():
            keys.copy_in(self._bases[query].slice(begin, piece.nbytes).address, piece)
            keys.event().synchronize()

    def finish(self) -> CudaKey:
        with self._device.guard():
            self._pieces.close()
            kept = self._kept.pop_all()
            bases, self._bases = self._bases, {}
            try:
                return self._finish(self._shape, self._plan, bases, self._host, kept.close, self._parking)
            except BaseException:
                kept.close()
                raise

    def close(self) -> None:
        self._bases, self._host = {}, {}
        with self._device.guard():
            self._pieces.close()
            self._kept.close()
            self._device.free_resident()


def _locked_pages(nbytes: int, undo: ExitStack) -> NDArray[np.uint8]:
    """Pages of our own, huge where they can be, there and locked until `undo` is closed."""
    pages = PagesUpstream(len(os.sched_getaffinity(0)))
    slab = RegisteringUpstream(pages, register_host, unregister_host).make(nbytes)
    del slab.on_close[0]  # they are unmapped with their last view
    undo.callback(slab.close)
    return np.frombuffer(slab.view, np.uint8)[:nbytes]
