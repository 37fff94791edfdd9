"""The GPU scheduler: one thread that feeds the device.

For each ready partition, in their order: upload on the copy stream, wait until the copy has landed, give
the host vectors back (unless the backend works in them), take the device mutex, launch, hand over to the
finalisers. While it waits for the mutex the next partition has already been uploaded: that is all there is
to "copy N+1 beside kernels of N". The mutex of a large one comes back while its last sum still runs (Run.result), so
that the kernels of N+1 stand behind it when the device is through.

Launch sets. Small proofs leave a device half idle, so partitions of one key that are ready while the device is busy
are launched together, up to `launch_set`. When the device is free and another of the key is being synthesised, it is
waited for, `launch_wait_s` at most. Urgent partitions neither wait nor take others along. Whatever happens to one of a
set is that one's own: who is cancelled or fails leaves, and the others go on; when a launch fails, each is computed
again, alone. The mutex comes back when their sums are there: sets that gather longer are larger, and what launches and
host code cost is shared by more (in a stream of 3,000 constraints, 6 to 9 % of the time).

Look-ahead is bounded: a partition keeps its slot among the ready ones for as long as its vectors wait here,
that is until they came back (device), or until the device is its own (in place, or where its memory has no room for
an upload beside a proof). The phase `gpu_wait` is the time a ready partition waits for the device: in line, for the
mutex, and for company.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from cuzkd.backend.protocol import Backend
from cuzkd.engine.faults import NoFaults
from cuzkd.engine.prover.device import DeviceHold, DeviceMutex, on_device
from cuzkd.engine.prover.partition import Line, Partition
from cuzkd.engine.prover.report import Reporter
from cuzkd.engine.prover.residency import ResidentKey
from cuzkd.engine.prover.transfer import Transfer
from cuzkd.errors import DeviceFault

# Of a domain, as a logarithm. A set of proofs of 2^13 takes 0.6 of the time that they take one by one, of 2^20 0.9.
LARGEST_IN_SETS = 18
MUTEX_S = 0.25  # at a time; then those that wait are asked whether they were cancelled
COMPANY_S = 0.005  # the same, while others may join


@dataclass(frozen=True)
class Sets:
    """How partitions are launched together: as many as `most`, waiting `wait_s` for one that is being made."""

    most: int = 1
    wait_s: float = 0.0


@dataclass(frozen=True)
class Surroundings:
    """What the scheduler asks of the threads around it.

    ready: the line that it serves. guarded: run a stage of a partition; False: it failed, and has been answered.
    under_way: is a partition with this key being synthesised? again: one that holds nothing any more is to be computed
    anew.
    """

    ready: Line
    guarded: Callable[[Partition, Callable[[Partition], object]], bool]
    under_way: Callable[[ResidentKey], bool]
    again: Callable[[Partition], None]


class GpuScheduler:
    def __init__(
        self,
        backend: Backend,
        mutex: DeviceMutex,
        transfer: Transfer,
        reporter: Reporter,
        faults: NoFaults,
        around: Surroundings,
        sets: Sets,
    ) -> None:
        self._backend = backend
        self._mutex = mutex
        self._transfer = transfer
        self._reporter = reporter
        self._faults = faults
        self._around = around
        self._sets = sets

    def run(self, first: Partition) -> list[Partition]:
        """Launch a ready partition, maybe with others of its key. Those that were launched: each has its run, and they
        hold the device. The others have been answered, or are to be computed anew.
        """
        key, most = first.key, self._most(first)
        members = [first] if self._around.guarded(first, self._prepare) else []
        if not members or not self._acquire(members, key, most):
            return []
        hold = DeviceHold(self._mutex, gathering=most > 1)
        try:
            self._wait_for_company(members, key, most)
            for partition in members:
                hold.join()
                partition.device = hold
                partition.hold("device", hold.leave)
            return self._launch([m for m in members if self._around.guarded(m, self._begin)])
        finally:
            hold.leave()

    def _most(self, first: Partition) -> int:
        """Partitions that may be launched together with this one, itself included."""
        one_by_one = self._backend.in_place or self._late(first)
        large = first.key.proving.arrays.log_domain > LARGEST_IN_SETS
        return 1 if one_by_one or large or first.urgent or first.alone else max(1, self._sets.most)

    def _late(self, partition: Partition) -> bool:
        """Does it cross only when the device is its own?"""
        return self._transfer.holding_device or partition.key.loaded.one_at_a_time

    def _prepare(self, partition: Partition) -> None:
        partition.check()
        partition.add("gpu_wait", partition.ready_at)
        if not self._late(partition):
            self._upload(partition)
        partition.ready_at = time.monotonic()

    def _acquire(self, members: list[Partition], key: ResidentKey, most: int) -> bool:
        """Wait for the device, and let others join meanwhile. False: no member is left, and it is not ours."""
        while members:
            self._gather(members, key, most)
            if self._mutex.try_acquire(COMPANY_S if len(members) < most else MUTEX_S):
                return True
            members[:] = [m for m in members if self._around.guarded(m, Partition.check)]
        return False

    def _gather(self, members: list[Partition], key: ResidentKey, most: int) -> None:
        """Whoever is ready joins."""
        while len(members) < most:
            partition = self._around.ready.take_now(lambda p: p.resident is key and not p.alone)
            if partition is None:
                return
            if self._around.guarded(partition, self._prepare):
                members.append(partition)

    def _wait_for_company(self, members: list[Partition], key: ResidentKey, most: int) -> None:
        """The device is ours, and idle or nearly so."""
        ready, until = self._around.ready, time.monotonic() + self._sets.wait_s
        self._gather(members, key, most)
        while len(members) < most and not ready.urgent and not any(m.urgent for m in members):
            left = until - time.monotonic()
            if left <= 0 or not self._around.under_way(key):
                return
            if not ready.wait_for(lambda p: p.urgent or (p.resident is key and not p.alone), left):
                return
            self._gather(members, key, most)

    def _begin(self, partition: Partition) -> None:
        """The device is its own."""
        partition.mutex_wait_s += time.monotonic() - partition.ready_at
        partition.add("gpu_wait", partition.ready_at)
        if self._late(partition):
            self._upload(partition)
        partition.free("slot")
        partition.check()
        partition.stage = "proving"
        self._reporter.stage(partition.id, partition.stage)
        self._faults.at("launch")

    def _launch(self, members: list[Partition]) -> list[Partition]:
        if len(members) < 2:
            return [m for m in members if self._around.guarded(m, self._launch_one)]
        fault: DeviceFault | None = None
        try:
            with on_device("launch", self._backend.device):
                runs = self._backend.launch_batch([m.upload for m in members])
        except DeviceFault as error:
            fault = error
        except Exception as error:  # of one of them, or too much at once: alone, each has its own outcome
            traceback.clear_frames(error.__traceback__)
            for partition in members:
                self._fall_out(partition)
            return []
        if fault is not None:
            return [m for m in members if self._around.guarded(m, _raising(fault))]
        for partition, run in zip(members, runs, strict=True):
            partition.launch_set = len(members)
            partition.attempts_inside += 1
            partition.launched(run)
        return members

    def _launch_one(self, partition: Partition) -> None:
        if partition.upload is None:
            raise RuntimeError("launch without an upload")
        with on_device("launch", self._backend.device):
            run = self._backend.launch(partition.upload)
        partition.launch_set = 1
        partition.attempts_inside += 1
        partition.launched(run)

    def _fall_out(self, partition: Partition) -> None:
        partition.alone = True
        if self._around.guarded(partition, Partition.release):
            self._around.again(partition)

    def _upload(self, partition: Partition) -> None:
        self._faults.at("upload")
        self._transfer.upload(partition)
        if not self._backend.in_place:
            partition.drop_vectors()
            partition.free("slot")


def _raising(error: Exception) -> Callable[[Partition], object]:
    def stage(partition: Partition) -> object:
        raise error

    return stage
