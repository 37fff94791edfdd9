"""`cuzkd bench porep`: a stream of partitions at size, through the engine as the daemon runs it.

What was planned is computed before anything runs: how many bytes the leases, the matrices, the key and a
proof's buffers take. What was used is measured beside it. Every proof is verified by the finaliser, and once
more here, where it must also fail for another public input.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cuzkd.backend.protocol import Backend, Span
from cuzkd.bench import pipeline, subject, timeline, usage
from cuzkd.bench.pipeline import Run, Setting
from cuzkd.bench.report import GIB, Report, Table
from cuzkd.bench.subject import Subject
from cuzkd.engine.job import PHASES
from cuzkd.engine.prover.residency import constraint_bytes
from cuzkd.formats import snarkjs
from cuzkd.groth16.setup import DEVELOPMENT

MAX_DISTINCT = 11  # witnesses, which are all made beforehand


@dataclass(frozen=True)
class Options:
    curve: str = "bls12_381"
    n_constraints: int = 1 << 16
    partitions: int = 10
    ready_target: int = 2
    vram_bytes: int = 0  # that the device may use; 0: what it has
    host_bytes: int = 0  # that the host has; 0: what it says
    folder: Path | None = None  # for witness files
    out: Path | None = None  # for the key, proofs and publics in snarkjs's formats
    trace: Path | None = None


def run(backend: Backend, options: Options, say: Callable[[str], None]) -> Report:
    """Prove `partitions` of them, one job's worth of work after another."""
    distinct = min(options.partitions + 1, MAX_DISTINCT)
    circuit, holding = (options.curve, options.n_constraints), holders(backend, options.ready_target)
    memory = options.vram_bytes, options.host_bytes
    made = subject.make(*circuit, backend, options.folder, distinct, holding, *memory)
    with made as bed:
        say(
            f"{DEVELOPMENT}; made in {bed.made_s['key']:.1f} s, constraints in {bed.made_s['constraints']:.1f} s"
        )
        for number in range(distinct):
            bed.witness(number)
        with (
            pipeline.opened(bed, Setting(ready_target=options.ready_target)) as prover,
            usage.watched(backend) as peaks,
        ):
            slabs_s = prover.prewarm(holding)
            say(f"pinned memory made in {slabs_s:.2f} s")
            one = prover.run(1)
            say(f"one partition proved and verified in {one.wall_s:.3f} s")
            stream = prover.run(options.partitions) if options.partitions > 1 else one
        for record in one.records + stream.records:
            bed.require_valid(*record.decoded(options.curve), f"partition {record.number}, told verified")
        if options.out is not None:
            _write(options.out, bed, stream)
        if options.trace is not None:
            stream.write_trace(options.trace)
        return _report(backend, options, bed, slabs_s, one, stream, peaks)


def planned(bed: Subject, ready_target: int) -> dict[str, int]:
    """Bytes by place: leases of the partitions that may hold vectors, the host as a whole, the device as a whole."""
    backend = bed.backend
    pinned = bed.lease_bytes * holders(backend, ready_target)
    host = pinned + constraint_bytes(bed.key) + bed.loading_bytes(backend) + bed.witness_bytes
    device = getattr(backend, "planned_bytes", None)
    plan = {"pinned": pinned, "host": host}
    return plan if device is None else plan | {"device": device(bed.loaded, uploads=2)}


def holders(backend: Backend, ready_target: int) -> int:
    """Partitions that may hold vectors: those ready or on their way there, and one at work if that is in place."""
    return ready_target + backend.in_place


def _write(folder: Path, bed: Subject, stream: Run) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verification_key.json").write_text(snarkjs.vkey_to_json(bed.key.vk))
    for record in stream.records:
        proof, publics = record.decoded(bed.key.vk.curve)
        (folder / f"proof_{record.number}.json").write_text(snarkjs.proof_to_json(proof))
        (folder / f"public_{record.number}.json").write_text(snarkjs.publics_to_json(publics))


def _report(
    backend: Backend,
    options: Options,
    bed: Subject,
    slabs_s: float,
    one: Run,
    stream: Run,
    peaks: usage.Peaks,
) -> Report:
    spans: list[Span] = [span for record in stream.records for span in record.spans]
    shape = bed.circuit.shape()
    n = len(stream.records)
    plan = planned(bed, options.ready_target)
    used = {"pinned": stream.pool.peak_slab_bytes, "host": peaks.host, "device": peaks.device}
    busy, exposed = timeline.busy(spans), timeline.exposed(spans)
    report = Report("porep", backend)
    report.tables = [
        Table(
            f"{options.n_constraints:,} constraints over {options.curve}, domain 2^{bed.key.arrays.log_domain}, "
            f"{n} partitions, seconds",
            ("phase", "alone", "median", "least", "most"),
            _phase_rows(one, stream),
        ),
        Table(
            "Memory, GiB",
            ("", "planned", "at most"),
            [(name, f"{plan[name] / GIB:.2f}", f"{used[name] / GIB:.2f}") for name in plan],
        ),
    ]
    report.notes = [
        f"Key: {DEVELOPMENT}. Made in {bed.made_s['key']:.1f} s, the constraints in {bed.made_s['constraints']:.1f} s. "
        f"Entries a row {' / '.join(f'{n:.2f}' for n in shape.per_row)}, {shape.units:.0%} of them 1 or -1;"
        f" {shape.bits:.1%} of the witness 0 or 1; {shape.n_wires:,} wires.",
        f"Slabs made in {slabs_s:.2f} s, {1e3 * slabs_s * GIB / plan['pinned']:.0f} ms per GiB, ahead of the stream. "
        f"Alone {one.wall_s:.3f} s; in the stream {stream.wall_s / n:.3f} s a partition. Device busy {busy:.1%}, "
        f"copies exposed {exposed:.2%} of the time from the first to the last kernel. Verified: {n + 1} of {n + 1}.",
    ]
    report.numbers = {
        "options": vars(options),
        "made_s": bed.made_s | {"slabs": slabs_s},
        "alone_s": one.wall_s,
        "stream_s": stream.wall_s,
        "partitions": n,
        "busy": busy,
        "exposed": exposed,
        "h2d_bytes": [record.h2d_bytes for record in stream.records],
        "phases_s": [record.seconds for record in stream.records],
        "planned_bytes": plan,
        "peak_bytes": used | {"pool": peaks.pool, "budget": stream.budget_peak_bytes},
        "slabs_made_on_job_path": stream.pool.slabs_made_on_job_path,
    }
    return report


def _phase_rows(one: Run, stream: Run) -> list[tuple[str, ...]]:
    alone = one.records[0].seconds
    seen = {phase for record in stream.records for phase in record.seconds}
    order = [phase for phase in PHASES if phase in seen] + sorted(seen.difference(PHASES))
    rows = []
    for phase in order:
        values = [record.seconds.get(phase, 0.0) for record in stream.records]
        numbers = (alone.get(phase, 0.0), statistics.median(values), min(values), max(values))
        rows.append((phase, *(f"{value:.4f}" for value in numbers)))
    return rows
