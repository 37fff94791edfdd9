"""What one regime took in one run, and tables of several.

Times are means over partitions, of spans: what was registered for a whole group counts for each of it in equal parts.
Rates are bytes over seconds, with GB = 10^9 bytes. busy and exposed: timeline.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cuzkd.bench import timeline
from cuzkd.bench.pcie import Samples
from cuzkd.bench.pipeline import Record, Run
from cuzkd.bench.report import GIB, Table

GB = 1e9


@dataclass(frozen=True)
class Slabs:
    """Memory that was made before a regime's first partition: bytes, and seconds to map, touch and page-lock them."""

    nbytes: int
    seconds: float

    @property
    def ms_per_gib(self) -> float:
        return 1e3 * self.seconds / (self.nbytes / GIB)


@dataclass(frozen=True)
class Measured:
    """in_flight: 1 is alone. Seconds and bytes of one partition; see the module docstring.

    synthesis_s: median. each_s: between the ends of two partitions; alone, from its offer to its end. pcie_bytes_s:
    what NVML saw while something crossed, None where it saw nothing.
    """

    regime: str
    in_flight: int
    partitions: int
    slabs: Slabs
    pin_s: float
    stage_s: float
    h2d_s: float
    unpin_s: float
    h2d_bytes: float
    bare_bytes_s: float
    synthesis_s: float
    gpu_wait_s: float
    each_s: float
    exposed: float
    busy: float
    pcie_bytes_s: float | None
    phases_s: tuple[dict[str, float], ...]

    @property
    def way_s(self) -> float:
        """All that was done to bring a partition's vectors over, once they were made."""
        return self.pin_s + self.stage_s + self.h2d_s + self.unpin_s

    @property
    def h2d_bytes_s(self) -> float:
        return self.h2d_bytes / self.h2d_s if self.h2d_s else 0.0

    @property
    def of_bare(self) -> float:
        """The rate of the copy, as a share of the bare copy's."""
        return self.h2d_bytes_s / self.bare_bytes_s


def measured(
    regime: str, in_flight: int, run: Run, slabs: Slabs, bare_bytes_s: float, samples: Samples
) -> Measured:
    """From the records of a run."""
    spans = [span for record in run.records for span in record.spans]
    n = len(run.records)

    def mean(phase: str) -> float:
        """Without what synthesis calls so: its `pin` is the wait for leases."""
        return sum(s.seconds for s in spans if s.phase == phase and not s.row.startswith("synthesis")) / n

    return Measured(
        regime=regime,
        in_flight=in_flight,
        partitions=n,
        slabs=slabs,
        pin_s=mean("pin"),
        stage_s=mean("stage_copy"),
        h2d_s=mean("h2d"),
        unpin_s=mean("unpin"),
        h2d_bytes=sum(record.h2d_bytes for record in run.records) / n,
        bare_bytes_s=bare_bytes_s,
        synthesis_s=statistics.median(record.seconds["synthesis"] for record in run.records),
        gpu_wait_s=mean("gpu_wait"),
        each_s=_each(run, in_flight),
        exposed=timeline.exposed(spans),
        busy=timeline.busy(spans),
        pcie_bytes_s=samples.during(timeline.copies(spans)),
        phases_s=tuple(record.seconds for record in run.records),
    )


def _each(run: Run, in_flight: int) -> float:
    ends = sorted(map(_end, run.records))
    if in_flight == 1 or len(ends) < 2:
        return run.wall_s / len(ends)
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def _end(record: Record) -> float:
    return max(span.end_s for span in record.spans)


def numbers(m: Measured) -> dict[str, Any]:
    """For programs: its fields, and what follows from them."""
    return asdict(m) | {"way_s": m.way_s, "h2d_bytes_s": m.h2d_bytes_s, "of_bare": m.of_bare}


# -- tables --------------------------------------------------------------------------------------------------


def ms(seconds: float) -> str:
    """ "12.3"; a dash where nothing was done."""
    return f"{1e3 * seconds:.1f}" if seconds else "-"


def alone_table(title: str, all_measured: Sequence[Measured]) -> Table:
    """Every regime with one partition at a time."""
    head = (
        "regime",
        "slabs, ms/GiB",
        "pin, ms",
        "stage, ms",
        "copy, ms",
        "unpin, ms",
        "in all, ms",
        "copy, GB/s",
        "of bare",
        "in all, GB/s",
        "synthesis, s",
        "partition, s",
    )
    rows = [
        (
            m.regime,
            f"{m.slabs.ms_per_gib:.0f}",
            *(ms(seconds) for seconds in (m.pin_s, m.stage_s, m.h2d_s, m.unpin_s, m.way_s)),
            f"{m.h2d_bytes_s / GB:.1f}",
            f"{m.of_bare:.1%}",
            f"{m.h2d_bytes / m.way_s / GB:.1f}",
            f"{m.synthesis_s:.3f}",
            f"{m.each_s:.3f}",
        )
        for m in all_measured
        if m.in_flight == 1
    ]
    return Table(title, head, rows)


def in_flight_table(title: str, all_measured: Sequence[Measured]) -> Table:
    """Every regime with several. slower: synthesis, against that of the same regime alone."""
    alone = {m.regime: m.synthesis_s for m in all_measured if m.in_flight == 1}
    head = (
        "regime",
        "pin, ms",
        "stage, ms",
        "copy, ms",
        "unpin, ms",
        "copy, GB/s",
        "of bare",
        "NVML, GB/s",
        "exposed",
        "busy",
        "gpu_wait, s",
        "synthesis, s",
        "slower",
        "partition, s",
    )
    rows = [
        (
            m.regime,
            *(ms(seconds) for seconds in (m.pin_s, m.stage_s, m.h2d_s, m.unpin_s)),
            f"{m.h2d_bytes_s / GB:.1f}",
            f"{m.of_bare:.1%}",
            "-" if m.pcie_bytes_s is None else f"{m.pcie_bytes_s / GB:.1f}",
            f"{m.exposed:.2%}",
            f"{m.busy:.1%}",
            f"{m.gpu_wait_s:.3f}",
            f"{m.synthesis_s:.3f}",
            f"{m.synthesis_s / alone[m.regime]:.2f}x" if m.regime in alone else "-",
            f"{m.each_s:.3f}",
        )
        for m in all_measured
        if m.in_flight > 1
    ]
    return Table(title, head, rows)
