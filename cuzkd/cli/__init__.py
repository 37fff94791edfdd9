"""The command line.

Exit codes: 0 done · 1 the answer is no (proof invalid, job failed) · 2 input, files or settings are wrong ·
3 no daemon answers, or it cannot take work now · 4 an error of cuzkd itself · 130 interrupted.

Problem: people want one line that says what to change; scripts want a number.
Design: each command is a function from parsed arguments to an exit code. It raises errors of cuzkd.errors;
main() alone turns them into a line on standard error and a code. Commands import what they need when they
run.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import cuzkd
from cuzkd.bench import commands as bench
from cuzkd.cli import circuits, daemon, files, proofs, setup
from cuzkd.cli.codes import DONE, INTERRUPTED, NOT_NOW, WRONG_INPUT, exit_code
from cuzkd.errors import CuzkdError


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="cuzkd",
        description="Groth16 proving daemon",
        epilog=(__doc__ or "").split("\n\n")[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"cuzkd {cuzkd.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for part in (circuits, daemon, proofs, files, setup, bench):
        part.add_parsers(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line. Returns the exit code; errors for people are one line on standard error."""
    args = parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except CuzkdError as error:
        print(f"cuzkd: {error}", file=sys.stderr)
        return exit_code(error)
    except MemoryError as error:
        print(f"cuzkd: out of memory: {error}", file=sys.stderr)
        return NOT_NOW
    except KeyboardInterrupt:
        print("cuzkd: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `cuzkd ... | head`: whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        if error.filename is None:  # of no file that somebody could have named
            raise
        print(f"cuzkd: {error.filename}: {error.strerror}", file=sys.stderr)
        return WRONG_INPUT
