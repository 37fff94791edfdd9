"""`cuzkd circuits`: what a daemon may prove."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cuzkd import terminal
from cuzkd.cli.codes import DONE, WRONG_INPUT


def _add(args: argparse.Namespace) -> int:
    from cuzkd.circuits.registry import Registry

    manifest = Registry(args.state_dir).add(args.name, args.zkey, args.vkey)
    print(
        f"{manifest.name}: {manifest.curve}, {manifest.n_constraints:,} constraints, "
        f"{manifest.n_public} public, {terminal.byte_count(manifest.key_bytes)}, "
        f"digest {manifest.digest[:16]}"
    )
    return DONE


def _list(args: argparse.Namespace) -> int:
    from cuzkd.circuits.registry import Registry

    registry = Registry(args.state_dir)
    rows = [
        (m.name, m.curve, f"{m.n_constraints:,}", f"{m.n_wires:,}", str(m.n_public),
         terminal.byte_count(m.key_bytes), m.digest[:16])
        for m in registry.list()
    ]  # fmt: skip
    print(terminal.table(("circuit", "curve", "constraints", "wires", "public", "key", "digest"), rows))
    problems = registry.problems()
    for name, problem in problems.items():
        print(f"cuzkd: {name}: {problem}", file=sys.stderr)
    return WRONG_INPUT if problems else DONE


def _remove(args: argparse.Namespace) -> int:
    from cuzkd.circuits.registry import Registry

    Registry(args.state_dir).remove(args.name)
    return DONE


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    kinds = commands.add_parser("circuits", help="add, list, remove circuits").add_subparsers(
        dest="kind", required=True, metavar="add|list|remove"
    )
    add = kinds.add_parser("add", help="check a key and prepare it for proving")
    add.add_argument("name")
    add.add_argument("--zkey", type=Path, required=True, help="proving key made by snarkjs")
    add.add_argument("--vkey", type=Path, help="verification_key.json that the key must agree with")
    add.set_defaults(run=_add)
    kinds.add_parser("list", help="list installed circuits").set_defaults(run=_list)
    remove = kinds.add_parser("remove", help="remove a circuit")
    remove.add_argument("name")
    remove.set_defaults(run=_remove)
    for command in kinds.choices.values():
        command.add_argument("--state-dir", type=Path, required=True, help="the daemon's state directory")
