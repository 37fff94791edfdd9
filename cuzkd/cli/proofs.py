"""`cuzkd prove`, `verify`: from witnesses or inputs to files that anybody can check."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cuzkd import terminal
from cuzkd.cli import access
from cuzkd.cli.codes import DONE, NO
from cuzkd.errors import CuzkdError, InvalidInput

if TYPE_CHECKING:
    from cuzkd.client import Client
    from cuzkd.service.v1 import proving_pb2 as pb


START_PATIENCE_S = 5.0  # a daemon that was started just before needs a moment to open its socket


def _prove(args: argparse.Namespace) -> int:
    from cuzkd.client import require_done

    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "is a file, expected a folder" if args.out.is_file() else error.strerror
        raise InvalidInput(f"--out {args.out}: {why}") from None
    with _files_named(args.witness or args.input), access.client(args) as client:
        client.reach(START_PATIENCE_S)
        curves = {circuit.circuit_id: circuit.curve for circuit in client.circuits()}
        job_id = client.submit(args.name, args.witness or (), inputs=args.input or ())
        _show_progress(client, job_id, len(args.witness or args.input))
        answer = require_done(client.wait(job_id))
    for result in answer.results:
        suffix = f"_{result.index}" if len(answer.results) > 1 else ""
        _write_result(args.out, suffix, curves[args.name], result)
    device = answer.results[0]
    print(
        f"{terminal.counted(len(answer.results), 'verified proof')} in {answer.total_ms} ms "
        f"on {_where(device.backend, device.device)}: {args.out}"
    )
    return DONE


def _where(backend: str, device: str) -> str:
    return device if device.startswith(backend) else f"{backend} {device}"


@contextmanager
def _files_named(paths: Sequence[Path]) -> Iterator[None]:
    """The daemon knows partitions by their numbers; people know them by their files."""

    def named(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"{match[0]} ({paths[number]})" if number < len(paths) else match[0]

    try:
        yield
    except CuzkdError as error:
        raise type(error)(re.sub(r"\bpartition (\d+)(?=:)", named, str(error), count=1)) from error


def _show_progress(client: Client, job_id: str, n_partitions: int) -> None:
    bar = terminal.Bar(sys.stderr, n_partitions)
    try:
        with closing(client.watch(job_id)) as states:
            for state in states:
                bar.show(state.partitions_done, _note(state))
    except KeyboardInterrupt:
        client.cancel(job_id)
        raise
    finally:
        bar.close()


def _note(state: pb.JobState) -> str:
    """What is going on, in a few words."""
    if state.state == "queued" and state.queue_position:
        return f"queued behind {state.queue_position}"
    if state.expected_end_unix_ms:
        return f"{state.state}, {max(state.expected_end_unix_ms / 1000 - time.time(), 0.0):.0f} s left,"
    return state.state


def _write_result(folder: Path, suffix: str, curve: str, result: pb.PartitionResult) -> None:
    from cuzkd.formats import files, proof_bytes, snarkjs

    proof = proof_bytes.decode(curve, result.proof)
    publics = [int.from_bytes(value, "big") for value in result.public_inputs]
    for name, text in (
        (f"proof{suffix}.json", snarkjs.proof_to_json(proof)),
        (f"public{suffix}.json", snarkjs.publics_to_json(publics)),
    ):
        with files.written_whole(folder / name) as file:
            file.write(text.encode())


def _verify(args: argparse.Namespace) -> int:
    from cuzkd.formats import kinds
    from cuzkd.groth16 import verifier

    vk = kinds.read_vkey(args.vkey)
    proof = kinds.read_proof(args.proof, vk.curve)
    publics = kinds.read_publics(args.public, vk.curve)
    valid = verifier.verify(vk, proof, publics)
    print("valid" if valid else "INVALID: the proof does not prove this statement under this key")
    return DONE if valid else NO


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("prove", help="prove witnesses or inputs, one proof each")
    command.add_argument("name", help="the circuit")
    given = command.add_mutually_exclusive_group(required=True)
    given.add_argument("--witness", type=Path, nargs="+", action="extend", help=".wtns files")
    given.add_argument(
        "--input",
        type=Path,
        nargs="+",
        action="extend",
        help="input.json files: the daemon calculates the witnesses, with the circuit's own .wasm",
    )
    command.add_argument("--out", type=Path, required=True, help="folder for proof.json and public.json")
    access.add_options(command)
    command.set_defaults(run=_prove)

    command = commands.add_parser("verify", help="check a proof, without a daemon")
    command.add_argument(
        "--vkey", type=Path, required=True, help="verification_key.json, .vk, or the .zkey or .params itself"
    )
    command.add_argument("--proof", type=Path, required=True, help="proof.json, or a proof's bytes")
    command.add_argument("--public", type=Path, required=True, help="public.json")
    command.set_defaults(run=_verify)
