"""/status: the original's fields, ours, no blanks when something is wrong, and a page of bounded length."""

import json

import pytest

from cuzkd.engine.job import JobState, PartitionResult, Priority, Stage
from cuzkd.engine.stats import (
    CircuitLoaded,
    JobFinished,
    JobResumed,
    JobSubmitted,
    PartitionFinished,
    PartitionStage,
    ProverState,
)
from cuzkd.engine.status import CircuitStatus, EngineStatus, ProverStatus, QueueStatus
from cuzkd.service import pipelines, status_page
from cuzkd.service.pipelines import Pipelines

# What the original's page has, as its dashboards read it.
ORIGINAL = {
    "uptime_secs": None,
    "memory": {"total_bytes", "used_bytes", "available_bytes"},
    "synthesis": {"max_concurrent", "active"},
    "pipelines": [
        {"job_id", "proof_kind", "started_secs_ago", "total_partitions", "partitions_done", "partitions"}
    ],
    "gpu_workers": [
        {"worker_id", "gpu_ordinal", "state", "current_job", "current_partition", "busy_secs"}
    ],
    "allocations": {"srs", "pce"},
    "counters": {"total_completed", "total_failed", "completed_by_kind", "failed_by_kind", "queue_depth"},
    "buffers": {
        "synth_in_flight", "provers_in_flight", "aux_in_flight", "shells_in_flight", "pending_handles",
    },
}  # fmt: skip


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def seen(clock):
    return Pipelines(clock)


def prover(**changes):
    known = {
        "prover": "p", "state": "idle", "pid": 1, "backend": "cpu", "device": "cpu", "device_name": "a processor",
        "vram_total_bytes": 0, "vram_used_bytes": 0, "synthesising": 0, "ready": 0, "current_job_id": "",
        "current_circuit": "", "restarts": 0, "cause": "",
    }  # fmt: skip
    return ProverStatus(**{**known, **changes})


def status(**changes):
    known = {
        "serving": True, "not_serving_reason": "", "uptime_s": 5.5, "provers": (prover(),),
        "circuits": (CircuitStatus("c", True, 1000, 900, True, 1, 300), CircuitStatus("d", False, 1, 0, False, 0, 1)),
        "queues": (QueueStatus("c", 1, 2),), "waiting": {"low": 0, "normal": 7},
        "jobs": {"done": 3, "failed": 1, "cancelled": 2}, "failures": {"invalid_witness": 1}, "retries": {},
        "proofs_completed": 9, "pinned_bytes": 30, "pinned_leased_bytes": 10, "pinned_free_bytes": 20,
        "h2d_bytes": 4, "budget_used_bytes": 40, "budget_limit_bytes": 100,
    }  # fmt: skip
    return EngineStatus(**{**known, **changes})


def page(seen, **changes):
    return json.loads(status_page.page(status(**changes), seen.picture(), 2), parse_constant=pytest.fail)


def submitted(seen, job_id="j", circuit="c", partitions=1):
    seen.handle(JobSubmitted(job_id, circuit, Priority.NORMAL, partitions))


def moved(seen, stage, job_id="j", index=0):
    seen.handle(PartitionStage(job_id, index, "c", stage, "p"))


def proved(seen, index, **phases):
    seen.handle(PartitionFinished("j", "c", PartitionResult(index, b"", (), phases, "cpu", "cpu", 1, "", 0)))


def test_every_field_of_the_original_is_there(seen):
    submitted(seen)
    shown = page(seen)
    for name, inside in ORIGINAL.items():
        assert name in shown
        if isinstance(inside, set):
            assert inside <= shown[name].keys(), name
        elif inside:
            assert shown[name] and inside[0] <= shown[name][0].keys(), name
    assert shown["pipelines"][0]["partitions"][0].keys() == {"index", "state", "synth_ms", "gpu_ms"}
    for kind, nbytes in (("srs", 600), ("pce", 300)):
        (entry,) = shown["allocations"][kind]
        assert entry.keys() == {"circuit_id", "bytes", "last_used_secs_ago", "evictable"}
        assert (entry["circuit_id"], entry["bytes"], entry["evictable"]) == ("c", nbytes, False)
    assert shown["memory"] == {"total_bytes": 100, "used_bytes": 40, "available_bytes": 60}
    assert shown["counters"]["total_completed"] == 3 and shown["counters"]["queue_depth"] == 7


def test_the_life_of_a_partition(seen, clock):
    submitted(seen, partitions=2)
    states = [line["state"] for line in page(seen)["pipelines"][0]["partitions"]]
    assert states == ["pending", "pending"]
    for stage, state, took_s in (
        (Stage.OFFERED, "pending", 1.0),
        (Stage.SYNTHESISING, "synthesizing", 2.0),
        (Stage.READY, "synth_done", 4.0),
        (Stage.PROVING, "gpu", 8.0),
        (Stage.VERIFYING, "gpu", 16.0),
    ):
        moved(seen, stage)
        clock.now_s += took_s
        shown = page(seen, provers=(prover(state="proving"),))
        assert shown["pipelines"][0]["partitions"][0]["state"] == state
        (worker,) = shown["gpu_workers"]
        if stage is Stage.PROVING:
            assert (worker["state"], worker["current_job"], worker["current_partition"], worker["busy_secs"]) == (
                "proving", "j", 0, 8.0,
            )  # fmt: skip
            assert shown["buffers"]["provers_in_flight"] == 1 and shown["synthesis"] == {
                "max_concurrent": 2,
                "active": 0,
            }
        else:
            assert worker["state"] == "idle" and worker["current_job"] is None
    line = page(seen)["pipelines"][0]["partitions"][0]
    assert (line["synth_ms"], line["gpu_ms"]) == (2000, 8000)
    proved(seen, 0, synthesis=0.5, witness=0.25, msm_h=0.125, verify=9.0)
    moved(seen, Stage.DONE)
    job = page(seen)["pipelines"][0]
    assert job["partitions"][0] == {"index": 0, "state": "done", "synth_ms": 750, "gpu_ms": 125}
    assert (job["partitions_done"], job["total_partitions"], job["state"]) == (1, 2, "queued")


def test_a_partition_that_is_tried_again_begins_anew(seen):
    submitted(seen)
    for stage in (Stage.SYNTHESISING, Stage.READY, Stage.PROVING, Stage.QUEUED):
        moved(seen, stage)
    shown = page(seen, provers=(prover(state="proving"),))
    assert shown["pipelines"][0]["partitions"][0] == {
        "index": 0, "state": "pending", "synth_ms": None, "gpu_ms": None,
    }  # fmt: skip
    assert shown["gpu_workers"][0]["current_job"] is None


def test_an_ended_job_is_shown_for_half_a_minute(seen, clock):
    submitted(seen, partitions=2)
    moved(seen, Stage.SYNTHESISING)
    moved(seen, Stage.PROVING, index=1)
    seen.handle(JobFinished("j", "c", JobState.FAILED, "invalid_witness", 1.0))
    moved(seen, Stage.DONE)  # too late
    shown = page(seen)
    assert shown["pipelines"][0]["state"] == "failed"
    assert [line["state"] for line in shown["pipelines"][0]["partitions"]] == ["failed", "failed"]
    assert (
        shown["counters"]["failed_by_kind"] == {"circuit:c": 1}
        and shown["counters"]["completed_by_kind"] == {}
    )
    assert set(shown["buffers"].values()) == {0} and shown["gpu_workers"][0]["current_job"] is None
    clock.now_s += pipelines.KEPT_S - 1
    assert page(seen)["pipelines"]
    clock.now_s += 1
    shown = page(seen)
    assert not shown["pipelines"] and shown["counters"]["failed_by_kind"] == {"circuit:c": 1}


def test_a_job_that_goes_on_after_a_restart(seen):
    seen.handle(JobResumed("j", "c", 3, 2, (0, 2)))
    job = page(seen)["pipelines"][0]
    assert [line["state"] for line in job["partitions"]] == ["done", "pending", "done"]
    assert job["partitions_done"] == 2


def test_a_dead_prover_is_no_blank(seen):
    submitted(seen)
    moved(seen, Stage.PROVING)
    seen.handle(ProverState("p", "dead", cause="killed by SIGKILL"))
    dead = prover(
        state="dead", cause="killed by SIGKILL", quarantined="GPU-1", quarantine_left_s=40.0, failures=3
    )
    shown = page(seen, provers=(dead,), serving=False, not_serving_reason="no prover is ready")
    (worker,), (device,) = shown["gpu_workers"], shown["devices"]
    assert worker["device"] == device["device"]
    assert (worker["state"], worker["cause"], worker["current_job"]) == ("dead", "killed by SIGKILL", None)
    assert (device["quarantined"], device["quarantine_left_s"], device["failures"]) == ("GPU-1", 40.0, 3)
    assert shown["serving"] is False and shown["not_serving_reason"]


def test_ours(seen):
    shown = page(seen, policy="prefer", expected_wait_s=1.5, refused={"exhausted": 2}, resumed=4)
    assert shown["policy"] == "prefer" and shown["expected_wait_ms"] == 1500
    assert shown["refused"] == {"exhausted": 2} and shown["resumed_jobs"] == 4
    assert shown["journal"]["failures"] == 0 and shown["journal"]["failing"] is False
    assert page(seen)["expected_wait_ms"] is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_no_number_that_is_none(seen, clock, value):
    submitted(seen)
    proved(seen, 0, synthesis=value, h2d=value)
    seen.handle(CircuitLoaded("p", "c", True, 1, value))
    clock.now_s = value
    shown = page(seen, uptime_s=value, expected_wait_s=value, provers=(prover(quarantine_left_s=value),))
    assert shown["uptime_secs"] == 0.0 and shown["pipelines"][0]["partitions"][0]["gpu_ms"] == 0


def test_the_page_is_bounded(seen):
    for i in range(50):
        submitted(seen, f"j{i}", partitions=100)
    shown = page(seen)
    assert [job["job_id"] for job in shown["pipelines"]] == [f"j{i}" for i in range(20)]
    assert shown["pipelines_left_out"] == 30


def test_one_job_is_shown_however_large(seen):
    submitted(seen, partitions=pipelines.MAX_LISTED + 1)
    assert len(page(seen)["pipelines"]) == 1 and page(seen)["pipelines_left_out"] == 0


def test_ended_jobs_are_bounded(seen):
    for i in range(pipelines.MAX_ENDED + 10):
        submitted(seen, f"j{i}")
        seen.handle(JobFinished(f"j{i}", "c", JobState.DONE, "", 1.0))
    assert len(seen._jobs) == pipelines.MAX_ENDED
    assert page(seen)["counters"]["completed_by_kind"] == {"circuit:c": pipelines.MAX_ENDED + 10}
