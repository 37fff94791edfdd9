"""`cuzkd warmup`: compile the kernels of proofs before anybody waits for them.

Problem: a daemon compiles what its circuits need before it serves, which takes a minute on a new machine; an image of
a container should have it done, and is built where there is no GPU.
Design: all modules of all curves and architectures wanted go to nvrtc.py's cache, on all cores; what is there already
is left alone. It is the cache of the user who runs this: the daemon's, if it is the same user and environment.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

from cuzkd import terminal
from cuzkd.cli.codes import DONE
from cuzkd.curves.params import CURVES
from cuzkd.errors import InvalidInput, Unavailable


def _warmup(args: argparse.Namespace) -> int:
    from cuzkd.backend import nvrtc

    curves = _installed(args.state_dir) if args.state_dir else args.curve or list(CURVES)
    kinds = (nvrtc.proving_modules, nvrtc.law_modules, nvrtc.setup_modules)[: 3 if args.all else 1]
    modules = [module for curve in curves for kind in kinds for module in kind(curve)]
    for arch in args.arch or _architectures():
        cache, began = nvrtc.CubinCache(arch), time.monotonic()
        missing = cache.missing(modules)
        cache.get_all(missing)
        print(
            f"{arch}: {', '.join(curves) or 'no curve'}: {terminal.counted(len(missing), 'module')} compiled in "
            f"{time.monotonic() - began:.1f} s, {len(modules) - len(missing)} were there; {cache.folder}"
        )
    return DONE


def _installed(state_dir: Path) -> list[str]:
    """Curves of the circuits of a state directory."""
    from cuzkd.circuits.registry import Registry

    if not state_dir.is_dir():
        raise InvalidInput(f"{state_dir}: there is no such folder")
    return sorted({manifest.curve for manifest in Registry(state_dir).list()})


def _architectures() -> list[str]:
    """Of the devices that are here."""
    try:
        from cuzkd.backend import cuda_probe

        return cuda_probe.architectures()
    except (ImportError, Unavailable) as error:
        raise Unavailable(f"--arch says for which GPUs where there is none to ask: {error}") from error


def _arch(text: str) -> str:
    if not re.fullmatch(r"sm_\d{2,3}", text):
        raise argparse.ArgumentTypeError(f"expected an architecture such as sm_90, got {text!r}")
    return text


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("warmup", help="compile the kernels of proofs now, into the cache")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--state-dir", type=Path, help="for the curves of its circuits")
    which.add_argument("--curve", choices=tuple(CURVES), action="append", help="for this one (default: both)")
    command.add_argument(
        "--arch", type=_arch, nargs="+", metavar="SM", help="sm_90 and the like (default: of the GPUs here)"
    )
    command.add_argument("--all", action="store_true", help="and what benches and development keys run")
    command.set_defaults(run=_warmup)
