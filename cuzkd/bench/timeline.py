"""What happened when: arithmetic over spans, and a trace that a browser can show.

All times are seconds on the clock of time.monotonic(). A device's spans lie between events around whole
phases, so a gap between two kernels of one phase counts as work; phases themselves do not touch if the
device waited.

    busy      union of the kernels on all streams / wall time, from the first to the last kernel
    exposed   time of copies to the device that no kernel covers
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from cuzkd.backend.protocol import Span

Interval = tuple[float, float]  # begin, end

COPY, COMPUTE = "copy", "compute"
NOT_KERNELS = ("d2h",)
# The order of rows in a trace: what a row's name begins with.
ROWS = ("synthesis", "gpu-scheduler", COPY, COMPUTE, "finaliser")


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points in time, as intervals that do not touch, in order."""
    out: list[Interval] = []
    for begin, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return out


def length(intervals: Iterable[Interval]) -> float:
    """Of a union, its measure."""
    return sum(end - begin for begin, end in intervals)


def uncovered(intervals: Iterable[Interval], cover: Sequence[Interval]) -> list[Interval]:
    """What of the first lies in none of `cover`, which is a union."""
    out: list[Interval] = []
    for begin, end in union(intervals):
        at = begin
        for low, high in cover:
            if high <= at or low >= end:
                continue
            if low > at:
                out.append((at, low))
            at = max(at, high)
        if at < end:
            out.append((at, end))
    return out


def clipped(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """Their parts inside the window."""
    low, high = window
    return [(max(begin, low), min(end, high)) for begin, end in intervals if end > low and begin < high]


def kernels(spans: Iterable[Span]) -> list[Interval]:
    """When the device worked, on whatever stream."""
    return union(
        (span.begin_s, span.end_s)
        for span in spans
        if span.row.startswith(COMPUTE) and span.phase not in NOT_KERNELS
    )


def copies(spans: Iterable[Span]) -> list[Interval]:
    """When vectors crossed to the device."""
    return union((span.begin_s, span.end_s) for span in spans if span.phase == "h2d")


def busy(spans: Sequence[Span]) -> float:
    """Share of the time from the first to the last kernel in which one ran; 0 when none did."""
    work = kernels(spans)
    return length(work) / (work[-1][1] - work[0][0]) if work else 0.0


def exposed(spans: Sequence[Span]) -> float:
    """Share of the time from the first to the last kernel in which something crossed and no kernel ran.

    The copy before the first kernel lies outside: nothing can cover it.
    """
    work = kernels(spans)
    if not work:
        return 0.0
    window = work[0][0], work[-1][1]
    return length(uncovered(clipped(copies(spans), window), work)) / (window[1] - window[0])


def write_trace(path: Path, spans: Iterable[tuple[str, Span]]) -> None:
    """Spans with the name of their partition, in Chrome's trace format (ui.perfetto.dev, chrome://tracing)."""
    listed = sorted(spans, key=lambda named: named[1].begin_s)
    rows = sorted({span.row for _, span in listed}, key=_rank)
    start = listed[0][1].begin_s if listed else 0.0
    events: list[dict[str, object]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "cuzkd"}}
    ]
    for number, row in enumerate(rows):
        at = {"ph": "M", "pid": 1, "tid": number}
        events.append({"name": "thread_name", "args": {"name": row}, **at})
        events.append({"name": "thread_sort_index", "args": {"sort_index": number}, **at})
    for partition, span in listed:
        events.append(
            {
                "name": span.phase,
                "ph": "X",
                "pid": 1,
                "tid": rows.index(span.row),
                "ts": round((span.begin_s - start) * 1e6, 1),
                "dur": round(span.seconds * 1e6, 1),
                "args": {"partition": partition},
            }
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def _rank(row: str) -> tuple[int, str]:
    return next((i for i, start in enumerate(ROWS) if row.startswith(start)), len(ROWS)), row
