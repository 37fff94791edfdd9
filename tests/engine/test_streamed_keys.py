"""Keys that their device has no room for: uploads wait for the device, and the host keeps what goes on being read."""

import time

import pytest
from engine.prover_fakes import InProcess, ScriptedBackend, charge, square_circuit, write_square


@pytest.fixture
def make():
    running = []

    def start(**attributes):
        backend = ScriptedBackend(in_place=False)
        vars(backend).update(attributes)
        running.append(InProcess(backend, {"square": square_circuit()}))
        return running[-1]

    yield start
    for prover in running:
        prover.wait_idle()
        prover.close()


@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_uploads_wait_for_the_device_where_it_has_no_room_beside_a_proof(make, tmp_path, one_at_a_time):
    prover = make(one_at_a_time=one_at_a_time)
    backend, front = prover.backend, prover.front
    backend.result_gate.clear()
    front.offer("job/3", write_square(tmp_path / "3.wtns", 3))
    front.wait(lambda: "proving" in front.stages("job/3"))
    front.offer("job/4", write_square(tmp_path / "4.wtns", 4))
    front.wait(lambda: "ready" in front.stages("job/4"))
    if one_at_a_time:
        time.sleep(0.2)
    else:
        front.wait(lambda: backend.uploaded == 2)
    assert backend.uploaded == (1 if one_at_a_time else 2)
    backend.result_gate.set()
    assert [done.attempts_inside for done in front.answer("job/3", "job/4")] == [1, 1]
    assert backend.sets == [1, 1]


@pytest.mark.parametrize("host_bytes", [0, 64])
def test_what_a_key_goes_on_reading_stays_charged(make, tmp_path, host_bytes):
    prover = make(host_bytes=host_bytes)
    prover.front.offer("job/3", write_square(tmp_path / "3.wtns", 3))
    prover.front.answer("job/3")
    prover.wait_idle()
    circuit = prover.circuits["square"]
    left = charge(circuit) - circuit.point_bytes + host_bytes
    held = prover.workers.pool.stats().slab_bytes
    prover.front.wait(lambda: prover.front.budget.used_bytes == left + held)
