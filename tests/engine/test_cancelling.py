"""A cancel is answered at once, wherever its partition waits or computes, and takes nothing from anybody else."""

import contextlib
import random
import threading
import time

import pytest
from engine.prover_fakes import (
    HeldHost,
    InProcess,
    ScriptedBackend,
    charge,
    square_circuit,
    write_square,
)

from cuzkd.engine.wire import prover_pb2 as wire

PADDING = 3000  # wires: makes a partition's z about 94 KiB


class SlowKeys(ScriptedBackend):
    """Keys are loaded when `key_gate` is open."""

    def __init__(self, in_place=True):
        super().__init__(in_place)
        self.key_gate = threading.Event()
        self.at_gate = threading.Event()

    def load_key(self, key):
        self.at_gate.set()
        assert self.key_gate.wait(60)
        return super().load_key(key)


@pytest.fixture(params=["in place", "device"])
def make(request):
    running = []

    def start(backend=ScriptedBackend, **options):
        running.append(InProcess(backend(request.param == "in place"), **options))
        return running[-1]

    yield start
    for one in running:
        one.backend.result_gate.set()
        if isinstance(one.backend, SlowKeys):
            one.backend.key_gate.set()
        one.wait_idle()
        one.close()


def offers(prover, tmp_path, xs, padding=0, **options):
    for x in xs:
        path = write_square(tmp_path / f"{x}.wtns", x, padding=padding)
        prover.front.offer(f"job/{x}", path, **options)


def cancel(prover, x):
    prover.front.send(cancel=wire.Cancel(partition_id=f"job/{x}"))


def cancelled(prover, x):
    cancel(prover, x)
    assert prover.front.answer(f"job/{x}").error_code == "cancelled"


def until(fact):
    for _ in range(10_000):
        if fact():
            return
        time.sleep(0.002)
    raise AssertionError("it did not come true in twenty seconds")


@contextlib.contextmanager
def budget_taken(prover, but=0):
    """Somebody else has the whole host budget, but for some bytes."""
    with prover.front.budget.reserve(prover.front.budget.limit_bytes - but, "somebody else"):
        yield


def test_on_the_device(make, tmp_path):
    prover = make()
    prover.backend.result_gate.clear()
    offers(prover, tmp_path, [1])
    prover.front.wait(lambda: "proving" in prover.front.stages("job/1"))
    offers(prover, tmp_path, [2])
    cancelled(prover, 1)
    prover.front.wait(lambda: "proving" in prover.front.stages("job/2"))  # the device is free for it
    cancel(prover, 1)
    prover.backend.result_gate.set()
    assert prover.front.answer("job/2").proof


def test_while_its_key_is_loaded(make, tmp_path):
    """The key comes all the same, and the next one finds it."""
    prover = make(SlowKeys)
    offers(prover, tmp_path, [1, 2])
    assert prover.backend.at_gate.wait(20)
    cancelled(prover, 1)
    cancelled(prover, 2)
    prover.backend.key_gate.set()
    prover.front.wait(lambda: prover.front.all("circuit"))
    assert [state.loaded for state in prover.front.all("circuit")] == [True]
    offers(prover, tmp_path, [3])
    assert prover.front.answer("job/3").proof and prover.backend.loads == 1


def test_while_its_key_waits_for_memory(make, tmp_path):
    """Nobody wants the key any more: its place in the line for memory is given up."""
    prover = make()
    with budget_taken(prover):
        offers(prover, tmp_path, [1])
        prover.front.wait(lambda: prover.front.all("grant_request"))
        cancelled(prover, 1)
        prover.front.wait(lambda: len(prover.front.all("grant_request")) == 2)
        asked, withdrawn = prover.front.all("grant_request")
        assert asked.bytes > 0 and (withdrawn.request_id, withdrawn.bytes) == (asked.request_id, 0)
    until(lambda: prover.front.budget.used_bytes == 0)
    assert prover.backend.loads == 0
    offers(prover, tmp_path, [2])
    assert prover.front.answer("job/2").proof


def test_one_of_two_that_wait_for_a_key(make, tmp_path):
    prover = make()
    with budget_taken(prover):
        offers(prover, tmp_path, [1, 2])
        residency = prover.workers._residency
        until(lambda: [loading.waiting for loading in residency._loading.values()] == [2])
        cancelled(prover, 1)
        time.sleep(0.3)  # longer than it takes to ask whether the key is wanted
        assert len(prover.front.all("grant_request")) == 1
    assert prover.front.answer("job/2").proof and prover.backend.loads == 1


def test_a_cancelled_request_for_much_memory_holds_up_nobody(make, tmp_path):
    """The large one waits for a grant that cannot come; a small one behind it, for which there is room, goes on."""
    circuits = {"square": square_circuit(), "large": square_circuit("d2", padding=PADDING)}
    prover = make(circuits=circuits)
    offers(prover, tmp_path, [1])
    offers(prover, tmp_path, [2], padding=PADDING, circuit="large", digest="d2")
    prover.front.answer("job/1", "job/2")
    keys = sum(resident.reservation.nbytes for resident in prover.workers._residency._keys.values())

    def only_keys():  # asked for as often as it takes: vectors may be on their way back
        prover.front.send(shrink_pool=wire.ShrinkPool(bytes=1 << 40))
        return prover.front.budget.used_bytes == keys

    until(only_keys)
    with budget_taken(prover, but=keys + 40_000):
        offers(prover, tmp_path, [3], padding=PADDING, circuit="large", digest="d2")
        until(lambda: prover.front.budget.waiting == 1)
        offers(prover, tmp_path, [4])
        until(lambda: prover.workers.pool.stats().waiting == 2)
        cancelled(prover, 3)
        assert prover.front.answer("job/4").proof


@pytest.mark.parametrize("seed", range(3))
def test_anywhere_with_slow_keys_and_little_memory(make, tmp_path, seed):
    """Keys come and go and wait for memory, as do partitions; each is answered once, and nothing is left over."""
    rng = random.Random(seed)
    circuits = {name: square_circuit(name, padding=PADDING) for name in "abc"}
    prover = make(
        circuits=circuits,
        limit_bytes=3 * charge(circuits["a"])
        + 1_000_000,  # all that may be kept: this front asks nobody to shrink
        launch_set=3,
        launch_wait_s=0.002,
    )
    held = []
    for x in range(40):
        name = rng.choice("abc")
        offers(
            prover, tmp_path, [x], padding=PADDING, circuit=name, digest=name, priority=rng.choice([1, 2, 4])
        )
        if rng.random() < 0.3:
            prover.front.send(drop=wire.Drop(circuit=rng.choice("abc")))
        if rng.random() < 0.2 and not held:
            free = prover.front.budget.limit_bytes - prover.front.budget.used_bytes
            with contextlib.suppress(Exception):
                held.append(prover.front.budget.reserve(free, "somebody else", timeout_s=0))
        if rng.random() < 0.4:
            time.sleep(rng.random() * 0.02)
        if rng.random() < 0.4:
            cancel(prover, rng.randrange(x + 1))
        if held and rng.random() < 0.4:
            held.pop().release()
    for one in held:
        one.release()
    answers = prover.front.answer(*(f"job/{x}" for x in range(40)))
    for x, answer in enumerate(answers):
        if isinstance(answer, wire.PartitionDone):
            assert int.from_bytes(answer.publics[0], "big") == x * x
        else:
            assert answer.error_code == "cancelled"
    prover.wait_idle()
    assert not prover.workers._residency._loading and prover.backend.running == 0
    assert (prover.workers._todo._slots, prover.workers._todo._extra) == (2, 1)
    for name in "abc":
        prover.front.send(drop=wire.Drop(circuit=name))
    prover.front.send(shrink_pool=wire.ShrinkPool(bytes=1 << 40))
    until(lambda: prover.front.budget.used_bytes == 0)


# -- the urgent lane --


def test_the_urgent_do_not_wait_behind_a_long_synthesis(make, tmp_path):
    host = HeldHost()
    host.hold(1)
    prover = make(host=host, max_parallel_synthesis=1, ready_target=1)
    offers(prover, tmp_path, [1, 2])
    until(lambda: host.began == [1])
    offers(prover, tmp_path, [3], priority=4)
    assert prover.front.answer("job/3").proof and host.began == [1, 9]
    offers(prover, tmp_path, [4], priority=3)
    prover.front.barrier()
    assert host.began == [1, 9]  # not urgent enough
    host.let(1)
    prover.front.answer("job/1", "job/2", "job/4")


def test_the_urgent_need_none_of_the_slots_but_one_more_in_all(tmp_path):
    prover = InProcess(ScriptedBackend(), max_parallel_synthesis=2, ready_target=1)
    prover.backend.result_gate.clear()
    offers(prover, tmp_path, [1])
    prover.front.wait(lambda: "proving" in prover.front.stages("job/1"))
    offers(prover, tmp_path, [2])
    prover.front.wait(lambda: "ready" in prover.front.stages("job/2"))
    offers(prover, tmp_path, [3, 4], priority=4)
    prover.front.wait(lambda: "ready" in prover.front.stages("job/3"))
    prover.front.barrier()
    assert prover.workers._todo._extra == 0 and not prover.front.stages("job/4")
    prover.backend.result_gate.set()
    prover.front.answer("job/1", "job/2", "job/3", "job/4")
    prover.wait_idle()
    assert (prover.workers._todo._slots, prover.workers._todo._extra) == (1, 1)
    prover.close()
