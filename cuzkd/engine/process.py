"""The processes of ours that see witnesses: how the front starts and ends one, and what each of them does first.

Spawned, never forked: a command with `--fd N` appended, one end of a socketpair, and a small environment. The child
hardens itself before it listens.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# What they may inherit. Everything else in our environment is none of their business.
KEPT_NAMES = frozenset(
    {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"}
)
KEPT_PREFIXES = ("CUDA_", "NVIDIA_", "CUPY_", "XDG_CACHE")
_PR_SET_DUMPABLE = 4

# -- in the front --


async def spawn(command: Sequence[str], theirs: socket.socket, cwd: str | Path) -> asyncio.subprocess.Process:
    """Start one. theirs: its end of the socketpair, which it inherits. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        *command,
        "--fd",
        str(theirs.fileno()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
        env=environment(os.environ),
        cwd=cwd,
        start_new_session=True,  # a Ctrl-C at our terminal is ours to handle
    )


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that is passed on."""
    return {
        name: value for name, value in ours.items() if name in KEPT_NAMES or name.startswith(KEPT_PREFIXES)
    }


async def reap(process: asyncio.subprocess.Process, patience_s: float) -> int:
    """Wait a little for an exit, then kill; returns the exit status. The process is gone afterwards."""
    exited = asyncio.ensure_future(process.wait())
    await asyncio.wait([exited], timeout=patience_s)
    if not exited.done():
        # Not process.kill(): that looks first whether the process has ended, and takes its status from asyncio if so.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return await exited


def describe_exit(status: int) -> str:
    """What a process's end means, from its exit status."""
    if status < 0:
        name = signal.Signals(-status).name
        hint = "; the kernel may have run out of memory" if -status == signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    return f"exited with status {status}"


# -- in the process --


def main(prog: str, serve: Callable[[socket.socket], None], arguments: Sequence[str] | None = None) -> None:
    """What its `python -m` runs."""
    parser = argparse.ArgumentParser(prog=prog, description="started by the cuzkd daemon")
    parser.add_argument("--fd", type=int, required=True, help="socket to the front process")
    options = parser.parse_args(arguments)
    harden()
    serve(socket.socket(fileno=options.fd))


def harden() -> None:
    """No core dumps and no debugger of the same user: witnesses are in this memory. Group signals are the
    front's.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
