"""The threads of a prover process, and the lines between them.

The reader, `max_parallel_synthesis` threads of synthesis and one more for urgent partitions, one GPU scheduler, two
finalisers, a heartbeat, one that asks the device for its memory.
Partitions travel through lines ordered by (priority, sequence); every one that was offered is answered by
exactly one PartitionDone or PartitionFailed. What goes wrong with one partition is that partition's answer; where
memory was short, what is kept for reuse is given back before it is told, so that the next attempt finds more.
What goes wrong outside of one, or with the device, ends the process: Fatal, and a non-zero exit; the
supervisor starts another.

Locks: the device mutex may be held by a partition through anything; the sending lock of the channel and the
locks of tables and lines are innermost, and none of them is held while another is taken.
"""

from __future__ import annotations

import os
import queue
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from cuzkd.backend.protocol import Backend, Vram
from cuzkd.engine import faults as fault_plans
from cuzkd.engine.channel import Channel
from cuzkd.engine.prover.device import DeviceMutex, on_device
from cuzkd.engine.prover.finaliser import Finaliser, Groth16
from cuzkd.engine.prover.gpu_scheduler import GpuScheduler, Sets, Surroundings
from cuzkd.engine.prover.grants import RemoteGrants, Slabs
from cuzkd.engine.prover.occupancy import Occupancy
from cuzkd.engine.prover.partition import Line, Partition
from cuzkd.engine.prover.report import Failure, Reporter, failure
from cuzkd.engine.prover.residency import Openable, Residency, ResidentKey
from cuzkd.engine.prover.synthesis import Host, Synthesis
from cuzkd.engine.prover.transfer import Transfer, ZeroCopy
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import Cancelled, CuzkdError, DeviceFault, Exhausted, InvalidKey
from cuzkd.memory.hints import CapacityHints
from cuzkd.memory.pool import PinnedPool
from cuzkd.memory.upstream import Upstream

HEARTBEAT_S = 1.0
FINALISERS = 2
EVERYTHING = 1 << 62  # bytes


@dataclass(frozen=True)
class Parts:
    """What the process is made of; tests put simpler ones in its place."""

    backend: Backend
    host: Host
    groth16: Groth16
    upstream: Upstream
    open_circuit: Callable[[str], Openable]
    order: Callable[[str], int]
    hints: CapacityHints  # bytes of leases by circuit digest
    canary: Callable[[str], bool]  # by curve: is the device right? Called with the mutex held
    # By curve: raises DeviceFault where the device is not right. Called with the mutex held whenever a key is loaded;
    # for a curve that has been asked about before, it returns at once.
    selftest: Callable[[str], None] = lambda curve: None
    selftest_s: float = 0.0  # that tests before this process was ready took
    vram_total_bytes: int = 0
    transfer: Transfer | None = None  # zero-copy, unless a bench wants to compare
    synthesis: Callable[..., Synthesis] = Synthesis
    observe: Callable[[Partition], None] = lambda partition: None  # told of each partition that was proved


class Workers:
    """Give it a configured channel and its parts, then `run()`."""

    def __init__(
        self,
        channel: Channel[wire.ToProver],
        config: wire.Configure,
        parts: Parts,
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        self._channel = channel
        self._config = config
        self._parts = parts
        self._leave = leave
        self._stopping = threading.Event()
        self._reporter = Reporter(self._send)
        plan = fault_plans.load(config.fault)
        self._grants = RemoteGrants(self._send, plan)
        self._mutex = DeviceMutex()
        self._occupancy = Occupancy()
        self.pool = PinnedPool(Slabs(parts.upstream, plan), self._grants, config.slab_bytes, config.wipe)
        self._residency = Residency(
            parts.open_circuit,
            parts.backend,
            self._mutex,
            self._grants,
            self._reporter,
            plan,
            parts.selftest,
            self._start,
            evaluate=parts.transfer is None and not parts.backend.in_place,
        )
        self._todo = Line(slots=max(1, config.ready_target))
        self._ready = Line()
        self._launched: queue.SimpleQueue[Partition | None] = queue.SimpleQueue()
        transfer = parts.transfer or ZeroCopy(parts.backend)
        regime = "in-place" if parts.backend.in_place else transfer.name
        self._synthesis = parts.synthesis(
            parts.backend, parts.host, self._residency, self.pool, transfer, self._reporter, plan, self._need
        )
        around = Surroundings(self._ready, self._guarded, self._under_way, self._again)
        sets = Sets(config.launch_set, config.launch_wait_s)
        self._scheduler = GpuScheduler(
            parts.backend, self._mutex, transfer, self._reporter, plan, around, sets
        )
        self._finaliser = Finaliser(
            parts.backend,
            parts.groth16,
            parts.order,
            regime,
            self._device_is_right,
            self._occupancy,
            self._reporter,
            plan,
        )
        self._lock = threading.Lock()  # over the four below
        self._partitions: dict[str, Partition] = {}
        self._prewarmed: set[int] = set()
        self._h2d_bytes_total = 0
        self._vram = Vram()

    # -- the reader --

    def run(self) -> None:
        """Announce readiness, then serve until Shutdown (exit 0) or until the front is gone (exit 1)."""
        backend = self._parts.backend
        largest = self._parts.hints.largest()
        if self._config.prewarm and largest:
            self.pool.prewarm(largest, self._config.ready_target + 1)
        self._threads = [
            self._start(f"synthesis-{n}", lambda: self._synthesise(self._todo.take))
            for n in range(max(1, self._config.max_parallel_synthesis))
        ]
        self._threads.append(
            self._start("synthesis-urgent", lambda: self._synthesise(self._todo.take_urgent))
        )
        self._threads.append(self._start("gpu-scheduler", self._schedule))
        self._threads += [self._start(f"finaliser-{n}", self._finalise) for n in range(FINALISERS)]
        self._threads.append(self._start("heartbeat", self._beat))
        self._threads.append(self._start("device-memory", self._watch_memory))
        self._reporter.ready(
            wire.Ready(
                pid=os.getpid(),
                backend=backend.name,
                device=backend.device,
                device_name=backend.device_name,
                vram_total_bytes=self._parts.vram_total_bytes,
                selftest_s=self._parts.selftest_s,
            )
        )
        while (message := self._channel.receive()) is not None:
            kind = message.WhichOneof("kind")
            if kind == "shutdown":
                self._stop()
                return self._leave(0)
            self._handle(kind, message)
        self._stop()
        return self._leave(1)

    def _handle(self, kind: str | None, message: wire.ToProver) -> None:
        """One message. Nothing here may block: grants arrive through this thread."""
        if kind == "offer":
            self._offer(message.offer)
        elif kind == "cancel":
            self._cancel(message.cancel.partition_id)
        elif kind == "grant":
            self._grants.answer(message.grant)
        elif kind == "preload":
            self._start("preload", lambda: self._preload(message.preload))
        elif kind == "drop":
            drop = message.drop
            self._start("drop", lambda: self._residency.drop(drop.circuit, drop.digest))
        elif kind == "shrink_pool":
            self._start("shrink-pool", lambda: self.pool.trim(message.shrink_pool.bytes))

    def _offer(self, offer: wire.Offer) -> None:
        partition = Partition(
            id=offer.partition_id,
            circuit=offer.circuit,
            digest=offer.circuit_digest,
            spool_path=offer.spool_path,
            priority=offer.priority,
            sequence=offer.sequence,
            attempt=offer.attempt,
        )
        with self._lock:
            self._partitions[partition.id] = partition
        self._todo.put(partition)

    def _cancel(self, partition_id: str) -> None:
        with self._lock:
            partition = self._partitions.get(partition_id)
        if partition is None:
            return
        partition.cancel()
        if self._todo.remove(partition) or self._ready.remove(partition):
            self._end(partition, failure(Cancelled("cancelled at its owner's wish"), partition.stage))

    # -- the stages: each thread a loop over its line, each partition on its own --

    def _synthesise(self, take: Callable[[], Partition | None]) -> None:
        while (partition := take()) is not None:
            if self._guarded(partition, self._synthesis.run):
                self._ready.put(partition)
                if partition.cancelled.is_set():  # the cancel may have come before it stood in line
                    self._cancel(partition.id)

    def _schedule(self) -> None:
        while (first := self._ready.take()) is not None:
            for partition in self._scheduler.run(first):
                self._launched.put(partition)

    def _under_way(self, key: ResidentKey) -> bool:
        with self._lock:
            partitions = list(self._partitions.values())
        return any(p.stage == "synthesising" and p.resident is key for p in partitions)

    def _finalise(self) -> None:
        while (partition := self._launched.get()) is not None:
            moved = -partition.h2d_bytes
            self._guarded(partition, self._finish)
            with self._lock:
                self._h2d_bytes_total += moved + partition.h2d_bytes

    def _finish(self, partition: Partition) -> None:
        try:
            done = self._finaliser.run(partition)
        except InvalidKey:
            self._start("drop", lambda: self._residency.drop(partition.circuit, partition.digest))
            raise
        if done:
            self._forget(partition)
            self._parts.observe(partition)
        else:
            self._again(partition)

    def _again(self, partition: Partition) -> None:
        """It holds nothing any more, and is to be computed from its file on."""
        self._todo.put(partition)
        if partition.cancelled.is_set():  # the cancel may have come before it stood in line
            self._cancel(partition.id)

    def _device_is_right(self, curve: str) -> bool:
        with self._mutex.held(), on_device("canary", self._parts.backend.device):
            return self._parts.canary(curve)

    def _guarded(self, partition: Partition, stage: Callable[[Partition], object]) -> bool:
        """Run a stage. An error is the partition's answer: everything that it holds goes back. True: it
        went on.
        """
        why: Failure | None = None
        try:
            stage(partition)
        except Exception as error:
            why = failure(error, partition.stage, {partition.spool_path: "witness"})
            traceback.clear_frames(
                error.__traceback__
            )  # arrays in the frames would keep its leases from ending
        if why is None:
            return True
        stage_name = partition.stage
        self._end(partition, why)
        if why.fatal:
            self._die(why.code, why.message, stage_name)
        return False

    def _end(self, partition: Partition, why: Failure) -> None:
        try:
            partition.release()
        except (
            CuzkdError
        ) as error:  # a lease that could not end is out of use; the partition has its answer anyway
            self._reporter.log("error", error.code, {"partition_id": partition.id, "message": str(error)}, {})
        if why.code == Exhausted.code:
            self._make_room(partition)
        self._forget(partition)
        self._reporter.failed(partition.id, partition.stage, why)

    def _make_room(self, partition: Partition) -> None:
        """Memory was short: what is kept for reuse goes back, and keys that nobody uses if it was the device's."""
        try:
            self.pool.trim(EVERYTHING)
            if partition.stage in ("ready", "proving"):
                self._residency.evict_idle(but=partition.circuit)
            with on_device("giving memory back", self._parts.backend.device):
                self._parts.backend.trim()
        except CuzkdError as error:
            self._reporter.log("error", error.code, {"partition_id": partition.id, "message": str(error)}, {})

    def _forget(self, partition: Partition) -> None:
        with self._lock:
            if self._partitions.get(partition.id) is partition:
                del self._partitions[partition.id]

    # -- keys and memory --

    def _preload(self, wanted: wire.Preload) -> None:
        try:
            key = self._residency.use(wanted.circuit, wanted.digest)
        except DeviceFault as error:
            return self._die(error.code, str(error), "key")
        except CuzkdError:  # reported by the table
            return None
        return self._residency.done_with(key)

    def _need(self, digest: str, partition_bytes: int) -> None:
        """A partition needs this much: have room for all that may be under way, ahead of the jobs, in the
        background.
        """
        with self._lock:
            known = partition_bytes in self._prewarmed
            self._prewarmed.add(partition_bytes)
        if not known:
            self._parts.hints.learn(digest, partition_bytes)
            if self._config.prewarm:
                self.pool.prewarm(partition_bytes, self._config.ready_target + 1)

    # -- the process --

    def _send(self, message: wire.FromProver) -> None:
        try:
            self._channel.send(message)
        except OSError:  # the front is gone, and with it everybody who could want an answer
            if not self._stopping.is_set():
                self._leave(1)

    def _start(self, name: str, work: Callable[[], object]) -> threading.Thread:
        def supervised() -> None:
            try:
                work()
            except DeviceFault as error:
                self._die(error.code, str(error), name)
            except Exception as error:  # outside of any partition: a bug of ours, and no state to be trusted
                self._die(CuzkdError.code, f"thread {name} ended: {error!r}", name)

        thread = threading.Thread(target=supervised, name=name, daemon=True)
        thread.start()
        return thread

    def _die(self, code: str, message: str, stage: str) -> None:
        device = self._parts.backend.device if code == DeviceFault.code else ""
        if not self._stopping.is_set():
            self._reporter.fatal(code, message, stage, device)
        self._leave(1)

    def _watch_memory(self) -> None:
        """The heart must go on beating while a driver takes its time."""
        while not self._stopping.is_set():
            with on_device("asking for device memory", self._parts.backend.device):
                vram = self._parts.backend.vram()
            with self._lock:
                self._vram = vram
            self._stopping.wait(HEARTBEAT_S)

    def _beat(self) -> None:
        while not self._stopping.wait(HEARTBEAT_S):
            self._reporter.heartbeat(self._heartbeat())

    def _heartbeat(self) -> wire.Heartbeat:
        stats = self.pool.stats()
        resident = self._residency.resident_bytes
        with self._lock:
            stages = [partition.stage for partition in self._partitions.values()]
            moved, vram = self._h2d_bytes_total, self._vram
        return wire.Heartbeat(
            pinned_slab_bytes=stats.slab_bytes,
            pinned_leased_bytes=stats.leased_bytes,
            pinned_free_bytes=stats.free_bytes,
            slabs_made=stats.slabs_made,
            slabs_made_on_job_path=stats.slabs_made_on_job_path,
            h2d_bytes_total=moved,
            vram_used_bytes=vram.used_bytes,
            vram_free_bytes=vram.free_bytes,
            pinned_lost_bytes=stats.quarantined_bytes,
            synthesising=stages.count("synthesising"),
            ready=stages.count("ready"),
            device_busy=self._mutex.busy,
            device_busy_s=self._occupancy.seconds,
            resident_key_bytes=resident,
        )

    def _stop(self) -> None:
        """Let every thread that waits see the end. What runs in native code is left to the end of the
        process.
        """
        self._stopping.set()
        self._grants.close()
        self._todo.close()
        self._ready.close()
        for _ in range(FINALISERS):
            self._launched.put(None)
