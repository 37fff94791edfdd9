"""`cuzkd bench transfer`: every way of bringing vectors to the device, in one engine, on one machine, in one run.

For each regime the same partitions of a synthetic circuit are proved twice: one at a time, so that nothing else runs,
and with several in flight, where registering, staging, synthesis and kernels get in each other's way. The copy's rate
is held against a bare copy of page-locked memory, timed at the start of the same run.

Problem. At full size a partition's vectors take 17 GB and some seconds, and time on a device is short.
Design. Slabs are mapped and touched once and go from regime to regime (slabs.py); one pipeline per regime does both
runs; witnesses are few, and written beforehand. One partition, before all others, is not counted.
Without a device there is nothing to cross: then the host's part is shown (making slabs, staging, synthesis).

Life of data: Options -> a subject -> per regime a pipeline's records -> Measured -> Report, traces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cuzkd.backend import cpu
from cuzkd.backend.protocol import Backend, Span, seconds_by_phase
from cuzkd.bench import host_only, pcie, pipeline, subject
from cuzkd.bench.measured import GB, Measured, Slabs, alone_table, in_flight_table, measured, numbers
from cuzkd.bench.pipeline import Run, Setting
from cuzkd.bench.regimes import REGIMES, Place, Regime
from cuzkd.bench.report import GIB, Report, Table
from cuzkd.bench.slabs import KeptPages, Pinning, pinning_of, traced
from cuzkd.bench.subject import Subject
from cuzkd.errors import Exhausted, InvalidInput
from cuzkd.groth16.setup import DEVELOPMENT
from cuzkd.memory.upstream import PagesUpstream

BARE_BYTES = 4 << 30  # of a bare copy, at most
REPEATS = 5  # of bare copies; the best counts
RING_WORKERS = 8
RING_PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class Options:
    """alone, partitions: how many one at a time, and how many with `in_flight` at a time; 0 leaves a run out.

    distinct: witnesses. folder: where they go. traces: a folder for those of regimes in `traced`, several in flight.
    log: a file that gets a line of JSON per run, as they end.
    """

    curve: str = "bls12_381"
    n_constraints: int = 1 << 16
    regimes: tuple[str, ...] = tuple(REGIMES)
    alone: int = 2
    partitions: int = 6
    in_flight: int = 4
    distinct: int = 2
    folder: Path | None = None
    traces: Path | None = None
    traced: tuple[str, ...] = ("pageable", "zero-copy")
    log: Path | None = None


@dataclass(frozen=True)
class Device:
    """What is needed of a device beside its backend. bare_copy(address, bytes, repeats): seconds of each.

    ring: makes one, for the regime that copies through it.
    """

    pinning: Pinning
    ring: Callable[[], Any]
    bare_copy: Callable[[int, int, int], Sequence[float]]


def device_of(backend: Any) -> Device | None:
    """The GPU's; None where there is none."""
    pinning = pinning_of(backend)
    if pinning is None:
        return None
    # Both need cupy, which is there if the backend is.
    from cuzkd.backend.cuda_probe import copy_seconds
    from cuzkd.backend.cuda_ring import Ring

    return Device(
        pinning,
        ring=lambda: Ring(backend.gpu, RING_WORKERS, RING_PIECE_BYTES),
        bare_copy=lambda address, nbytes, repeats: copy_seconds(backend.gpu, address, nbytes, repeats),
    )


def run(
    backend: Backend, options: Options, say: Callable[[str], None], device: Device | None = None
) -> Report:
    """All that options ask for. device: by default the backend's, if it has one.

    Raises InvalidInput for a regime that there is not, NeverFits where the host has too little memory, and whatever
    stops a partition: a regime that makes wrong proofs has no time.
    """
    _require_sense(options)
    device = device or device_of(backend)
    circuit = (options.curve, options.n_constraints)
    holding = 2  # slabs, without a device: one is copied into the other
    if device is not None:
        holding = options.in_flight + any(name.startswith("staged-") for name in options.regimes)
    with (
        subject.make(*circuit, backend, options.folder, options.distinct, holding) as bed,
        _kept_pages() as kept,
    ):
        say(f"{DEVELOPMENT}; made in {bed.made_s['key']:.1f} s")
        for number in range(options.distinct):
            bed.witness(number)
        report = Report("transfer", backend)
        report.numbers = {"options": vars(options), "made_s": bed.made_s, "lease_bytes": bed.lease_bytes}
        if device is None:
            host_only.fill(report, bed, kept, options.regimes, max(options.alone, 1))
        else:
            _side_by_side(report, bed, options, kept, device, say)
        report.numbers["pages"] = {"bytes": kept.bytes_made, "seconds": kept.made_s}
        return report


def _require_sense(options: Options) -> None:
    for what, names in (("regimes", options.regimes), ("traced", options.traced)):
        unknown = [name for name in names if name not in REGIMES]
        if unknown or not names:
            raise InvalidInput(
                f"{what}: expected some of {', '.join(REGIMES)}; got {', '.join(unknown) or 'none'}"
            )
    for name, least in (("alone", 0), ("partitions", 0), ("in_flight", 2), ("distinct", 1)):
        if getattr(options, name) < least:
            raise InvalidInput(f"{name}: expected at least {least}, got {getattr(options, name)}")
    if options.alone + options.partitions == 0:
        raise InvalidInput("alone, partitions: expected at least one of either")


@contextmanager
def _kept_pages() -> Iterator[KeptPages]:
    kept = KeptPages(PagesUpstream(cpu.threads()))
    try:
        yield kept
    finally:
        kept.close()


# -- with a device -------------------------------------------------------------------------------------------


def _side_by_side(
    report: Report,
    bed: Subject,
    options: Options,
    kept: KeptPages,
    device: Device,
    say: Callable[[str], None],
) -> None:
    bare = _bare_bytes_s(bed, kept, device)
    say(f"bare copy of page-locked memory: {bare / GB:.1f} GB/s")
    results: list[Measured] = []
    failed: list[str] = []
    why_no_pcie = ""
    for name in options.regimes:
        try:
            with pcie.watched(bed.backend.device) as samples:
                slabs, runs = _runs(REGIMES[name], bed, options, kept, device, warm_up=not results)
        except Exhausted as error:  # the other regimes may do with less
            failed.append(f"{name} could not be run: {error}.")
            say(failed[-1])
            continue
        why_no_pcie = why_no_pcie or samples.why_none
        for in_flight, one in runs.items():
            results.append(measured(name, in_flight, one, slabs, bare, samples))
            say(_line(results[-1]))
            _append(options.log, numbers(results[-1]))
        if options.traces is not None and options.in_flight in runs and name in options.traced:
            runs[options.in_flight].write_trace(options.traces / f"{name}.json")
    size = f"{options.n_constraints:,} constraints over {options.curve}"
    if options.alone:
        report.tables.append(alone_table(f"{size}, one partition at a time", results))
    if options.partitions:
        title = f"{size}, {options.in_flight} of {options.partitions} partitions in flight"
        report.tables.append(in_flight_table(title, results))
    shown = Table("What they do", ("regime", "its vectors"), [(n, REGIMES[n].says) for n in options.regimes])
    report.tables.append(shown)
    report.notes = [
        *failed,
        f"Key: {DEVELOPMENT}. Bare copy of page-locked memory in the same run: {bare / GB:.1f} GB/s (best of "
        f"{REPEATS}). Slabs: {1e3 * kept.made_s / (kept.bytes_made / GIB):.0f} ms per GiB to map and touch, once for "
        "all regimes and charged to each. All proofs verified.",
    ]
    if why_no_pcie:
        report.notes.append(f"No counters of the bus: {why_no_pcie}.")
    report.numbers |= {"bare_bytes_s": bare, "regimes": [numbers(one) for one in results], "failed": failed}


def _append(path: Path | None, line: dict[str, Any]) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _line(m: Measured) -> str:
    how = "alone" if m.in_flight == 1 else f"{m.in_flight} in flight"
    return f"{m.regime}, {how}: {m.each_s:.3f} s a partition, copies at {m.h2d_bytes_s / GB:.1f} GB/s"


def _bare_bytes_s(bed: Subject, kept: KeptPages, device: Device) -> float:
    """The best rate of a copy from page-locked memory with nothing beside it."""
    slab = kept.make(bed.lease_bytes)
    nbytes = min(slab.nbytes, BARE_BYTES)
    try:
        device.pinning.register(slab.address, nbytes)
        try:
            return nbytes / min(device.bare_copy(slab.address, nbytes, REPEATS))
        finally:
            device.pinning.unregister(slab.address)
    finally:
        slab.close()


def _runs(
    regime: Regime, bed: Subject, options: Options, kept: KeptPages, device: Device, warm_up: bool
) -> tuple[Slabs, dict[int, Run]]:
    """What memory took, and by partitions in flight the runs: alone, then with several, through one pipeline."""
    calls: list[Span] = []
    place = _place(bed, kept, replace(device, pinning=traced(device.pinning, calls)))
    with regime.opened(place) as transfer:
        setting = Setting(
            transfer=transfer, upstream=regime.upstream(place), ready_target=options.in_flight, wipe=False
        )
        with pipeline.opened(bed, setting) as prover:
            place.pending = lambda: prover.pending
            prover.prewarm(options.in_flight)
            nbytes, made_s = kept.in_use()
            slabs = Slabs(nbytes, made_s + seconds_by_phase(calls).get("pin", 0.0))
            if warm_up:
                prover.run(1, 1)
            runs = {}
            for in_flight, count in ((1, options.alone), (options.in_flight, options.partitions)):
                place.in_flight = in_flight
                if count:
                    runs[in_flight] = prover.run(count, in_flight)
            return slabs, runs


def _place(bed: Subject, kept: KeptPages, device: Device) -> Place:
    constraints, backend = bed.key.constraints, bed.backend
    any_backend: Any = backend  # that a device can have the matrices is not of the protocol
    return Place(
        backend=backend,
        pinning=device.pinning,
        pages=kept,
        threads=cpu.threads(),
        sizes=[bed.lease_bytes],
        in_flight=1,
        pending=lambda: 0,
        ring=device.ring,
        attach=lambda: any_backend.attach_matrices(bed.loaded, constraints.a, constraints.b),
        detach=lambda: any_backend.detach_matrices(bed.loaded),
    )
