"""Series are right, monotonic, and none is empty after one proof."""

import asyncio
import dataclasses

from engine.front import job, running
from prometheus_client.parser import text_string_to_metric_families

from cuzkd.engine.job import JobState, Priority
from cuzkd.engine.stats import (
    BudgetState,
    CircuitLoaded,
    Heartbeat,
    JobFinished,
    PartitionRetried,
    ProverState,
    QueueDepths,
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
    metrics.handle(dataclasses.replace(BEAT, h2d_bytes_total=1500, slabs_made=5))
    assert value(metrics, "cuzkd_h2d_bytes_total") == 1500
    metrics.handle(ProverState("p", "dead", cause="x"))
    assert value(metrics, "cuzkd_pinned_bytes", prover="p", state="slab") == 0
    assert value(metrics, "cuzkd_device_busy", prover="p") == 0
    assert value(metrics, "cuzkd_prover_deaths_total", prover="p") == 1
    assert value(metrics, "cuzkd_prover_state", prover="p", state="dead") == 1
    assert value(metrics, "cuzkd_prover_state", prover="p", state="ready") == 0
    metrics.handle(dataclasses.replace(BEAT, h2d_bytes_total=10, slabs_made=1, slabs_made_on_job_path=1))
    assert value(metrics, "cuzkd_h2d_bytes_total") == 1510
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
