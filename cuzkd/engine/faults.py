"""Faults on purpose, for tests: what the engine does when a stage fails is worth as much as what it does
otherwise.

In production `load("")` gives an object that does nothing. A test sends a plan in Configure.fault, or gives one to the
front in EngineSettings.front_fault: items joined by commas, each `action:point:count`, acting the first `count` times
that somebody comes by the point. `action:point:count@skip` lets the first `skip` pass.

    raise    an unexpected error (a bug) at the point
    fault    a DeviceFault at the point: the device is to be replaced
    memory   an allocation fails
    full     the disk is full
    exit     the process dies at the point, without a word
    kill     the same by SIGKILL
    stop     the process is stopped (SIGSTOP), as a hang that no thread of it sees
    hang     the thread never comes back
    hold     half a second of nothing
    flip     one bit of the sums is wrong (points `sums` and `selftest` only)

Points of a prover, in the order in which a partition comes by, then those of keys and memory. Points of the front, in
the order in which a job does.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import threading
import time

from cuzkd.backend.protocol import MsmSums
from cuzkd.errors import DeviceFault, InvalidInput

PROVER_POINTS = (
    "witness", "synthesis", "ready", "upload", "launch", "result", "sums", "assembly", "verify",
    "selftest", "key", "grant", "slab", "lease",
)  # fmt: skip
FRONT_POINTS = (
    "spool_write",  # before bytes of a payload go to the disk
    "spool_sync",  # they are there, not synced
    "journal_write",  # before a transaction
    "journal_commit",  # in it
    "accepted",  # the job's row is on the disk, the client has no answer
    "offered",  # a prover has been told
    "result",  # a proof has come, nothing is recorded
    "ended",  # the end is recorded, nobody has heard of it
    "removed",  # its files are gone
)
POINTS = PROVER_POINTS + FRONT_POINTS
ACTIONS = ("raise", "fault", "memory", "full", "exit", "kill", "stop", "hang", "hold", "flip")
HOLD_S = 0.5


class NoFaults:
    """Nothing goes wrong on purpose."""

    def at(self, point: str) -> None:
        """Called when a partition comes by a point."""

    def sums(self, sums: MsmSums) -> MsmSums:
        """Called with the sums of every proof."""
        return sums


@dataclasses.dataclass
class _Item:
    action: str
    count: int
    skip: int = 0


class PlannedFaults(NoFaults):
    def __init__(self, plan: dict[str, list[_Item]]) -> None:
        self._plan = plan
        self._lock = threading.Lock()

    def _due(self, point: str) -> str | None:
        with self._lock:
            items = self._plan.get(point, [])
            if not items:
                return None
            item = items[0]
            if item.skip:
                item.skip -= 1
                return None
            item.count -= 1
            if not item.count:
                items.pop(0)
            return item.action

    def at(self, point: str) -> None:
        match self._due(point):
            case "raise":
                raise RuntimeError(f"fault planned at {point}")
            case "fault":
                raise DeviceFault(f"fault planned at {point}")
            case "memory":
                raise MemoryError(f"fault planned at {point}")
            case "full":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"fault planned at {point}")
            case "exit":
                os._exit(70)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "hang":
                threading.Event().wait()
            case "hold":
                time.sleep(HOLD_S)

    def sums(self, sums: MsmSums) -> MsmSums:
        if self._due("sums") != "flip":
            return sums
        wrong = sums.a_g1.copy()
        wrong.flat[0] ^= 1
        return dataclasses.replace(sums, a_g1=wrong)


def load(text: str) -> NoFaults:
    """The plan of Configure.fault. Raises InvalidInput, naming the item that is none."""
    if not text:
        return NoFaults()
    plan: dict[str, list[_Item]] = {}
    for item in text.split(","):
        action, _, rest = item.partition(":")
        point, _, times = rest.partition(":")
        count, _, skip = times.partition("@")
        if action not in ACTIONS or point not in POINTS or not count.isdigit() or not (skip or "0").isdigit():
            raise InvalidInput(f"fault {item!r}: expected action:point:count[@skip], {ACTIONS} at {POINTS}")
        if int(count):
            plan.setdefault(point, []).append(_Item(action, int(count), int(skip or 0)))
    return PlannedFaults(plan)
