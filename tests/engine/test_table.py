"""Lookups, and how ended jobs go away."""

import pytest

from cuzkd.engine.job import Job, JobRequest
from cuzkd.engine.table import JobTable
from cuzkd.errors import NotFound


def add(table, job_id, request_id="", ended_s=None):
    job = Job(job_id, JobRequest("c", (), request_id), b"", 0.0, [])
    table.add(job)
    if ended_s is not None:
        job.ended_s = ended_s
        table.end(job)
    return job


def test_ids():
    table = JobTable(10.0, 10)
    first, second = add(table, "1", "r"), add(table, "2", "r")
    assert table.find("1") is first and table.find("r") is second is table.newest("r")
    assert table.newest("") is None and len(table) == 2
    with pytest.raises(NotFound, match="unknown"):
        table.find("3")


def test_age_and_number():
    table = JobTable(10.0, 2)
    running = add(table, "0")
    for n in range(1, 5):
        add(table, str(n), f"r{n}", ended_s=float(n))
    assert table.expire(4.0) == 2
    assert table.expire(13.0) == 1
    assert table.find("r4").job_id == "4" and table.find("0") is running
    for gone in ("1", "r2", "3"):
        with pytest.raises(NotFound, match="expired"):
            table.find(gone)
    assert table.expire(1e9) == 1 and list(table.running) == [running]


def test_a_newer_job_keeps_the_request_id():
    table = JobTable(10.0, 10)
    add(table, "1", "r", ended_s=0.0)
    newer = add(table, "2", "r")
    table.expire(100.0)
    assert table.find("r") is newer


def test_expired_ids_are_bounded():
    table = JobTable(0.0, 5)
    for n in range(1000):
        add(table, str(n), ended_s=float(n))
        table.expire(float(n))
    assert len(table._expired) == 20 and not table._jobs
