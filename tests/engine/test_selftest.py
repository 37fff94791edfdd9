"""The real prover process before it is ready: it trusts no device that it has not seen compute, and waits its turn."""

import subprocess
import sys
import threading

import pytest
from engine.prover_fakes import Front

from cuzkd.backend import select
from cuzkd.circuits import builtin
from cuzkd.circuits.registry import Registry
from cuzkd.engine.prover import main as prover
from cuzkd.engine.prover.report import Reporter
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import DeviceFault, Unavailable
from cuzkd.formats import wtns
from cuzkd.groth16 import setup

PATIENCE_S = 60.0
ROUNDS = 10


def install(state, curve):
    Registry(state).install(f"chain-{curve}", setup.setup(builtin.constraints(curve, ROUNDS)), source="test")


@pytest.fixture(scope="module")
def one_curve(tmp_path_factory):
    """A state directory with a circuit of bn254."""
    directory = tmp_path_factory.mktemp("state")
    install(directory, "bn254")
    return directory


@pytest.fixture
def start():
    running = []

    def make(state, *arguments, **configure):
        front = Front(256 << 20)
        child = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "cuzkd.engine.prover.main", *arguments),
                *("--fd", str(front.theirs.fileno())),
            ],
            pass_fds=[front.theirs.fileno()],
        )
        front.theirs.close()
        running.append((front, child))
        options = {"backend": "cpu", "threads": 2, "max_parallel_synthesis": 1, "ready_target": 1} | configure
        front.send(configure=wire.Configure(state_dir=str(state), **options))
        return front, child

    yield make
    for front, child in running:
        child.kill()
        child.wait()
        front.close()


def ready(front):
    front.wait(lambda: front.all("ready"))
    return front.all("ready")[0]


def test_ready_says_how_long_the_test_took(start, one_curve, tmp_path):
    assert ready(start(one_curve)[0]).selftest_s > 0
    assert (one_curve / "canary").is_dir()
    assert ready(start(tmp_path)[0]).selftest_s == 0  # no circuit, nothing to test


@pytest.mark.parametrize(
    ("action", "code", "words"),
    [
        ("flip", "device_fault", "does not verify"),
        ("fault", "device_fault", "planned"),
        ("memory", "exhausted", "planned"),
        ("raise", "internal", "planned"),
    ],
)
def test_a_test_that_fails_is_the_end(start, one_curve, action, code, words):
    front, child = start(one_curve, fault=f"{action}:selftest:1")
    assert child.wait(PATIENCE_S) == 1
    front.wait(lambda: front.all("fatal"))
    (fatal,) = front.all("fatal")
    assert (fatal.error_code, fatal.stage, fatal.device) == (code, "selftest", "cpu")
    assert words in fatal.error_message and not front.all("ready")


def test_a_curve_that_comes_later_is_tested_before_its_first_key_is_used(start, tmp_path):
    install(tmp_path, "bn254")
    front, child = start(tmp_path, fault="flip:selftest:1@1")
    assert ready(front).selftest_s > 0
    offered = []
    for curve in ("bn254", "bls12_381"):
        if curve != "bn254":
            install(tmp_path, curve)
        path = tmp_path / f"{curve}.wtns"
        wtns.write(path, curve, builtin.witness(curve, ROUNDS, 3))
        digest = Registry(tmp_path).get(f"chain-{curve}").digest
        front.offer(curve, path, circuit=f"chain-{curve}", digest=digest)
        offered.append(front.answer(curve))
    done, failed = offered
    assert done.proof and (failed.error_code, failed.retryable) == ("device_fault", True)
    assert child.wait(PATIENCE_S) == 1


def test_a_second_one_waits_for_the_first_to_be_gone(start, one_curve):
    lock = one_curve / "provers" / "prover-0.lock"
    first, child = start(one_curve, "--lock", str(lock))
    assert ready(first).pid == child.pid
    second, _ = start(one_curve, "--lock", str(lock))
    second.wait(lambda: second.all("log"))
    (record,) = second.all("log")
    assert (record.event, record.fields["for_pid"]) == ("prover_waits", str(child.pid))
    child.kill()
    assert ready(second)


def test_a_device_that_is_not_there_and_one_that_does_not_work(monkeypatch):
    real = select.choose

    def without(error):
        def choose(name, vram_bytes=0):
            if name == "cuda":
                raise error
            return real(name)

        monkeypatch.setattr(select, "choose", choose)

    without(Unavailable("no driver"))
    choice = prover.choose("auto")
    assert (choice.backend.name, choice.reason) == ("cpu", "auto: cpu, because no driver")
    with pytest.raises(Unavailable):
        prover.choose("cuda")
    without(DeviceFault("an ECC error"))
    with pytest.raises(DeviceFault):  # not quietly the processor
        prover.choose("auto")


def test_a_driver_that_hangs_is_not_waited_for(monkeypatch):
    said, left = [], threading.Event()
    monkeypatch.setattr(prover.os, "_exit", lambda status: left.set())
    with prover.within(0.05, Reporter(said.append), "selftest", "GPU-1"):
        assert left.wait(PATIENCE_S)
    (message,) = said
    assert (message.fatal.error_code, message.fatal.stage) == ("device_fault", "selftest")
    assert message.fatal.device == "GPU-1" and "within 0.05 s" in message.fatal.error_message
    left.clear()
    with prover.within(3600.0, Reporter(said.append), "start"):
        pass
    assert len(said) == 1
