"""What is kept of ended jobs shows all that there was, and is small."""

import gc
import os
import random
import tracemalloc
import uuid

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
)
from cuzkd.engine.jobs.table import JobTable


def result(index, *, publics=2, phases=PHASES, proof=192, **other):
    rng = random.Random(index)
    return PartitionResult(
        index=index,
        proof=rng.randbytes(proof),
        publics=tuple(rng.randbytes(32) for _ in range(publics)),
        phases={str(phase): rng.random() for phase in phases},
        **{
            "backend": "cpu",
            "device": "cpu",
            "attempts": 2,
            "key_digest": "d" * 64,
            "h2d_bytes": 1 << 40,
            **other,
        },
    )


def job(results, state=JobState.DONE, request_id="", partitions=None):
    """Everything that it consists of is its own, as it is when it comes over the wire."""
    job_id = str(uuid.uuid4())
    records = []
    for n in range(partitions or len(results)):
        file = SpoolFile(f"/state/spool/{job_id}-{n}", 1000, os.urandom(32))
        ticket = Ticket(
            f"{job_id}/{n}", job_id, n, "circuit-7", "d" * 64, file.path, Priority.HIGH, n, attempt=1 + n % 2
        )
        records.append(PartitionRecord(ticket, file, content=os.urandom(32)))
    request = JobRequest("circuit-7", (), request_id, Priority.HIGH, "owner")
    made = Job(job_id, request, os.urandom(32), 10.0, records)
    for record, one in zip(records, results, strict=False):
        record.result = one
        made.move(record, Stage.DONE)
    made.first_begun_s = 11.5
    made.end = End(state, "" if state is JobState.DONE else "internal", "", 15.0)
    return made


@pytest.mark.parametrize("publics", [0, 1, 5])
@pytest.mark.parametrize("phases", [(), ("total",), PHASES])
def test_results_are_what_they_were(publics, phases):
    results = [result(n, publics=publics, phases=phases, proof=size) for n, size in enumerate((192, 256, 0))]
    view = EndedJob.of(job(results)).view()
    assert list(view.results) == results and [r.phases for r in view.results] == [r.phases for r in results]
    assert view.stages == ((Stage.DONE, 1), (Stage.DONE, 2), (Stage.DONE, 1))
    assert (view.partitions, view.partitions_done, view.progress) == (3, 3, 1.0)
    assert (view.total_s, view.queue_wait_s, view.expected_s) == (5.0, 1.5, None)


def test_results_of_one_job_may_come_from_several_places():
    results = [
        result(n, backend=name, device=name, key_digest=name * 9) for n, name in enumerate(("cpu", "cuda"))
    ]
    assert list(EndedJob.of(job(results)).view().results) == results


def test_what_is_not_done_shows_none():
    view = EndedJob.of(job([result(0)], JobState.FAILED, partitions=3)).view()
    assert view.results == () and (view.state, view.error_code) == (JobState.FAILED, "internal")
    assert (view.partitions, view.partitions_done, view.progress) == (3, 1, 0.0)


def test_an_ended_job_takes_a_kilobyte_and_half_of_one_for_each_further_result():
    count = 500

    def grown(partitions):
        table = JobTable(1e9, 1 << 20, 1 << 40)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for n in range(count):
            one = job([result(index) for index in range(partitions)], request_id=f"request-{n}")
            table.add(one)
            table.end(one)
            del one
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / count

    tracemalloc.start()
    try:
        grown(1)  # what is made once
        one, three = grown(1), grown(3)
    finally:
        tracemalloc.stop()
    print(one, three)
    assert one < 1536 and (three - one) / 2 < 640
