"""The points that multi-scalar sums left, on their way to the host, and what they add up to there.

Problem: what a sum leaves are points still to be doubled, each a number of times, and added up: some hundred steps one
after another, which a processor does in less time than a device.
Design: `Arrivals` copies them to page-locked memory behind each sum. Whoever wants the proof combines those of one sum
as soon as they are there, beside the kernels of the next. A sum that came in chunks has several deliveries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzkd.backend.cuda_device import Buffer, Lane
from cuzkd.backend.cuda_msm import Plan, Query
from cuzkd.backend.cuda_spans import Clock
from cuzkd.backend.protocol import U64

if TYPE_CHECKING:
    from cuzkd.backend.cuda import CudaBackend


@dataclass(frozen=True, eq=False)
class _Delivery:
    """On its way; there once `arrived` has happened. Nothing in it keeps the key's memory."""

    lane: Lane
    phase: str
    group: str
    plan: Plan
    host: Any
    nbytes: int
    arrived: Any


class Arrivals:
    """Of one batch."""

    def __init__(self, backend: CudaBackend, curve: str) -> None:
        self._backend, self._curve = backend, curve
        self._sent: list[_Delivery] = []

    def deliver(self, lane: Lane, clock: Clock, query: Query, plan: Plan, points: Buffer) -> None:
        """Enqueue the copy of what this lane just made."""
        host = lane.device.locked(points.nbytes)
        lane.copy_out(host.ptr, points, points.nbytes)
        clock.mark("d2h")
        self._sent.append(_Delivery(lane, query.phase, query.group, plan, host, points.nbytes, clock.last))

    def points(
        self, main: Lane, run: int, runs: int, check: Callable[[], None], last: Callable[[], None]
    ) -> dict[str, U64]:
        """The affine point of each phase, for number `run` of so many; blocks until all are there.

        check: called when one has arrived; may raise. last: called, maybe several times, once no more than one sum of
        the main lane is still to come, whatever is of others. Where sums come in chunks that is at the end: all over
        the witness end in the last one.
        """
        found: dict[str, U64] = {}
        pending = sorted(self._sent, key=lambda sent: sent.lane is not main)
        while pending:
            if len({sent.phase for sent in pending if sent.lane is main}) < 2:
                last()
            phase = next((s for s in pending if s.arrived.done), pending[0]).phase
            parts = [s for s in pending if s.phase == phase]
            pending = [s for s in pending if s.phase != phase]
            left: list[tuple[Plan, U64]] = []
            for sent in parts:
                sent.arrived.synchronize()
                check()
                words = np.frombuffer(sent.host, np.uint64, sent.nbytes // 8).reshape(runs, -1)
                left.append((sent.plan, words[run]))
            found[phase] = self._backend.combine(self._curve, parts[0].group, left)
        return found
