"""Files given with the wrong flag: said in words, before a reader complains about a magic."""

from __future__ import annotations

import argparse
from pathlib import Path

from cuzkd.errors import InvalidInput


def require_kinds(args: argparse.Namespace) -> None:
    """What `circuits add` takes by each flag. Raises InvalidInput; what is of no kind at all, its reader refuses."""
    from cuzkd.formats import kinds
    from cuzkd.formats.kinds import Kind

    wanted = {
        "zkey": (Kind.ZKEY,),
        "params": (Kind.PARAMS,),
        "r1cs": (Kind.R1CS,),
        "wasm": (Kind.WASM,),
        "vkey": (Kind.VK, Kind.JSON),
    }
    flags = {kind: f": use --{flag}" for flag, accepted in wanted.items() for kind in accepted[:1]}
    for flag, accepted in wanted.items():
        path: Path | None = getattr(args, flag)
        if path is None:
            continue
        found = kinds.kind_of_path(path)
        if flag == "vkey" and found is Kind.JSON:
            kinds.read_vkey(path)  # knows the kinds of JSON
        if found not in (*accepted, Kind.UNKNOWN):
            raise InvalidInput(
                f"--{flag} {path}: expected a {accepted[0]}, found {kinds.article(found)}{flags.get(found, '')}"
            )
