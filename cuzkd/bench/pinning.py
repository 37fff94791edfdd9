"""`cuzkd bench pinning`: what page-locked memory costs to make, and what it costs to lock what is there already.

    making    a slab by each way there is: mapped and touched with ordinary and with huge pages, then registered; and
              by the driver's own allocator. Undoing is timed, too
    curve     registering and unregistering R regions of B bytes in all, for each R and B, in memory that was mapped
              and touched once for all of them. Is it bytes that cost, or calls?

Life of data: Options -> slabs -> Making, Point -> Report. Without a device there are mapping and touching alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cuzkd.backend import cpu
from cuzkd.backend.protocol import Backend, Span, seconds_by_phase
from cuzkd.bench import timeline
from cuzkd.bench.report import GIB, Report, Table
from cuzkd.bench.slabs import Pinning, pinning_of, traced
from cuzkd.engine.fleet.budget_desk import auto_limit
from cuzkd.errors import InvalidInput, NeverFits
from cuzkd.memory.upstream import PAGE_BYTES, PagesUpstream

REGIONS = (1, 3, 10, 30)  # 3: one partition's a, b, c. 30: those of the original's ten circuits
CURVE_BYTES = tuple(gib * GIB for gib in (1, 4, 12, 30, 60, 90))
MAKING_BYTES = 4 * GIB
HUGE = {True: "huge pages", False: "ordinary pages"}


@dataclass(frozen=True)
class Options:
    """making_bytes: size of the slabs that are made. curve_bytes: totals of the curve (none: no curve)."""

    making_bytes: int = MAKING_BYTES
    curve_bytes: tuple[int, ...] = CURVE_BYTES
    regions: tuple[int, ...] = REGIONS
    huge: bool = True  # kind of pages under the curve
    trace: Path | None = None


@dataclass(frozen=True)
class Device:
    """host_alloc(bytes): seconds that the driver takes to make and to free so much page-locked memory."""

    pinning: Pinning
    host_alloc: Callable[[int], tuple[float, float]]


@dataclass(frozen=True)
class Making:
    """Seconds for one slab. None: not part of this way, or no device to do it."""

    way: str
    nbytes: int
    pages_s: float | None  # mapped and touched
    lock_s: float | None
    unlock_s: float | None
    free_s: float | None

    @property
    def made_s(self) -> float:
        return (self.pages_s or 0.0) + (self.lock_s or 0.0)


@dataclass(frozen=True)
class Point:
    """So many regions of nbytes in all: seconds to register and to unregister them, one after another."""

    regions: int
    nbytes: int
    register_s: float
    unregister_s: float


def device_of(backend: Any) -> Device | None:
    """The GPU's; None where there is none."""
    pinning = pinning_of(backend)
    if pinning is None:
        return None
    from cuzkd.backend.cuda_probe import host_alloc_seconds  # needs cupy, which is there if the backend is

    return Device(pinning, lambda nbytes: host_alloc_seconds(backend.gpu, nbytes))


def run(
    backend: Backend, options: Options, say: Callable[[str], None], device: Device | None = None
) -> Report:
    """device: by default the backend's, if it has one.

    Raises InvalidInput for sizes that cannot be, NeverFits for more than this machine has, Exhausted when the driver
    has no more.
    """
    _require_sense(options)
    device = device or device_of(backend)
    spans: list[Span] = []
    pinning = device.pinning if device is not None else None
    makings = [_pages(options.making_bytes, huge, pinning, spans) for huge in (False, True)]
    if device is not None:
        makings.append(_host_alloc(options.making_bytes, device))
    for making in makings:
        say(f"{making.way}: {_per_gib(making.made_s, making.nbytes)} ms per GiB")
    limit = auto_limit()
    totals = sorted(nbytes for nbytes in options.curve_bytes if nbytes <= limit.limit_bytes)
    points = _curve(totals, options, pinning, spans, say) if pinning is not None and totals else []
    first, points = points[:1], points[1:]
    report = Report("pinning", backend)
    report.tables = [_making_table(makings)] + ([_curve_table(points, options)] if points else [])
    report.notes = [f"{cpu.threads()} threads touch the pages."]
    if first:
        rate = _per_gib(first[0].register_s, first[0].nbytes)
        report.notes.append(f"The first time ever that this memory was locked took {rate} ms per GiB.")
    if len(totals) < len(options.curve_bytes):
        report.notes.append(f"Larger totals are left out: there are {limit.limit_bytes / GIB:.1f} GiB.")
    if device is None:
        report.notes.append(
            f"Locking pages needs a device, and backend {backend.name} has none that memory could be locked for: "
            "mapping and touching alone are shown."
        )
    if options.trace is not None:
        timeline.write_trace(options.trace, [("memory", span) for span in spans])
    report.numbers = {
        "options": vars(options),
        "making": [asdict(making) for making in makings],
        "first": [asdict(point) for point in first],
        "curve": [asdict(point) for point in points],
    }
    return report


def _require_sense(options: Options) -> None:
    if min(options.regions, default=0) < 1:
        raise InvalidInput(f"regions: expected numbers from 1 up, got {options.regions}")
    least = PAGE_BYTES * max(options.regions)
    for nbytes in (options.making_bytes, *options.curve_bytes):
        if nbytes < least:
            raise InvalidInput(f"bytes: expected a page for each region, {least}, got {nbytes}")
    limit = auto_limit()
    if options.making_bytes > limit.limit_bytes:
        raise NeverFits(
            f"{options.making_bytes} bytes of memory; there are {limit.limit_bytes} ({limit.source})"
        )


# -- making --------------------------------------------------------------------------------------------------


def _pages(nbytes: int, huge: bool, pinning: Pinning | None, spans: list[Span]) -> Making:
    """spans: get those of registering."""
    began = time.monotonic()
    slab = PagesUpstream(cpu.threads(), huge).make(nbytes)
    pages_s = time.monotonic() - began
    lock_s = unlock_s = None
    try:
        if pinning is not None:
            point = _point(slab.address, slab.nbytes, 1, pinning, spans)
            lock_s, unlock_s = point.register_s, point.unregister_s
    finally:
        began = time.monotonic()
        slab.close()
        free_s = time.monotonic() - began
    registered = "" if pinning is None else ", registered"
    return Making(f"{HUGE[huge]}{registered}", slab.nbytes, pages_s, lock_s, unlock_s, free_s)


def _host_alloc(nbytes: int, device: Device) -> Making:
    made_s, freed_s = device.host_alloc(nbytes)
    return Making("cudaHostAlloc", nbytes, None, made_s, None, freed_s)


def _making_table(makings: list[Making]) -> Table:
    head = ("ms per GiB", "map, touch", "lock", "made", "unlock", "free")
    rows = [
        (making.way, *(_per_gib(seconds, making.nbytes) for seconds in _parts(making))) for making in makings
    ]
    return Table(f"Making {makings[0].nbytes / GIB:g} GiB", head, rows)


def _parts(making: Making) -> tuple[float | None, ...]:
    return making.pages_s, making.lock_s, making.made_s, making.unlock_s, making.free_s


def _per_gib(seconds: float | None, nbytes: int) -> str:
    return "-" if seconds is None else f"{1e3 * seconds / (nbytes / GIB):.1f}"


# -- the curve -----------------------------------------------------------------------------------------------


def _curve(
    totals: list[int], options: Options, pinning: Pinning, spans: list[Span], say: Callable[[str], None]
) -> list[Point]:
    """All of it once, because the first time takes longer; then each total, of ascending ones, with each number of
    regions.
    """
    slab = PagesUpstream(cpu.threads(), options.huge).make(totals[-1])
    try:
        points = [_point(slab.address, totals[-1], 1, pinning, spans)]
        for nbytes in totals:
            points += [_point(slab.address, nbytes, regions, pinning, spans) for regions in options.regions]
            say(f"registered {nbytes / GIB:g} GiB as {', '.join(map(str, options.regions))} regions")
    finally:
        slab.close()
    return points


def _point(address: int, nbytes: int, regions: int, pinning: Pinning, spans: list[Span]) -> Point:
    """Regions of equal size, whole pages, one behind the other. spans: get those of registering."""
    size = nbytes // regions // PAGE_BYTES * PAGE_BYTES
    calls: list[Span] = []
    timed = traced(pinning, calls)
    with ExitStack() as undo:  # what could not be registered as a whole is undone
        for region in range(regions):
            timed.register(address + region * size, size)
            undo.callback(timed.unregister, address + region * size)
    spans += calls
    seconds = seconds_by_phase(calls)
    return Point(regions, size * regions, seconds["pin"], seconds["unpin"])


def _curve_table(points: list[Point], options: Options) -> Table:
    """A row for each total: seconds to register and to unregister, by regions."""
    head = ["GiB", *(f"{doing}, {n}" for doing in ("lock", "unlock") for n in options.regions)]
    rows = []
    for at in range(0, len(points), len(options.regions)):
        row = points[at : at + len(options.regions)]
        seconds = [point.register_s for point in row] + [point.unregister_s for point in row]
        rows.append([f"{row[0].nbytes / GIB:g}", *(f"{s:.3f}" for s in seconds)])
    return Table(f"Registering memory with {HUGE[options.huge]}, seconds, by number of regions", head, rows)
