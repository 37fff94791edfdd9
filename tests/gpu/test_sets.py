"""A prover's threads with a real device: launch sets, urgent partitions and cancels, all at once, and real proofs."""

import random
import threading

import pytest
from engine.prover_fakes import InProcess

from cuzkd.backend import cpu
from cuzkd.circuits import builtin
from cuzkd.curves.params import CURVES
from cuzkd.engine.prover.main import Groth16, upstream_for
from cuzkd.engine.prover.residency import constraint_bytes
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.formats import proof_bytes, wtns
from cuzkd.groth16 import setup, verifier

pytestmark = pytest.mark.gpu

ROUNDS = 20  # sixty constraints


class Chain:
    """The built-in circuit as the prover opens it."""

    def __init__(self, curve):
        self.key = setup.setup(builtin.constraints(curve, ROUNDS))
        self.digest = curve
        self.head_bytes = constraint_bytes(self.key)
        self.point_bytes = self.key.arrays.host_bytes

        self.head = self.key.head()

    def loading_bytes(self, backend):
        return self.point_bytes

    def load_on(self, backend, turn):
        with turn():
            return backend.load_key(self.key.arrays)


@pytest.fixture(scope="module")
def chains():
    return {curve: Chain(curve) for curve in CURVES}


@pytest.fixture
def prover(gpu, chains, monkeypatch):
    from cuzkd.backend import cuda_run

    monkeypatch.setattr(cuda_run, "PACED_LOG_DOMAIN", 0)  # step by step, so that cancels come in between
    one = InProcess(
        gpu,
        chains,
        host=cpu,
        groth16=Groth16(),
        upstream=upstream_for(gpu),
        launch_set=4,
        launch_wait_s=0.01,
        max_parallel_synthesis=2,
        ready_target=3,
    )
    yield one
    one.wait_idle()
    one.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_each_has_its_own_outcome(prover, chains, tmp_path, seed):
    rng = random.Random(seed)
    n, wanted, timers = 24, {}, []
    for x in range(n):
        curve = rng.choice(list(CURVES))
        path = tmp_path / f"{x}.wtns"
        wtns.write(path, curve, builtin.witness(curve, ROUNDS, x + 2))
        wanted[x] = curve
        prover.front.offer(
            f"job/{x}", path, circuit=curve, digest=curve, priority=rng.choice([1, 2, 2, 2, 4])
        )
        if rng.random() < 0.3:
            cancel = wire.Cancel(partition_id=f"job/{x}")
            timers.append(threading.Timer(rng.random(), prover.front.send, kwargs={"cancel": cancel}))
            timers[-1].start()
    answers = prover.front.answer(*(f"job/{x}" for x in range(n)), timeout_s=300)
    for timer in timers:
        timer.join()
    sets = []
    for x, answer in enumerate(answers):
        if isinstance(answer, wire.PartitionFailed):
            assert answer.error_code == "cancelled", answer
            continue
        sets.append(answer.launch_set)
        proof = proof_bytes.decode(wanted[x], answer.proof)
        publics = [int.from_bytes(value, "big") for value in answer.publics]
        assert publics[:1] == builtin.witness(wanted[x], ROUNDS, x + 2)[1:2]
        assert verifier.verify(chains[wanted[x]].key.vk, proof, publics)
    assert len(sets) >= n - len(timers) and max(sets) > 1
    assert not prover.left
