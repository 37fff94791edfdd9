"""Spans of a device's streams on the host's clock.

Problem: CUDA events tell how far apart two moments are, to a microsecond or less, but not when they were; and
they tell it as a 32-bit number of milliseconds, which gets coarse over minutes.
Design: an `Anchor` is one moment that both clocks know, taken anew for each upload (Device.anchor). A `Clock`
marks the ends of phases on one lane; its spans are what lies between two marks, as seen from an anchor.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import cupy

from cuzkd.backend.protocol import Span

if TYPE_CHECKING:
    from cuzkd.backend.cuda_device import Lane


@dataclass(frozen=True)
class Anchor:
    """An event that has happened, and when: at_s on the clock of time.monotonic()."""

    event: Any
    at_s: float

    def time_of(self, event: Any) -> float:
        """When an event happened that was recorded, and has happened, since."""
        return self.at_s + float(cupy.cuda.get_elapsed_time(self.event, event)) / 1e3

    def span(self, phase: str, row: str, begin: Any, end: Any) -> Span:
        begin_s = self.time_of(begin)
        return Span(phase, row, begin_s, self.time_of(end) - begin_s)


@dataclass(frozen=True)
class _Mark:
    """Ends `phase`, or begins the first one after a gap where that is empty. of_run: None where all runs share it."""

    phase: str
    of_run: int | None
    event: Any


class Clock:
    """What a lane does for one run, or for several of a batch, as phases one after another."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._marks: list[_Mark] = []

    def begin(self) -> None:
        """What was issued since the last mark belongs to no phase: waiting, say."""
        self._mark("", None)

    def mark(self, phase: str, of_run: int | None = None) -> None:
        """What was issued since the last mark is this phase, of one run or of all; where it has no name, as begin()."""
        self._mark(phase, of_run)

    def _mark(self, phase: str, of_run: int | None) -> None:
        self._marks.append(_Mark(phase, of_run, self._lane.event()))

    @property
    def last(self) -> Any:
        """The event of the last mark."""
        return self._marks[-1].event

    def spans(self, anchor: Anchor, run: int, runs: int) -> list[Span]:
        """Those of one run, in order; call when the last event has happened.

        A span that `runs` runs share is cut into as many equal pieces, of which this run has the one of its number:
        the pieces of all runs tile the time that was really taken, so that neither the sum of all spans nor their union
        counts anything twice, and each run has its part of the cost.
        """
        found = []
        for before, mark in pairwise(self._marks):
            if mark.phase and mark.of_run in (None, run):
                span = anchor.span(mark.phase, self._lane.name, before.event, mark.event)
                found.append(span if mark.of_run is not None else _piece(span, run, runs))
        return found


def _piece(span: Span, index: int, count: int) -> Span:
    seconds = span.seconds / count
    return Span(span.phase, span.row, span.begin_s + index * seconds, seconds)
