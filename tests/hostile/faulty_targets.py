"""Readers with the faults that a long run must find: one dies, one hangs, one raises, one believes all, one grows."""

from __future__ import annotations

import os
import signal
from functools import cache
from pathlib import Path
from typing import Any

from hostile.targets import Target

FAULTS = ("dies", "hangs", "raises", "believes", "grows")
NAMES = [("faulty", os.environ.get("CUZKD_FAULTY", FAULTS[0]))]
_HELD: list[bytes] = []


@cache
def target(format: str, name: str) -> Target:
    def read(path: Path) -> Any:
        if name == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "hangs":
            signal.pause()
        if name == "raises":
            raise KeyError(name)
        if name == "grows":
            _HELD.append(b"\1" * (1 << 20))
        return path.read_bytes()

    believes = name == "believes"
    return Target(format, name, ".bin", bytes(64), [], {}, read, lambda _: not believes, lambda _: None)
