"""The processes of ours that see witnesses: how the front starts and ends one, and what each of them does first.

Spawned, never forked: a command with `--fd N` appended, one end of a socketpair, and a small environment. The child
hardens itself before it listens. It lives no longer than its front: the kernel kills it, stopped or not, when the
front dies. Where nothing may be done twice at once, it also waits for a file's lock, which whoever did the same
before it held for life: so a successor begins when its predecessor is gone, whatever has become of their fronts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

# What they may inherit. Everything else in our environment is none of their business.
KEPT_NAMES = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH"})
KEPT_NAMES |= {"VIRTUAL_ENV", "CUZKD_NATIVE", "CUZKD_DEFINES"}
KEPT_PREFIXES = ("CUDA_", "NVIDIA_", "CUPY_", "XDG_CACHE")
_PR_SET_PDEATHSIG = 1
_M_PERTURB = -6
_PR_SET_DUMPABLE = 4
_UCRED = struct.Struct("3i")  # pid, uid, gid

# -- in the front --


async def spawn(
    command: Sequence[str],
    theirs: socket.socket,
    cwd: str | Path,
    besides: Mapping[str, str] = MappingProxyType({}),
) -> asyncio.subprocess.Process:
    """Start one. theirs: its end of the socketpair, which it inherits. besides: of its environment, what is not ours or
    instead of ours. Raises OSError.
    """
    return await asyncio.create_subprocess_exec(
        *command,
        "--fd",
        str(theirs.fileno()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
        env={**environment(os.environ), **besides},
        cwd=cwd,
        start_new_session=True,  # a Ctrl-C at our terminal is ours to handle
    )


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that is passed on."""
    return {
        name: value for name, value in ours.items() if name in KEPT_NAMES or name.startswith(KEPT_PREFIXES)
    }


async def reap(
    process: asyncio.subprocess.Process, patience_s: float, killed_s: float | None = None
) -> int | None:
    """Wait a little for an exit, then kill; returns the exit status. The process is gone afterwards.

    None: killed_s after it was killed it was still there, stuck in the kernel. It will do nothing of its own any more.
    """
    exited = asyncio.ensure_future(process.wait())
    await asyncio.wait([exited], timeout=patience_s)
    if not exited.done():
        # Not process.kill(): that looks first whether the process has ended, and takes its status from asyncio if so.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    await asyncio.wait([exited], timeout=killed_s)
    return exited.result() if exited.done() else None


def forget_locks(folder: Path, pid: int) -> None:
    """Have nobody wait for the locks (lock_for_life) that a process holds which cannot be ended and does nothing any
    more.
    """
    for path in folder.glob("*.lock"):
        with contextlib.suppress(OSError):
            if path.read_text("ascii", "replace").strip() == str(pid):
                path.unlink()


def describe_exit(status: int) -> str:
    """What a process's end means, from its exit status."""
    if status < 0:
        name = signal.Signals(-status).name
        hint = "; the kernel may have run out of memory" if -status == signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    return f"exited with status {status}"


# -- in the process --


def main(
    prog: str,
    serve: Callable[[socket.socket], None],
    arguments: Sequence[str] | None = None,
    waits: Callable[[socket.socket, str], None] = lambda sock, pid: None,
) -> None:
    """What its `python -m` runs. waits: called with the pid of who has the lock, before waiting for it."""
    parser = argparse.ArgumentParser(prog=prog, description="started by the cuzkd daemon")
    parser.add_argument("--fd", type=int, required=True, help="socket to the front process")
    parser.add_argument("--lock", type=Path, help="file to lock for life")
    options = parser.parse_args(arguments)
    keep_secrets()
    sock = socket.socket(fileno=options.fd)
    die_with(maker(sock))
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; the front drains first
        signal.signal(number, signal.SIG_IGN)
    if options.lock is not None:
        lock_for_life(options.lock, lambda pid: waits(sock, pid))
    serve(sock)


def keep_secrets() -> None:
    """No core dumps of this process, and no debugger of the same user: witnesses are in its memory. What is freed there
    is overwritten, as far as the C library can.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).mallopt(_M_PERTURB, 0x55)
    _prctl(_PR_SET_DUMPABLE, 0)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the one that started it dies. parent: its pid. Exits if it is dead."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel knew of our wish
        os._exit(1)


def maker(sock: socket.socket) -> int:
    """The pid of the process that made this end of a socketpair."""
    pid, _, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(pid)


def lock_for_life(path: Path, waits: Callable[[str], None]) -> None:
    """Take the lock of a file, made if need be, and keep it until this process is gone. Waits for whoever has it;
    waits: called with their pid, as far as it is known, before waiting. The descriptor is never closed.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waits(os.pread(descriptor, 32, 0).decode("ascii", "replace").strip())
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")
