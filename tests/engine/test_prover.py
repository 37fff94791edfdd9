"""Workers as a whole: keys, grants, and how they end. Then the real process, with the real CPU backend."""

import socket
import threading
import time
from types import SimpleNamespace

import pytest
from engine.prover_fakes import InProcess, ScriptedBackend, charge, square_circuit, write_square

from cuzkd.engine.prover.grants import RemoteGrants
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import Cancelled, Exhausted, NeverFits, Unavailable


@pytest.fixture
def make():
    running = []

    def start(*arguments, **configure):
        running.append(InProcess(*arguments, **configure))
        return running[-1]

    yield start
    for one in running:
        one.close()


def offer(prover, tmp_path, name, x=3, **options):
    prover.front.offer(name, write_square(tmp_path / f"{name.replace('/', '-')}.wtns", x), **options)


def about_square(prover):
    return [state for state in prover.front.all("circuit") if state.circuit == "square"]


def test_ready_comes_first_and_says_what_it_is(make):
    prover = make()
    prover.front.wait(lambda: prover.front.heard)
    assert prover.front.heard[0].WhichOneof("kind") == "ready"
    ready = prover.front.heard[0].ready
    assert (ready.backend, ready.device, ready.device_name) == ("scripted", "scripted-0", "a fake")


def test_heartbeat_agrees_with_pool_and_budget(make, tmp_path):
    prover = make()
    offer(prover, tmp_path, "a/0")
    prover.front.answer("a/0")
    seen = len(prover.front.all("heartbeat"))
    prover.front.wait(lambda: len(prover.front.all("heartbeat")) > seen + 1)
    beat = prover.front.all("heartbeat")[-1]
    stats = prover.workers.pool.stats()
    assert (beat.pinned_slab_bytes, beat.pinned_leased_bytes) == (stats.slab_bytes, 0)
    assert beat.slabs_made == beat.slabs_made_on_job_path == stats.slabs_made == 1
    assert prover.front.budget.used_bytes > stats.slab_bytes  # the key is charged, too
    assert beat.resident_key_bytes == 4 * 64 and not beat.device_busy


def test_a_key_is_loaded_once_for_many(make, tmp_path):
    backend = ScriptedBackend()
    slow = backend.load_key

    def load_key(arrays):
        time.sleep(0.2)
        return slow(arrays)

    backend.load_key = load_key
    prover = make(backend, max_parallel_synthesis=4, ready_target=4)
    for index in range(4):
        prover.front.send(preload=wire.Preload(circuit="square"))
        offer(prover, tmp_path, f"a/{index}")
    prover.front.answer(*(f"a/{index}" for index in range(4)))
    assert backend.loads == 1
    assert [state.loaded for state in prover.front.all("circuit")] == [True]


def test_drop_waits_for_the_last_user(make, tmp_path):
    prover = make()
    prover.backend.result_gate.clear()
    offer(prover, tmp_path, "a/0")
    prover.front.wait(lambda: "proving" in prover.front.stages("a/0"))
    prover.front.send(drop=wire.Drop(circuit="square"))
    while not prover.workers._residency._set_aside:
        time.sleep(0.005)
    prover.front.barrier()
    assert [state.loaded for state in about_square(prover)] == [True]  # no answer as long as it is used
    key = prover.workers._residency._set_aside[0]
    assert key.reservation.nbytes > 0
    prover.backend.result_gate.set()
    prover.front.answer("a/0")
    prover.front.wait(lambda: len(about_square(prover)) == 2)
    assert not about_square(prover)[1].loaded and about_square(prover)[1].was_loaded
    assert key.reservation.nbytes == 0 and prover.workers._residency.resident_bytes == 0
    prover.front.send(drop=wire.Drop(circuit="square"))
    prover.front.wait(lambda: len(about_square(prover)) == 3)
    assert not about_square(prover)[2].was_loaded


def test_a_key_goes_from_who_waits_for_vectors_and_comes_again(make, tmp_path):
    prover = make(prewarm=False)
    prover.front.send(preload=wire.Preload(circuit="square"))
    prover.front.wait(lambda: about_square(prover))
    budget = prover.front.budget
    others = budget.reserve(budget.limit_bytes - budget.used_bytes, "others")
    offer(prover, tmp_path, "a/0")

    prover.front.wait(lambda: prover.front.desk.waits("prover")["slab"])
    prover.front.send(drop=wire.Drop(circuit="square"))
    prover.front.wait(lambda: any(state.was_loaded for state in about_square(prover)))
    others.release()
    assert prover.front.answer("a/0").proof
    assert prover.backend.loads == 2 and prover.idle()


def test_a_drop_of_one_digest_leaves_another(make, tmp_path):
    prover = make()
    offer(prover, tmp_path, "a/0")
    prover.front.answer("a/0")
    prover.front.send(drop=wire.Drop(circuit="square", digest="d0"))
    prover.front.wait(lambda: len(about_square(prover)) == 2)
    assert about_square(prover)[1].loaded and about_square(prover)[1].digest == "d1"
    prover.front.send(drop=wire.Drop(circuit="square", digest="d1"))
    prover.front.wait(lambda: len(about_square(prover)) == 3)
    assert not about_square(prover)[2].loaded and about_square(prover)[2].was_loaded


def test_a_job_for_a_key_that_was_replaced_takes_nothing_from_the_new_one(make, tmp_path):
    prover = make()
    offer(prover, tmp_path, "a/0")
    prover.front.answer("a/0")
    offer(prover, tmp_path, "b/0", digest="d0")
    failed = prover.front.answer("b/0")
    assert (
        failed.error_code == "invalid_key" and "submitted for key d0, installed is d1" in failed.error_message
    )
    offer(prover, tmp_path, "c/0")
    prover.front.answer("c/0")
    assert prover.backend.loads == 1


def test_nothing_is_read_before_its_memory_is_granted(make, tmp_path):
    read = []

    class Unread(SimpleNamespace):
        @property
        def key(self):
            read.append(True)
            raise AssertionError("read")

        head = key

    made = square_circuit()
    sizes = {"head_bytes": 1 << 40, "point_bytes": 1, "loading_bytes": lambda backend: 1}
    made = Unread(digest=made.digest, load_on=made.load_on, **sizes)
    prover = make(circuits={"square": made})
    offer(prover, tmp_path, "a/0")
    assert prover.front.answer("a/0").error_code == "never_fits" and not read


def test_a_replaced_circuit_is_loaded_anew(make, tmp_path):
    prover = make()
    offer(prover, tmp_path, "a/0")
    prover.front.answer("a/0")
    prover.circuits["square"] = square_circuit("d9")
    offer(prover, tmp_path, "b/0", digest="d9")
    assert prover.front.answer("b/0").key_digest == "d9"
    assert prover.backend.loads == 2


def test_an_unknown_preload_is_told(make):
    prover = make()
    prover.front.send(preload=wire.Preload(circuit="nope"))
    prover.front.wait(lambda: prover.front.all("circuit"))
    state = prover.front.all("circuit")[0]
    assert (state.loaded, state.error_code) == (False, "not_found")


@pytest.mark.parametrize("room", [-1, 60_000])
def test_what_never_fits_is_told_at_once(make, tmp_path, room):
    """First the key does not fit, then the key fits and the slab is more than the whole budget."""
    circuit = square_circuit(padding=3000) if room < 0 else square_circuit(log_domain=12)
    limit = charge(circuit) + room
    prover = make(None, {"square": circuit}, limit)
    padding = 3000 if room < 0 else 0
    prover.front.offer("a/0", write_square(tmp_path / "w.wtns", 3, padding=padding))
    failed = prover.front.answer("a/0")
    assert (failed.error_code, failed.retryable) == ("never_fits", False)
    assert str(limit) in failed.error_message


def test_prewarm_makes_room_ahead_and_shrink_gives_it_back(make, tmp_path):
    prover = make(prewarm=True)
    offer(prover, tmp_path, "a/0")
    prover.front.answer("a/0")
    prover.wait_idle()
    for _ in range(1000):
        if prover.workers.pool.stats().slabs >= 3:
            break
        time.sleep(0.005)
    assert prover.workers.pool.stats().slabs == 3  # for those waiting and the one on the device
    used = prover.front.budget.used_bytes
    prover.front.send(shrink_pool=wire.ShrinkPool(bytes=1 << 40))
    prover.front.wait(lambda: len(prover.front.all("grant_return")) >= 3)
    assert prover.workers.pool.stats().slab_bytes == 0
    assert prover.front.budget.used_bytes < used


def test_the_next_process_prewarms_what_this_one_learned(make, tmp_path):
    hints = tmp_path / "hints.json"
    first = make(hints=hints)
    offer(first, tmp_path, "a/0")
    first.front.answer("a/0")
    second = make(hints=hints, prewarm=True)
    for _ in range(1000):
        if second.workers.pool.stats().slabs == 3:
            break
        time.sleep(0.005)
    assert second.workers.pool.stats().free_bytes == 3 * 4 * 4096
    for index in range(3):
        offer(second, tmp_path, f"b/{index}")
    second.front.answer(*(f"b/{index}" for index in range(3)))
    assert second.workers.pool.stats().slabs_made_on_job_path == 0


def test_a_front_that_is_gone_ends_the_process():
    prover = InProcess()
    prover.front.wait(lambda: prover.front.heard)
    prover.front.socket.shutdown(socket.SHUT_RDWR)
    prover._thread.join(10)
    assert prover.left[-1] == 1
    prover.workers.pool.close()
    prover.front._thread.join(10)
    prover.front.socket.close()
    prover.front.theirs.close()


def test_an_error_outside_of_any_partition_is_fatal(make):
    prover = make()
    prover.workers._start("broken", lambda: 1 / 0).join()
    prover.front.wait(lambda: prover.front.all("fatal"))
    assert "broken" in prover.front.all("fatal")[0].error_message
    assert prover.left == [1]


def test_remote_grants():
    sent = []
    grants = RemoteGrants(sent.append)

    def answer(**kind):
        while not sent:
            time.sleep(0.001)
        grants.answer(wire.Grant(request_id=sent.pop(0).grant_request.request_id, **kind))

    thread = threading.Thread(target=lambda: answer(bytes=100))
    thread.start()
    held = grants.reserve(100, "slab")
    thread.join()
    held.shrink(40)
    held.release()
    held.release()
    assert [message.grant_return.bytes for message in sent] == [60, 40]
    sent.clear()
    thread = threading.Thread(target=lambda: answer(error_code="never_fits", error_message="100 of 7"))
    thread.start()
    with pytest.raises(NeverFits, match="100 of 7"):
        grants.reserve(100, "slab")
    thread.join()
    with pytest.raises(Exhausted):
        grants.reserve(100, "slab", timeout_s=0.01)
    grants.answer(wire.Grant(request_id=sent[-1].grant_request.request_id, bytes=100))
    assert sent[-1].grant_return.bytes == 100
    sent.clear()
    with pytest.raises(Cancelled):
        grants.reserve(100, "key", give_up=lambda: True)
    asked, withdrawn = (message.grant_request for message in sent)
    assert (asked.bytes, withdrawn.bytes) == (100, 0) and asked.request_id == withdrawn.request_id
    grants.close()
    with pytest.raises(Unavailable):
        grants.reserve(1, "slab")
