"""`cuzkd bench campaign`: from a plain prover to this one, a step at a time, each kept only if it helps.

The same partitions of one synthetic circuit go through the engine in every configuration: a plain one, then with one
step more each, and the daemon as it is. They take turns, so that whatever else the machine does meets all of them.
Every proof is verified.

    rule    a step is kept if, in the median of the rounds, the time per partition fell against the configuration before
            it by more than the spread of these gains: the distance between their quartiles

What is plain: each coefficient and each value of the witness is worth a product; vectors lie in ordinary memory and
grow as they are written (bench/growing.py); a, b and c cross to the device, all three; one sum after the other. Pooled
pinned memory is the daemon's, and so is making c on the device.

Life of data: runs of a pipeline -> a `Column` (quantities, round by round) -> medians, quartiles, verdicts -> Report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from cuzkd.backend import cpu
from cuzkd.backend.protocol import U64, Backend, SparseMatrix
from cuzkd.bench import pipeline, subject, timeline
from cuzkd.bench.growing import Growth, OrdinaryPages, OrdinarySynthesis
from cuzkd.bench.pipeline import Run, Setting
from cuzkd.bench.regimes import Direct, Register
from cuzkd.bench.report import Report, Table
from cuzkd.bench.slabs import Pinning, pinning_of
from cuzkd.bench.spread import Spread
from cuzkd.bench.subject import Subject
from cuzkd.engine.job import PHASES
from cuzkd.engine.prover.transfer import Transfer
from cuzkd.errors import InvalidInput
from cuzkd.groth16.setup import DEVELOPMENT
from cuzkd.memory.hints import CapacityHints

PER_PARTITION = "time per partition"
BUSY = "device busy, %"
DISTINCT = 3  # witnesses, taken in turn
MIN_ROUNDS = 2  # fewer have no spread


@dataclass(frozen=True)
class Options:
    """runs: of each configuration, after one partition that is not counted. partitions: of each run."""

    curve: str = "bls12_381"
    n_constraints: int = 1 << 16
    partitions: int = 3
    runs: int = 5
    folder: Path | None = None  # for witness files
    traces: Path | None = None  # a folder for those of each configuration's last run


@dataclass(frozen=True)
class Way:
    """What is done, of all that can be."""

    short_rows: bool = False
    presized: bool = False
    parallel_g2: bool = False
    pinned: bool = False


@dataclass(frozen=True)
class Step:
    """Turns one thing on. of: the field of Way."""

    name: str
    of: str
    says: str


PLAIN, DAEMON = "plain", "daemon"
STEPS = (
    Step("short rows", "short_rows", "units are summed without products, zeros of the witness skipped"),
    Step("pre-sizing", "presized", "vectors get the size that hints remember, and do not grow"),
    Step("B_G2 beside", "parallel_g2", "the sum in G2 beside the others"),
    Step("pinning", "pinned", "vectors are page-locked where they are, before the mutex, for their copy"),
)


@dataclass
class Column:
    """One configuration: how it proves, and what was seen.

    way: None is the daemon's. rounds: quantities, those in seconds as means over the partitions of the run.
    """

    name: str
    way: Way | None
    growth: Growth
    rounds: list[dict[str, float]] = field(default_factory=list)

    def values(self, quantity: str) -> list[float]:
        """One for each round."""
        return [seen.get(quantity, 0.0) for seen in self.rounds]

    @property
    def quantities(self) -> set[str]:
        return {quantity for seen in self.rounds for quantity in seen}


@dataclass(frozen=True)
class Verdict:
    """What a column gained over the one before it, in seconds a partition, round by round."""

    gain: Spread

    @property
    def kept(self) -> bool:
        """See the rule in the module docstring."""
        return self.gain.median > self.gain.width


def judge(before: Column, after: Column) -> Verdict:
    """Columns of the same rounds."""
    pairs = zip(before.values(PER_PARTITION), after.values(PER_PARTITION), strict=True)
    return Verdict(Spread.of([was - now for was, now in pairs]))


def run(
    backend: Backend, options: Options, say: Callable[[str], None], pinning: Pinning | None = None
) -> Report:
    """Every configuration, in turns. pinning: how memory is page-locked in place (default: the backend's way, if any).

    Raises InvalidInput for fewer runs than have a spread, and whatever stops a partition: a step that makes wrong
    proofs has no time.
    """
    if options.runs < MIN_ROUNDS:
        raise InvalidInput(f"runs: expected at least {MIN_ROUNDS}, got {options.runs}")
    pinning = pinning or pinning_of(backend)
    columns, skipped = _columns(backend, pinning)
    circuit = (options.curve, options.n_constraints)
    holding = 2 * (Setting().ready_target + backend.in_place)  # twice: vectors that grow may be so long
    with subject.make(*circuit, backend, options.folder, DISTINCT, holding) as bed:
        say(f"{DEVELOPMENT}; made in {bed.made_s['key']:.1f} s")
        for number in range(DISTINCT):
            bed.witness(number)
        for turn in range(options.runs):
            for column in columns:
                one = _measure(bed, options.partitions, column, pinning)
                column.rounds.append(_quantities(one))
                if options.traces is not None:
                    one.write_trace(options.traces / f"{column.name.replace(' ', '-')}.json")
            seen = ", ".join(f"{c.name} {1e3 * c.rounds[-1][PER_PARTITION]:.1f}" for c in columns)
            say(f"round {turn + 1} of {options.runs}, ms a partition: {seen}")
        return _report(backend, options, bed, columns, skipped)


def _columns(backend: Backend, pinning: Pinning | None) -> tuple[list[Column], dict[str, str]]:
    """The configurations that can be had here; and the steps that cannot, with the reason."""
    way = Way()
    columns, skipped = [Column(PLAIN, way, Growth())], {}
    for step in STEPS:
        lacking = _lacking(step, backend, pinning)
        if lacking:
            skipped[step.name] = lacking
            continue
        way = replace(way, **{step.of: True})
        columns.append(Column(step.name, way, Growth(CapacityHints(None) if way.presized else None)))
    return [*columns, Column(DAEMON, None, Growth())], skipped


def _lacking(step: Step, backend: Backend, pinning: Pinning | None) -> str:
    """Why a step cannot be taken, or nothing."""
    if step.of == "pinned" and pinning is None:
        return "needs a device"
    if step.of == "parallel_g2" and not hasattr(backend, "parallel_g2"):
        return f"backend {backend.name} cannot"
    return ""


# -- one configuration, one round ----------------------------------------------------------------------------


def _measure(bed: Subject, partitions: int, column: Column, pinning: Pinning | None) -> Run:
    way, setting = column.way, Setting()
    if way is not None:
        setting = _setting(bed.backend, way, column.growth, pinning)
    with _sums(bed.backend, way), pipeline.opened(bed, setting) as prover:
        if way is None:
            prover.prewarm(setting.ready_target + bed.backend.in_place)
        if not column.rounds:
            prover.run(1)  # teaches hints; what is made once is made now
            column.growth.moves = 0
        return prover.run(partitions)


def _setting(backend: Backend, way: Way, growth: Growth, pinning: Pinning | None) -> Setting:
    transfer: Transfer = Direct(backend, "pageable")
    if way.pinned and pinning is not None:
        transfer = Register(backend, pinning, "register")
    return Setting(
        transfer=transfer,
        upstream=OrdinaryPages(),
        host=cpu if way.short_rows else ByProducts(),
        synthesis=partial(OrdinarySynthesis, growth),
    )


@contextmanager
def _sums(backend: Any, way: Way | None) -> Iterator[None]:
    """The order of sums that a configuration wants; the daemon's is the backend's own."""
    own = getattr(backend, "parallel_g2", None)
    if way is not None and own is not None:
        backend.parallel_g2 = way.parallel_g2
    try:
        yield
    finally:
        if own is not None:
            backend.parallel_g2 = own


class ByProducts:
    """backend.cpu's services, but every entry of a row is worth a product."""

    copy_witness = staticmethod(cpu.copy_witness)
    first_mismatch = staticmethod(cpu.first_mismatch)

    def spmv_into(
        self, curve: str, matrix: SparseMatrix, z: U64, out: U64, row_begin: int, row_end: int
    ) -> None:
        cpu.spmv_into(curve, matrix, z, out, row_begin, row_end, short_rows=False)


def _quantities(one: Run) -> dict[str, float]:
    """Of one run: seconds by phase, and of the whole; the device's busy share."""
    count = len(one.records)
    values = {PER_PARTITION: one.wall_s / count}
    for record in one.records:
        for phase, seconds in record.seconds.items():
            values[phase] = values.get(phase, 0.0) + seconds / count
    return values | {BUSY: 100 * timeline.busy([span for record in one.records for span in record.spans])}


# -- what is said --------------------------------------------------------------------------------------------


def _report(
    backend: Backend, options: Options, bed: Subject, columns: list[Column], skipped: dict[str, str]
) -> Report:
    verdicts = {after.name: judge(before, after) for before, after in pairwise(columns)}
    report = Report("campaign", backend)
    circuit = (
        f"{options.n_constraints:,} constraints over {options.curve}, domain 2^{bed.key.arrays.log_domain}"
    )
    report.tables = [
        Table(
            f"{circuit}, {options.runs} runs of {options.partitions}: ms a partition",
            ("configuration", "median", "quartiles", "gain", "its quartiles", "verdict"),
            list(_steps(columns, verdicts, skipped)),
        ),
        Table(
            "Phases, ms a partition: median (quartiles)",
            ("phase", *(column.name for column in columns)),
            [(quantity, *(_cell(column, quantity) for column in columns)) for quantity in _order(columns)],
        ),
    ]
    moved = ", ".join(f"{column.growth.moves} ({column.name})" for column in columns if column.growth.moves)
    report.notes = [
        "A step is kept if the median gain, over the configuration before it in the same round, is larger than the "
        "distance between the quartiles of the gains. Each has all the steps above it, dropped ones too.",
        "\n".join(f"{step.name}: {step.says}." for step in STEPS),
        f"Vectors that ran over and moved: {moved or 'none'}. Phases run beside each other: they do not add up to the "
        f"time per partition. Key: {DEVELOPMENT}. Every proof was verified.",
    ]
    report.numbers = {
        "options": vars(options),
        "configurations": [_numbers(column, verdicts.get(column.name)) for column in columns],
        "skipped": skipped,
    }
    return report


def _numbers(column: Column, verdict: Verdict | None) -> dict[str, Any]:
    return {
        "name": column.name,
        "way": None if column.way is None else vars(column.way),
        "moves": column.growth.moves,
        "rounds": column.rounds,
        "spread": {quantity: vars(Spread.of(column.values(quantity))) for quantity in column.quantities},
        "gain_s": None if verdict is None else vars(verdict.gain),
        "kept": None if verdict is None or column.way is None else verdict.kept,
    }


def _steps(
    columns: Sequence[Column], verdicts: Mapping[str, Verdict], skipped: Mapping[str, str]
) -> Iterator[tuple[str, ...]]:
    had = {column.name: column for column in columns}
    for name in (PLAIN, *(step.name for step in STEPS), DAEMON):
        if name in skipped:
            yield (name, *[""] * 4, f"skipped: {skipped[name]}")
            continue
        time = Spread.of(had[name].values(PER_PARTITION))
        said: tuple[str, ...] = ("", "", "")
        if name in verdicts:
            verdict = verdicts[name]
            word = "as it is" if name == DAEMON else "kept" if verdict.kept else "dropped"
            said = (f"{1e3 * verdict.gain.median:+.1f}", verdict.gain.quartiles("+.1f"), word)
        yield (name, f"{1e3 * time.median:.1f}", time.quartiles(), *said)


def _order(columns: Sequence[Column]) -> list[str]:
    seen = {quantity for column in columns for quantity in column.quantities}
    known = [PER_PARTITION, *PHASES]
    return [*(q for q in known if q in seen), *sorted(seen.difference(known, [BUSY])), BUSY]


def _cell(column: Column, quantity: str) -> str:
    if quantity not in column.quantities:
        return ""
    spread, unit = Spread.of(column.values(quantity)), 1.0 if quantity == BUSY else 1e3
    return f"{unit * spread.median:.1f} ({spread.quartiles(unit=unit)})"
