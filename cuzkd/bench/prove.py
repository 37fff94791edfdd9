"""`cuzkd bench prove`: how long one proof takes, of keys and witnesses in files or of synthetic circuits.

A proof goes through the engine as in the daemon (pipeline.py): from the witness's file, by way of pooled memory, to
bytes that the finaliser has verified. Alone: from the beginning of its first phase to the end of its last, one at a
time, after one that is not counted. In a stream: several in flight, the time of all over their number. Every proof is
verified once more here, and must fail for another public input where there is one. Where it is asked for, as many
proofs alone follow that the processor makes with one thread.

groth16py, where it is installed, takes turns with ours on the same files; it verifies nothing, so its time is set
against ours without verification.

Life of data: a source opens a `Provable` -> records of its proofs -> `Measured` -> Report. One key at a time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial

from cuzkd.backend import cpu
from cuzkd.backend.protocol import Backend
from cuzkd.bench import pipeline, rival, usage
from cuzkd.bench.pipeline import Record, Setting
from cuzkd.bench.porep import holders
from cuzkd.bench.report import GIB, Report, Table
from cuzkd.bench.sources import READY_TARGET, Options, sources
from cuzkd.bench.spread import Spread
from cuzkd.bench.subject import Provable
from cuzkd.engine.job import PHASES
from cuzkd.errors import InvalidInput
from cuzkd.groth16 import verifier
from cuzkd.groth16.setup import DEVELOPMENT

MIB = 1 << 20


# -- rounds --------------------------------------------------------------------------------------------------


@dataclass
class Measured:
    """each_s: proofs alone, verification included; verify_s: of that. first_s: the one before them. stream_s: from one
    proof to the next. rival_s: groth16py's proofs, without a verification; none where it was not asked. single_s:
    proofs by one thread, verification included; none where it was not asked for. first_bytes: of host memory, at most,
    in the first proof; host_bytes, device_bytes: in the stream. The key is in all of them.
    """

    name: str
    curve: str
    n_constraints: int
    n_wires: int
    log_domain: int
    made_s: dict[str, float]
    first_s: float
    stream_s: float
    first_bytes: int
    host_bytes: int
    device_bytes: int
    each_s: list[float] = field(default_factory=list)
    verify_s: list[float] = field(default_factory=list)
    rival_s: list[float] = field(default_factory=list)
    single_s: list[float] = field(default_factory=list)
    phases_s: list[dict[str, float]] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        """Ours over groth16py's, medians, both without verification."""
        if not self.rival_s:
            return None
        ours = [each - verify for each, verify in zip(self.each_s, self.verify_s, strict=True)]
        return statistics.median(ours) / statistics.median(self.rival_s)

    @property
    def gain(self) -> float | None:
        """Of all threads over one, medians."""
        return statistics.median(self.single_s) / statistics.median(self.each_s) if self.single_s else None


def run(backend: Backend, options: Options, say: Callable[[str], None]) -> Report:
    """Every source. Raises what opening and proving raise, DeviceFault for a proof that does not verify."""
    if options.one_thread and backend.name != cpu.CpuBackend.name:
        raise InvalidInput(f"--one-thread: expected with the processor, not with {backend.name}")
    other = rival.installed() if options.compare else None
    found = []
    for source in sources(options):
        with source.opened(backend) as bed:
            say(
                f"{source.name}: {', '.join(f'{what} {seconds:.2f} s' for what, seconds in bed.made_s.items())}"
            )
            against = None
            if other is not None and source.files is not None and bed.key.vk.curve == rival.CURVE:
                against = partial(rival.Groth16py, other, source.files[0])
            found.append(measure(bed, source.name, options, against))
    return _report(backend, options, found)


def measure(
    bed: Provable, name: str, options: Options, against: Callable[[], rival.Groth16py] | None
) -> Measured:
    """First what takes memory, then rounds in which ours and the other, whose key is loaded by then, take turns."""
    key, curve = bed.key, bed.key.vk.curve
    with pipeline.opened(bed, Setting(ready_target=READY_TARGET)) as prover:
        with usage.watched(bed.backend) as alone:
            first = prover.run(1)
        with usage.watched(bed.backend) as peaks:
            prover.prewarm(holders(bed.backend, READY_TARGET))
            stream = prover.run(options.stream)
        for record in first.records + stream.records:
            bed.require_valid(*record.decoded(curve), f"{name}, a proof told verified")
        found = Measured(
            name=name,
            curve=curve,
            n_constraints=key.constraints.n_constraints,
            n_wires=key.arrays.n_wires,
            log_domain=key.arrays.log_domain,
            made_s=dict(bed.made_s),
            first_s=_extent(first.records[0]),
            stream_s=stream.wall_s / len(stream.records),
            first_bytes=alone.host,
            host_bytes=peaks.host,
            device_bytes=peaks.device,
        )
        other = against() if against is not None else None
        for number in range(options.rounds):
            (record,) = prover.run(1).records
            proof, publics = record.decoded(curve)
            bed.require_valid(proof, publics, f"{name}, a proof told verified")
            found.each_s.append(_extent(record))
            found.verify_s.append(record.seconds["verify"])
            found.phases_s.append(record.seconds)
            if other is not None:
                theirs, seconds = other.prove(bed.witness(number))
                if not verifier.verify(key.vk, theirs, publics):
                    raise InvalidInput(f"{name}: groth16py's proof does not verify")
                found.rival_s.append(seconds)
        if options.one_thread:
            # Not by turns: threads that are made anew begin without their scratch memory.
            with _one_thread():
                prover.run(1)
                for _ in range(options.rounds):
                    (record,) = prover.run(1).records
                    found.single_s.append(_extent(record))
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """The native pool of this process, for a block."""
    width = cpu.threads()
    cpu.set_threads(1)
    try:
        yield
    finally:
        cpu.set_threads(width)


def _extent(record: Record) -> float:
    """From its first phase's beginning to its last one's end."""
    return max(span.end_s for span in record.spans) - min(span.begin_s for span in record.spans)


# -- tables --------------------------------------------------------------------------------------------------


def _report(backend: Backend, options: Options, found: list[Measured]) -> Report:
    report = Report("prove", backend)
    compared = any(m.rival_s for m in found)
    report.tables = [_proofs(found, options, compared), _circuits(found), *_phases(found)]
    checked = sum(len(m.each_s) + 1 + options.stream for m in found)
    report.notes = [
        "From the first phase's beginning to the last one's end, verification included; phases that run beside each "
        f"other count in full. In a stream: {options.stream} offered at once, the time of all over their number. "
        f"Verified here once more: {checked} of {checked}. Memory: of this process at most, the key and what is left "
        "of the circuits before included, in the first proof and in the stream; of the device, what all processes "
        "have."
    ]
    if compared:
        report.notes.append("Ratio: ours without verification over groth16py's, which makes none.")
    if not any((options.zkey, options.params, options.circuit, options.fixtures)):
        report.notes.append(f"Keys: {DEVELOPMENT}.")
    report.numbers = {
        "options": vars(options),
        "circuits": [
            asdict(m) | {"each": vars(Spread.of(m.each_s)), "ratio": m.ratio, "gain": m.gain} for m in found
        ],
    }
    return report


def _proofs(found: list[Measured], options: Options, compared: bool) -> Table:
    head = ["circuit", "first, ms", "proof, ms", "quartiles", "of it verify", "in a stream, ms"]
    if options.one_thread:
        head += ["1 thread, ms", "gain"]
    if compared:
        head += ["groth16py, ms", "ratio"]
    rows = []
    for m in found:
        each = Spread.of(m.each_s)
        row = [m.name, f"{1e3 * m.first_s:.1f}", f"{1e3 * each.median:.1f}", each.quartiles()]
        row += [f"{1e3 * statistics.median(m.verify_s):.1f}", f"{1e3 * m.stream_s:.1f}"]
        if m.single_s:
            row += [f"{1e3 * statistics.median(m.single_s):.1f}", f"{m.gain:.2f}"]
        if m.rival_s:
            row += [f"{1e3 * statistics.median(m.rival_s):.1f}", f"{m.ratio:.2f}"]
        elif compared:
            row += ["-", "-"]
        rows.append(row)
    return Table(f"One proof, medians of {options.rounds}", head, rows)


def _circuits(found: list[Measured]) -> Table:
    head = [
        "circuit",
        "curve",
        "constraints",
        "domain",
        "open, load, s",
        "one proof, MiB",
        "stream, MiB",
        "device, GiB",
    ]
    rows = []
    for m in found:
        row = [m.name, m.curve, f"{m.n_constraints:,}", f"2^{m.log_domain}"]
        row += [", ".join(f"{m.made_s[part]:.2f}" for part in ("open", "load") if part in m.made_s) or "-"]
        row += [f"{m.first_bytes / MIB:.0f}", f"{m.host_bytes / MIB:.0f}"]
        row += [f"{m.device_bytes / GIB:.2f}" if m.device_bytes else "-"]
        rows.append(row)
    return Table("What was proved", head, rows)


def _phases(found: list[Measured]) -> list[Table]:
    """Sums apart from the others, or the table is wider than a terminal."""
    seen = {phase for m in found for record in m.phases_s for phase in record}
    order = [phase for phase in PHASES if phase in seen] + sorted(seen.difference(PHASES))
    sums = [phase for phase in order if phase.startswith("msm_")]
    others = [phase for phase in order if phase not in sums]
    tables = []
    for title, phases in (("Phases, ms, medians", others), ("Sums, ms, medians", sums)):
        rows = []
        for m in found:
            medians = (statistics.median(record.get(phase, 0.0) for record in m.phases_s) for phase in phases)
            rows.append([m.name, *(f"{1e3 * seconds:.2f}" for seconds in medians)])
        tables.append(Table(title, ["circuit", *phases], rows))
    return tables
