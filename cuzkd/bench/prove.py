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
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from cuzkd.backend import cpu
from cuzkd.backend.protocol import Backend, LoadedKey
from cuzkd.bench import pipeline, rival, subject, usage
from cuzkd.bench.pipeline import Record, Setting
from cuzkd.bench.porep import holders
from cuzkd.bench.report import GIB, Report, Table
from cuzkd.bench.spread import Spread
from cuzkd.bench.subject import Provable
from cuzkd.circuits.registry import Registry
from cuzkd.circuits.synthetic import MIN_CONSTRAINTS
from cuzkd.engine.job import PHASES
from cuzkd.errors import InvalidInput
from cuzkd.formats import bellman, r1cs, zkey
from cuzkd.groth16 import verifier
from cuzkd.groth16.keys import KeyHead
from cuzkd.groth16.setup import DEVELOPMENT

READY_TARGET = 2
MIN_ROUNDS = 2
MIB = 1 << 20
SIZES = (1 << 12, 1 << 16)


@dataclass(frozen=True)
class Options:
    """What is proved: `fixtures`; `zkey`, bellman's `params` with their `r1cs`, or `circuit` of `state_dir`, with a
    `witness`; or synthetic `sizes` on `curve` (none for those of SIZES).

    rounds: proofs alone. stream: proofs in flight together. compare: with groth16py, where that can be. one_thread:
    afterwards as many by one thread of the processor.
    """

    zkey: Path | None = None
    params: Path | None = None
    r1cs: Path | None = None
    circuit: str | None = None
    state_dir: Path | None = None
    witness: Path | None = None
    fixtures: Path | None = None
    curve: str = "bls12_381"
    sizes: tuple[int, ...] = ()
    rounds: int = 9
    stream: int = 6
    compare: bool = True
    one_thread: bool = False


# -- what is proved ------------------------------------------------------------------------------------------

Opened = tuple[KeyHead, Callable[[Backend], LoadedKey]]


@dataclass(frozen=True)
class Source:
    """opened: a Provable for a block. files: the .zkey and .wtns that it comes from, if it does."""

    name: str
    opened: Callable[[Backend], AbstractContextManager[Provable]]
    files: tuple[Path, Path] | None = None


@dataclass(kw_only=True)
class FromFile(Provable):
    """Always the same witness."""

    path: Path

    def witness(self, number: int) -> Path:
        return self.path


@contextmanager
def _from_file(
    name: str, open_key: Callable[[], Opened], witness: Path, backend: Backend
) -> Iterator[Provable]:
    began = time.monotonic()
    key, load_on = open_key()
    opened_s = time.monotonic()
    loaded = load_on(backend)
    made_s = {"open": opened_s - began, "load": time.monotonic() - opened_s}
    try:
        yield FromFile(
            name=name,
            digest=key.vk.digest(),
            backend=backend,
            key=key,
            loaded=loaded,
            made_s=made_s,
            path=witness,
        )
    finally:
        loaded.close()


def _open_zkey(path: Path) -> Opened:
    key = zkey.read(path)
    return key, lambda backend: backend.load_key(key.arrays)


def _open_params(path: Path, constraints: Path) -> Opened:
    key = bellman.open_params(path, r1cs.read(constraints)).load()
    return key, lambda backend: backend.load_key(key.arrays)


def _open_circuit(state_dir: Path, name: str) -> Opened:
    circuit = Registry(state_dir).open(name)
    return circuit.key, circuit.load_on


def _zkey_source(name: str, key: Path, witness: Path) -> Source:
    return Source(name, partial(_from_file, name, partial(_open_zkey, key), witness), (key, witness))


# What goes with what, by the names of options.
BELONGS = {"witness": ("zkey", "params", "circuit"), "r1cs": ("params",), "state_dir": ("circuit",)}


def _require_sense(options: Options) -> None:
    """Raises InvalidInput for options that would be forgotten, or are too small."""

    def flag(name: str) -> str:
        return "--" + name.replace("_", "-")

    for name, owners in BELONGS.items():
        if getattr(options, name) is not None and all(getattr(options, owner) is None for owner in owners):
            raise InvalidInput(f"{flag(name)}: expected with {' or '.join(map(flag, owners))}")
    keys = [name for name in ("zkey", "params", "circuit", "fixtures") if getattr(options, name) is not None]
    if options.sizes and keys:
        raise InvalidInput(f"--sizes: are of synthetic circuits, expected without {flag(keys[0])}")
    if min(options.sizes, default=MIN_CONSTRAINTS) < MIN_CONSTRAINTS:
        raise InvalidInput(f"--sizes: expected at least {MIN_CONSTRAINTS}, got {min(options.sizes)}")
    if options.rounds < MIN_ROUNDS:
        raise InvalidInput(f"--rounds: expected at least {MIN_ROUNDS}, got {options.rounds}")


def sources(options: Options) -> list[Source]:
    """Raises InvalidInput where the options name nothing that could be proved, or more than one kind of it."""
    _require_sense(options)
    given = [x for x in (options.zkey, options.params, options.circuit, options.fixtures) if x is not None]
    if len(given) > 1:
        raise InvalidInput("expected one of --zkey, --params, --circuit and --fixtures")
    if options.fixtures is not None:
        if not options.fixtures.is_dir():
            raise InvalidInput(f"--fixtures {options.fixtures}: there is no such folder")
        pairs = [(key, key.with_suffix(".wtns")) for key in sorted(options.fixtures.rglob("*.zkey"))]
        found = [_zkey_source(_name(key), key, witness) for key, witness in pairs if witness.exists()]
        if not found:
            raise InvalidInput(f"{options.fixtures}: no .zkey with a .wtns of its name beside it")
        return found
    if given:
        if options.witness is None:
            raise InvalidInput("--witness: expected the .wtns file to prove")
        if options.zkey is not None:
            return [_zkey_source(_name(options.zkey), options.zkey, options.witness)]
        if options.params is not None:
            if options.r1cs is None:
                raise InvalidInput("--r1cs: expected the constraint system of the parameters")
            name, open_key = _name(options.params), partial(_open_params, options.params, options.r1cs)
            return [Source(name, partial(_from_file, name, open_key, options.witness))]
        if options.state_dir is None or options.circuit is None:
            raise InvalidInput("--state-dir: expected the one that the circuit was added to")
        open_key = partial(_open_circuit, options.state_dir, options.circuit)
        return [Source(options.circuit, partial(_from_file, options.circuit, open_key, options.witness))]
    return [Source(f"synthetic {n:,}", partial(_synthetic, options.curve, n)) for n in options.sizes or SIZES]


def _synthetic(curve: str, n: int, backend: Backend) -> AbstractContextManager[Provable]:
    return subject.make(curve, n, backend, distinct=2, holding=holders(backend, READY_TARGET))


def _name(key: Path) -> str:
    """circuit.zkey is called by its folder."""
    return key.absolute().parent.name if key.stem == "circuit" else key.stem


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
        f"Verified here once more: {checked} of {checked}. Memory: at most, the key included, in the first proof "
        "and in the stream; of the device, what all processes have."
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
