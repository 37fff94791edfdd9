"""Lookups, and how ended jobs go away."""

import pytest

from cuzkd.engine.ended import EndedJob
from cuzkd.engine.job import (
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
from cuzkd.engine.jobs.table import MOST_AT_ONCE, JobTable
from cuzkd.errors import NotFound

PLENTY = 1 << 30


def add(table, job_id, request_id="", ended_s=None, owner="", proof=b"", sequence=1):
    ticket = Ticket(f"{job_id}/0", job_id, 0, "c", "d", "/spool/x", Priority.NORMAL, sequence)
    record = PartitionRecord(ticket, SpoolFile("/spool/x", 1, b""))
    job = Job(job_id, JobRequest("c", (), request_id, owner=owner), b"content", 0.0, [record])
    table.add(job)
    if ended_s is not None:
        record.result = PartitionResult(0, proof, (), {}, "cpu", "cpu", 1, "d", 0)
        job.end = End(JobState.DONE, "", "", ended_s)
        table.end(job)
    return job


def test_ids():
    table = JobTable(10.0, 10, PLENTY)
    first, second = add(table, "1", "r"), add(table, "2", "r")
    assert table.find("1") is first and table.find("r") is second is table.newest("r")
    assert table.newest("") is None and len(table) == 2
    with pytest.raises(NotFound, match="unknown"):
        table.find("3")


def test_of_what_has_ended_the_same_is_found_also_after_a_restart():
    before, after = JobTable(10.0, 10, PLENTY), JobTable(10.0, 10, PLENTY)
    job = add(before, "1", "r", ended_s=1.0, owner="a", proof=b"p")
    after.restore(EndedJob.of(job))
    for table in (before, after):
        found = table.find("r", "a")
        assert (
            found is table.find("1", "a") is table.newest("r", "a") and found.view().results[0].proof == b"p"
        )
        assert (found.content, found.end) == (b"content", job.end)
        assert table.get("1") is None and not len(table) and table._bytes == job.result_bytes
        assert table.expire(11.0) == ["1"] and table._bytes == 0


def test_the_newest_is_who_came_last_whatever_the_clock_said_at_the_end():
    before, after = JobTable(10.0, 10, PLENTY), JobTable(10.0, 10, PLENTY)
    old, new = add(before, "1", "r", ended_s=5.0, sequence=1), add(before, "2", "r", ended_s=3.0, sequence=2)
    for job in (new, old):  # as they ended, by a clock that was set back
        after.restore(EndedJob.of(job))
    for table in (before, after):
        assert table.find("r").job_id == "2"
    running = add(after, "3", "r", sequence=3)
    after.restore(EndedJob.of(old))
    assert after.find("r") is running


def test_owners_do_not_meet():
    table = JobTable(10.0, 10, PLENTY)
    mine, theirs = add(table, "1", "r", owner="a"), add(table, "2", "r", owner="b")
    add(table, "3", "old", ended_s=0.0, owner="a")
    table.expire(100.0)
    assert table.find("r", "a") is mine and table.find("r", "b") is theirs and table.newest("r") is None
    assert table.find("1", "a") is mine
    with pytest.raises(NotFound) as unknown:
        table.find("nobody's", "b")
    for some_id in ("1", "3", "old"):  # not even whether there was such a thing
        with pytest.raises(NotFound) as caught:
            table.find(some_id, "b")
        assert str(caught.value) == str(unknown.value).replace('"nobody\'s"', repr(some_id))
    with pytest.raises(NotFound, match="expired"):
        table.find("old", "a")


def test_age_and_number():
    table = JobTable(10.0, 2, PLENTY)
    running = add(table, "0")
    for n in range(1, 5):
        add(table, str(n), f"r{n}", ended_s=float(n))
    assert table.expire(4.0) == ["1", "2"]
    assert table.expire(13.0) == ["3"]
    assert table.find("r4").job_id == "4" and table.find("0") is running
    for gone in ("1", "r2", "3"):
        with pytest.raises(NotFound, match="expired"):
            table.find(gone)
    assert table.expire(1e9) == ["4"] and list(table.running) == [running]


def test_bytes():
    table = JobTable(1e9, 100, 10_000)
    for n in range(5):
        add(table, str(n), ended_s=float(n), proof=bytes(3000))
    assert table.expire(5.0) == ["0", "1", "2"]
    add(table, "large", ended_s=6.0, proof=bytes(1 << 20))
    assert table.expire(6.0) == ["3", "4"]  # the newest stays, whatever its size
    add(table, "small", ended_s=7.0)
    assert table.expire(7.0) == ["large"] and table._bytes < 2000


def test_not_everything_at_once():
    table = JobTable(1.0, 1 << 20, PLENTY)
    for n in range(MOST_AT_ONCE + 5):
        add(table, str(n), ended_s=0.0)
    assert [len(table.expire(10.0)) for _ in range(3)] == [MOST_AT_ONCE, 5, 0]


def test_a_newer_job_keeps_the_request_id():
    table = JobTable(10.0, 10, PLENTY)
    add(table, "1", "r", ended_s=0.0)
    newer = add(table, "2", "r")
    table.expire(100.0)
    assert table.find("r") is newer


def test_expired_ids_are_bounded():
    table = JobTable(0.0, 5, PLENTY)
    for n in range(1000):
        add(table, str(n), ended_s=float(n))
        table.expire(float(n))
    assert len(table._expired) == 20 and not table._ended and not table._newest


def test_what_waits_and_what_provers_have():
    table = JobTable(10.0, 10, PLENTY)
    assert table.loads() == {}
    first, second = add(table, "1"), add(table, "2")
    assert table.loads() == {"c": (2, 0)}
    for job in (first, second):
        table.moved("c", Stage.QUEUED, Stage.OFFERED)
        job.move(job.partitions[0], Stage.OFFERED)
    table.moved("c", Stage.OFFERED, Stage.PROVING)
    first.move(first.partitions[0], Stage.PROVING)
    assert table.loads() == {"c": (0, 2)}
    table.moved("c", Stage.PROVING, Stage.DONE)
    first.move(first.partitions[0], Stage.DONE)
    assert table.loads() == {"c": (0, 1)}
    for job in (first, second):
        job.end = End(JobState.CANCELLED, "cancelled", "", 0.0)
        table.end(job)
    assert table.loads() == {} and not +table._waiting and not +table._in_hand


def test_which_keys_are_counted_on():
    table = JobTable(10.0, 10, PLENTY)
    first, second = add(table, "1"), add(table, "2")
    for job in (first, second):
        assert table.counts_on("c", "d") and not table.counts_on("c", "e")
        job.end = End(JobState.CANCELLED, "cancelled", "", 0.0)
        table.end(job)
    assert not table.counts_on("c", "d")
