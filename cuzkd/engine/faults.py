"""Faults on purpose, for tests: what the engine does when a stage fails is worth as much as what it does
otherwise.

In production `load("")` gives an object that does nothing. A test sends a plan in Configure.fault: items
joined by commas, each `action:point:count`, acting the first `count` times that a partition comes by the
point.

    raise    an unexpected error (a bug) at the point
    fault    a DeviceFault at the point: the device is to be replaced
    exit     the process dies at the point, without a word
    hold     half a second of nothing
    flip     one bit of the sums is wrong (point `sums` only)

Points, in order: witness, synthesis, ready, upload, launch, result, sums, assembly, verify.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time

from cuzkd.backend.protocol import MsmSums
from cuzkd.errors import DeviceFault, InvalidInput

POINTS = ("witness", "synthesis", "ready", "upload", "launch", "result", "sums", "assembly", "verify")
ACTIONS = ("raise", "fault", "exit", "hold", "flip")
HOLD_S = 0.5


class NoFaults:
    """Nothing goes wrong on purpose."""

    def at(self, point: str) -> None:
        """Called when a partition comes by a point."""

    def sums(self, sums: MsmSums) -> MsmSums:
        """Called with the sums of every proof."""
        return sums


class PlannedFaults(NoFaults):
    def __init__(self, plan: dict[str, list[tuple[str, int]]]) -> None:
        self._plan = plan
        self._lock = threading.Lock()

    def _due(self, point: str) -> str | None:
        with self._lock:
            items = self._plan.get(point, [])
            if not items:
                return None
            action, count = items.pop(0)
            if count > 1:
                items.insert(0, (action, count - 1))
            return action

    def at(self, point: str) -> None:
        action = self._due(point)
        if action == "raise":
            raise RuntimeError(f"fault planned at {point}")
        if action == "fault":
            raise DeviceFault(f"fault planned at {point}")
        if action == "exit":
            os._exit(70)
        if action == "hold":
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
    plan: dict[str, list[tuple[str, int]]] = {}
    for item in text.split(","):
        action, _, rest = item.partition(":")
        point, _, count = rest.partition(":")
        if action not in ACTIONS or point not in POINTS or not count.isdigit():
            raise InvalidInput(f"fault {item!r}: expected action:point:count, {ACTIONS} at {POINTS}")
        if int(count):
            plan.setdefault(point, []).append((action, int(count)))
    return PlannedFaults(plan)
