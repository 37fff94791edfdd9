"""What every process of ours that sees witnesses does first."""

from __future__ import annotations

import ctypes
import resource
import signal

_PR_SET_DUMPABLE = 4


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
