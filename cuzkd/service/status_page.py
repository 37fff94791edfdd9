"""/status: everything at once, as JSON.

Problem: the original daemon's dashboards read certain fields; ours has more to say, above all about what is wrong.
Design: the original's fields with their names and meanings (memory to buffers below), then ours. A field that has no
meaning here is there and says nothing wrong: 0, or an empty list. Where a device does not work there is its state and
the cause, never a blank. Sizes in bytes, times as the field's name says; every number is finite.
Life of data: made for one request, of the engine's picture and of the pipelines', and kept nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import cuzkd
from cuzkd.engine.job import JobState, Stage
from cuzkd.engine.status import CircuitStatus, EngineStatus, ProverStatus
from cuzkd.service.conversion import finite, milliseconds
from cuzkd.service.pipelines import JobLine, PartitionLine, Picture

# The original's words.
STATES = {
    Stage.QUEUED: "pending",
    Stage.OFFERED: "pending",
    Stage.SYNTHESISING: "synthesizing",
    Stage.READY: "synth_done",
    Stage.PROVING: "gpu",
    Stage.VERIFYING: "gpu",
    Stage.DONE: "done",
}


def page(status: EngineStatus, picture: Picture, max_synthesis: int) -> bytes:
    """max_synthesis: partitions that one prover may synthesise at once."""
    document = original(status, picture, max_synthesis) | ours(status, picture)
    return json.dumps(document, allow_nan=False).encode()


def original(status: EngineStatus, picture: Picture, max_synthesis: int) -> dict[str, Any]:
    stages = picture.in_stage
    in_device = stages[Stage.PROVING]
    with_vectors = stages[Stage.READY] + in_device
    completed = {f"circuit:{name}": count for name, count in picture.completed.items()}
    failed = {f"circuit:{name}": count for name, count in picture.failed.items()}
    loaded = [circuit for circuit in status.circuits if circuit.loaded]
    return {
        "uptime_secs": finite(status.uptime_s),
        "memory": {
            "total_bytes": status.budget_limit_bytes,
            "used_bytes": status.budget_used_bytes,
            "available_bytes": max(status.budget_limit_bytes - status.budget_used_bytes, 0),
        },
        "synthesis": {
            "max_concurrent": max_synthesis * len(status.provers),
            "active": stages[Stage.SYNTHESISING],
        },
        "pipelines": [_pipeline(job, picture.now_s) for job in picture.jobs],
        "gpu_workers": [_worker(i, prover, picture) for i, prover in enumerate(status.provers)],
        "allocations": {
            "srs": [_allocation(c, max(c.resident_bytes - c.matrix_bytes, 0), picture) for c in loaded],
            "pce": [_allocation(c, min(c.matrix_bytes, c.resident_bytes), picture) for c in loaded],
        },
        "counters": {
            "total_completed": status.jobs["done"],
            "total_failed": status.jobs["failed"],
            "completed_by_kind": completed,
            "failed_by_kind": failed,
            "queue_depth": sum(status.waiting.values()),
        },
        "buffers": {
            "synth_in_flight": stages[Stage.SYNTHESISING],
            "provers_in_flight": with_vectors,  # hold a, b, c
            "aux_in_flight": stages[Stage.SYNTHESISING] + with_vectors,  # hold a witness
            "shells_in_flight": 0,  # vectors go back to the pool; nobody keeps their shells
            "pending_handles": stages[Stage.VERIFYING],
        },
    }


def ours(status: EngineStatus, picture: Picture) -> dict[str, Any]:
    return {
        "version": cuzkd.__version__,
        "serving": status.serving,
        "not_serving_reason": status.not_serving_reason,
        "policy": status.policy,
        "expected_wait_ms": None if status.expected_wait_s is None else milliseconds(status.expected_wait_s),
        "devices": [_device(prover) for prover in status.provers],
        "circuits": [asdict(circuit) for circuit in status.circuits],
        "queues": [asdict(queue) for queue in status.queues],
        "waiting": dict(status.waiting),
        "jobs": dict(status.jobs),
        "failures": dict(status.failures),
        "retries": dict(status.retries),
        "refused": dict(status.refused),
        "resumed_jobs": status.resumed,
        "quarantines": status.quarantines,
        "proofs_completed": status.proofs_completed,
        "pipelines_left_out": picture.left_out,
        "budget": {
            "limit_bytes": status.budget_limit_bytes,
            "used_bytes": status.budget_used_bytes,
            "peak_bytes": status.budget_peak_bytes,
            "waiting_requests": status.budget_waiting,
        },
        "pinned": {
            "slab_bytes": status.pinned_bytes,
            "leased_bytes": status.pinned_leased_bytes,
            "free_bytes": status.pinned_free_bytes,
        },
        "h2d_bytes": status.h2d_bytes,
        "journal": asdict(status.journal) | {"seconds": finite(status.journal.seconds)},
    }


def _pipeline(job: JobLine, now_s: float) -> dict[str, Any]:
    done = sum(line.stage is Stage.DONE for line in job.partitions)
    return {
        "job_id": job.job_id,
        "proof_kind": f"circuit:{job.circuit}",
        "started_secs_ago": finite(now_s - job.begun_s),
        "total_partitions": len(job.partitions),
        "partitions_done": done,
        "partitions": [_partition(i, line, job.ended) for i, line in enumerate(job.partitions)],
        "state": job.ended.value if job.ended else _furthest(job.partitions),
    }


def _furthest(lines: Iterable[PartitionLine]) -> str:
    """Ours: the stage of the partition that is furthest, of those that are not done."""
    order = list(Stage)
    stages = [line.stage for line in lines if line.stage is not Stage.DONE]
    return max(stages, key=order.index, default=Stage.DONE).value


def _partition(index: int, line: PartitionLine, ended: JobState | None) -> dict[str, Any]:
    lost = ended is not None and line.stage is not Stage.DONE
    return {
        "index": index,
        "state": "failed" if lost else STATES[line.stage],
        "synth_ms": None if line.synthesis_s is None else milliseconds(line.synthesis_s),
        "gpu_ms": None if line.device_s is None else milliseconds(line.device_s),
    }


def _worker(ordinal: int, prover: ProverStatus, picture: Picture) -> dict[str, Any]:
    """The original's states are idle and proving; a prover that does neither says what it is, and why."""
    working = picture.working.get(prover.prover)
    busy = prover.state == "proving" and working is not None
    return {
        "worker_id": ordinal,
        "gpu_ordinal": ordinal,
        "state": ("proving" if busy else "idle") if prover.state in ("idle", "proving") else prover.state,
        "current_job": working.job_id if busy and working else None,
        "current_partition": working.index if busy and working else None,
        "busy_secs": finite(picture.now_s - working.since_s) if busy and working else 0.0,
        "device": prover.device,
        "cause": prover.cause,
    }


def _device(prover: ProverStatus) -> dict[str, Any]:
    return asdict(prover) | {"quarantine_left_s": finite(prover.quarantine_left_s)}


def _allocation(circuit: CircuitStatus, nbytes: int, picture: Picture) -> dict[str, Any]:
    used_s = picture.used_s.get(circuit.circuit, picture.now_s)
    return {
        "circuit_id": circuit.circuit,
        "bytes": nbytes,
        "last_used_secs_ago": finite(picture.now_s - used_s),
        "evictable": circuit.users == 0,
    }
