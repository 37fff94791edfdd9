"""Engine events to Prometheus.

Problem. Counters that fall, gauges that are registered and never set, and durations without a queue wait let
an operator believe anything.
Design. One subscriber to the engine's events, one registry of its own. Series with known labels exist from
the first scrape on (queue depths, states, reasons); series whose labels name a circuit or a device begin with
the first value. Numbers that provers count from their own start are added up as differences, so that a
replaced prover never makes a counter fall. Times come with the events, from monotonic clocks; nothing is
measured here. deploy/alerts.yml says of which an operator should hear, and what to do then.
Life. `handle` and `serves` on the engine's loop; `text` on any thread.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from cuzkd.engine.job import JobState, Priority
from cuzkd.engine.stats import (
    GONE,
    BudgetState,
    CircuitLoaded,
    DeviceReturned,
    Event,
    Heartbeat,
    JobFinished,
    JobResumed,
    JobSubmitted,
    JournalWrite,
    LaunchSet,
    PartitionFinished,
    PartitionRetried,
    ProverState,
    Quarantined,
    QueueDepths,
    Refused,
    SelfTest,
    WitnessCalculated,
)
from cuzkd.errors import BY_CODE, Cancelled

# 0.1 ms (a verification's smallest step) to 10 min (synthesis of the largest circuits): about three a decade.
BUCKETS_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
    1, 2, 5, 10, 20, 30, 60, 120, 300, 600,
)  # fmt: skip
SET_SIZES = (1, 2, 4, 8, 16, 32, 64)
STATES = ("starting", "ready", "dead", "quarantined", "stopped")
TROUBLES = tuple(code for code in BY_CODE if code != Cancelled.code)


class Metrics:
    """version: of the daemon, for build info. policy: who is to compute. Give `handle` to Engine.subscribe."""

    def __init__(self, version: str, policy: str = "prefer") -> None:
        self.registry = registry = CollectorRegistry()
        self._policy = policy

        def counter(name: str, says: str, *labels: str) -> Counter:
            return Counter(f"cuzkd_{name}", says, labels, registry=registry)

        def gauge(name: str, says: str, *labels: str) -> Gauge:
            return Gauge(f"cuzkd_{name}", says, labels, registry=registry)

        def seconds(name: str, says: str, *labels: str) -> Histogram:
            return Histogram(f"cuzkd_{name}_seconds", says, labels, buckets=BUCKETS_S, registry=registry)

        Info("cuzkd_build", "Version of the daemon.", registry=registry).info({"version": version})
        self._serving = gauge("serving", "1 while jobs are accepted and a prover can work.")
        # jobs
        self._phase = seconds(
            "phase",
            "Time of one partition in one phase; queue_wait and total count from submission, calculation* is before.",
            *("phase", "circuit", "backend"),
        )
        self._job = seconds("job", "Submission to the end of a job.", "circuit")
        self._waiting = gauge("queue_partitions", "Partitions that wait.", "priority")
        self._submitted = counter("jobs_submitted", "Jobs accepted.", "priority")
        self._refused = counter("refused", "Submissions that were not accepted, and why.", "reason")
        self._resumed = counter("jobs_resumed", "Jobs of an earlier run of the daemon that went on.")
        self._ended = counter("jobs", "Jobs that ended, and why.", "state", "reason")
        self._proofs = counter("proofs", "Verified proofs made.", "circuit", "backend")
        self._retries = counter("retries", "Attempts that ended without a proof and were repeated.", "reason")
        self._calculations = counter(
            "calculations", "Witnesses calculated from inputs, or why not.", "reason"
        )
        # the journal
        self._journal = seconds("journal", "One transaction of the journal, until it is on the disk.")
        self._records = counter("journal_records", "Records that are on the disk.")
        self._journal_failures = counter("journal_failures", "Transactions that could not be written.")
        self._journal_failing = gauge("journal_failing", "1 while the last transaction could not be written.")
        # provers and devices
        self._deaths = counter("prover_deaths", "Prover processes that died.", "prover")
        self._state = gauge("prover_state", "1 for the state it is in.", "prover", "state")
        self._works_on = gauge(
            "prover_device", "1 for what it computes with now.", "prover", "device", "backend"
        )
        self._ready_provers = gauge("provers_ready", "Prover processes that can work.")
        self._selftests = counter(
            "selftests", "Known proofs made before a prover was ready.", "prover", "result"
        )
        self._selftest_s = gauge("selftest_seconds", "Time of the last self-test that passed.", "prover")
        self._quarantined = gauge("device_quarantined", "1 while a device is left alone.", "device")
        self._quarantines = counter("quarantines", "Quarantines that began.", "device")
        self._returns = counter("device_returns", "Devices that came back from quarantine.", "device")
        self._wrong = counter("wrong_proofs", "Proofs that did not verify and were made again.", "device")
        self._fallback = counter("cpu_fallback_proofs", "Made by the processor where a device is preferred.")
        self._sets = Histogram(
            "cuzkd_launch_set_partitions",
            "Of each proof: how many partitions its device began together.",
            buckets=SET_SIZES,
            registry=registry,
        )
        self._synthesising = gauge("synthesising_partitions", "In synthesis.", "prover")
        self._ready = gauge("ready_partitions", "Synthesised, waiting.", "prover")
        self._busy = gauge("device_busy", "1 while the device's mutex is held.", "prover")
        self._busy_s = counter(
            "device_busy_seconds", "Time in which kernels of partitions ran whose sums came.", "prover"
        )
        # memory
        self._pinned = gauge(
            "pinned_bytes",
            "Pool memory: slabs = leased + free + lost; lost is what somebody still looks at after its lease.",
            *("prover", "state"),
        )
        self._slabs = counter("slabs_made", "Slabs made.", "on_job_path")
        self._h2d = counter("h2d_bytes", "Bytes copied to devices.")
        self._vram = gauge("vram_used_bytes", "Device memory in use, by whomever.", "prover")
        self._vram_free = gauge("vram_free_bytes", "Device memory that is free.", "prover")
        self._keys = gauge("resident_key_bytes", "Keys on the device.", "prover")
        self._loaded = gauge("circuit_resident_bytes", "A loaded key.", "prover", "circuit")
        self._key_load = seconds("key_load", "Loading a key.", "circuit")
        self._budget = gauge("budget_bytes", "Host memory budget.", "kind")
        self._budget_waiting = gauge("budget_requests", "Requests waiting for memory.")
        # Looked up for every proof, again and again: by labels, once.
        self._phase_of = functools.cache(self._phase.labels)
        self._waiting_of = functools.cache(self._waiting.labels)
        self._beats: dict[str, Heartbeat] = {}
        self._circuits: dict[str, set[str]] = {}
        self._states: dict[str, str] = {}
        self._devices: dict[str, tuple[str, str, str]] = {}  # labels of prover_device, by prover
        self._left_alone: dict[str, str] = {}  # label of device_quarantined, by prover
        self._begin()

    def _begin(self) -> None:
        """Every series whose labels are known has a value."""
        for priority in Priority:
            self._waiting.labels(_name(priority)).set(0)
            self._submitted.labels(_name(priority))
        self._ended.labels(JobState.DONE.value, "")
        self._ended.labels(JobState.CANCELLED.value, Cancelled.code)
        for code in TROUBLES:
            self._ended.labels(JobState.FAILED.value, code)
            self._refused.labels(code)
        for on_job_path in ("true", "false"):
            self._slabs.labels(on_job_path)
        for reason in ("", *TROUBLES):
            self._calculations.labels(reason)
        for reason in ("self_verify", *TROUBLES):
            self._retries.labels(reason)
        for kind in ("limit", "used", "peak"):
            self._budget.labels(kind)

    def serves(self, serving: bool) -> None:
        """Whether the daemon says SERVING now."""
        self._serving.set(serving)

    def handle(self, event: Event) -> None:
        """Take one event in. Events that no series is made of pass by."""
        match event:
            case JobSubmitted():
                self._submitted.labels(_name(event.priority)).inc()
            case JobFinished():
                self._ended.labels(event.state.value, event.reason).inc()
                self._job.labels(event.circuit).observe(event.total_s)
            case JobResumed():
                self._resumed.inc()
            case Refused():
                self._refused.labels(event.reason).inc()
            case JournalWrite():
                self._written(event)
            case PartitionFinished():
                result = event.result
                self._proofs.labels(event.circuit, result.backend).inc()
                if self._policy == "prefer" and result.backend == "cpu":
                    self._fallback.inc()
                self._phases(event.circuit, result.backend, result.phases)
            case LaunchSet():
                self._sets.observe(event.size)
            case WitnessCalculated():
                self._calculations.labels(event.reason).inc()
                self._phases(event.circuit, "intake", event.phases)
            case PartitionRetried():
                self._retries.labels(event.reason).inc()
                if event.device:
                    self._wrong.labels(event.device).inc()
            case QueueDepths():
                for priority, count in event.waiting.items():
                    self._waiting_of(_name(priority)).set(count)
            case BudgetState():
                self._budget.labels("limit").set(event.limit_bytes)
                self._budget.labels("used").set(event.used_bytes)
                self._budget.labels("peak").set(event.peak_bytes)
                self._budget_waiting.set(event.waiting)
            case Heartbeat():
                self._beat(event)
            case CircuitLoaded():
                self._circuit(event)
            case ProverState():
                self._prover(event)
            case SelfTest():
                self._selftests.labels(event.prover, "passed" if event.passed else "failed").inc()
                if event.passed:
                    self._selftest_s.labels(event.prover).set(event.seconds)
            case Quarantined():
                name = event.device or event.prover
                self._device(name)
                self._left_alone[event.prover] = name
                self._quarantined.labels(name).set(1)
                self._quarantines.labels(name).inc()
            case DeviceReturned():
                self._device(event.device)
                # It may have gone by another name: the beginning of its UUID, before it was seen.
                self._quarantined.labels(self._left_alone.pop(event.prover, event.device)).set(0)
                self._returns.labels(event.device).inc()

    def text(self) -> str:
        """All series in Prometheus's text format. Thread-safe."""
        return generate_latest(self.registry).decode()

    def _phases(self, circuit: str, backend: str, phases: Mapping[str, float]) -> None:
        for phase, seconds in phases.items():
            if math.isfinite(seconds):  # a sum with NaN in it stays NaN
                self._phase_of(phase, circuit, backend).observe(max(seconds, 0.0))

    def _written(self, event: JournalWrite) -> None:
        self._journal.observe(event.seconds)
        self._journal_failing.set(event.failed)
        if event.failed:
            self._journal_failures.inc()
        else:
            self._records.inc(event.records)

    def _beat(self, beat: Heartbeat) -> None:
        before = self._beats.get(beat.prover)
        on_path, off_path, copied, busy_s = map(
            operator.sub, _counts(beat), _counts(before or _nothing(beat.prover))
        )
        self._beats[beat.prover] = beat
        self._slabs.labels("true").inc(on_path)
        self._slabs.labels("false").inc(off_path)
        self._h2d.inc(copied)
        self._busy_s.labels(beat.prover).inc(busy_s)
        self._gauges(beat)

    def _gauges(self, beat: Heartbeat) -> None:
        name = beat.prover
        self._pinned.labels(name, "slab").set(beat.pinned_slab_bytes)
        self._pinned.labels(name, "leased").set(beat.pinned_leased_bytes)
        self._pinned.labels(name, "free").set(beat.pinned_free_bytes)
        self._pinned.labels(name, "lost").set(beat.pinned_lost_bytes)
        self._synthesising.labels(name).set(beat.synthesising)
        self._ready.labels(name).set(beat.ready)
        self._busy.labels(name).set(beat.device_busy)
        self._vram.labels(name).set(beat.vram_used_bytes)
        self._vram_free.labels(name).set(beat.vram_free_bytes)
        self._keys.labels(name).set(beat.resident_key_bytes)

    def _circuit(self, event: CircuitLoaded) -> None:
        loaded = self._circuits.setdefault(event.prover, set())
        if event.loaded:
            loaded.add(event.circuit)
            self._loaded.labels(event.prover, event.circuit).set(event.nbytes)
            self._key_load.labels(event.circuit).observe(event.load_s)
        elif event.circuit in loaded:
            loaded.remove(event.circuit)
            self._loaded.remove(event.prover, event.circuit)

    def _prover(self, event: ProverState) -> None:
        deaths = self._deaths.labels(event.prover)
        for result in ("passed", "failed"):
            self._selftests.labels(event.prover, result)
        for state in STATES:
            self._state.labels(event.prover, state).set(state == event.state)
        self._states[event.prover] = event.state
        self._ready_provers.set(sum(state == "ready" for state in self._states.values()))
        if before := self._devices.pop(event.prover, None):
            self._works_on.remove(*before)
        if event.state == "ready":
            self._device(event.device)
            self._devices[event.prover] = event.prover, event.device, event.backend
            self._works_on.labels(*self._devices[event.prover]).set(1)
        if event.state not in GONE:
            return
        if event.state == "dead":
            deaths.inc()
        # Its memory is free again, and its successor counts from zero.
        if self._beats.pop(event.prover, None) is not None:
            self._gauges(_nothing(event.prover))
        for circuit in self._circuits.pop(event.prover, set()):
            self._loaded.remove(event.prover, circuit)

    def _device(self, device: str) -> None:
        """Its series begin."""
        for series in (self._quarantined, self._quarantines, self._returns, self._wrong):
            series.labels(device)


def _name(priority: Priority) -> str:
    return priority.name.lower()


def _counts(beat: Heartbeat) -> tuple[int, int, int, float]:
    """What only grows during a prover's life: slabs made on jobs' paths, other slabs, bytes copied, time of kernels."""
    return (
        beat.slabs_made_on_job_path,
        beat.slabs_made - beat.slabs_made_on_job_path,
        beat.h2d_bytes_total,
        beat.device_busy_s,
    )


def _nothing(prover: str) -> Heartbeat:
    return Heartbeat(prover, 0, 0, 0, 0, 0, 0, 0, 0, 0, False, 0)
