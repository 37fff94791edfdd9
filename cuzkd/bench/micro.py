"""`cuzkd bench micro`: what a proof is made of, piece by piece: products, transforms, sums, sparse rows, checks.

Each operation is run once without counting and then a few times (`trials.py` says what is timed and how); tables
hold the median and, in brackets, the least.

Life of data: a part names cases -> a Trial for each, let go before the next -> `Cell` -> tables.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from cuzkd.backend.protocol import REDUCTIONS, Backend
from cuzkd.bench import trials
from cuzkd.bench.report import Report, Table
from cuzkd.bench.trials import Trial, Trials
from cuzkd.circuits.synthetic import MIN_CONSTRAINTS, Synthetic
from cuzkd.errors import InvalidInput

MIN_ROUNDS = 2
PATIENCE_S = 10.0  # with one cell: no round begins after this, but MIN_ROUNDS are made
HOST_SIZES, DEVICE_SIZES = (10, 12, 14, 16), (12, 16, 20, 22, 24)
LARGEST = 28  # of any size, as a logarithm
GROUPS = ("g1", "g2")
KINDS = ("random", "bits")  # of scalars


@dataclass(frozen=True)
class Options:
    """log_sizes: none for those of the backend. rounds: counted ones, at most."""

    curves: Sequence[str] = ("bn254", "bls12_381")
    log_sizes: Sequence[int] = ()
    parts: Sequence[str] = ()
    rounds: int = 5


@dataclass(frozen=True)
class Cell:
    """One operation at one size. n: items, rows or points that it worked on."""

    part: str
    curve: str
    what: str
    log_size: int
    n: int
    seconds: tuple[float, ...]


# Of one curve and size: what is done, to how many items, and the way to it; None where this backend does it nowhere.
Case = tuple[str, int, Callable[[], Trial | None]]
Part = Callable[[Trials, str, int], Iterator[Case]]


def _fields(bench: Trials, curve: str, n: int) -> Iterator[Case]:
    for fld in ("fr", "fq"):
        yield fld, n, partial(bench.product, curve, fld, n)
        for way, length in bench.chains.items():
            yield f"{fld}, {way.replace('_', ' ')}", n * length, partial(bench.chain, curve, fld, way, n)


def _transforms(bench: Trials, curve: str, n: int) -> Iterator[Case]:
    yield "one transform", n, partial(bench.transform, curve, n)


def _quotients(bench: Trials, curve: str, n: int) -> Iterator[Case]:
    for reduction in REDUCTIONS:
        yield reduction, n, partial(bench.quotient, curve, n, reduction)


def _lists(bench: Trials, curve: str, n: int) -> Iterator[Case]:
    for kind in KINDS:
        yield kind, n, partial(bench.lists, curve, n, kind)


def _sums(bench: Trials, curve: str, n: int) -> Iterator[Case]:
    for group in GROUPS:
        for kind in KINDS:
            yield f"{group}, {kind}", n, partial(bench.sum, curve, group, n, kind)
        yield f"{group}, random, by a table", n, partial(bench.sum_by_table, curve, group, n)
        yield f"{group}, making that table", n, partial(bench.table, curve, group, n)


def _multiples(bench: Trials, curve: str, n: int) -> Iterator[Case]:
    for group in GROUPS:
        yield group, n, partial(bench.multiples, curve, group, n)


def _rows(bench: Trials, curve: str, n: int) -> Iterator[Case]:
    if n < MIN_CONSTRAINTS:
        return
    circuit = Synthetic(curve, n)
    constraints, z = circuit.constraints(), circuit.witness(0)
    for name, matrix in (("A", constraints.a), ("B", constraints.b), ("C", constraints.c)):
        if matrix is not None:
            yield name, matrix.n_rows, partial(bench.rows, curve, matrix, z)


def _checks(bench: Trials, curve: str, n: int) -> Iterator[Case]:
    for group in GROUPS:
        yield group, n, partial(bench.check, curve, group, n)


def _ms(seconds: float, n: int) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 0.1 else f"{1e3 * seconds:.0f}"


def _millions(seconds: float, n: int) -> str:
    return f"{n / seconds / 1e6:.4g}"


def _each_ns(seconds: float, n: int) -> str:
    return f"{1e9 * seconds / n:.3g}"


def _each_us(seconds: float, n: int) -> str:
    return f"{1e6 * seconds / n:.3g}"


# By name: cases, title, and how a cell is written.
PARTS: dict[str, tuple[Part, str, Callable[[float, int], str]]] = {
    "fields": (_fields, "Products, millions a second", _millions),
    "transforms": (_transforms, "One transform over Fr, ms", _ms),
    "quotient": (_quotients, "Quotient: the scalars of the H sum, ms", _ms),
    "lists": (_lists, "Scalars of a multi-scalar sum, listed by bucket, ms", _ms),
    "sums": (_sums, "Multi-scalar sum, ms", _ms),
    "multiples": (_multiples, "Multiples of the generator (fixed base), ms", _ms),
    "rows": (_rows, "Rows of a PoRep-shaped circuit times its witness, ns a row", _each_ns),
    "points": (_checks, "Points on the curve and of order r, us a point", _each_us),
}


def run(backend: Backend, options: Options, say: Callable[[str], None]) -> Report:
    """Every part, curve and size. Raises InvalidInput for options that mean nothing."""
    parts = options.parts or tuple(PARTS)
    if unknown := [part for part in parts if part not in PARTS]:
        raise InvalidInput(f"--parts: expected some of {', '.join(PARTS)}, got {', '.join(unknown)}")
    if options.rounds < MIN_ROUNDS:
        raise InvalidInput(f"--rounds: expected at least {MIN_ROUNDS}, got {options.rounds}")
    log_sizes = options.log_sizes or (DEVICE_SIZES if backend.name == "cuda" else HOST_SIZES)
    if not all(0 <= k <= LARGEST for k in log_sizes):
        raise InvalidInput(f"--log-sizes: expected 0 to {LARGEST}, got {' '.join(map(str, log_sizes))}")
    cells: list[Cell] = []
    for curve in options.curves:
        bench = trials.of(backend)  # another one's points go with it
        for part in parts:
            say(f"{curve}: {part}")
            cells += _measured(bench, part, curve, sorted(set(log_sizes)), options.rounds)
    report = Report("micro", backend)
    report.tables = [_table(part, cells) for part in parts if any(cell.part == part for cell in cells)]
    report.notes = [f"Medians of up to {options.rounds}, in brackets the best. Time: {bench.how}."]
    if "sums" in parts:
        report.notes.append("Scalars: random, all of 254 or 255 bits; bits, 0 or 1.")
    if "rows" in parts and not any(cell.part == "rows" for cell in cells):
        report.notes.append(f"Rows: none measured: the circuit has {MIN_CONSTRAINTS:,} constraints at least.")
    if backend.name == "cuda" and "fields" in parts:
        report.notes.append(
            "Products on a device read two operands from its memory and write one; those with more to their name, "
            "squares and inverses stay in registers: what the multipliers give by themselves."
        )
    report.numbers = {
        "options": vars(options),
        "how": bench.how,
        "cells": [asdict(cell) | {"median_s": statistics.median(cell.seconds)} for cell in cells],
    }
    return report


def _measured(bench: Trials, part: str, curve: str, log_sizes: Sequence[int], rounds: int) -> Iterator[Cell]:
    for k in reversed(log_sizes):  # the largest first: its points serve the others
        for what, n, prepare in PARTS[part][0](bench, curve, 1 << k):
            trial = prepare()
            if trial is not None:
                yield Cell(part, curve, what, k, n, _timed(trial, rounds))


def _timed(trial: Trial, rounds: int) -> tuple[float, ...]:
    trial()  # what is made at first use is not counted
    began, found = time.monotonic(), [trial()]
    while len(found) < rounds and (len(found) < MIN_ROUNDS or time.monotonic() - began < PATIENCE_S):
        found.append(trial())
    return tuple(found)


def _table(part: str, cells: Sequence[Cell]) -> Table:
    _, title, form = PARTS[part]
    chosen = {(cell.curve, cell.what, cell.log_size): cell for cell in cells if cell.part == part}
    sizes = sorted({k for _, _, k in chosen})
    rows = []
    for curve, what in dict.fromkeys((curve, what) for curve, what, _ in chosen):
        row = [f"{curve}, {what}"]
        for k in sizes:
            cell = chosen.get((curve, what, k))
            row.append("-" if cell is None else _text(cell, form))
        rows.append(row)
    return Table(title, ("", *(f"2^{k}" for k in sizes)), rows)


def _text(cell: Cell, form: Callable[[float, int], str]) -> str:
    return f"{form(statistics.median(cell.seconds), cell.n)} ({form(min(cell.seconds), cell.n)})"
