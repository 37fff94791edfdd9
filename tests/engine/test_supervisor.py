"""Processes that are late, broken, deaf or dead: each is reaped before its death is announced."""

import asyncio
import errno
import os
import signal
import sys

import pytest
from engine.front import FAKE

from cuzkd.engine.fleet import supervisor as supervisors
from cuzkd.engine.fleet.health import Death
from cuzkd.engine.fleet.supervisor import Supervisor, Timing
from cuzkd.engine.process import environment
from cuzkd.engine.wire import prover_pb2 as wire

PATIENCE_S = 60.0


def exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Ear:
    """A listener that writes down, and lets tests wait for the n-th entry of a kind."""

    backend = "auto"
    pause_s = 0.0

    def __init__(self):
        self.heard = []
        self.pids = []
        self.backends = []
        self.changed = asyncio.Event()

    def note(self, *entry):
        self.heard.append(entry)
        self.changed.set()

    def prover_begins(self, prover):
        return self.backend

    def prover_starting(self, prover, pid):
        self.pids.append(pid)
        self.note("starting", prover)

    def prover_ready(self, prover, ready):
        assert ready.pid == self.pids[-1]
        self.backends.append(ready.backend)
        self.note("ready", prover)

    def prover_said(self, prover, message):
        self.note(message.WhichOneof("kind"), prover)

    def prover_died(self, prover, death):
        assert not exists(self.pids[-1])
        self.note("died", death)
        if self.pause_s is None:
            raise KeyError("a bug of the listener")
        return self.pause_s

    def prover_stopped(self, prover):
        assert not exists(self.pids[-1])
        self.note("stopped", prover)

    def of(self, kind):
        return [value for name, value in self.heard if name == kind]

    async def wait(self, kind, count=1):
        async with asyncio.timeout(PATIENCE_S):
            while len(self.of(kind)) < count:
                self.changed.clear()
                await self.changed.wait()
        return self.of(kind)[count - 1]


class Pauses:
    """Instead of sleeping."""

    def __init__(self):
        self.lengths = []

    async def __call__(self, seconds):
        self.lengths.append(seconds)


def run(tmp_path, body, fault="", command=FAKE, pause=None, **timing):
    async def main():
        ear = Ear()
        supervisor = Supervisor(
            "p",
            lambda backend: wire.Configure(state_dir=str(tmp_path), fault=fault, backend=backend),
            ear,
            timing=Timing(**{"handshake_s": PATIENCE_S, "shutdown_s": PATIENCE_S, **timing}),
            cwd=str(tmp_path),
            command=command,
            lock=tmp_path / "provers" / "p.lock",
            pause=pause or Pauses(),
        )
        supervisor.start()
        try:
            await body(supervisor, ear)
        finally:
            await supervisor.stop()
            await supervisor.stop()
        assert len(ear.of("stopped")) == 1
        return ear

    return asyncio.run(main())


def test_it_comes_up_and_stops(tmp_path):
    async def body(supervisor, ear):
        await ear.wait("heartbeat")
        assert supervisor.ready

    assert [kind for kind, _ in run(tmp_path, body).heard] == ["starting", "ready", "heartbeat", "stopped"]


def test_a_killed_process_is_replaced(tmp_path):
    async def body(supervisor, ear):
        await ear.wait("ready")
        os.kill(ear.pids[0], signal.SIGKILL)
        death = await ear.wait("died")
        assert "killed by SIGKILL" in death.cause and not death.suspect
        await ear.wait("ready", 2)
        assert ear.pids[0] != ear.pids[1]

    run(tmp_path, body)


def test_an_order_to_replace(tmp_path):
    async def body(supervisor, ear):
        await ear.wait("ready")
        order = Death("no heartbeat", stage="proving", suspect=True)
        supervisor.replace(order)
        supervisor.replace(Death("ordered twice"))
        assert await ear.wait("died") == order
        await ear.wait("ready", 2)
        assert ear.of("died") == [order]

    run(tmp_path, body)


@pytest.mark.parametrize(
    ("fault", "timing", "death"),
    [
        (
            "mute",
            {"handshake_s": 0.2},
            Death("was not ready within 0.2 s", stage="start", suspect=True),
        ),
        ("refuse", {}, Death("no such device (unavailable)", code="unavailable")),
    ],
)
def test_what_never_gets_ready(tmp_path, fault, timing, death):
    async def body(supervisor, ear):
        assert await ear.wait("died", 2) == death
        assert not ear.of("ready")

    run(tmp_path, body, fault, **timing)


def test_a_self_test_that_fails_and_the_backend_that_is_asked_for_next(tmp_path):
    (tmp_path / "device").write_text("broken")

    async def body(supervisor, ear):
        death = await ear.wait("died")
        assert (death.stage, death.code, death.suspect) == ("selftest", "device_fault", True)
        assert death.device.startswith("GPU-")
        ear.backend = "cpu"
        await ear.wait("ready")
        assert ear.backends == ["cpu"]

    run(tmp_path, body)


@pytest.mark.parametrize(("number", "suspect"), [(signal.SIGSEGV, True), (signal.SIGKILL, False)])
def test_a_signal_speaks_against_the_device_unless_it_is_somebody_elses(tmp_path, number, suspect):
    async def body(supervisor, ear):
        await ear.wait("ready")
        os.kill(ear.pids[0], number)
        death = await ear.wait("died")
        assert number.name in death.cause and death.suspect == suspect

    run(tmp_path, body)


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        ((sys.executable, "-c", "raise SystemExit(7)"), "exited with status 7 before it was ready"),
        (("/does/not/exist",), "cannot be started"),
    ],
)
def test_a_command_that_is_no_prover(tmp_path, command, cause):
    async def main():
        ear, pauses = Ear(), Pauses()
        ear.pause_s = 7.0
        ear.pids.append(2**22 + 1)  # none of that number
        supervisor = Supervisor(
            "p",
            lambda backend: wire.Configure(backend=backend),
            ear,
            timing=Timing(),
            cwd=str(tmp_path),
            command=command,
            pause=pauses,
        )
        supervisor.start()
        assert cause in (await ear.wait("died", 4)).cause
        await supervisor.stop()
        assert set(pauses.lengths) == {7.0} and len(pauses.lengths) >= 3

    asyncio.run(main())


def test_a_broken_frame_is_a_death(tmp_path):
    async def body(supervisor, ear):
        assert "spoke out of turn" in (await ear.wait("died")).cause

    run(tmp_path, body, "garbage")


def test_a_process_that_will_not_stop_is_killed(tmp_path):
    deaf = "import signal, socket, sys, time\ns = socket.socket(fileno=int(sys.argv[-1]))\nwhile True: time.sleep(60)"

    async def body(supervisor, ear):
        await ear.wait("starting")

    run(tmp_path, body, command=(sys.executable, "-c", deaf), shutdown_s=0.05)


def test_stopping_during_a_pause_does_not_wait_for_its_end(tmp_path):
    async def for_ever(_):
        await asyncio.Event().wait()

    async def body(supervisor, ear):
        await ear.wait("died")

    run(tmp_path, body, "refuse", pause=for_ever)


def test_the_environment_is_small():
    ours = {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0", "AWS_SECRET": "x", "LANG": "C", "CUZKD": "y"}
    assert environment(ours) == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0", "LANG": "C"}


def test_a_process_that_cannot_be_reaped_is_given_up(tmp_path, monkeypatch):
    """As one that a driver holds: its successor does not wait for it, nor for its lock."""
    real, held = supervisors.reap, []

    async def reap(process, *patience):
        status = await real(process, *patience)
        if held:
            return status
        held.append(process)
        (tmp_path / "provers").mkdir()
        (tmp_path / "provers" / "p.lock").touch()
        return None

    monkeypatch.setattr(supervisors, "reap", reap)

    async def body(supervisor, ear):
        await ear.wait("ready")
        supervisor.replace(Death("no heartbeat", stage="proving"))
        death = await ear.wait("died")
        assert death.suspect and death.stage == "proving"
        assert death.cause.startswith("no heartbeat; killed, it is still there")
        assert not (tmp_path / "provers" / "p.lock").exists()
        await ear.wait("ready", 2)

    run(tmp_path, body)


@pytest.mark.parametrize("what", ["spawn", "open"])
def test_without_descriptors_it_is_tried_again(tmp_path, monkeypatch, what):
    where = {"spawn": supervisors, "open": supervisors.AsyncChannel}[what]
    real, failed = getattr(where, what), []

    def once(*arguments):
        if not failed:
            failed.append(arguments)
            raise OSError(errno.EMFILE, "too many open files")
        return real(*arguments)

    monkeypatch.setattr(where, what, once)

    async def body(supervisor, ear):
        ear.pids.append(2**22 + 1)  # none of that number
        assert "too many open files" in (await ear.wait("died")).cause
        await ear.wait("ready")

    run(tmp_path, body)


def test_a_listener_that_fails_is_not_the_end_of_proving(tmp_path):
    async def body(supervisor, ear):
        await ear.wait("ready")
        ear.pause_s = None
        os.kill(ear.pids[0], signal.SIGKILL)
        await ear.wait("ready", 2)

    run(tmp_path, body)


def test_stopping_before_it_is_ready_does_not_wait_for_an_answer(tmp_path):
    """The default patience with one that does not listen is longer than this test's."""

    async def body(supervisor, ear):
        await ear.wait("log")

    run(tmp_path, body, "waits", shutdown_s=2 * PATIENCE_S)


def test_a_pause_can_be_cut_short(tmp_path):
    async def for_ever(_):
        await asyncio.Event().wait()

    async def body(supervisor, ear):
        await ear.wait("ready")
        os.kill(ear.pids[0], signal.SIGKILL)
        await ear.wait("died")
        supervisor.hurry()
        await ear.wait("ready", 2)

    run(tmp_path, body, pause=for_ever)
