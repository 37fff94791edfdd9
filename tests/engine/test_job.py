"""A job's state is what its partitions' stages amount to."""

import pytest

from cuzkd.engine.ended import EndedJob
from cuzkd.engine.job import (
    PHASES,
    End,
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
        ("done done", "verifying"),  # until its end is recorded and announced
    ],
)
def test_progress(stages, state):
    stages = [Stage(stage) for stage in stages.split()]
    assert make(*stages).state == state
    job = make(*[Stage.QUEUED] * len(stages))
    for record, stage in zip(job.partitions, stages, strict=True):
        job.move(record, stage)
    assert job.state == state and job.proved == (set(stages) == {Stage.DONE})
    assert job.in_hand == [record for record in job.partitions if record.stage.in_hand]
    waiting = [record for record in job.partitions if record.stage is Stage.QUEUED]
    assert job.first_waiting is (waiting[0] if waiting else None)


def test_ends():
    assert [s for s in JobState if s.ended] == [JobState.DONE, JobState.FAILED, JobState.CANCELLED]


def test_a_view_shows_results_only_of_a_job_that_has_ended():
    job = make(Stage.DONE, Stage.PROVING)
    job.partitions[0].result = PartitionResult(0, b"p", (), {}, "cpu", "cpu", 1, "d", 0)
    job.first_begun_s = 11.0
    view = job.view(14.0, queue_position=3)
    assert (view.results, view.partitions_done, view.queue_position) == ((), 1, 3)
    assert (view.queue_wait_s, view.total_s) == (1.0, 4.0)
    job.move(job.partitions[1], Stage.DONE)
    job.partitions[1].result = PartitionResult(1, b"q", (), {}, "cpu", "cpu", 1, "d", 0)
    job.end = End(JobState.DONE, "", "", 15.0)
    view = job.view(16.0)  # chosen, not announced: as before
    assert not view.state.ended and view.results == () and view.total_s == 6.0 and not job.ended.is_set()
    job.announce()
    assert job.state is JobState.DONE and job.ended.is_set()
    view = EndedJob.of(job).view()
    assert [r.proof for r in view.results] == [b"p", b"q"]
    assert (view.total_s, view.queue_wait_s, view.progress) == (5.0, 1.0, 1.0)


def test_secrets_are_not_in_representations():
    assert "secret" not in repr(JobRequest("square", (WitnessBytes(b"secret"),)))


def test_phases_are_a_list_without_repetition():
    assert len(set(PHASES)) == len(PHASES)
    assert (PHASES[0], PHASES[-1]) == ("queue_wait", "total")
