"""Faults on purpose, for tests: what the engine does when a stage fails is worth as much as what it does
otherwise.

In production `load("")` gives an object that does nothing. A test sends a plan in Configure.fault, or gives one to the
front in EngineSettings.front_fault: items joined by commas, each `action:point:count`, acting the first `count` times
that somebody comes by the point. `action:point:count@skip` lets the first `skip` pass. `@PATH` is a plan in a file:
it counts over all processes that are given it, so that a successor does not die of what its predecessor died of, and
may be rewritten while they run. What has acted is appended to PATH.acted, before it acts.

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
import fcntl
import os
import signal
import threading
import time
from pathlib import Path

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
IN_A_FILE = "@"
HOLD_S = 0.5


class NoFaults:
    """Nothing goes wrong on purpose."""

    def at(self, point: str) -> None:
        """Called when a partition comes by a point."""

    def sums(self, sums: MsmSums, point: str = "sums") -> MsmSums:
        """Called with the sums of every proof; at "selftest" with those of the canary's."""
        return sums


@dataclasses.dataclass
class _Item:
    action: str
    point: str
    count: int
    skip: int = 0

    def __str__(self) -> str:
        return f"{self.action}:{self.point}:{self.count}" + (f"@{self.skip}" if self.skip else "")


def _parse(text: str) -> list[_Item]:
    """Raises InvalidInput, naming the item that is none."""
    items = []
    for item in filter(None, text.strip().split(",")):
        action, _, rest = item.partition(":")
        point, _, times = rest.partition(":")
        count, _, skip = times.partition("@")
        if action not in ACTIONS or point not in POINTS or not count.isdigit() or not (skip or "0").isdigit():
            raise InvalidInput(f"fault {item!r}: expected action:point:count[@skip], {ACTIONS} at {POINTS}")
        items.append(_Item(action, point, int(count), int(skip or 0)))
    return [item for item in items if item.count]


def _due(items: list[_Item], point: str, flips: bool) -> str | None:
    """The action that somebody who comes by the point now meets; the plan counts it. flips: of those alone, which
    only sums can meet; else of all others.
    """
    item = next((item for item in items if item.point == point and (item.action == "flip") == flips), None)
    if item is None:
        return None
    if item.skip:
        item.skip -= 1
        return None
    item.count -= 1
    if not item.count:
        items.remove(item)
    return item.action


class PlannedFaults(NoFaults):
    """A plan of this process alone."""

    def __init__(self, items: list[_Item]) -> None:
        self._items = items
        self._lock = threading.Lock()

    def _due(self, point: str, flips: bool = False) -> str | None:
        with self._lock:
            return _due(self._items, point, flips)

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

    def sums(self, sums: MsmSums, point: str = "sums") -> MsmSums:
        if self._due(point, flips=True) is None:
            return sums
        wrong = sums.a_g1.copy()
        wrong.flat[0] ^= 1
        return dataclasses.replace(sums, a_g1=wrong)


class SharedFaults(PlannedFaults):
    """A plan in a file. One that is not there is empty."""

    def __init__(self, path: Path) -> None:
        super().__init__([])
        self._path = path

    def _due(self, point: str, flips: bool = False) -> str | None:
        try:
            file = self._path.open("r+")
        except FileNotFoundError:
            return None
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            text = file.read()
            items = _parse(text)
            action = _due(items, point, flips)
            if action:
                with open(f"{self._path}.acted", "a") as acted:
                    acted.write(f"{action} {point} {os.getpid()}\n")
            if (left := ",".join(map(str, items)).ljust(len(text))) != text:
                # One write of the same length: who is killed in the middle of it leaves a whole plan.
                os.pwrite(file.fileno(), left.encode(), 0)
        return action


def load(text: str) -> NoFaults:
    """The plan of Configure.fault, or of EngineSettings.front_fault. Raises InvalidInput, naming what is none."""
    if text.startswith(IN_A_FILE):
        return SharedFaults(Path(text.removeprefix(IN_A_FILE)))
    items = _parse(text)
    return PlannedFaults(items) if items else NoFaults()
