"""`cuzkd bench ...`: the arguments of every bench, and what runs them.

Results go to standard output, and where asked as JSON and as a section for RESULTS.md; progress goes to
standard error. Benches import what they need when they run.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuzkd.backend.protocol import Backend
    from cuzkd.bench.report import Report

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
    return _finish(args, porep.run(_backend(args), options, _say))


def _backend(args: argparse.Namespace) -> Backend:
    from cuzkd.backend import cpu, select

    cpu.set_threads(len(os.sched_getaffinity(0)))
    choice = select.choose(args.backend)
    _say(f"backend {choice.reason}")
    return choice.backend


def _say(line: str) -> None:
    print(f"cuzkd bench: {line}", file=sys.stderr, flush=True)


def _finish(args: argparse.Namespace, report: Report) -> int:
    report.write(args.json, args.markdown)
    return 0


def plot(args: argparse.Namespace) -> int:
    from cuzkd.bench import plots

    plots.draw(args.files, args.out, args.seconds)
    return 0


def positive(text: str) -> int:
    """A whole number from 1 up, with _ or , between digits if the user likes."""
    digits = text.replace("_", "").replace(",", "")
    if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got {text!r}")
    return int(digits)


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Every bench as a command below `bench`."""
    bench = commands.add_parser("bench", help="measure this machine; see cuzkd/bench/RESULTS.md")
    kinds = bench.add_subparsers(dest="kind", required=True, metavar="BENCH")

    command = kinds.add_parser("porep", help="a stream of partitions of a PoRep-shaped circuit")
    _circuit(command, 1 << 16)
    command.add_argument("--partitions", type=positive, default=10, metavar="N")
    command.add_argument("--ready-target", type=positive, default=2, metavar="N", help="synthesised ahead")
    command.add_argument("--out", type=Path, metavar="DIR", help="key, proofs, publics in snarkjs's formats")
    command.add_argument("--timeline", type=Path, metavar="FILE", help="trace for ui.perfetto.dev")
    command.set_defaults(run=porep)

    for command in kinds.choices.values():
        command.add_argument("--backend", choices=("auto", "cpu", "cuda"), default="auto")
        command.add_argument("--json", type=Path, metavar="FILE", help="the numbers")
        command.add_argument("--markdown", type=Path, metavar="FILE", help="a section for RESULTS.md")

    command = kinds.add_parser("plot", help="a picture of results (pip install 'cuzkd[bench]')")
    command.add_argument("files", type=Path, nargs="+", help="traces, or the numbers of one bench")
    command.add_argument("--out", type=Path, required=True, metavar="PICTURE", help=".svg or .png")
    command.add_argument("--seconds", type=float, help="of each trace, so much from its first kernel")
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
