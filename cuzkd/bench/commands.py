"""`cuzkd bench ...`: the arguments of every bench, and what runs them.

Results go to standard output, and where asked as JSON and as a section for RESULTS.md; progress goes to
standard error. Benches import what they need when they run. Where files go is tried before anything is measured.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuzkd.backend.protocol import Backend
    from cuzkd.bench.report import Report

DEFAULT = "(default %(default)s)"
POREP_CONSTRAINTS = 130_278_869  # of one partition of Filecoin's 32 GiB proof of replication


def porep(args: argparse.Namespace) -> int:
    from cuzkd.bench import porep

    options = porep.Options(
        curve=args.curve,
        n_constraints=args.constraints,
        partitions=args.partitions,
        ready_target=args.ready_target,
        folder=args.dir,
        out=args.out,
        trace=args.timeline,
    )
    _require_writable(files=[args.timeline], folders=[args.out])
    return _measure(args, lambda backend: porep.run(backend, options, _say))


def transfer(args: argparse.Namespace) -> int:
    from cuzkd.bench import regimes, transfer

    options = transfer.Options(
        curve=args.curve,
        n_constraints=args.constraints,
        regimes=tuple(args.regimes or regimes.REGIMES),
        alone=args.alone,
        partitions=args.partitions,
        in_flight=args.in_flight,
        distinct=args.distinct,
        folder=args.dir,
        traces=args.timeline,
        traced=tuple(args.traced),
        log=args.log,
    )
    _require_writable(files=[args.log], folders=[args.timeline])
    return _measure(args, lambda backend: transfer.run(backend, options, _say))


def pinning(args: argparse.Namespace) -> int:
    from cuzkd.bench import pinning

    totals = tuple(n for n in pinning.CURVE_BYTES if n <= args.max_gib << 30)
    making_bytes = min(pinning.MAKING_BYTES, args.max_gib << 30)
    options = pinning.Options(
        making_bytes, curve_bytes=totals, huge=not args.ordinary_pages, trace=args.timeline
    )
    _require_writable(files=[args.timeline])
    return _measure(args, lambda backend: pinning.run(backend, options, _say))


def campaign(args: argparse.Namespace) -> int:
    from cuzkd.bench import campaign

    options = campaign.Options(
        curve=args.curve,
        n_constraints=args.constraints,
        partitions=args.partitions,
        runs=args.runs,
        folder=args.dir,
        traces=args.timeline,
    )
    _require_writable(folders=[args.timeline])
    return _measure(args, lambda backend: campaign.run(backend, options, _say))


def batch(args: argparse.Namespace) -> int:
    from cuzkd.bench import batch

    options = batch.Options(args.curve, args.sizes, args.rounds, args.seconds, args.timeline)
    _require_writable(folders=[args.timeline])
    return _measure(args, lambda backend: batch.run(backend, options, _say))


def _measure(args: argparse.Namespace, bench: Callable[[Backend], Report]) -> int:
    """Run a bench on the backend asked for, and write what it found."""
    from cuzkd.backend import cpu, select

    _require_writable(files=[args.json, args.markdown])
    # Witness files may lie in shared memory, which nobody clears: a polite end has to take them along.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cpu.set_threads(len(os.sched_getaffinity(0)))
        choice = select.choose(args.backend)
        _say(f"backend {choice.reason}")
        bench(choice.backend).write(args.json, args.markdown)
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _require_writable(files: Sequence[Path | None] = (), folders: Sequence[Path | None] = ()) -> None:
    """Before hours of measuring, not after them. Raises OSError; files and folders are there then, if empty."""
    for folder in (*folders, *(file and file.parent for file in files)):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        if file is not None:
            file.open("a").close()


def _say(line: str) -> None:
    print(f"cuzkd bench: {line}", file=sys.stderr, flush=True)


def plot(args: argparse.Namespace) -> int:
    from cuzkd.bench import plots

    plots.draw(args.files, args.out, args.seconds)
    return 0


def count(text: str) -> int:
    """A whole number, with _ or , between digits if the user likes."""
    digits = text.replace("_", "").replace(",", "")
    if not digits.isascii() or not digits.isdigit():
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}")
    return int(digits)


def positive(text: str) -> int:
    """A whole number from 1 up."""
    if (number := count(text)) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got {text!r}")
    return number


def seconds(text: str) -> float:
    """A number from 0 up."""
    number = float(text)  # argparse tells of a ValueError
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number from 0 up, got {text!r}")
    return number


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Every bench as a command below `bench`."""
    bench = commands.add_parser("bench", help="measure this machine; see cuzkd/bench/RESULTS.md")
    kinds = bench.add_subparsers(dest="kind", required=True, metavar="BENCH")

    command = kinds.add_parser("porep", help="a stream of partitions of a PoRep-shaped circuit")
    _circuit(command, 1 << 16)
    command.add_argument(
        "--partitions", type=positive, default=10, metavar="N", help=f"of the stream {DEFAULT}"
    )
    command.add_argument(
        "--ready-target", type=positive, default=2, metavar="N", help=f"synthesised ahead {DEFAULT}"
    )
    command.add_argument("--out", type=Path, metavar="DIR", help="key, proofs, publics in snarkjs's formats")
    command.add_argument("--timeline", type=Path, metavar="FILE", help="trace for ui.perfetto.dev")
    command.set_defaults(run=porep)

    command = kinds.add_parser("transfer", help="ways of getting vectors to the device, side by side")
    _circuit(command, 1 << 16)
    command.add_argument(
        "--regimes", nargs="+", metavar="NAME", help="some (default: all; an unknown one lists them)"
    )
    for name, kind, default, says in (
        ("--alone", count, 2, "partitions one at a time"),
        ("--partitions", count, 6, "partitions in flight together"),
        ("--in-flight", positive, 4, "how many of those at a time, at least 2"),
        ("--distinct", positive, 2, "witnesses that differ"),
    ):
        command.add_argument(name, type=kind, default=default, metavar="N", help=f"{says} {DEFAULT}")
    command.add_argument("--timeline", type=Path, metavar="DIR", help="traces for ui.perfetto.dev")
    command.add_argument(
        "--traced",
        nargs="+",
        default=["pageable", "zero-copy"],
        metavar="NAME",
        help="of which (default: pageable zero-copy)",
    )
    command.add_argument("--log", type=Path, metavar="FILE", help="a line of JSON as each run ends")
    command.set_defaults(run=transfer)

    command = kinds.add_parser("pinning", help="what page-locked memory costs to make, and in place")
    command.add_argument(
        "--max-gib", type=positive, default=4, metavar="N", help=f"so much memory, at most {DEFAULT}"
    )
    command.add_argument(
        "--ordinary-pages", action="store_true", help="the curve over pages that are not huge"
    )
    command.add_argument("--timeline", type=Path, metavar="FILE", help="trace for ui.perfetto.dev")
    command.set_defaults(run=pinning)

    command = kinds.add_parser("campaign", help="from a plain prover to this one, a step at a time")
    _circuit(command, 1 << 14)
    command.add_argument("--partitions", type=positive, default=3, metavar="N", help=f"of each run {DEFAULT}")
    command.add_argument(
        "--runs", type=positive, default=5, metavar="N", help=f"of each configuration, at least 2 {DEFAULT}"
    )
    command.add_argument("--timeline", type=Path, metavar="DIR", help="traces for ui.perfetto.dev")
    command.set_defaults(run=campaign)

    command = kinds.add_parser("batch", help="two partitions in one launch set against one at a time")
    command.add_argument("--sizes", type=positive, nargs="+", default=[], metavar="N", help="constraints")
    command.add_argument("--curve", choices=("bn254", "bls12_381"), default="bls12_381")
    command.add_argument(
        "--rounds", type=positive, default=20, metavar="N", help=f"most of them, at least 2 {DEFAULT}"
    )
    command.add_argument("--seconds", type=seconds, default=30.0, help=f"of each size, at most {DEFAULT}")
    command.add_argument("--timeline", type=Path, metavar="DIR", help="traces for ui.perfetto.dev")
    command.set_defaults(run=batch)

    for command in kinds.choices.values():
        command.add_argument("--backend", choices=("auto", "cpu", "cuda"), default="auto")
        command.add_argument("--json", type=Path, metavar="FILE", help="the numbers")
        command.add_argument("--markdown", type=Path, metavar="FILE", help="a section for RESULTS.md")

    command = kinds.add_parser("plot", help="a picture of results (pip install 'cuzkd[bench]')")
    command.add_argument("files", type=Path, nargs="+", help="traces, or the numbers of one bench")
    command.add_argument("--out", type=Path, required=True, metavar="PICTURE", help=".svg or .png")
    command.add_argument("--seconds", type=seconds, help="of each trace, so much from its first kernel")
    command.set_defaults(run=plot)


def _circuit(command: argparse.ArgumentParser, n_constraints: int) -> None:
    command.add_argument(
        "--constraints",
        type=positive,
        default=n_constraints,
        metavar="N",
        help=f"size of the synthetic circuit, 1024 up (default {n_constraints:,}; PoRep: {POREP_CONSTRAINTS:,})",
    )
    command.add_argument("--curve", choices=("bn254", "bls12_381"), default="bls12_381")
    command.add_argument(
        "--dir", type=Path, help="folder for witness files (default: in memory, if they fit)"
    )
