"""Between the wire and the engine: every number that leaves is one, and callers are who they are."""

import math
from types import SimpleNamespace

import pytest

from cuzkd.engine.job import JobState, JobView, PartitionResult, Priority, Stage
from cuzkd.service import conversion, owners
from cuzkd.service.interceptors import _peer
from cuzkd.service.v1 import proving_pb2 as pb

NO_NUMBERS = (math.nan, math.inf, -math.inf, -1.0)


def view(state=JobState.PROVING, **changes):
    known = {
        "job_id": "j", "request_id": "r", "circuit": "c", "priority": Priority.NORMAL, "state": state,
        "partitions": 2, "partitions_done": 1, "results": (), "error_code": "", "error_message": "",
        "queue_position": 3, "queue_wait_s": 0.5, "total_s": 1.5, "progress": 0.25, "expected_s": 2.0,
        "stages": ((Stage.DONE, 1), (Stage.PROVING, 2)),
    }  # fmt: skip
    return JobView(**{**known, **changes})


def result(seconds):
    return PartitionResult(0, b"p", (), {"msm_h": seconds, "other": 1.0}, "cpu", "cpu", 1, "d", 7)


def test_a_job_on_its_way():
    state = conversion.job_state(view(), 1000.0)
    assert state == pb.JobState(
        job_id="j", state="proving", partitions=2, partitions_done=1, request_id="r", circuit_id="c",
        queue_position=3, elapsed_ms=1500, progress=0.25, expected_end_unix_ms=1_002_000,
        partition_states=[
            pb.PartitionState(index=0, state="done", attempts=1),
            pb.PartitionState(index=1, state="proving", attempts=2),
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes", [{"expected_s": None}, {"state": JobState.DONE}, {"expected_s": math.nan}]
)
def test_an_end_that_nobody_can_tell(changes):
    assert conversion.job_state(view(**changes), 1000.0).expected_end_unix_ms == 0


@pytest.mark.parametrize("wrong", NO_NUMBERS)
def test_every_number_that_leaves_is_one(wrong):
    state = conversion.job_state(view(progress=wrong, total_s=wrong), 1000.0)
    assert (state.progress, state.elapsed_ms) == (0.0, 0)
    answer = conversion.await_response(view(JobState.DONE, results=(result(wrong),), queue_wait_s=wrong))
    assert (answer.gpu_compute_ms, answer.queue_wait_ms) == (0, 0)
    assert [phase.seconds for phase in answer.results[0].phases] == [0.0, 1.0]


def test_numbers_that_are_too_large():
    assert conversion.milliseconds(1e300) == (1 << 64) - 1
    assert conversion.job_state(view(progress=7.0, total_s=1e300), 1e300).progress == 1.0


def test_a_deadline_and_an_owner():
    message = pb.SubmitProofRequest(circuit_id="c", deadline_ms=1500, partitions=[pb.Partition(witness=b"w")])
    request = conversion.job_request(message, "alice")
    assert (request.owner, request.deadline_s, request.priority) == ("alice", 1.5, Priority.NORMAL)


@pytest.mark.parametrize(
    ("peer", "told"),
    [
        ("ipv4:10.0.0.1:5555", "10.0.0.1"),
        ("ipv6:%5B::1%5D:5555", "%5B::1%5D"),
        ("unix:/run/x", ""),
        ("unix:", ""),
    ],
)
def test_who_calls(peer, told):
    assert _peer(SimpleNamespace(peer=lambda: peer)) == told


def test_an_owner_is_told_apart_wherever_he_calls_from():
    import contextvars

    def call():
        owners.enter("alice")
        return _peer(SimpleNamespace(peer=lambda: "ipv4:10.0.0.1:5555"))

    assert contextvars.copy_context().run(call) == "alice"
