"""`cuzkd setup`: a development key for a circuit, in one command. INSECURE, and says so.

For trying a circuit before its ceremony: a .zkey that snarkjs takes, or a .params file that bellman takes. The secrets
are drawn, used and forgotten here; nobody else can know that, which is why such a key is for development alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cuzkd import terminal
from cuzkd.cli import outputs
from cuzkd.cli.codes import DONE
from cuzkd.groth16.constraints import Constraints
from cuzkd.groth16.keys import ProvingKey, StreamedKey

if TYPE_CHECKING:  # cupy: only where there is a device
    from cuzkd.backend.cuda import CudaBackend

WARNING = (
    "whoever ran this command could have kept its secrets, and could then prove anything: "
    "use a key from a ceremony wherever proofs are worth something"
)


def _setup(args: argparse.Namespace) -> int:
    from cuzkd.circuits.inspection_bellman import DEVELOPMENT_NOTE
    from cuzkd.formats import bellman, files, r1cs, snarkjs, zkey
    from cuzkd.groth16 import setup

    key_path: Path = args.zkey or args.params
    outputs.require_free([key_path, *([args.vkey] if args.vkey else [])], [args.r1cs], args.force)
    begin = time.monotonic()
    constraints = r1cs.read(args.r1cs)
    print(f"cuzkd: {setup.DEVELOPMENT}: {WARNING}", file=sys.stderr)
    reduction = "circom" if args.zkey else "bellman"
    with _developed(constraints, reduction, args.backend) as key:
        if args.zkey:
            zkey.write(key_path, key)
        else:
            bellman.write_params(key_path, key, trailing=DEVELOPMENT_NOTE)
    if args.vkey:
        with files.written_whole(args.vkey) as file:
            file.write(snarkjs.vkey_to_json(key.vk, with_pairing=True).encode())
    size = terminal.counted(constraints.n_constraints, "constraint")
    print(
        f"{key_path}: {setup.DEVELOPMENT}, {constraints.curve}, {size}, "
        f"{terminal.byte_count(key_path.stat().st_size)}, verifying key digest {key.vk.digest()[:16]}, "
        f"{time.monotonic() - begin:.1f} s"
    )
    return DONE


@contextmanager
def _developed(constraints: Constraints, reduction: str, backend: str) -> Iterator[ProvingKey | StreamedKey]:
    """An INSECURE key, on the host or, for as long as the context lasts, on a device."""
    from cuzkd.groth16 import setup

    if backend == "cpu":
        yield setup.setup(constraints, reduction=reduction)
        return
    from cuzkd.backend import select
    from cuzkd.groth16 import device_setup

    device = cast("CudaBackend", select.load("cuda"))
    try:
        head, loaded = device_setup.develop_key(device, constraints, reduction=reduction)
        try:
            yield device_setup.fetch(head, loaded)
        finally:
            loaded.close()
    finally:
        device.close()


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("setup", help="make a development key for a circuit (INSECURE)")
    command.add_argument("--r1cs", type=Path, required=True, help="the circuit, as circom writes it")
    out = command.add_mutually_exclusive_group(required=True)
    out.add_argument("--zkey", type=Path, metavar="OUT", help="write a key as snarkjs has it")
    out.add_argument("--params", type=Path, metavar="OUT", help="write a key as bellman has it")
    command.add_argument("--vkey", type=Path, metavar="OUT", help="write verification_key.json, too")
    command.add_argument(
        "--backend", choices=("cpu", "cuda"), default="cpu", help="who computes (default: cpu)"
    )
    command.add_argument("--force", action="store_true", help="overwrite files that are there")
    command.set_defaults(run=_setup)
