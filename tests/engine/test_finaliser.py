"""Nothing leaves unverified, and a fault in any stage costs one partition at most."""

import time

import pytest
from engine.prover_fakes import InProcess, ScriptedBackend, square_circuit, write_square

from cuzkd.engine import faults
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import InvalidInput


@pytest.fixture(params=["in place", "device"])
def make(request):
    running = []

    def start(**configure):
        circuits = {"square": square_circuit(), "no-c": square_circuit("d2", with_c=False)}
        running.append(InProcess(ScriptedBackend(request.param == "in place"), circuits, **configure))
        return running[-1]

    yield start
    for one in running:
        one.wait_idle()
        one.close()


def offer(prover, tmp_path, x, **options):
    prover.front.offer(f"job/{x}", write_square(tmp_path / f"{x}.wtns", x), **options)


@pytest.mark.parametrize("point", [point for point in faults.PROVER_POINTS[:9] if point != "sums"])
def test_a_bug_in_any_stage_costs_one_partition(make, tmp_path, point):
    prover = make(fault=f"raise:{point}:2", ready_target=1)
    for x in range(10):
        offer(prover, tmp_path, x)
    answers = prover.front.answer(*(f"job/{x}" for x in range(10)))
    failed = [answer for answer in answers if isinstance(answer, wire.PartitionFailed)]
    assert [(answer.error_code, answer.retryable) for answer in failed] == [("internal", False)] * 2
    assert all(f"fault planned at {point}" in answer.error_message for answer in failed)
    assert not prover.left


@pytest.mark.parametrize("point", ["upload", "launch", "result"])
def test_a_device_fault_ends_the_process_and_can_be_retried(make, tmp_path, point):
    prover = make(fault=f"fault:{point}:1")
    offer(prover, tmp_path, 3)
    failed = prover.front.answer("job/3")
    assert (failed.error_code, failed.retryable) == ("device_fault", True)
    prover.front.wait(lambda: prover.front.all("fatal"))
    assert prover.front.all("fatal")[0].error_code == "device_fault"
    while not prover.left:
        time.sleep(0.01)
    assert prover.left == [1]


@pytest.mark.parametrize("circuit", [("square", "d1"), ("no-c", "d2")])
def test_one_bad_proof_is_a_counted_retry(make, tmp_path, circuit):
    prover = make(fault="flip:sums:1")
    offer(prover, tmp_path, 3, circuit=circuit[0], digest=circuit[1])
    done = prover.front.answer("job/3")
    assert done.attempts_inside == 2 and int.from_bytes(done.publics[0], "big") == 9
    assert len(done.publics) == 1
    assert [record.event for record in prover.front.all("log")].count("proof_did_not_verify") == 1
    offer(prover, tmp_path, 4)
    assert prover.front.answer("job/4").attempts_inside == 1
    assert prover.front.stages("job/3").count("proving") == 2


def test_two_bad_proofs_without_c_blame_the_witness(make, tmp_path):
    prover = make(fault="flip:sums:2")
    offer(prover, tmp_path, 3, circuit="no-c", digest="d2")
    failed = prover.front.answer("job/3")
    assert (failed.error_code, failed.retryable) == ("unsatisfied_witness", False)
    assert "or the key does not fit it" in failed.error_message
    offer(prover, tmp_path, 4)
    assert prover.front.answer("job/4").proof


def test_two_bad_proofs_with_c_blame_the_key_where_the_device_proves_others(make, tmp_path):
    """A mixed-up key must not take the prover down, and a damaged copy of a good one is replaced."""
    prover = make(fault="flip:sums:2")
    offer(prover, tmp_path, 3)
    failed = prover.front.answer("job/3")
    assert (failed.error_code, failed.retryable) == ("invalid_key", False)
    assert "not one for these constraints" in failed.error_message
    prover.front.wait(lambda: [state.loaded for state in prover.front.all("circuit")] == [True, False])
    offer(prover, tmp_path, 4)
    assert prover.front.answer("job/4").proof
    assert not prover.left and not prover.front.all("fatal")


@pytest.mark.parametrize("circuit", [("square", "d1"), ("no-c", "d2")])
def test_two_bad_proofs_and_a_bad_canary_blame_the_device(make, tmp_path, circuit):
    prover = make(fault="flip:sums:2")
    prover.device_is_right = False
    offer(prover, tmp_path, 3, circuit=circuit[0], digest=circuit[1])
    failed = prover.front.answer("job/3")
    assert (failed.error_code, failed.retryable) == ("device_fault", True)
    prover.front.wait(lambda: prover.front.all("fatal"))


def test_many_bad_proofs_at_once_are_all_answered(make, tmp_path):
    """While one finaliser waits for the canary, another serves whoever has the device."""
    prover = make(fault="flip:sums:1000")
    for x in range(8):
        offer(prover, tmp_path, x)
    answers = prover.front.answer(*(f"job/{x}" for x in range(8)))
    assert {answer.error_code for answer in answers} == {"invalid_key"}


def test_blinding_is_fresh_for_every_proof(make, tmp_path):
    prover = make()
    for x in range(6):
        offer(prover, tmp_path, x)
    prover.front.answer(*(f"job/{x}" for x in range(6)))
    assert len(set(prover.groth16.blinding)) == 12


def test_plans():
    plan = faults.load("raise:launch:1,hold:launch:1,flip:sums:0")
    with pytest.raises(RuntimeError, match="launch"):
        plan.at("launch")
    plan.at("launch")
    plan.at("launch")
    plan.at("result")
    sums = object()
    assert plan.sums(sums) is sums
    assert type(faults.load("")) is faults.NoFaults
    for wrong in ("raise", "raise:nowhere:1", "jump:launch:1", "raise:launch:x", "raise:launch:-1"):
        with pytest.raises(InvalidInput, match="expected action:point:count"):
            faults.load(wrong)
