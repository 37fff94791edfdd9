"""Engine events to Prometheus.

Problem. Counters that fall, gauges that are registered and never set, and durations without a queue wait let
an operator believe anything.
Design. One subscriber to the engine's events, one registry of its own. Series with known labels exist from
the first scrape on (queue depths, states); series whose labels name a circuit or a device begin with the
first value. Numbers that provers count from their own start are added up as differences, so that a replaced
prover never makes a counter fall. Times come with the events, from monotonic clocks; nothing is measured
here. Life. `handle` on the engine's loop; `text` on any thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from cuzkd.engine.job import JobState, Priority
from cuzkd.engine.stats import (
    BudgetState,
    CircuitLoaded,
    Event,
    Heartbeat,
    JobFinished,
    JobSubmitted,
    PartitionFinished,
    PartitionRetried,
    ProverState,
    QueueDepths,
    WitnessCalculated,
)

# 0.1 ms (a verification's smallest step) to 10 min (synthesis of the largest circuits): about three a decade.
BUCKETS_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
    1, 2, 5, 10, 20, 30, 60, 120, 300, 600,
)  # fmt: skip
STATES = ("starting", "ready", "dead", "stopped")


class Metrics:
    """version: of the daemon, for build info. Give `handle` to Engine.subscribe."""

    def __init__(self, version: str) -> None:
        self.registry = registry = CollectorRegistry()
        Info("cuzkd_build", "Version of the daemon.", registry=registry).info({"version": version})
        self._phase = Histogram(
            "cuzkd_phase_seconds",
            "Time of one partition in one phase; queue_wait and total count from submission, calculation* is before.",
            ("phase", "circuit", "backend"),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._job = Histogram(
            "cuzkd_job_seconds",
            "Submission to the end of a job.",
            ("circuit",),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._waiting = Gauge(
            "cuzkd_queue_partitions", "Partitions that wait.", ("priority",), registry=registry
        )
        self._submitted = Counter("cuzkd_jobs_submitted", "Jobs accepted.", ("priority",), registry=registry)
        self._ended = Counter(
            "cuzkd_jobs", "Jobs that ended, and why.", ("state", "reason"), registry=registry
        )
        self._proofs = Counter(
            "cuzkd_proofs", "Verified proofs made.", ("circuit", "backend"), registry=registry
        )
        self._retries = Counter(
            "cuzkd_retries",
            "Attempts that ended without a proof and were repeated.",
            ("reason",),
            registry=registry,
        )
        self._calculations = Counter(
            "cuzkd_calculations",
            "Witnesses calculated from inputs, or why not.",
            ("reason",),
            registry=registry,
        )
        self._restarts = Counter(
            "cuzkd_prover_deaths", "Prover processes that died.", ("prover",), registry=registry
        )
        self._state = Gauge(
            "cuzkd_prover_state", "1 for the state it is in.", ("prover", "state"), registry=registry
        )
        self._pinned = Gauge(
            "cuzkd_pinned_bytes",
            "Pool memory: slabs = leased + free + lost.",
            ("prover", "state"),
            registry=registry,
        )
        self._slabs = Counter("cuzkd_slabs_made", "Slabs made.", ("on_job_path",), registry=registry)
        self._h2d = Counter("cuzkd_h2d_bytes", "Bytes copied to devices.", registry=registry)
        self._synthesising = Gauge(
            "cuzkd_synthesising_partitions", "In synthesis.", ("prover",), registry=registry
        )
        self._ready = Gauge("cuzkd_ready_partitions", "Synthesised, waiting.", ("prover",), registry=registry)
        self._busy = Gauge(
            "cuzkd_device_busy", "1 while the device's mutex is held.", ("prover",), registry=registry
        )
        self._vram = Gauge("cuzkd_vram_used_bytes", "Device memory in use.", ("prover",), registry=registry)
        self._keys = Gauge("cuzkd_resident_key_bytes", "Keys on the device.", ("prover",), registry=registry)
        self._loaded = Gauge(
            "cuzkd_circuit_resident_bytes", "A loaded key.", ("prover", "circuit"), registry=registry
        )
        self._key_load = Histogram(
            "cuzkd_key_load_seconds", "Loading a key.", ("circuit",), buckets=BUCKETS_S, registry=registry
        )
        self._budget = Gauge("cuzkd_budget_bytes", "Host memory budget.", ("kind",), registry=registry)
        self._budget_waiting = Gauge(
            "cuzkd_budget_requests", "Requests waiting for memory.", registry=registry
        )
        self._beats: dict[str, Heartbeat] = {}
        self._circuits: dict[str, set[str]] = {}
        for priority in Priority:
            self._waiting.labels(_name(priority)).set(0)
            self._submitted.labels(_name(priority))
        for state in (JobState.DONE, JobState.CANCELLED):
            self._ended.labels(state.value, "" if state is JobState.DONE else "cancelled")
        for on_job_path in ("true", "false"):
            self._slabs.labels(on_job_path)
        for reason in ("", "invalid_input", "unsatisfied_witness"):
            self._calculations.labels(reason)
        for reason in ("device_fault", "exhausted", "self_verify", "unavailable"):
            self._retries.labels(reason)

    def handle(self, event: Event) -> None:
        """Take one event in. Events that no series is made of pass by."""
        match event:
            case JobSubmitted():
                self._submitted.labels(_name(event.priority)).inc()
            case JobFinished():
                self._ended.labels(event.state.value, event.reason).inc()
                self._job.labels(event.circuit).observe(event.total_s)
            case PartitionFinished():
                result = event.result
                self._proofs.labels(event.circuit, result.backend).inc()
                self._phases(event.circuit, result.backend, result.phases)
            case WitnessCalculated():
                self._calculations.labels(event.reason).inc()
                self._phases(event.circuit, "intake", event.phases)
            case PartitionRetried():
                self._retries.labels(event.reason).inc()
            case QueueDepths():
                for priority, count in event.waiting.items():
                    self._waiting.labels(_name(priority)).set(count)
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

    def text(self) -> str:
        """All series in Prometheus's text format. Thread-safe."""
        return generate_latest(self.registry).decode()

    def _phases(self, circuit: str, backend: str, phases: Mapping[str, float]) -> None:
        for phase, seconds in phases.items():
            self._phase.labels(phase, circuit, backend).observe(seconds)

    def _beat(self, beat: Heartbeat) -> None:
        before = self._beats.get(beat.prover)
        on_path, off_path, copied = _counts(beat)
        if before is not None:
            was_on_path, was_off_path, was_copied = _counts(before)
            on_path, off_path, copied = on_path - was_on_path, off_path - was_off_path, copied - was_copied
        self._beats[beat.prover] = beat
        self._slabs.labels("true").inc(on_path)
        self._slabs.labels("false").inc(off_path)
        self._h2d.inc(copied)
        self._gauges(beat)

    def _gauges(self, beat: Heartbeat) -> None:
        name = beat.prover
        self._pinned.labels(name, "slab").set(beat.pinned_slab_bytes)
        self._pinned.labels(name, "leased").set(beat.pinned_leased_bytes)
        self._pinned.labels(name, "free").set(beat.pinned_free_bytes)
        self._synthesising.labels(name).set(beat.synthesising)
        self._ready.labels(name).set(beat.ready)
        self._busy.labels(name).set(beat.device_busy)
        self._vram.labels(name).set(beat.vram_used_bytes)
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
        deaths = self._restarts.labels(event.prover)
        for state in STATES:
            self._state.labels(event.prover, state).set(state == event.state)
        if event.state not in ("dead", "stopped"):
            return
        if event.state == "dead":
            deaths.inc()
        # Its memory is free again, and its successor counts from zero.
        if self._beats.pop(event.prover, None) is not None:
            self._gauges(_nothing(event.prover))
        for circuit in self._circuits.pop(event.prover, set()):
            self._loaded.remove(event.prover, circuit)


def _name(priority: Priority) -> str:
    return priority.name.lower()


def _counts(beat: Heartbeat) -> tuple[int, int, int]:
    """What only grows during a prover's life: slabs made on jobs' paths, other slabs, bytes copied."""
    return (
        beat.slabs_made_on_job_path,
        beat.slabs_made - beat.slabs_made_on_job_path,
        beat.h2d_bytes_total,
    )


def _nothing(prover: str) -> Heartbeat:
    return Heartbeat(prover, 0, 0, 0, 0, 0, 0, 0, 0, 0, False, 0)
