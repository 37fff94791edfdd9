"""Partitions that are launched together: who joins, who waits for whom, and that each keeps its own outcome."""

import time

import pytest
from engine.prover_fakes import HeldHost, InProcess, ScriptedBackend, square_circuit, write_square

from cuzkd.engine.wire import prover_pb2 as wire


@pytest.fixture
def make():
    running = []

    def start(in_place=False, circuits=None, host=None, **configure):
        options = {"launch_set": 3, "max_parallel_synthesis": 2, "ready_target": 2} | configure
        running.append(InProcess(ScriptedBackend(in_place), circuits, host=host, **options))
        return running[-1]

    yield start
    for one in running:
        one.backend.result_gate.set()
        one.wait_idle()
        one.close()


def offers(prover, tmp_path, xs, **options):
    for x in xs:
        prover.front.offer(f"job/{x}", write_square(tmp_path / f"{x}.wtns", x), **options)


def proving(prover, x):
    return "proving" in prover.front.stages(f"job/{x}")


def wait_for_ready(prover, xs):
    prover.front.wait(lambda: all("ready" in prover.front.stages(f"job/{x}") for x in xs))


def until(fact):
    for _ in range(10_000):
        if fact():
            return
        time.sleep(0.002)
    raise AssertionError("it did not come true in twenty seconds")


def wait_for_uploads(prover, n):
    """So many have joined those that wait for the device, or have had it."""
    until(lambda: prover.backend.uploaded == n)


def names(xs):
    return [f"job/{x}" for x in xs]


def behind_a_busy_device(prover, tmp_path, xs, **options):
    """All of xs are ready, or as many as there is room for, while job/1 has the device. Its results are held."""
    prover.backend.result_gate.clear()
    offers(prover, tmp_path, [1])
    prover.front.wait(lambda: proving(prover, 1))
    offers(prover, tmp_path, xs, **options)


def test_those_that_are_ready_while_the_device_is_busy_go_together(make, tmp_path):
    prover = make()
    prover.backend.free_early = True  # and yet they gather until the result is there
    behind_a_busy_device(prover, tmp_path, range(2, 8))
    wait_for_ready(prover, range(2, 7))  # three of them join: two more have the slots
    wait_for_uploads(prover, 4)
    prover.backend.result_gate.set()
    answers = prover.front.answer(*names(range(1, 8)))
    assert [int.from_bytes(done.publics[0], "big") for done in answers] == [x * x for x in range(1, 8)]
    assert prover.backend.sets[:2] == [1, 3] and max(prover.backend.sets) == 3
    assert sum(prover.backend.sets) == 7
    assert [answers[x - 1].launch_set for x in (1, 2, 3, 4)] == [1, 3, 3, 3]
    assert {done.attempts_inside for done in answers} == {1}


@pytest.mark.parametrize("why", ["in place", "too large", "not wanted"])
def test_where_sets_do_not_pay_it_is_one_by_one(make, tmp_path, why):
    circuits = {"square": square_circuit(log_domain=19 if why == "too large" else 2)}
    prover = make(why == "in place", circuits, launch_set=0 if why == "not wanted" else 3)
    behind_a_busy_device(prover, tmp_path, range(2, 6))
    wait_for_ready(prover, [2, 3])
    prover.backend.result_gate.set()
    answers = prover.front.answer(*names(range(1, 6)))
    assert prover.backend.sets == [1] * 5 and {done.launch_set for done in answers} == {1}


def test_only_one_key_in_a_set(make, tmp_path):
    prover = make(circuits={"square": square_circuit(), "other": square_circuit("d2", with_c=False)})
    offers(prover, tmp_path, [9], circuit="other", digest="d2")
    prover.front.answer("job/9")
    behind_a_busy_device(prover, tmp_path, [2])
    wait_for_uploads(prover, 3)
    offers(prover, tmp_path, [3, 4], circuit="other", digest="d2")
    until(lambda: len(prover.workers._ready._heap) == 2)  # in line: their stage is told a moment earlier
    prover.backend.result_gate.set()
    answers = prover.front.answer(*names(range(1, 5)))
    assert [int.from_bytes(done.publics[0], "big") for done in answers] == [1, 4, 9, 16]
    assert prover.backend.sets == [1, 1, 1, 2]


def test_one_that_is_being_made_is_waited_for(make, tmp_path):
    host = HeldHost()
    host.hold(2, 3)
    prover = make(host=host, launch_wait_s=60)
    offers(prover, tmp_path, [2, 3])
    until(lambda: sorted(host.began) == [4, 9])
    host.let(2)
    wait_for_ready(prover, [2])
    time.sleep(0.1)
    assert not proving(prover, 2) and prover.workers._mutex.busy
    host.let(3)
    answers = prover.front.answer("job/2", "job/3")
    assert prover.backend.sets == [2] and [done.launch_set for done in answers] == [2, 2]


def test_nobody_is_waited_for_when_nobody_comes(make, tmp_path):
    prover = make(launch_wait_s=1e9)
    offers(prover, tmp_path, [2])
    assert prover.front.answer("job/2").launch_set == 1


def test_waiting_has_an_end(make, tmp_path):
    host = HeldHost()
    host.hold(2, 3)
    prover = make(host=host, launch_wait_s=0.05)
    offers(prover, tmp_path, [2, 3])
    until(lambda: sorted(host.began) == [4, 9])
    host.let(2)
    assert prover.front.answer("job/2").launch_set == 1
    host.let(3)
    assert prover.front.answer("job/3").launch_set == 1


def test_the_urgent_neither_wait_nor_are_waited_behind(make, tmp_path):
    """One that waits for company goes when an urgent one is ready, which goes alone, after it."""
    host = HeldHost()
    host.hold(2, 3)
    prover = make(host=host, launch_wait_s=1e9)
    offers(prover, tmp_path, [2, 3])
    until(lambda: sorted(host.began) == [4, 9])
    host.let(2)
    wait_for_ready(prover, [2])
    until(lambda: prover.workers._mutex.busy)
    offers(prover, tmp_path, [7], circuit="square", priority=4)
    first, urgent = prover.front.answer("job/2", "job/7")
    assert (first.launch_set, urgent.launch_set) in ((1, 1), (2, 2))  # it may have come as its company
    offers(prover, tmp_path, [8], priority=4)  # job/3 is still being made, and would be company
    assert prover.front.answer("job/8").launch_set == 1
    host.let(3)
    prover.front.answer("job/3")


def test_a_cancel_takes_one_out_of_a_running_set(make, tmp_path):
    prover = make()
    behind_a_busy_device(prover, tmp_path, [2, 3, 4])
    wait_for_uploads(prover, 4)
    prover.backend.result_gate.set()
    prover.front.answer("job/1")
    prover.front.answer("job/2", "job/3", "job/4")
    prover.backend.result_gate.clear()
    offers(prover, tmp_path, [5])
    prover.front.wait(lambda: proving(prover, 5))
    offers(prover, tmp_path, [6, 7, 8])
    wait_for_uploads(prover, 8)
    prover.front.send(cancel=wire.Cancel(partition_id="job/5"))  # the device is free for the three
    assert prover.front.answer("job/5").error_code == "cancelled"
    prover.front.wait(lambda: all(proving(prover, x) for x in (6, 7, 8)))
    prover.front.send(cancel=wire.Cancel(partition_id="job/6"))
    assert prover.front.answer("job/6").error_code == "cancelled"
    assert prover.workers._mutex.busy and "job/7" not in prover.front.answers()
    prover.backend.result_gate.set()
    answers = prover.front.answer("job/7", "job/8")
    assert [int.from_bytes(done.publics[0], "big") for done in answers] == [49, 64]


def test_all_of_a_set_can_be_cancelled(make, tmp_path):
    prover = make()
    behind_a_busy_device(prover, tmp_path, [2, 3, 4])
    wait_for_uploads(prover, 4)
    for x in (1, 2, 3, 4):
        prover.front.send(cancel=wire.Cancel(partition_id=f"job/{x}"))
    assert {a.error_code for a in prover.front.answer(*names(range(1, 5)))} == {"cancelled"}
    prover.wait_idle()
    prover.backend.result_gate.set()
    offers(prover, tmp_path, [5])
    assert prover.front.answer("job/5").proof


@pytest.mark.parametrize("point", ["upload", "launch", "result", "assembly", "verify"])
def test_a_bug_costs_one_of_the_set(make, tmp_path, point):
    prover = make(fault=f"raise:{point}:1@1")
    behind_a_busy_device(prover, tmp_path, [2, 3, 4])
    wait_for_uploads(prover, 3 if point == "upload" else 4)
    prover.backend.result_gate.set()
    answers = prover.front.answer(*names(range(1, 5)))
    assert [getattr(a, "error_code", "") for a in answers].count("internal") == 1
    assert not prover.left


def test_a_wrong_proof_of_a_set_is_made_again_alone(make, tmp_path):
    prover = make(fault="flip:sums:1@1")
    behind_a_busy_device(prover, tmp_path, [2, 3, 4])
    wait_for_uploads(prover, 4)
    prover.backend.result_gate.set()
    answers = prover.front.answer(*names(range(1, 5)))
    again = [done for done in answers if done.attempts_inside == 2]
    assert [done.launch_set for done in again] == [1]
    assert sorted(done.launch_set for done in answers) == [1, 1, 3, 3]


def test_a_set_that_cannot_be_launched_is_proved_one_by_one(make, tmp_path):
    prover = make()
    prover.backend.full["batch"] = 1
    behind_a_busy_device(prover, tmp_path, [2, 3, 4])
    wait_for_uploads(prover, 4)
    prover.backend.result_gate.set()
    answers = prover.front.answer(*names(range(1, 5)))
    assert prover.backend.sets == [1] * 4
    assert {(done.launch_set, done.attempts_inside) for done in answers} == {(1, 1)}


def test_a_fault_of_the_device_ends_the_set_and_the_process(make, tmp_path):
    prover = make()

    def broken(uploads):
        raise RuntimeError("illegal access")

    prover.backend.launch_batch = broken
    behind_a_busy_device(prover, tmp_path, [2, 3, 4])
    wait_for_uploads(prover, 4)
    prover.backend.result_gate.set()
    for failed in prover.front.answer("job/2", "job/3", "job/4"):
        assert (failed.error_code, failed.retryable) == ("device_fault", True)
        assert "launch on device scripted-0: RuntimeError('illegal access')" in failed.error_message
    fatal = prover.front.all("fatal")[0]
    assert (fatal.error_code, fatal.stage, fatal.device) == ("device_fault", "proving", "scripted-0")


def test_sets_and_cancels_at_random(make, tmp_path):
    prover = make(launch_set=4, launch_wait_s=0.01, max_parallel_synthesis=3)
    for x in range(60):
        offers(prover, tmp_path, [x], priority=1 + x % 4)
        if x % 3 == 0:
            time.sleep(0.001 * (x % 7))
            prover.front.send(cancel=wire.Cancel(partition_id=f"job/{x}"))
    answers = prover.front.answer(*names(range(60)))
    for x, answer in enumerate(answers):
        if x % 3 or isinstance(answer, wire.PartitionDone):
            assert int.from_bytes(answer.publics[0], "big") == x * x
        else:
            assert answer.error_code == "cancelled"
    prover.wait_idle()
    assert prover.backend.running == 0
    assert (prover.workers._todo._slots, prover.workers._todo._extra) == (2, 1)
