"""`cuzkd bench ...`: the arguments of every bench, and what runs them.

Benches import what they need when they run: the command line alone needs none of it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cuzkd.bench import of_daemons
from cuzkd.bench.arguments import CURVES, DEFAULT, count, number, positive, seconds
from cuzkd.bench.measuring import measure, require_writable, say

POREP_CONSTRAINTS = 130_278_869  # of one partition of Filecoin's 32 GiB proof of replication


def micro(args: argparse.Namespace) -> int:
    from cuzkd.bench import goals, micro

    options = micro.Options(
        curves=CURVES if args.curve == "both" else (args.curve,),
        log_sizes=tuple(args.log_sizes),
        parts=tuple(args.parts),
        rounds=args.rounds,
    )
    bench = goals.run if args.goals else micro.run
    return measure(args, lambda backend: bench(backend, options, say))


def prove(args: argparse.Namespace) -> int:
    from cuzkd.bench import prove
    from cuzkd.bench.sources import Options

    options = Options(
        zkey=args.zkey,
        params=args.params,
        r1cs=args.r1cs,
        circuit=args.circuit,
        state_dir=args.state_dir,
        witness=args.witness,
        fixtures=args.fixtures,
        curve=args.curve,
        sizes=tuple(args.sizes),
        rounds=args.rounds,
        stream=args.stream,
        compare=not args.no_compare,
        one_thread=args.one_thread,
    )
    return measure(args, lambda backend: prove.run(backend, options, say))


def porep(args: argparse.Namespace) -> int:
    from cuzkd.bench import porep

    options = porep.Options(
        curve=args.curve,
        n_constraints=args.constraints,
        partitions=args.partitions,
        ready_target=args.ready_target,
        vram_bytes=args.vram_gib << 30,
        host_bytes=args.host_gib << 30,
        folder=args.dir,
        out=args.out,
        trace=args.timeline,
    )
    require_writable(files=[args.timeline], folders=[args.out])
    return measure(args, lambda backend: porep.run(backend, options, say))


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
    require_writable(files=[args.log], folders=[args.timeline])
    return measure(args, lambda backend: transfer.run(backend, options, say))


def pinning(args: argparse.Namespace) -> int:
    from cuzkd.bench import pinning

    totals = tuple(n for n in pinning.CURVE_BYTES if n <= args.max_gib << 30)
    making_bytes = min(pinning.MAKING_BYTES, args.max_gib << 30)
    options = pinning.Options(
        making_bytes, curve_bytes=totals, huge=not args.ordinary_pages, trace=args.timeline
    )
    require_writable(files=[args.timeline])
    return measure(args, lambda backend: pinning.run(backend, options, say))


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
    require_writable(folders=[args.timeline])
    return measure(args, lambda backend: campaign.run(backend, options, say))


def batch(args: argparse.Namespace) -> int:
    from cuzkd.bench import batch

    options = batch.Options(args.curve, args.sizes, args.rounds, args.seconds, args.timeline)
    require_writable(folders=[args.timeline])
    return measure(args, lambda backend: batch.run(backend, options, say))


def plot(args: argparse.Namespace) -> int:
    from cuzkd.bench import plots

    plots.draw(args.files, args.out, args.seconds)
    return 0


# -- arguments -----------------------------------------------------------------------------------------------


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Every bench as a command below `bench`."""
    bench = commands.add_parser("bench", help="measure this machine; see cuzkd/bench/RESULTS.md")
    kinds = bench.add_subparsers(dest="kind", required=True, metavar="BENCH")
    for work, says, arguments in (
        (micro, "field products, transforms, sums, one by one", _micro_arguments),
        (prove, "proofs of keys and witnesses in files, or of synthetic circuits", _prove_arguments),
        (porep, "a stream of partitions of a PoRep-shaped circuit", _porep_arguments),
        (transfer, "ways of getting vectors to the device, side by side", _transfer_arguments),
        (pinning, "what page-locked memory costs to make, and in place", _pinning_arguments),
        (campaign, "from a plain prover to this one, a step at a time", _campaign_arguments),
        (batch, "two partitions in one launch set against one at a time", _batch_arguments),
        *of_daemons.KINDS,
    ):
        command = kinds.add_parser(work.__name__, help=says)
        arguments(command)
        command.add_argument(
            "--backend", choices=("auto", "cpu", "cuda"), default="auto", help=f"who computes {DEFAULT}"
        )
        command.add_argument("--json", type=Path, metavar="FILE", help="the numbers")
        command.add_argument("--markdown", type=Path, metavar="FILE", help="a section for RESULTS.md")
        command.set_defaults(run=work)

    command = kinds.add_parser("plot", help="a picture of results (pip install 'cuzkd[bench]')")
    command.add_argument("files", type=Path, nargs="+", help="traces, or the numbers of one bench")
    command.add_argument("--out", type=Path, required=True, metavar="PICTURE", help=".svg or .png")
    command.add_argument("--seconds", type=seconds, help="of each trace, so much from its first kernel")
    command.set_defaults(run=plot)


def _micro_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--curve", choices=(*CURVES, "both"), default="both", help=DEFAULT)
    command.add_argument(
        "--log-sizes",
        type=positive,
        nargs="+",
        default=[],
        metavar="K",
        help="sizes 2^K (default: 10 to 16 on a processor, 12 to 24 on a device)",
    )
    command.add_argument(
        "--parts", nargs="+", default=[], metavar="PART", help="some (an unknown one lists them)"
    )
    number(command, "--rounds", positive, 5, "of each, after one that is not counted; at least 2")
    command.add_argument(
        "--goals",
        action="store_true",
        help="sums, transforms and rows at the sizes of a card's goals; checked",
    )


def _prove_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--zkey", type=Path, metavar="FILE", help="a proving key, with --witness")
    command.add_argument(
        "--params", type=Path, metavar="FILE", help="one of bellman, with --r1cs and --witness"
    )
    command.add_argument("--r1cs", type=Path, metavar="FILE", help="its constraint system")
    command.add_argument("--circuit", metavar="NAME", help="an added circuit, with --state-dir and --witness")
    command.add_argument("--state-dir", type=Path, metavar="DIR", help="where circuits were added")
    command.add_argument("--witness", type=Path, metavar="FILE", help=".wtns")
    command.add_argument(
        "--fixtures", type=Path, metavar="DIR", help="every .zkey in it that has a .wtns beside it"
    )
    command.add_argument(
        "--sizes",
        type=positive,
        nargs="+",
        default=[],
        metavar="N",
        help="constraints of synthetic circuits, 1,024 up (default: 4,096 65,536)",
    )
    command.add_argument("--curve", choices=CURVES, default="bls12_381", help=f"of those {DEFAULT}")
    number(command, "--rounds", positive, 9, "proofs alone, at least 2")
    number(command, "--stream", positive, 6, "proofs in flight together")
    command.add_argument(
        "--no-compare", action="store_true", help="not with groth16py, though it is installed"
    )
    command.add_argument(
        "--one-thread", action="store_true", help="as many proofs alone by one thread of the processor"
    )


def _porep_arguments(command: argparse.ArgumentParser) -> None:
    _circuit(command, 1 << 16)
    number(command, "--partitions", positive, 10, "of the stream")
    number(command, "--ready-target", positive, 2, "synthesised ahead")
    number(command, "--vram-gib", count, 0, "of the device that it may use, as if it had no more; 0: all")
    number(
        command, "--host-gib", count, 0, "that the host has, where it grows and says less; 0: what it says"
    )
    command.add_argument("--out", type=Path, metavar="DIR", help="key, proofs, publics in snarkjs's formats")
    command.add_argument("--timeline", type=Path, metavar="FILE", help="trace for ui.perfetto.dev")


def _transfer_arguments(command: argparse.ArgumentParser) -> None:
    _circuit(command, 1 << 16)
    command.add_argument(
        "--regimes", nargs="+", metavar="NAME", help="some (default: all; an unknown one lists them)"
    )
    number(command, "--alone", count, 2, "partitions one at a time")
    number(command, "--partitions", count, 6, "partitions in flight together")
    number(command, "--in-flight", positive, 4, "how many of those at a time, at least 2")
    number(command, "--distinct", positive, 2, "witnesses that differ")
    command.add_argument("--timeline", type=Path, metavar="DIR", help="traces for ui.perfetto.dev")
    command.add_argument(
        "--traced",
        nargs="+",
        default=["pageable", "zero-copy"],
        metavar="NAME",
        help="of which (default: pageable zero-copy)",
    )
    command.add_argument("--log", type=Path, metavar="FILE", help="a line of JSON as each run ends")


def _pinning_arguments(command: argparse.ArgumentParser) -> None:
    number(command, "--max-gib", positive, 4, "so much memory, at most")
    command.add_argument(
        "--ordinary-pages", action="store_true", help="the curve over pages that are not huge"
    )
    command.add_argument("--timeline", type=Path, metavar="FILE", help="trace for ui.perfetto.dev")


def _campaign_arguments(command: argparse.ArgumentParser) -> None:
    _circuit(command, 1 << 14)
    number(command, "--partitions", positive, 3, "of each run")
    number(command, "--runs", positive, 5, "of each configuration, at least 2")
    command.add_argument("--timeline", type=Path, metavar="DIR", help="traces for ui.perfetto.dev")


def _batch_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--sizes", type=positive, nargs="+", default=[], metavar="N", help="constraints")
    command.add_argument("--curve", choices=CURVES, default="bls12_381")
    number(command, "--rounds", positive, 20, "most of them, at least 2")
    command.add_argument("--seconds", type=seconds, default=30.0, help=f"of each size, at most {DEFAULT}")
    command.add_argument("--timeline", type=Path, metavar="DIR", help="traces for ui.perfetto.dev")


def _circuit(command: argparse.ArgumentParser, n_constraints: int) -> None:
    command.add_argument(
        "--constraints",
        type=positive,
        default=n_constraints,
        metavar="N",
        help=f"size of the synthetic circuit, 1024 up (default {n_constraints:,}; PoRep: {POREP_CONSTRAINTS:,})",
    )
    command.add_argument("--curve", choices=CURVES, default="bls12_381")
    command.add_argument(
        "--dir", type=Path, help="folder for witness files (default: in memory, if they fit)"
    )
