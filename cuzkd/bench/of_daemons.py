"""`cuzkd bench load`, `stream`, `recovery`: the benches that look at a running daemon, and their arguments."""

from __future__ import annotations

import argparse
from pathlib import Path

from cuzkd.bench.arguments import CURVES, DEFAULT, count, number, positive, seconds
from cuzkd.bench.measuring import measure, say


def load(args: argparse.Namespace) -> int:
    from cuzkd.bench import load

    options = load.Options(args.curve, args.constraints, args.waiting, args.samples, args.busy, args.dir)
    return measure(args, lambda backend: load.run(backend, options, say))


def stream(args: argparse.Namespace) -> int:
    from cuzkd.bench import stream

    options = stream.Options(
        curve=args.curve,
        n_constraints=args.constraints,
        proofs=args.proofs,
        rounds=args.rounds,
        partitions=args.partitions,
        in_flight=args.in_flight,
        on_server=args.on_server,
        uploaded=args.uploaded,
        folder=args.dir,
    )
    return measure(args, lambda backend: stream.run(backend, options, say))


def recovery(args: argparse.Namespace) -> int:
    from cuzkd.bench import recovery

    options = recovery.Options(
        curve=args.curve,
        parts=tuple(args.parts or recovery.PARTS),
        n_constraints=args.constraints,
        cancel_constraints=args.cancel_constraints,
        rounds=args.rounds,
        cancels=args.cancels,
        queued=args.queued,
        folder=args.dir,
    )
    return measure(args, lambda backend: recovery.run(backend, options, say))


# -- arguments -----------------------------------------------------------------------------------------------


def _load_arguments(command: argparse.ArgumentParser) -> None:
    _served(command, 1 << 10, "bn254")
    number(command, "--waiting", positive, 500, "clients, a multiple of 4")
    number(command, "--samples", positive, 300, "of each call in each scene, at least 2")
    command.add_argument(
        "--busy",
        type=seconds,
        default=30.0,
        metavar="S",
        help=f"of work for the prover in each scene {DEFAULT}",
    )


def _stream_arguments(command: argparse.ArgumentParser) -> None:
    _served(command, 0, "bls12_381", "0: so that a proof takes a tenth of a second")
    number(command, "--proofs", positive, 24, "of each way in each round, at least 2")
    number(command, "--rounds", positive, 5, "at least 2")
    number(command, "--partitions", positive, 1, "of a job")
    number(command, "--in-flight", positive, 6, "jobs at a time")
    way = command.add_mutually_exclusive_group()
    way.add_argument(
        "--on-server",
        action="store_true",
        help="tell the daemon where witnesses are, instead of sending them",
    )
    way.add_argument(
        "--uploaded", action="store_true", help="upload witnesses ahead of each round, and refer to them"
    )


def _recovery_arguments(command: argparse.ArgumentParser) -> None:
    _served(command, 1 << 12, "bls12_381")
    command.add_argument("--parts", nargs="+", metavar="PART", help="some (an unknown one lists them)")
    number(command, "--cancel-constraints", positive, 1 << 20, "of jobs that are cancelled")
    number(command, "--rounds", positive, 3, "kills of the prover, and of the daemon")
    number(command, "--cancels", positive, 6, "jobs that are cancelled")
    number(command, "--queued", positive, 50, "jobs when the daemon is killed")


def _served(command: argparse.ArgumentParser, n_constraints: int, curve: str, says: str = "1024 up") -> None:
    number(command, "--constraints", count, n_constraints, f"size of the synthetic circuit, {says}")
    command.add_argument("--curve", choices=CURVES, default=curve, help=DEFAULT)
    command.add_argument(
        "--dir", type=Path, help="folder for the daemon's state (default: where temporary files go)"
    )


KINDS = (
    (load, "calls of a daemon for whose proofs hundreds of clients wait", _load_arguments),
    (stream, "what a daemon adds to proving, job after job", _stream_arguments),
    (recovery, "how soon a daemon goes on after a kill, a cancel, a restart", _recovery_arguments),
)
