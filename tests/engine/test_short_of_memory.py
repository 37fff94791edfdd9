"""Memory that is short costs one attempt of one partition: another may follow, and finds what was kept for reuse."""

import time

import pytest
from engine.prover_fakes import InProcess, ScriptedBackend, square_circuit, write_square

from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import DeviceFault, InvalidKey

HOST_POINTS = (
    "key", "grant", "lease", "slab", "witness", "synthesis", "ready", "upload", "launch", "result", "assembly",
    "verify",
)  # fmt: skip


@pytest.fixture
def make():
    running = []

    def start(in_place=False, **options):
        running.append(InProcess(ScriptedBackend(in_place), **options))
        return running[-1]

    yield start
    for one in running:
        one.wait_idle()
        one.close()


def offer(prover, tmp_path, x, **options):
    prover.front.offer(f"job/{x}", write_square(tmp_path / f"{x}.wtns", x), **options)


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "device"])
@pytest.mark.parametrize("point", HOST_POINTS)
def test_at_every_allocation(make, tmp_path, point, in_place):
    prover = make(in_place, fault=f"memory:{point}:1", ready_target=1)
    offer(prover, tmp_path, 3)
    failed = prover.front.answer("job/3")
    assert (failed.error_code, failed.retryable) == ("exhausted", True)
    assert "memory" in failed.error_message and f"fault planned at {point}" in failed.error_message
    assert prover.backend.trims == 1 and prover.workers.pool.stats().slab_bytes == 0
    offer(prover, tmp_path, 3)
    prover.front.wait(lambda: prover.front.all("done"))
    assert not prover.left and not prover.front.all("fatal")


@pytest.mark.parametrize("doing", ["upload", "launch", "result"])
def test_on_the_device_idle_keys_give_way_but_its_own(make, tmp_path, doing):
    circuits = {"square": square_circuit(), "other": square_circuit("d2")}
    prover = make(circuits=circuits)
    offer(prover, tmp_path, 2, circuit="other", digest="d2")
    offer(prover, tmp_path, 3)
    prover.front.answer("job/2", "job/3")
    prover.backend.full[doing] = 1
    offer(prover, tmp_path, 4)
    failed = prover.front.answer("job/4")
    assert (failed.error_code, failed.retryable) == ("exhausted", True)
    gone = [state for state in prover.front.all("circuit") if not state.loaded]
    assert [(state.circuit, state.was_loaded) for state in gone] == [("other", True)]
    offer(prover, tmp_path, 5)
    offer(prover, tmp_path, 6, circuit="other", digest="d2")
    answers = prover.front.answer("job/5", "job/6")
    assert all(isinstance(done, wire.PartitionDone) for done in answers) and prover.backend.loads == 3


def test_a_key_takes_the_place_of_idle_ones(make, tmp_path):
    circuits = {"square": square_circuit(), "other": square_circuit("d2")}
    prover = make(circuits=circuits)
    offer(prover, tmp_path, 2, circuit="other", digest="d2")
    prover.front.answer("job/2")
    used = prover.front.budget.used_bytes
    prover.backend.full["key"] = 1
    offer(prover, tmp_path, 3)
    assert prover.front.answer("job/3").proof
    states = [(state.circuit, state.loaded) for state in prover.front.all("circuit")]
    assert states == [("other", True), ("other", False), ("square", True)]
    assert (
        prover.backend.trims == 1 and prover.front.budget.used_bytes == used
    )  # the other's charge came back


def test_a_key_in_use_stays(make, tmp_path):
    circuits = {"square": square_circuit(), "other": square_circuit("d2")}
    prover = make(circuits=circuits, max_parallel_synthesis=2)
    offer(prover, tmp_path, 2)
    prover.front.answer("job/2")
    key = prover.workers._residency.use("square", "d1")
    prover.backend.full["key"] = 2
    offer(prover, tmp_path, 3, circuit="other", digest="d2")
    failed = prover.front.answer("job/3")
    assert (failed.error_code, failed.retryable) == ("exhausted", True)
    need = circuits["other"].key.arrays.points_bytes
    for number in (need, 1 << 20, 1 << 30):
        assert f"{number} " in failed.error_message
    assert [state.loaded for state in prover.front.all("circuit") if state.circuit == "square"] == [True]
    prover.workers._residency.done_with(key)
    offer(prover, tmp_path, 4, circuit="other", digest="d2")
    assert prover.front.answer("job/4").proof


def test_a_key_that_no_such_device_can_hold_is_not_tried_again(make, tmp_path):
    prover = make(circuits={"square": square_circuit()})
    prover.backend.full["key"] = 2
    prover.backend.total_bytes = 100
    offer(prover, tmp_path, 3)
    failed = prover.front.answer("job/3")
    assert (failed.error_code, failed.retryable) == ("never_fits", False)
    assert "100 bytes" in failed.error_message


def test_points_that_stay_on_the_host_need_not_fit_the_device(make, tmp_path):
    circuit = square_circuit()
    prover = make(circuits={"square": circuit})
    prover.backend.full["key"] = 2
    prover.backend.total_bytes = 100
    prover.backend.takes_pieces = True
    prover.backend.kept_bytes = lambda shape: circuit.key.arrays.points_bytes - 90
    offer(prover, tmp_path, 3)
    failed = prover.front.answer("job/3")
    assert (failed.error_code, failed.retryable) == ("exhausted", True)
    assert "takes 90 bytes of device memory" in failed.error_message
    offer(prover, tmp_path, 4)
    assert prover.front.answer("job/4").proof


def test_a_key_whose_matrices_do_not_fit_it_is_closed(make, tmp_path):
    prover, closed = make(circuits={"square": square_circuit()}), []
    load = prover.backend.load_key

    def loaded(key):
        made = load(key)
        made.close = lambda: closed.append(made)
        return made

    def matrices(key, a, b):
        raise InvalidKey("an index is out of bounds")

    prover.backend.load_key, prover.backend.keep_matrices = loaded, matrices
    used = prover.front.budget.used_bytes
    offer(prover, tmp_path, 3)
    assert prover.front.answer("job/3").error_code == "invalid_key"
    assert len(closed) == 1 and prover.front.budget.used_bytes == used


def test_heartbeats_say_what_the_device_says(make, tmp_path):
    prover = make()
    prover.front.wait(lambda: any(beat.vram_free_bytes for beat in prover.front.all("heartbeat")))
    beat = prover.front.all("heartbeat")[-1]
    assert (beat.vram_free_bytes, beat.vram_used_bytes) == (1 << 20, (1 << 30) - (1 << 20))
    lease = prover.workers.pool.lease(10_000)
    array = lease.array("uint8", 10)
    with pytest.raises(Exception, match="alive"):
        lease.release()
    prover.front.wait(lambda: prover.front.all("heartbeat")[-1].pinned_lost_bytes == 12288)
    del array


def test_a_device_that_no_longer_answers_is_the_end(make):
    prover = make()
    prover.front.wait(lambda: prover.front.all("ready"))

    def vram():
        raise DeviceFault("CUDA: an illegal memory access was encountered")

    prover.backend.vram = vram
    prover.front.wait(lambda: prover.front.all("fatal"))
    fatal = prover.front.all("fatal")[0]
    assert (fatal.error_code, fatal.device) == ("device_fault", "scripted-0")
    assert "device memory on device scripted-0: CUDA: an illegal" in fatal.error_message


def test_a_device_is_tested_before_it_gets_a_key(make, tmp_path):
    asked = []

    def selftest(curve):
        asked.append((curve, prover.workers._mutex.busy))
        raise DeviceFault("its proof does not verify")

    prover = make(selftest=selftest)
    offer(prover, tmp_path, 3)
    failed = prover.front.answer("job/3")
    assert (failed.error_code, failed.retryable) == ("device_fault", True)
    assert asked == [("bn254", True)] and prover.backend.loads == 0
    prover.front.wait(lambda: prover.front.all("fatal"))


def test_a_fault_that_nobody_waited_for_is_told_all_the_same(make, tmp_path):
    def selftest(curve):
        prover.front.send(cancel=wire.Cancel(partition_id="job/3"))
        assert prover.front.answer("job/3").error_code == "cancelled"
        raise DeviceFault("its proof does not verify")

    prover = make(selftest=selftest)
    offer(prover, tmp_path, 3)
    prover.front.wait(lambda: prover.front.all("fatal"))
    assert prover.front.all("fatal")[0].stage == "key"
    while not prover.left:
        time.sleep(0.005)
    assert prover.left == [1]


def test_without_a_thread_to_load_it_nobody_waits_for_ever(make, tmp_path):
    prover = make()
    start = prover.workers._residency._start

    def none_left(name, work):
        prover.workers._residency._start = start
        raise RuntimeError("can't start new thread")

    prover.workers._residency._start = none_left
    offer(prover, tmp_path, 3)
    failed = prover.front.answer("job/3")
    assert (failed.error_code, failed.retryable) == ("exhausted", True)
    offer(prover, tmp_path, 4)
    assert prover.front.answer("job/4").proof
