"""The command line.

Exit codes: 0 done; 1 the answer is no (proof invalid, job failed); 2 input, files or settings are wrong;
3 no daemon answers, or it cannot take work now, or nobody takes the answer; 4 an error of cuzkd itself;
130 interrupted.

Problem: people want one line that says what to change; scripts want a number.
Design: each command is a function from parsed arguments to an exit code. It raises errors of cuzkd.errors;
main() alone turns them into a line on standard error and a code. Commands import what they need when they
run.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence

import cuzkd
from cuzkd.bench import commands as bench
from cuzkd.cli import circuits, daemon, doctor, files, proofs, setup, warmup
from cuzkd.cli.codes import INTERNAL, INTERRUPTED, NOT_NOW, WRONG_INPUT, exit_code
from cuzkd.errors import CuzkdError

# What a write to a stream fails of. The error holds no name then.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


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
    for part in (circuits, daemon, doctor, warmup, proofs, files, setup, bench):
        part.add_parsers(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line. Returns the exit code; errors for people are one line on standard error."""
    _require_streams()
    code: int = NOT_NOW  # for whoever stops reading before there is an answer
    try:
        try:
            args = parser().parse_args(argv)
            code = args.run(args)
        finally:
            sys.stdout.flush()
        return code
    except CuzkdError as error:
        _complain(str(error))
        return exit_code(error)
    except MemoryError as error:
        _complain(f"out of memory: {error}")
        return NOT_NOW
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # `cuzkd ... | head`: whoever reads has seen enough
        _forget_output()
        return code
    except OSError as error:
        if error.filename is not None:
            _complain(f"{error.filename}: {error.strerror}")
            return WRONG_INPUT
        _forget_output()
        if error.errno in UNWRITABLE:
            _complain(f"output cannot be written: {error.strerror}")
            return NOT_NOW
        traceback.print_exc()
        return INTERNAL
    except Exception:  # a fault of ours: Python's own exit code would say that the answer is no
        traceback.print_exc()
        return INTERNAL


def _complain(text: str) -> None:
    try:
        print(f"cuzkd: {text}", file=sys.stderr, flush=True)
    except OSError:  # the code still says it
        _forget_output()


def _require_streams() -> None:
    """Output is there though somebody closed it, and takes every character, whatever its encoding."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error has it


def _forget_output() -> None:
    """What could not be written is thrown away: Python would fail of it at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
