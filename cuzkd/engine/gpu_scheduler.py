"""The GPU scheduler: one thread that feeds the device.

For each ready partition, in their order: upload on the copy stream, wait until the copy has landed, give
the host vectors back (unless the backend works in them), take the device mutex, launch, hand over to a
finaliser. While it waits for the mutex the next partition has already been uploaded: that is all there is
to "copy N+1 beside kernels of N".

Look-ahead is bounded: a partition keeps its slot among the ready ones for as long as its vectors wait here,
that is until they came back (device), or until the device is its own (in place). The phase `gpu_wait` is
the time a ready partition waits for the device: in line, and for the mutex.
"""

from __future__ import annotations

import time

from cuzkd.backend.protocol import Backend
from cuzkd.engine.device import DeviceMutex, on_device
from cuzkd.engine.faults import NoFaults
from cuzkd.engine.partition import Partition
from cuzkd.engine.report import Reporter
from cuzkd.engine.transfer import Transfer


class GpuScheduler:
    def __init__(
        self, backend: Backend, mutex: DeviceMutex, transfer: Transfer, reporter: Reporter, faults: NoFaults
    ) -> None:
        self._backend = backend
        self._transfer = transfer
        self._mutex = mutex
        self._reporter = reporter
        self._faults = faults

    def run(self, partition: Partition) -> None:
        """From ready to launched: partition.run is set and it holds the device.

        Raises Cancelled, DeviceFault, Exhausted, LeaseRevoked (the backend kept looking at vectors whose
        copy it had called landed).
        """
        partition.check()
        partition.add("gpu_wait", partition.ready_at)
        if not self._transfer.holding_device:
            self._upload(partition)
        began = time.monotonic()
        partition.mutex_wait_s += self._mutex.acquire(partition.check)
        partition.hold("device", self._mutex.release)
        partition.add("gpu_wait", began)
        if self._transfer.holding_device:
            self._upload(partition)
        partition.free("slot")
        partition.check()
        partition.stage = "proving"
        partition.attempts_inside += 1
        self._reporter.stage(partition.id, partition.stage)
        self._faults.at("launch")
        if partition.upload is None:
            raise RuntimeError("launch without an upload")
        with on_device("launch"):
            partition.run = self._backend.launch(partition.upload)

    def _upload(self, partition: Partition) -> None:
        self._faults.at("upload")
        self._transfer.upload(partition)
        if not self._backend.in_place:
            partition.drop_vectors()
            partition.free("slot")
