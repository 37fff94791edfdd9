"""The device side: bounded look-ahead, order, one holder of the device, and cancelling at every boundary."""

import threading
import time

import pytest
from engine.prover_fakes import InProcess, ScriptedBackend, charge, square_circuit, write_square
from service.servers import wait_until

from cuzkd.engine.prover.device import DeviceMutex
from cuzkd.engine.prover.partition import Line, Partition
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import Cancelled

PADDING = 3000  # wires: makes a partition's z about 94 KiB


@pytest.fixture(params=["in place", "device"])
def make(request):
    running = []

    def start(**configure):
        backend = ScriptedBackend(in_place=request.param == "in place")
        running.append(InProcess(backend, {"square": square_circuit(padding=PADDING)}, **configure))
        return running[-1]

    yield start
    for one in running:
        one.backend.result_gate.set()
        one.wait_idle()
        one.close()


def offers(prover, tmp_path, xs, **options):
    for x in xs:
        prover.front.offer(f"job/{x}", write_square(tmp_path / f"{x}.wtns", x, padding=PADDING), **options)


@pytest.mark.parametrize(("parallel", "target"), [(1, 1), (2, 2), (4, 2), (1, 3)])
def test_cold_start_with_ten_waiting_stays_within_plan(make, tmp_path, parallel, target):
    """Never more vectors than ready_target + max_parallel partitions', however long the device takes."""
    prover = make(max_parallel_synthesis=parallel, ready_target=target)
    prover.backend.result_gate.clear()
    offers(prover, tmp_path, range(10))
    prover.front.wait(lambda: any("proving" in prover.front.stages(f"job/{x}") for x in range(10)))
    time.sleep(0.2)
    one = -(-(3 + PADDING) * 32 // 4096) * 4096 + 3 * 4096
    assert prover.workers.pool.stats().peak_leased_bytes <= (target + parallel) * one
    prover.backend.result_gate.set()
    answers = prover.front.answer(*(f"job/{x}" for x in range(10)))
    assert [int.from_bytes(done.publics[0], "big") for done in answers] == [x * x for x in range(10)]
    stats = prover.workers.pool.stats()
    assert stats.peak_leased_bytes <= (target + parallel) * one
    assert stats.peak_slab_bytes <= (target + parallel) * one
    assert prover.backend.most_running == 1


def test_the_next_is_launched_before_the_result_is_there_where_the_device_allows_it(make, tmp_path):
    """One behind each whose result is asked for, and no more: there are two finalisers."""
    prover = make(max_parallel_synthesis=2, ready_target=4)
    prover.backend.free_early = True
    prover.backend.result_gate.clear()
    offers(prover, tmp_path, range(5))
    wait_until(lambda: prover.backend.running == 3)  # of the third nobody asks for the result yet
    time.sleep(0.05)
    assert prover.backend.running == 3 and prover.workers._mutex.busy
    prover.backend.result_gate.set()
    answers = prover.front.answer(*(f"job/{x}" for x in range(5)))
    assert [int.from_bytes(done.publics[0], "big") for done in answers] == [x * x for x in range(5)]
    prover.wait_idle()
    assert not prover.workers._mutex.busy


def test_the_more_urgent_goes_first_to_the_last_queue(make, tmp_path):
    prover = make(max_parallel_synthesis=1, ready_target=1)
    prover.backend.result_gate.clear()
    offers(prover, tmp_path, [2], priority=2)
    prover.front.wait(lambda: "proving" in prover.front.stages("job/2"))
    offers(prover, tmp_path, [3, 4, 5, 6], priority=1)
    prover.front.wait(lambda: "ready" in prover.front.stages("job/3"))
    offers(prover, tmp_path, [7], priority=4)
    wait_until(lambda: prover.workers._ready.urgent)  # it stands in line: its stage is told a moment earlier
    prover.backend.result_gate.set()
    prover.front.answer(*(f"job/{x}" for x in range(2, 8)))
    order = [x for square in prover.backend.launched for x in range(2, 8) if x * x == square]
    assert order.index(7) < order.index(5) < order.index(6)


def test_cancel_at_every_boundary_frees_once(make, tmp_path):
    prover = make(max_parallel_synthesis=1, ready_target=2)
    prover.backend.result_gate.clear()
    offers(prover, tmp_path, range(1, 7))
    prover.front.wait(lambda: "proving" in prover.front.stages("job/1"))
    for x in (6, 5, 4, 3, 2, 1, 1, 99):  # waiting, ready, uploaded, proving, twice, unknown
        prover.front.send(cancel=wire.Cancel(partition_id=f"job/{x}"))
    prover.front.barrier()
    prover.front.answer("job/6", "job/5")  # at once, though the device is busy
    prover.backend.result_gate.set()
    answers = prover.front.answer(*(f"job/{x}" for x in range(1, 7)))
    assert {answer.error_code for answer in answers} == {"cancelled"}
    offers(prover, tmp_path, range(7, 10))
    prover.front.answer(*(f"job/{x}" for x in range(7, 10)))


def test_cancel_at_random_moments(make, tmp_path):
    prover = make(max_parallel_synthesis=2, ready_target=2)
    names = [f"job/{x}" for x in range(40)]
    for x in range(40):
        offers(prover, tmp_path, [x])
        if x % 3 == 0:
            time.sleep(0.002 * (x % 5))
            prover.front.send(cancel=wire.Cancel(partition_id=f"job/{x}"))
    answers = prover.front.answer(*names)
    assert all(answer.publics for x, answer in enumerate(answers) if x % 3)
    prover.wait_idle()
    assert prover.workers._todo._slots == 2


def test_cancel_while_waiting_for_memory(tmp_path):
    """A budget with room for one partition: the second waits for memory, is cancelled there, the third gets it."""
    circuit = square_circuit(padding=PADDING)
    prover = InProcess(ScriptedBackend(), {"square": circuit}, limit_bytes=charge(circuit) + 150_000)
    prover.backend.result_gate.clear()
    offers(prover, tmp_path, [1])
    prover.front.wait(lambda: "proving" in prover.front.stages("job/1"))
    offers(prover, tmp_path, [2])
    while not prover.workers.pool.stats().waiting:
        time.sleep(0.01)
    prover.front.send(cancel=wire.Cancel(partition_id="job/2"))
    assert prover.front.answer("job/2").error_code == "cancelled"
    prover.backend.result_gate.set()
    offers(prover, tmp_path, [3])
    prover.front.answer("job/1", "job/3")
    prover.wait_idle()
    prover.close()


# -- the pieces --


def partition(name, priority, sequence):
    return Partition(name, "c", "d", "/nowhere", priority, sequence)


def test_line_order_and_slots():
    line = Line(slots=2)
    items = [
        partition("low", 1, 1),
        partition("old", 2, 2),
        partition("new", 2, 3),
        partition("urgent", 4, 4),
    ]
    for item in items:
        line.put(item)
    first, second = line.take(), line.take()
    assert (first.id, second.id, len(line)) == ("urgent", "old", 2)
    got = []
    thread = threading.Thread(target=lambda: got.append(line.take()))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    assert line.remove(items[2]) and not line.remove(items[2])
    first.free("slot")
    first.free("slot")
    thread.join()
    assert got[0].id == "low"
    line.close()
    assert line.take() is None


def test_mutex_can_be_left_while_waiting():
    mutex = DeviceMutex()
    mutex.acquire(lambda: None)

    def check():
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        mutex.acquire(check)
    mutex.release()
    assert not mutex.busy
    with mutex.held():
        assert mutex.busy
