"""Series are right, monotonic, and none is empty after one proof."""

import asyncio
import dataclasses

from engine.front import job, running
from prometheus_client.parser import text_string_to_metric_families

from cuzkd.engine.job import JobState, PartitionResult, Priority
from cuzkd.engine.stats import (
    BudgetState,
    CircuitLoaded,
    DeviceReturned,
    Event,
    Heartbeat,
    JobFinished,
    JobResumed,
    JournalWrite,
    LaunchSet,
    PartitionFinished,
    PartitionRetried,
    ProverState,
    Quarantined,
    QueueDepths,
    Refused,
    SelfTest,
)
from cuzkd.metrics import BUCKETS_S, Metrics

BEAT = Heartbeat("p", 100, 60, 40, 3, 1, 1000, 7, 1, 2, True, 50)


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, labels)


def test_buckets_reach_from_a_tenth_of_a_millisecond_to_ten_minutes():
    assert (BUCKETS_S[0], BUCKETS_S[-1]) == (0.0001, 600) and list(BUCKETS_S) == sorted(BUCKETS_S)


def test_counters_never_fall_when_a_prover_is_replaced():
    metrics = Metrics("1")
    metrics.handle(ProverState("p", "ready"))
    metrics.handle(BEAT)
    metrics.handle(dataclasses.replace(BEAT, h2d_bytes_total=1500, slabs_made=5, device_busy_s=3.25))
    assert value(metrics, "cuzkd_h2d_bytes_total") == 1500
    metrics.handle(ProverState("p", "dead", cause="x"))
    assert value(metrics, "cuzkd_pinned_bytes", prover="p", state="slab") == 0
    assert value(metrics, "cuzkd_device_busy", prover="p") == 0
    assert value(metrics, "cuzkd_prover_deaths_total", prover="p") == 1
    assert value(metrics, "cuzkd_prover_state", prover="p", state="dead") == 1
    assert value(metrics, "cuzkd_prover_state", prover="p", state="ready") == 0
    metrics.handle(
        dataclasses.replace(
            BEAT, h2d_bytes_total=10, slabs_made=1, slabs_made_on_job_path=1, device_busy_s=0.25
        )
    )
    assert value(metrics, "cuzkd_h2d_bytes_total") == 1510
    assert value(metrics, "cuzkd_device_busy_seconds_total", prover="p") == 3.5
    assert value(metrics, "cuzkd_slabs_made_total", on_job_path="true") == 2
    assert value(metrics, "cuzkd_slabs_made_total", on_job_path="false") == 4
    assert value(metrics, "cuzkd_pinned_bytes", prover="p", state="leased") == 60


def test_gauges_and_reasons():
    metrics = Metrics("1")
    metrics.handle(QueueDepths({Priority.HIGH: 3, Priority.LOW: 0}))
    metrics.handle(BudgetState(100, 40, 60, 2))
    metrics.handle(JobFinished("j", "c", JobState.FAILED, "invalid_witness", 0.5))
    metrics.handle(PartitionRetried("j", 0, "c", "self_verify", "m", 1))
    metrics.handle(CircuitLoaded("p", "c", True, 50, 0.1))
    assert value(metrics, "cuzkd_queue_partitions", priority="high") == 3
    assert value(metrics, "cuzkd_budget_bytes", kind="used") == 40
    assert value(metrics, "cuzkd_budget_requests") == 2
    assert value(metrics, "cuzkd_jobs_total", state="failed", reason="invalid_witness") == 1
    assert value(metrics, "cuzkd_retries_total", reason="self_verify") == 1
    assert value(metrics, "cuzkd_circuit_resident_bytes", prover="p", circuit="c") == 50
    metrics.handle(CircuitLoaded("p", "c", False, 0, 0.0))
    assert value(metrics, "cuzkd_circuit_resident_bytes", prover="p", circuit="c") is None


def result(backend="cuda", **phases):
    return PartitionResult(0, b"", (), phases or {"total": 1.0}, backend, "GPU-1", 1, "d", 0)


def test_health_of_devices():
    metrics = Metrics("1")
    metrics.handle(ProverState("p", "starting", pid=1))
    assert value(metrics, "cuzkd_selftests_total", prover="p", result="failed") == 0
    metrics.handle(SelfTest("p", "GPU-1", True, 0.25))
    metrics.handle(ProverState("p", "ready", pid=1, backend="cuda", device="GPU-1"))
    assert value(metrics, "cuzkd_selftests_total", prover="p", result="passed") == 1
    assert value(metrics, "cuzkd_selftest_seconds", prover="p") == 0.25
    assert value(metrics, "cuzkd_provers_ready") == 1
    for series in ("device_quarantined", "quarantines_total", "device_returns_total", "wrong_proofs_total"):
        assert value(metrics, f"cuzkd_{series}", device="GPU-1") == 0, "known from READY on"
    metrics.handle(PartitionRetried("j", 0, "c", "self_verify", "m", 1, "GPU-1"))
    metrics.handle(PartitionRetried("j", 0, "c", "device_fault", "m", 1))
    assert value(metrics, "cuzkd_wrong_proofs_total", device="GPU-1") == 1
    metrics.handle(SelfTest("p", "GPU-1", False, 0.0))
    metrics.handle(ProverState("p", "dead", cause="x"))
    metrics.handle(Quarantined("p", "GPU-1", "x", "selftest", 3, 60.0, {}))
    assert value(metrics, "cuzkd_device_quarantined", device="GPU-1") == 1
    assert value(metrics, "cuzkd_provers_ready") == 0
    metrics.handle(ProverState("p", "ready", pid=2, backend="cpu", device="cpu"))
    assert value(metrics, "cuzkd_device_quarantined", device="GPU-1") == 1, "another one stands in"
    assert value(metrics, "cuzkd_device_quarantined", device="cpu") == 0
    metrics.handle(DeviceReturned("p", "GPU-1"))
    assert value(metrics, "cuzkd_device_quarantined", device="GPU-1") == 0
    assert value(metrics, "cuzkd_quarantines_total", device="GPU-1") == 1
    assert value(metrics, "cuzkd_device_returns_total", device="GPU-1") == 1


def test_the_journal_and_the_door():
    metrics = Metrics("1")
    assert (
        value(metrics, "cuzkd_journal_failing")
        == value(metrics, "cuzkd_refused_total", reason="exhausted")
        == 0
    )
    metrics.handle(JournalWrite(3, 0.004, False))
    metrics.handle(JournalWrite(2, 0.5, True))
    assert value(metrics, "cuzkd_journal_records_total") == 3
    assert value(metrics, "cuzkd_journal_failures_total") == value(metrics, "cuzkd_journal_failing") == 1
    assert value(metrics, "cuzkd_journal_seconds_count") == 2
    metrics.handle(JournalWrite(2, 0.5, False))
    assert value(metrics, "cuzkd_journal_failing") == 0
    metrics.handle(Refused("exhausted"))
    metrics.handle(JobResumed("j", "c", 2, 1))
    assert value(metrics, "cuzkd_refused_total", reason="exhausted") == 1
    assert value(metrics, "cuzkd_jobs_resumed_total") == 1
    assert value(metrics, "cuzkd_serving") == 0
    metrics.serves(True)
    assert value(metrics, "cuzkd_serving") == 1


def test_who_proves():
    for policy, backend, fallbacks in (("prefer", "cpu", 1), ("prefer", "cuda", 0), ("cpu", "cpu", 0)):
        metrics = Metrics("1", policy)
        metrics.handle(PartitionFinished("j", "c", result(backend)))
        assert value(metrics, "cuzkd_cpu_fallback_proofs_total") == fallbacks
    metrics.handle(LaunchSet("p", 5))
    assert value(metrics, "cuzkd_launch_set_partitions_bucket", le="4.0") == 0
    assert value(metrics, "cuzkd_launch_set_partitions_bucket", le="8.0") == 1


def test_lost_and_free_memory():
    metrics = Metrics("1")
    metrics.handle(dataclasses.replace(BEAT, vram_free_bytes=9, pinned_lost_bytes=5))
    assert value(metrics, "cuzkd_vram_free_bytes", prover="p") == 9
    assert value(metrics, "cuzkd_pinned_bytes", prover="p", state="lost") == 5


def test_times_that_are_no_numbers_spoil_nothing():
    metrics = Metrics("1")
    for seconds in (float("nan"), float("inf"), -1.0, 2.0):
        metrics.handle(PartitionFinished("j", "c", result(verify=seconds)))
    labels = {"phase": "verify", "circuit": "c", "backend": "cuda"}
    assert value(metrics, "cuzkd_phase_seconds_sum", **labels) == 2.0
    assert "NaN" not in metrics.text()


def test_every_event_has_a_series_or_is_one_of_the_few_that_need_none():
    """An event that is published and seen nowhere is one that somebody forgot."""
    import inspect
    import typing

    source = inspect.getsource(Metrics.handle)
    unseen = {event.__name__ for event in typing.get_args(Event) if f"case {event.__name__}(" not in source}
    assert unseen == {"PartitionStage"}


def test_after_one_proof_no_series_is_empty(tmp_path):
    metrics = Metrics("1.2.3")

    async def body():
        async with running(tmp_path) as engine:
            engine.subscribe(metrics.handle)
            view = await engine.submit(job("ok"))
            assert (await engine.wait(view.job_id, 60.0)).state is JobState.DONE
            await engine.preload("square")
            ticked = asyncio.Event()
            engine.subscribe(lambda event: ticked.set() if isinstance(event, BudgetState) else None)
            await asyncio.wait_for(ticked.wait(), 60.0)

            families = list(text_string_to_metric_families(metrics.text()))
            empty = [family.name for family in families if not family.samples]
            assert families and not empty
            phases = {
                sample.labels["phase"]: sample.value
                for family in families
                for sample in family.samples
                if sample.name == "cuzkd_phase_seconds_count"
            }
            assert phases == dict.fromkeys(
                ("witness", "synthesis", "h2d", "verify", "queue_wait", "total"), 1
            )
            assert (
                value(metrics, "cuzkd_phase_seconds_sum", phase="h2d", circuit="square", backend="cpu")
                == 0.003
            )
            assert value(metrics, "cuzkd_build_info", version="1.2.3") == 1

    asyncio.run(body())


def test_a_device_that_returns_under_its_full_name_is_not_left_alone_any_more():
    metrics = Metrics("1")
    metrics.handle(Quarantined("prover-1", "GPU-4f5a", "no CUDA device", "start", 2, 60.0, {}))
    metrics.handle(Quarantined("prover-2", "", "no CUDA device", "start", 2, 60.0, {}))
    for prover, device in (("prover-1", "GPU-4f5a1b2c"), ("prover-2", "GPU-77aa")):
        metrics.handle(ProverState(prover, "ready", backend="cuda", device=device))
        metrics.handle(DeviceReturned(prover, device))
    for device in ("GPU-4f5a", "GPU-4f5a1b2c", "prover-2", "GPU-77aa"):
        assert value(metrics, "cuzkd_device_quarantined", device=device) == 0


def test_who_computes_with_what():
    metrics = Metrics("1")
    for prover, device in (("p", "GPU-1"), ("q", "GPU-2")):
        metrics.handle(ProverState(prover, "ready", backend="cuda", device=device))
    assert value(metrics, "cuzkd_prover_device", prover="q", device="GPU-2", backend="cuda") == 1
    metrics.handle(ProverState("q", "dead", cause="x"))
    metrics.handle(ProverState("q", "ready", backend="cpu", device="cpu"))
    assert value(metrics, "cuzkd_prover_device", prover="p", device="GPU-1", backend="cuda") == 1
    assert value(metrics, "cuzkd_prover_device", prover="q", device="GPU-2", backend="cuda") is None
    assert value(metrics, "cuzkd_prover_device", prover="q", device="cpu", backend="cpu") == 1
