"""Events add up; a dead prover takes its memory along, not its history."""

import dataclasses

from cuzkd.engine.job import JobState, PartitionResult, Priority
from cuzkd.engine.stats import (
    CircuitLoaded,
    Heartbeat,
    JobFinished,
    JobSubmitted,
    PartitionFinished,
    PartitionRetried,
    ProverState,
    Stats,
)

BEAT = Heartbeat("p", 100, 60, 40, 3, 1, 1000, 7, 1, 2, True, 50)
RESULT = PartitionResult(
    0, b"", (), {"verify": 0.1, "queue_wait": 1.0, "total": 2.0}, "cpu", "cpu", 1, "d", 64
)


def test_jobs_and_failures():
    stats = Stats()
    stats.handle(JobSubmitted("1", "c", Priority.LOW, 1))
    stats.handle(PartitionFinished("1", "c", RESULT))
    stats.handle(JobFinished("1", "c", JobState.DONE, "", 1.0))
    stats.handle(JobFinished("2", "c", JobState.FAILED, "invalid_witness", 1.0))
    stats.handle(PartitionRetried("3", 0, "c", "device_fault", "m", 1))
    assert stats.jobs == {"done": 1, "failed": 1, "cancelled": 0}
    assert stats.failures == {"invalid_witness": 1} and stats.retries == {"device_fault": 1}
    assert stats.proofs_completed == 1


def test_provers():
    stats = Stats()
    stats.handle(ProverState("p", "starting", pid=1))
    stats.handle(ProverState("p", "ready", pid=1))
    stats.handle(BEAT)
    stats.handle(CircuitLoaded("p", "c", True, 50, 0.1))
    assert stats.pinned() == (100, 60, 40) and stats.h2d_bytes == 1000 and stats.resident("c") == 50
    stats.handle(ProverState("p", "dead", cause="x"))
    assert stats.pinned() == (0, 0, 0) and stats.h2d_bytes == 1000 and stats.resident("c") is None
    stats.handle(ProverState("p", "ready", pid=2))
    stats.handle(dataclasses.replace(BEAT, h2d_bytes_total=5))
    assert stats.h2d_bytes == 1005 and stats.provers["p"].restarts == 1
