"""The real prover process over a real socketpair: native CPU backend, real circuits, real files."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from engine.prover_fakes import Front

from cuzkd.circuits import builtin
from cuzkd.circuits.registry import Registry
from cuzkd.curves.params import CURVES
from cuzkd.engine import channel
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.formats import proof_bytes, wtns
from cuzkd.groth16 import setup, verifier

VECTORS = Path(__file__).parent.parent / "vectors"
ROUNDS = 40
REAL = ["merkle_1k", "merkle_1k_bls12381", "edge_nopub", "edge_pub100"]


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """A state directory with the built-in chain on both curves and the circuits of tests/vectors."""
    directory = tmp_path_factory.mktemp("state")
    registry = Registry(directory)
    for curve in CURVES:
        key = setup.setup(builtin.constraints(curve, ROUNDS))
        registry.install(f"chain-{curve}", key, source="test")
    tiny = setup.setup(builtin.constraints("bn254", 1))
    registry.install("tiny", tiny, source="test")
    for name in REAL:
        registry.add(name, zkey=VECTORS / name / "circuit.zkey", vkey=VECTORS / name / "vkey.json")
    return directory


class Process:
    def __init__(self, state, **configure):
        self.front = Front(256 << 20)
        self.registry = Registry(state)
        self.child = subprocess.Popen(
            [sys.executable, "-P", "-m", "cuzkd.engine.prover.main", "--fd", str(self.front.theirs.fileno())],
            pass_fds=[self.front.theirs.fileno()],
        )
        self.front.theirs.close()
        options = {
            "backend": "cpu",
            "max_parallel_synthesis": 2,
            "ready_target": 2,
            "wipe": True,
            "threads": 2,
        }
        self.front.send(configure=wire.Configure(state_dir=str(state), **(options | configure)))

    def offer(self, partition_id, circuit, path, **options):
        digest = self.registry.get(circuit).digest
        self.front.offer(partition_id, path, circuit=circuit, digest=digest, **options)

    def check(self, circuit, done):
        """Its proof verifies for its own public inputs, and not for others."""
        vk = self.registry.open(circuit).key.vk
        proof = proof_bytes.decode(vk.curve, done.proof)
        publics = [int.from_bytes(value, "big") for value in done.publics]
        assert verifier.verify(vk, proof, publics)
        if publics:
            assert not verifier.verify(vk, proof, [(publics[0] + 1) % CURVES[vk.curve].r, *publics[1:]])
        return publics

    def close(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait(20)
        self.front.close()


@pytest.fixture
def start(state):
    running = []

    def make(**configure):
        running.append(Process(state, **configure))
        return running[-1]

    yield make
    for one in running:
        one.close()


def chain(path, curve, preimage):
    wtns.write(path, curve, builtin.witness(curve, ROUNDS, preimage))
    return path


def test_mixed_circuits_and_curves_each_get_their_own_proof(start, tmp_path):
    process = start()
    wanted = {}
    for index in range(4):
        for curve in CURVES:
            name = f"{curve}/{index}"
            path = chain(tmp_path / f"{curve}-{index}.wtns", curve, index + 10)
            process.offer(name, f"chain-{curve}", path, priority=1 + index % 4)
            wanted[name] = (f"chain-{curve}", [builtin.digest(curve, ROUNDS, index + 10)])
    for name in REAL:
        process.offer(name, name, VECTORS / name / "circuit.wtns")
    for name, done in zip(wanted, process.front.answer(*wanted), strict=True):
        circuit, publics = wanted[name]
        assert process.check(circuit, done) == publics
        assert done.key_digest == process.registry.get(circuit).digest
    for name, done in zip(REAL, process.front.answer(*REAL), strict=True):
        process.check(name, done)
        assert {"witness", "synthesis", "gpu_wait", "ntt_h", "msm_h", "msm_l", "assembly", "verify"} <= {
            phase.name for phase in done.phases
        }
    process.front.send(shutdown=wire.Shutdown())
    assert process.child.wait(20) == 0


def test_wrong_witnesses_have_their_errors_and_the_next_job_succeeds(start, tmp_path):
    process = start()
    curve, circuit = "bn254", "chain-bn254"
    r = CURVES[curve].r
    values = builtin.witness(curve, ROUNDS, 5)
    good = chain(tmp_path / "good.wtns", curve, 5)

    def file(name, change):
        raw = bytearray(good.read_bytes())
        path = tmp_path / f"{name}.wtns"
        path.write_bytes(change(raw) or raw)
        return path

    def element(index, value):
        def change(raw):
            at = len(raw) - 32 * (len(values) - index)
            raw[at : at + 32] = value.to_bytes(32, "little")

        return change

    wrong = {
        "curve": (chain(tmp_path / "curve.wtns", "bls12_381", 5), "invalid_witness"),
        "length": (VECTORS / "merkle_1k/circuit.wtns", "invalid_witness"),
        "cut": (file("cut", lambda raw: raw[:-1000]), "malformed_file"),
        "range": (file("range", element(7, r)), "invalid_witness"),
        "one": (file("one", element(0, 2)), "invalid_witness"),
        "unsatisfied": (file("unsatisfied", element(30, 12345)), "unsatisfied_witness"),
    }
    for name, (path, _) in wrong.items():
        process.offer(name, circuit, path)
        process.offer(f"{name}-next", circuit, good)
    for name, (_, code) in wrong.items():
        failed, done = process.front.answer(name, f"{name}-next")
        assert (failed.error_code, failed.retryable) == (code, False), failed.error_message
        process.check(circuit, done)
    message = {name: process.front.answer(name).error_message for name in wrong}
    assert "wire 7" in message["range"] and str(len(values)) in message["length"]
    assert "constraint" in message["unsatisfied"]


def test_an_unsatisfied_witness_for_a_key_without_c(start, tmp_path):
    """Only verification can tell. It is computed twice, and no proof leaves."""
    process = start()
    raw = bytearray((VECTORS / "merkle_1k/circuit.wtns").read_bytes())
    raw[-32:] = (5).to_bytes(32, "little")
    path = tmp_path / "w.wtns"
    path.write_bytes(raw)
    process.offer("bad", "merkle_1k", path)
    process.offer("good", "merkle_1k", VECTORS / "merkle_1k/circuit.wtns")
    failed, done = process.front.answer("bad", "good")
    assert failed.error_code == "unsatisfied_witness" and "key does not fit" in failed.error_message
    assert process.front.stages("bad").count("proving") == 2
    process.check("merkle_1k", done)


def test_a_backend_that_does_not_work_in_place(start, tmp_path):
    """The reference takes exact rows and copies them, as a device does; its leases come back before the sums."""
    process = start(backend="reference")
    path = tmp_path / "w.wtns"
    wtns.write(path, "bn254", builtin.witness("bn254", 1, 7))
    process.offer("a", "tiny", path)
    done = process.front.answer("a")
    assert process.check("tiny", done) == [builtin.digest("bn254", 1, 7)]
    assert process.front.all("ready")[0].backend == "reference"


def test_a_flipped_bit_in_the_sums_is_caught_and_retried(start):
    process = start(fault="flip:sums:1")
    process.offer("a", "merkle_1k_bls12381", VECTORS / "merkle_1k_bls12381/circuit.wtns")
    done = process.front.answer("a")
    assert done.attempts_inside == 2
    process.check("merkle_1k_bls12381", done)


def test_a_front_that_is_gone_and_a_process_that_dies(start, tmp_path):
    process = start(fault="exit:launch:1")
    path = chain(tmp_path / "w.wtns", "bn254", 1)
    process.offer("a", "chain-bn254", path)
    assert process.child.wait(60) == 70
    assert process.front.ended.wait(10) and not process.front.answers()
    orphan = start()
    orphan.front.wait(lambda: orphan.front.all("ready"))
    assert orphan.front.all("ready")[0].pid == orphan.child.pid
    orphan.child.send_signal(signal.SIGTERM)  # the front's business
    orphan.child.send_signal(signal.SIGINT)
    orphan.offer("b", "chain-bn254", path)
    orphan.check("chain-bn254", orphan.front.answer("b"))
    orphan.front.socket.shutdown(2)
    assert orphan.child.wait(20) == 1


def test_a_device_fault_is_told_before_the_end(start, tmp_path):
    process = start(fault="fault:result:1")
    process.offer("a", "chain-bn254", chain(tmp_path / "w.wtns", "bn254", 1))
    failed = process.front.answer("a")
    assert (failed.error_code, failed.retryable) == ("device_fault", True)
    assert process.child.wait(20) == 1
    process.front.wait(lambda: process.front.all("fatal"))


@pytest.mark.parametrize("configure", [{"backend": "abacus"}, {"fault": "nonsense"}])
def test_what_cannot_start_says_why(start, configure):
    process = start(**configure)
    assert process.child.wait(60) == 1
    process.front.wait(lambda: process.front.all("fatal"))
    assert next(iter(configure.values())) in process.front.all("fatal")[0].error_message


def test_no_core_dump_and_no_growth(start, tmp_path):
    process = start()
    process.front.wait(lambda: process.front.all("ready"))
    limits = Path(f"/proc/{process.child.pid}/limits").read_text()
    assert next(line for line in limits.splitlines() if "core file" in line).split()[4:6] == ["0", "0"]
    path = chain(tmp_path / "w.wtns", "bn254", 9)
    for index in range(30):
        process.offer(f"a/{index}", "chain-bn254", path)
    process.front.answer(*(f"a/{index}" for index in range(30)))
    beats = len(process.front.all("heartbeat"))
    process.front.wait(lambda: len(process.front.all("heartbeat")) > beats + 1)
    beat = process.front.all("heartbeat")[-1]
    assert beat.pinned_leased_bytes == 0 and beat.slabs_made <= 4
    assert beat.pinned_slab_bytes + beat.resident_key_bytes <= process.front.budget.used_bytes


def test_blinding_differs_between_processes(start, tmp_path):
    path = chain(tmp_path / "w.wtns", "bn254", 3)
    proofs = set()
    for process in (start(), start()):
        for name in ("a", "b"):
            process.offer(name, "chain-bn254", path)
        proofs |= {done.proof for done in process.front.answer("a", "b")}
    assert len(proofs) == 4


def resident_peak_bytes():
    """VmHWM, the peak since the last reset."""
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the peak cannot be reset here")
def test_synthesis_makes_no_second_copy_of_a_b_c(tmp_path):
    """Peak resident memory while the rows are made grows by far less than one vector beyond the pool's slabs."""
    from types import SimpleNamespace

    from cuzkd.backend import cpu
    from cuzkd.backend.protocol import KeyShape
    from cuzkd.engine.faults import NoFaults
    from cuzkd.engine.prover.partition import Partition
    from cuzkd.engine.prover.report import Reporter
    from cuzkd.engine.prover.synthesis import Synthesis
    from cuzkd.engine.prover.transfer import ZeroCopy
    from cuzkd.memory.budget import Budget
    from cuzkd.memory.pool import PinnedPool
    from cuzkd.memory.upstream import PagesUpstream

    rounds, curve = 40_000, "bn254"
    constraints = builtin.constraints(curve, rounds)
    arrays = KeyShape(
        curve=curve,
        root_family=5,
        reduction="circom",
        log_domain=17,
        n_wires=3 * rounds + 2,
        n_public=1,
        n_rows=3 * rounds + 2,
    )
    path = tmp_path / "w.wtns"
    wtns.write(path, curve, builtin.witness(curve, rounds, 3))
    backend = SimpleNamespace(vector_rows=lambda key: key.domain, scratch_c=True, in_place=True)
    proving = SimpleNamespace(arrays=arrays, constraints=constraints)
    key = SimpleNamespace(proving=proving, evaluates=False)
    residency = SimpleNamespace(use=lambda circuit, digest, check: key, done_with=lambda key: None)
    pool = PinnedPool(PagesUpstream(), Budget(64 << 20), slab_bytes=32 << 20)
    pool.lease(1).release()  # the slab exists before anything is measured
    before = []

    def spmv_into(curve, matrix, z, out, begin, end):
        if not before:
            ctypes.CDLL(None).malloc_trim(0)  # or a copy would hide in what the heap keeps
            Path("/proc/self/clear_refs").write_text("5")
            before.append(resident_peak_bytes())
        cpu.spmv_into(curve, matrix, z, out, begin, end)

    host = SimpleNamespace(
        copy_witness=cpu.copy_witness, first_mismatch=cpu.first_mismatch, spmv_into=spmv_into
    )
    synthesis = Synthesis(
        backend,
        host,
        residency,
        pool,
        ZeroCopy(backend),
        Reporter(lambda message: None),
        NoFaults(),
        lambda digest, nbytes: None,
    )
    for attempt in range(2):  # the first one also starts the native threads
        before.clear()
        partition = Partition("p", "chain", "d", str(path), 2, attempt)
        synthesis.run(partition)
        grown = resident_peak_bytes() - before[0]
        a, b, c = (getattr(partition.vectors, name) for name in "abc")
        assert a.nbytes == 4 << 20 and cpu.first_mismatch(curve, a, b, c, 0, 1 << 17) == -1
        del a, b, c
        partition.release()
    assert grown < 1 << 20
    pool.close()


@pytest.mark.parametrize("configured", [False, True])
def test_a_front_that_is_gone_before_all_is_open_leaves_no_traceback(state, configured):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "cuzkd.engine.prover.main", "--fd", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
        )
        if configured:
            configure = wire.Configure(state_dir=str(state), backend="cpu", threads=1)
            ours.sendall(channel.pack(wire.ToProver(configure=configure)))
    _, words = child.communicate(timeout=60)
    assert (child.returncode, words) == (1, b"")
