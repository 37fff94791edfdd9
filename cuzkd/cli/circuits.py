"""`cuzkd circuits`: what a daemon may prove. Added and removed while it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cuzkd import terminal
from cuzkd.cli import given
from cuzkd.cli.codes import DONE, WRONG_INPUT
from cuzkd.errors import CuzkdError, InvalidInput, InvalidKey

if TYPE_CHECKING:
    from cuzkd.circuits.manifest import Manifest
    from cuzkd.circuits.registry import Progress, Registry

MIB = 1 << 20
REMEDY = "remove the circuit and add it again"


def _add(args: argparse.Namespace) -> int:
    from cuzkd.circuits.registry import Registry

    given.require_kinds(args)
    with _bar(args.name) as progress:
        manifest = Registry(args.state_dir).add(
            args.name,
            zkey=args.zkey,
            params=args.params,
            r1cs=args.r1cs,
            wasm=args.wasm,
            vkey=args.vkey,
            progress=progress,
        )
    print(
        f"{manifest.name}: {manifest.curve}, {terminal.counted(manifest.n_constraints, 'constraint')}, "
        f"{manifest.n_public} public, {terminal.byte_count(manifest.key_bytes)}, {_witnesses(manifest)}, "
        f"digest {manifest.digest[:16]}"
    )
    return DONE


def _witnesses(manifest: Manifest) -> str:
    """How a job of this circuit is judged."""
    told = (
        "witnesses checked row by row" if manifest.constraint_check == "checked" else "proofs alone checked"
    )
    return f"C {manifest.constraint_check}: {told}" + (", takes inputs" if manifest.calculator else "")


def _list(args: argparse.Namespace) -> int:
    registry = _registry(args.state_dir)
    head = (
        "circuit", "curve", "constraints", "wires", "public", "C", "inputs", "key", "in memory", "digest",
    )  # fmt: skip
    found = registry.list()
    problems = {name: str(problem) for name, problem in registry.problems().items()}
    problems |= {m.name: problem for m in found if (problem := _key_problem(registry, m))}
    rows = [
        (m.name, m.curve, f"{m.n_constraints:,}", f"{m.n_wires:,}", str(m.n_public), m.constraint_check,
         "yes" if m.calculator else "no", terminal.byte_count(m.key_bytes), "yes" if registry.warm(m) else "no",
         m.digest[:16])
        for m in found if m.name not in problems
    ]  # fmt: skip
    print(terminal.table(head, rows))
    for name, problem in sorted(problems.items()):
        print(f"cuzkd: {name}: {problem}", file=sys.stderr)
    return WRONG_INPUT if problems else DONE


def _key_problem(registry: Registry, manifest: Manifest) -> str:
    """What can be seen of a key without reading it. Empty where that is as it should be."""
    path = registry.open(manifest.name).path
    try:
        nbytes = path.stat().st_size
    except OSError as error:
        return f"{path}: {error.strerror}; {REMEDY}"
    if nbytes != manifest.key_bytes:
        return f"{path}: expected {manifest.key_bytes} bytes by its manifest, found {nbytes}; {REMEDY}"
    return ""


def _registry(state_dir: Path) -> Registry:
    """Of a state directory that is there: a name mistyped is not an empty one."""
    from cuzkd.circuits.registry import Registry

    if not state_dir.is_dir():
        raise InvalidInput(
            f"{state_dir}: " + ("is no folder" if state_dir.exists() else "there is no such folder")
        )
    return Registry(state_dir)


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected a folder, got nothing")
    return Path(text)


def _remove(args: argparse.Namespace) -> int:
    from cuzkd.circuits.registry import Registry

    Registry(args.state_dir).remove(args.name)
    return DONE


def _check(args: argparse.Namespace) -> int:
    """Each circuit has its line; the first that is damaged does not keep the others from being looked at."""
    registry = _registry(args.state_dir)
    if args.all == (args.name is not None):
        raise InvalidInput("circuits check: expected the name of a circuit or --all, one of them")
    names = sorted([m.name for m in registry.list()] + list(registry.problems())) if args.all else [args.name]
    if not names:
        print("no circuits")
    code = DONE
    for name in names:
        try:
            with _bar(name) as progress:
                manifest = registry.check(name, progress)
        except CuzkdError as error:
            remedy = f"; {REMEDY}" if isinstance(error, InvalidKey) and REMEDY not in str(error) else ""
            if not args.all:
                raise type(error)(f"{error}{remedy}") from error
            print(f"cuzkd: {name}: {error}{remedy}", file=sys.stderr)
            code = WRONG_INPUT
        else:
            print(f"{name}: sound, digest {manifest.digest[:16]}")
    return code


@contextmanager
def _bar(name: str) -> Iterator[Progress]:
    """Progress on a terminal, in MiB of points."""
    bar: terminal.Bar | None = None

    def show(done_bytes: int, total_bytes: int) -> None:
        nonlocal bar
        bar = bar or terminal.Bar(sys.stderr, -(-total_bytes // MIB))
        bar.show(-(-done_bytes // MIB), f"MiB of {name} checked")

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    kinds = commands.add_parser("circuits", help="add, list, check, remove circuits").add_subparsers(
        dest="kind", required=True, metavar="add|list|check|remove"
    )
    add = kinds.add_parser("add", help="check a key and prepare it for proving")
    add.add_argument("name")
    key = add.add_mutually_exclusive_group(required=True)
    key.add_argument("--zkey", type=Path, help="proving key made by snarkjs")
    key.add_argument("--params", type=Path, help="proving key in bellman's format; needs --r1cs")
    add.add_argument("--r1cs", type=Path, help="constraint system; with it witnesses are checked row by row")
    add.add_argument(
        "--wasm", type=Path, help="witness calculator made by circom; with it jobs may send inputs"
    )
    add.add_argument(
        "--vkey", type=Path, help="verification_key.json or bellman's .vk that the key must agree with"
    )
    add.set_defaults(run=_add)
    kinds.add_parser("list", help="list installed circuits").set_defaults(run=_list)
    check = kinds.add_parser(
        "check", help="look at installed keys again, as thoroughly as when they were added"
    )
    check.add_argument("name", nargs="?")
    check.add_argument("--all", action="store_true", help="every installed circuit")
    check.set_defaults(run=_check)
    remove = kinds.add_parser("remove", help="remove a circuit; a running daemon lets go of its key")
    remove.add_argument("name")
    remove.set_defaults(run=_remove)
    for command in kinds.choices.values():
        command.add_argument("--state-dir", type=_folder, required=True, help="the daemon's state directory")
