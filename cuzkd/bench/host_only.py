"""What the host does for a partition, whatever the device: makes memory, copies inside of it, synthesises.

All that `cuzkd bench transfer` can measure where there is no device to copy to.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable

from cuzkd.backend import cpu
from cuzkd.bench import pipeline
from cuzkd.bench.measured import GB, ms
from cuzkd.bench.pipeline import Setting
from cuzkd.bench.regimes import STAGED_BY, Copier
from cuzkd.bench.report import GIB, Report, Table
from cuzkd.bench.slabs import KeptPages
from cuzkd.bench.subject import Subject

REPEATS = 5  # of staging; the best counts


def fill(report: Report, bed: Subject, kept: KeptPages, regimes: Iterable[str], partitions: int) -> None:
    """Tables, notes and numbers of a report. regimes: of them those that stage; partitions: to synthesise."""
    nbytes = bed.lease_bytes
    staging = {
        name: _staging_s(kept, nbytes, STAGED_BY[name] or cpu.threads())
        for name in regimes
        if name in STAGED_BY
    }
    with pipeline.opened(bed, Setting(upstream=kept, ready_target=1, wipe=False)) as prover:
        prover.run(1, 1)
        records = prover.run(partitions, 1).records
    phases = ("witness", "synthesis")
    host_s = {phase: statistics.median(record.seconds[phase] for record in records) for phase in phases}
    making_s = kept.made_s / kept.bytes_made * nbytes
    rows = [
        ("slab: mapped and touched", ms(making_s), _rate(nbytes, making_s)),
        *((f"{name}: on the host", ms(seconds), _rate(nbytes, seconds)) for name, seconds in staging.items()),
        ("witness: copied, checked", ms(host_s["witness"]), _rate(bed.witness_bytes, host_s["witness"])),
        ("synthesis", ms(host_s["synthesis"]), ""),
    ]
    title = f"{bed.circuit.n_constraints:,} constraints, {nbytes / GIB:.3f} GiB of vectors a partition"
    report.tables = [Table(title, ("", "ms", "GB/s"), rows)]
    report.notes = [
        f"Transfers need a device, and backend {bed.backend.name} has none to copy to: no regime was run. Shown is "
        f"what the host does for one partition, medians of {len(records)} (copies: best of {REPEATS}).",
    ]
    report.numbers |= {"staging_s": staging, "host_s": host_s}


def _staging_s(kept: KeptPages, nbytes: int, threads: int) -> float:
    """The best time of a copy between two slabs."""
    source, target = kept.make(nbytes), kept.make(nbytes)
    copier = Copier(threads)
    seconds = []
    try:
        for _ in range(REPEATS):
            began = time.monotonic()
            copier.copy([(target.address, source.address, nbytes)])
            seconds.append(time.monotonic() - began)
    finally:
        copier.close()
        source.close()
        target.close()
    return min(seconds)


def _rate(nbytes: int, seconds: float) -> str:
    return f"{nbytes / seconds / GB:.1f}"
