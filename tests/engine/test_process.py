"""Processes of ours live no longer than who started them, and do nothing while a predecessor lives."""

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from cuzkd.engine import process

PATIENCE_S = 30.0
# A child as `python -m` of ours: says "up" once it serves, then waits for ever.
CHILD = """
from cuzkd.engine import process
import sys, time

def serve(sock):
    sock.sendall(b"up")
    time.sleep(3600)

process.main("child", serve, sys.argv[1:], lambda sock, pid: sock.sendall(f"waits for {pid};".encode()))
"""
# A front that starts one, tells its pid, and waits for ever.
FRONT = """
import socket, subprocess, sys, time

ours, theirs = socket.socketpair()
command = [sys.executable, "-P", "-c", sys.argv[1], "--fd", str(theirs.fileno())]
child = subprocess.Popen(command, pass_fds=[theirs.fileno()])
assert ours.recv(2) == b"up"
print(child.pid, flush=True)
time.sleep(3600)
"""


def start(*arguments, code=CHILD):
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE_S)
    with theirs:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", textwrap.dedent(code), *arguments, "--fd", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
        )
    return child, ours


def end(child, sock):
    child.kill()
    child.wait()
    sock.close()


def state_of(pid):
    """As the kernel writes it; Z is one that nobody has reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def wait_until(condition):
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.mark.parametrize("stopped", [False, True])
def test_nobody_outlives_a_killed_front(stopped):
    front = subprocess.Popen(
        [sys.executable, "-P", "-c", FRONT, textwrap.dedent(CHILD)], stdout=subprocess.PIPE, text=True
    )
    pid = int(front.stdout.readline())
    try:
        if stopped:
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: state_of(pid) == "T")
        front.kill()
        front.wait()
        wait_until(lambda: state_of(pid) in ("gone", "Z"))
    finally:
        front.kill()
        front.wait()
        front.stdout.close()
        if state_of(pid) not in ("gone", "Z"):
            os.kill(pid, signal.SIGKILL)


def test_a_front_that_died_before_its_child_asked_is_noticed():
    """A process whose parent is not the one that made its socket has lost it already."""
    code = "from cuzkd.engine import process\nprocess.die_with(1 if __import__('os').getppid() != 1 else 2)"
    child = subprocess.run([sys.executable, "-P", "-c", code], timeout=PATIENCE_S, check=False)
    assert child.returncode == 1
    parent = f"from cuzkd.engine import process\nprocess.die_with({os.getpid()})"
    assert (
        subprocess.run([sys.executable, "-P", "-c", parent], timeout=PATIENCE_S, check=False).returncode == 0
    )


def test_the_maker_of_a_socketpair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert process.maker(ours) == process.maker(theirs) == os.getpid()


def test_a_successor_waits_until_its_predecessor_is_gone_stopped_or_not(tmp_path):
    path = tmp_path / "provers" / "prover-0.lock"
    first, one = start("--lock", str(path))
    assert one.recv(2) == b"up"
    assert path.read_text() == f"{first.pid}\n" and path.stat().st_mode & 0o777 == 0o600
    first.send_signal(signal.SIGSTOP)
    second, two = start("--lock", str(path))
    try:
        said = f"waits for {first.pid};".encode()
        assert two.recv(len(said)) == said
        two.setblocking(False)
        with pytest.raises(BlockingIOError):
            two.recv(2)
        two.settimeout(PATIENCE_S)
        first.kill()
        assert two.recv(2) == b"up" and path.read_text() == f"{second.pid}\n"
        with path.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        end(first, one)
        end(second, two)


def test_no_core_dump_and_no_debugger():
    child, sock = start()
    try:
        assert sock.recv(2) == b"up"
        limits = Path(f"/proc/{child.pid}/limits").read_text()
        assert next(line for line in limits.splitlines() if "core file" in line).split()[4:6] == ["0", "0"]
        code = (
            "import ctypes; from cuzkd.engine import process; process.keep_secrets(); "
            "raise SystemExit(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
        )
        assert (
            subprocess.run([sys.executable, "-P", "-c", code], timeout=PATIENCE_S, check=False).returncode
            == 0
        )
    finally:
        end(child, sock)


def test_who_does_not_go_when_killed_is_not_waited_for():
    class Stuck:
        pid = 2**22 + 1  # none of that number

        async def wait(self):
            await asyncio.Event().wait()

    assert asyncio.run(process.reap(Stuck(), 0.0, killed_s=0.0)) is None


FREED = """
import ctypes, sys
from cuzkd.engine import process
if sys.argv[1] == "keep":
    process.keep_secrets()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
at = libc.malloc(6000)
guard = libc.malloc(64)  # so that it does not melt into the end of the heap
ctypes.memmove(at, b"secret" * 1000, 6000)
libc.free(at)
print(ctypes.string_at(at, 6000).count(b"secret"))
"""


def test_what_is_freed_is_overwritten():
    def left(word):
        done = subprocess.run(
            [sys.executable, "-P", "-c", FREED, word], capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    assert left("keep") == 0 and left("control") > 900, "the C library leaves it there by itself"


def test_locks_of_a_process_that_cannot_be_ended_are_forgotten(tmp_path):
    mine, other = tmp_path / "GPU-1.lock", tmp_path / "prover-1.lock"
    mine.write_text("4711\n")
    other.write_text("47110\n")
    process.forget_locks(tmp_path, 4711)
    assert not mine.exists() and other.exists()


def test_what_is_besides_ours_or_instead(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    code = "import os; open('seen', 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])"

    async def body(**more):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            await (await process.spawn([sys.executable, "-P", "-c", code], theirs, tmp_path, **more)).wait()
        return (tmp_path / "seen").read_text()

    assert asyncio.run(body()) == "1,0"
    assert asyncio.run(body(besides={"CUDA_VISIBLE_DEVICES": "GPU-1"})) == "GPU-1"
