"""`cuzkd bench micro --goals`: sums, transforms and sparse rows on a card, beside sppark and beside what we want.

Each result is checked: a sum against the generator times what its scalars come to, since its points are multiples of
the generator that are known; a transform and the rows against the CPU backend, word by word.

Life of data: a goal -> a Trial, timed as in micro.py -> its result, checked -> a row of the table. A goal that finds
no memory is told, and does not keep the others from being measured. The largest of a group comes first: its points
serve the others.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from cuzkd.backend import cpu
from cuzkd.backend.protocol import U64, Backend
from cuzkd.bench import trials
from cuzkd.bench.micro import Options, _timed
from cuzkd.bench.report import Report, Table
from cuzkd.bench.trials import Trials
from cuzkd.circuits.synthetic import Synthetic
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.errors import CuzkdError, InvalidInput
from cuzkd.formats.zkey import ROOT_FAMILY

GIB = 1 << 30


@dataclass(frozen=True)
class Goal:
    """part: of micro.PARTS. group: of a sum. n: points, elements, or constraints. peer_ms: sppark on the same card, 0
    where it was not measured. must_ms, target_ms: what we promised, and hope for.
    """

    part: str
    curve: str
    group: str
    n: int
    peer_ms: float
    must_ms: float
    target_ms: float

    @property
    def log_size(self) -> int:
        return (self.n - 1).bit_length()

    @property
    def name(self) -> str:
        size = f"2^{self.log_size}" if self.n == 1 << self.log_size else f"{self.n:,}"
        what = {"sums": f"sum in {self.group.upper()}", "transforms": "transform", "rows": "rows of A and B"}
        return f"{self.curve}, {what[self.part]}, {size}"


GOALS = (
    Goal("sums", "bls12_381", "g1", 1 << 26, 558, 420, 235),
    Goal("sums", "bls12_381", "g1", 1 << 24, 155, 115, 60),
    Goal("sums", "bls12_381", "g1", 1 << 22, 53.5, 32, 16),
    Goal("sums", "bls12_381", "g1", 1 << 20, 20.6, 9, 5),
    Goal("sums", "bls12_381", "g2", 1 << 20, 48.1, 22, 12),
    Goal("sums", "bn254", "g1", 1 << 24, 78.9, 52, 29),
    Goal("sums", "bn254", "g1", 1 << 20, 12.7, 5, 2.6),
    Goal("sums", "bn254", "g2", 1 << 20, 0, 11, 6),
    Goal("transforms", "bls12_381", "", 1 << 20, 0.256, 0.25, 0.20),
    Goal("transforms", "bls12_381", "", 1 << 24, 4.42, 4.4, 3.6),
    Goal("transforms", "bls12_381", "", 1 << 27, 41.7, 41, 32),
    Goal("rows", "bls12_381", "", 130_278_869, 0, 40, 15),
)


@dataclass(frozen=True)
class Found:
    """seconds: of each round. table_s, table_bytes: of the making of a sum's table. equal: every result was right."""

    seconds: tuple[float, ...]
    equal: bool
    by_table_s: tuple[float, ...] = ()
    table_s: tuple[float, ...] = ()
    table_bytes: int = 0

    @property
    def best_ms(self) -> float:
        """The median, by a table where that is faster."""
        return 1e3 * min(statistics.median(s) for s in (self.seconds, self.by_table_s) if s)


def run(
    backend: Backend, options: Options, say: Callable[[str], None], goals: Sequence[Goal] = GOALS
) -> Report:
    """Those goals that options leave. Raises InvalidInput where that is none."""
    chosen = [
        goal
        for goal in goals
        if goal.curve in options.curves
        and goal.part in (options.parts or (goal.part,))
        and goal.log_size in (options.log_sizes or (goal.log_size,))
    ]
    if not chosen:
        raise InvalidInput("--goals: none has such a part, curve and size")
    report = Report("micro --goals", backend)
    rows, numbers, bench, points_of = [], [], trials.of(backend), None
    for goal in chosen:
        if points_of != (goal.curve, goal.group):
            bench, points_of = trials.of(backend), (goal.curve, goal.group)  # the others' points are let go
        say(goal.name)
        try:
            found = MEASURE[goal.part](bench, backend, goal, options.rounds)
        except CuzkdError as error:
            report.notes.append(f"{goal.name}: {error}")
            continue
        rows.append(_row(goal, found))
        numbers.append(asdict(goal) | asdict(found) | {"best_ms": found.best_ms})
        say("  ".join(rows[-1]))
    head = ("", "ms", "by a table", "table: ms, GiB", "sppark", "must", "target", "reached", "result")
    report.tables = [Table("Medians of what a proof is made of, ms", head, rows)]
    report.notes += [
        f"Of up to {options.rounds} rounds. Time: {bench.how}. Scalars random. Sums are checked by the multiples that "
        "their points are, transforms and rows against the CPU backend."
    ]
    report.numbers = {"options": vars(options), "how": bench.how, "goals": numbers}
    return report


def _sum(bench: Trials, backend: Backend, goal: Goal, rounds: int) -> Found:
    where = goal.curve, goal.group, goal.n
    seconds = _timed(bench.sum(*where, "random"), rounds)
    expected = _expected(*where)
    equal = np.array_equal(bench.total(*where), expected)
    nbytes = bench.table_bytes(*where)
    by_table = bench.sum_by_table(*where) if nbytes else None
    if by_table is None:
        return Found(seconds, equal)
    by_table_s = _timed(by_table, rounds)
    equal = equal and np.array_equal(bench.total(*where, by_table=True), expected)
    making = bench.table(*where)  # for the second time, of seconds each
    return Found(seconds, equal, by_table_s, (making(),) if making else (), nbytes)


def _expected(curve: str, group: str, n: int) -> U64:
    """The generator times the sum of the squares of those scalars: its points are the generator times them."""
    values, r = trials.scalars(curve, n, "random"), CURVES[curve].r
    squares = cpu.CpuBackend().field_op(curve, "fr", "mul", values, values)  # each divided by 2^256
    words = squares.view(np.uint32).reshape(n, 8).sum(axis=0, dtype=np.uint64)  # of up to 2^32 of them
    total = sum(int(word) << (32 * i) for i, word in enumerate(words)) << 256
    expected: U64 = cpu.fixed_base_mul(curve, group, limbs.from_ints([total % r], limbs.FR_LIMBS))[0]
    return expected


def _transform(bench: Trials, backend: Backend, goal: Goal, rounds: int) -> Found:
    seconds = _timed(bench.transform(goal.curve, goal.n), rounds)
    values = trials.elements(CURVES[goal.curve].r, goal.n)
    expected = cpu.CpuBackend().ntt(goal.curve, values, ROOT_FAMILY)
    return Found(seconds, np.array_equal(backend.ntt(goal.curve, values, ROOT_FAMILY), expected))


def _rows(bench: Trials, backend: Backend, goal: Goal, rounds: int) -> Found:
    """A z and B z, one after the other."""
    circuit = Synthetic(goal.curve, goal.n)
    constraints, z = circuit.constraints(), circuit.witness(0)
    matrices = constraints.a, constraints.b
    of_each = [_timed(bench.rows(goal.curve, matrix, z), rounds) for matrix in matrices]
    equal = all(
        np.array_equal(backend.spmv(goal.curve, matrix, z), cpu.CpuBackend().spmv(goal.curve, matrix, z))
        for matrix in matrices
    )
    return Found(tuple(a + b for a, b in zip(*of_each, strict=False)), equal)


MEASURE: dict[str, Callable[[Trials, Backend, Goal, int], Found]] = {
    "sums": _sum,
    "transforms": _transform,
    "rows": _rows,
}


def _row(goal: Goal, found: Found) -> tuple[str, ...]:
    def ms(seconds: Sequence[float]) -> str:
        if not seconds:
            return "-"
        return f"{1e3 * statistics.median(seconds):.3g} ({1e3 * min(seconds):.3g})"

    reached = next(
        (
            word
            for word, most in (("target", goal.target_ms), ("must", goal.must_ms))
            if found.best_ms <= most
        ),
        f"{found.best_ms / goal.must_ms:.2f} of must",
    )
    table = f"{ms(found.table_s)}, {found.table_bytes / GIB:.2f}" if found.table_s else "-"
    return (
        goal.name,
        ms(found.seconds),
        ms(found.by_table_s),
        table,
        f"{goal.peer_ms:g}" if goal.peer_ms else "-",
        f"{goal.must_ms:g}",
        f"{goal.target_ms:g}",
        reached,
        "equal" if found.equal else "DIFFERS",
    )
