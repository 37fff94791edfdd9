"""A job's state is what its partitions' stages amount to."""

import pytest

from cuzkd.engine.job import (
    PHASES,
    Job,
    JobRequest,
    JobState,
    PartitionRecord,
    PartitionResult,
    Priority,
    SpoolFile,
    Stage,
    Ticket,
    WitnessBytes,
)


def make(*stages):
    records = [
        PartitionRecord(
            Ticket(f"j/{n}", "j", n, "square", "d", "/spool/x", Priority.NORMAL, n),
            SpoolFile("/spool/x", 1, b"d"),
            stage,
        )
        for n, stage in enumerate(stages)
    ]
    return Job("j", JobRequest("square", ()), b"", 10.0, records)


@pytest.mark.parametrize(
    ("stages", "state"),
    [
        ("queued", "queued"),
        ("offered", "queued"),
        ("queued synthesising", "synthesising"),
        ("ready queued", "synthesising"),
        ("proving ready queued", "proving"),
        ("done queued queued", "proving"),
        ("done verifying queued", "verifying"),
        ("done done", "done"),
    ],
)
def test_progress(stages, state):
    assert make(*map(Stage, stages.split())).progress() == state


def test_ends():
    assert [s for s in JobState if s.ended] == [JobState.DONE, JobState.FAILED, JobState.CANCELLED]


def test_a_view_shows_results_only_of_a_job_that_is_done():
    job = make(Stage.DONE, Stage.PROVING)
    job.partitions[0].result = PartitionResult(0, b"p", (), {}, "cpu", "cpu", 1, "d", 0)
    job.state, job.first_begun_s = job.progress(), 11.0
    view = job.view(14.0, queue_position=3)
    assert (view.results, view.partitions_done, view.queue_position) == ((), 1, 3)
    assert (view.queue_wait_s, view.total_s) == (1.0, 4.0)
    job.partitions[1].stage = Stage.DONE
    job.partitions[1].result = PartitionResult(1, b"q", (), {}, "cpu", "cpu", 1, "d", 0)
    job.state, job.ended_s = job.progress(), 15.0
    assert [r.proof for r in job.view(99.0).results] == [b"p", b"q"]
    assert job.view(99.0).total_s == 5.0


def test_secrets_are_not_in_representations():
    assert "secret" not in repr(JobRequest("square", (WitnessBytes(b"secret"),)))


def test_phases_are_a_list_without_repetition():
    assert len(set(PHASES)) == len(PHASES)
    assert (PHASES[0], PHASES[-1]) == ("queue_wait", "total")
