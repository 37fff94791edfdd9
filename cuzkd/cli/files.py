"""`cuzkd inspect`, `export`: what files hold, and proofs and keys in other people's spelling."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cuzkd import terminal
from cuzkd.cli import outputs
from cuzkd.cli.codes import DONE, WRONG_INPUT
from cuzkd.errors import InvalidInput

if TYPE_CHECKING:
    from cuzkd.circuits.findings import Fact, Findings


def _inspect(args: argparse.Namespace) -> int:
    from cuzkd.circuits.inspection import inspect

    all_found: list[Findings] = []
    for path in args.files:
        all_found.append(found := inspect(path, points=args.points))
        if not args.json and (found.nbytes or found.facts):
            print(("\n" if len(all_found) > 1 else "") + _text(found), flush=True)
        if found.problem:
            print(f"cuzkd: {found.problem}", file=sys.stderr)
    if args.json:
        print(json.dumps([found.record() for found in all_found], indent=1))
    return WRONG_INPUT if any(found.problem for found in all_found) else DONE


def _text(found: Findings) -> str:
    size = f", {terminal.byte_count(found.nbytes)}" if found.nbytes else ""
    parts = [f"{found.path}: {found.kind}{size}"]
    if found.facts:
        width = max(map(len, found.facts))
        parts.append("\n".join(f"{name.ljust(width)}  {_fact(value)}" for name, value in found.facts.items()))
    if found.sections:
        head = [*dict.fromkeys(name for row in found.sections for name in row)]
        rows = [[_fact(row.get(name, "")) for name in head] for row in found.sections]
        parts.append(terminal.table(head, rows))
    parts += [f"WARNING: {warning}" for warning in found.warnings]
    if found.problem and (found.facts or found.sections):
        parts.append("BROKEN OFF: the file is not good, and no more of it was read")
    return "\n\n".join(parts)


def _fact(value: Fact) -> str:
    """For people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1%}"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else ", ".join(value) or "none"


def _export(args: argparse.Namespace) -> int:
    data = EXPORTS[args.to](args)
    if args.out is None and isinstance(data, bytes):
        raise InvalidInput(f"--to {args.to} is not text: expected --out FILE, or --out - for standard output")
    outputs.write(data, args.out, [args.file, *([args.public] if args.public else [])], args.force)
    return DONE


def _proof_as_bytes(args: argparse.Namespace) -> bytes:
    from cuzkd.formats import kinds, proof_bytes

    return proof_bytes.encode(kinds.read_proof(args.file, args.curve))


def _proof_as_json(args: argparse.Namespace) -> str:
    from cuzkd.formats import kinds, snarkjs

    return snarkjs.proof_to_json(kinds.read_proof(args.file, args.curve))


def _proof_as_call_data(args: argparse.Namespace) -> str:
    from cuzkd.formats import kinds, solidity

    if args.public is None:
        raise InvalidInput("--to calldata: expected --public with the proof's public.json")
    proof = kinds.read_proof(args.file, args.curve)
    return solidity.call_data(proof, kinds.read_publics(args.public, proof.curve))


def _key_as_json(args: argparse.Namespace) -> str:
    from cuzkd.formats import kinds, snarkjs

    return snarkjs.vkey_to_json(kinds.read_vkey(args.file), with_pairing=True)


def _key_as_vk(args: argparse.Namespace) -> bytes:
    from cuzkd.formats import kinds

    return kinds.vk_bytes(args.file)


EXPORTS: dict[str, Callable[[argparse.Namespace], str | bytes]] = {
    "bytes": _proof_as_bytes,
    "json": _proof_as_json,
    "calldata": _proof_as_call_data,
    "vkey": _key_as_json,
    "vk": _key_as_vk,
}


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("inspect", help="say what a file is and what is in it")
    command.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="keys, witnesses, proofs, calculators, circuits"
    )
    command.add_argument("--json", action="store_true", help="a list of records, for programs")
    command.add_argument("--points", action="store_true", help="check every point: curve and subgroup")
    command.set_defaults(run=_inspect)

    command = commands.add_parser("export", help="a proof or a verification key in another spelling")
    command.add_argument(
        "file", type=Path, metavar="FILE", help="proof.json, proof bytes; .zkey, .params, .vk"
    )
    command.add_argument(
        "--to",
        choices=[*EXPORTS],
        required=True,
        help="of a proof: bytes (192 or 256), json, calldata (Solidity); of a key: vkey (snarkjs), vk (bellman)",
    )
    command.add_argument("--public", type=Path, metavar="FILE", help="public.json, for calldata")
    command.add_argument("--curve", choices=("bn254", "bls12_381"), help="of a proof (default: as it says)")
    command.add_argument(
        "--out", type=Path, metavar="FILE", help="- is standard output (the default for what is text)"
    )
    command.add_argument("--force", action="store_true", help="overwrite a file that is there")
    command.set_defaults(run=_export)
