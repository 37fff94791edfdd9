"""What runs a bench that was asked for on the command line.

Results go to standard output, and where asked as JSON and as a section for RESULTS.md; progress goes to
standard error. Where files go is tried before anything is measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuzkd.backend.protocol import Backend
    from cuzkd.bench.report import Report


def measure(args: argparse.Namespace, bench: Callable[[Backend], Report]) -> int:
    """Run a bench on the backend asked for, and write what it found."""
    from cuzkd.backend import cpu, select

    require_writable(files=[args.json, args.markdown])
    # Witness files may lie in shared memory, which nobody clears: a polite end has to take them along.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cpu.set_threads(len(os.sched_getaffinity(0)))
        choice = select.choose(args.backend)
        say(f"backend {choice.reason}")
        bench(choice.backend).write(args.json, args.markdown)
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def require_writable(files: Sequence[Path | None] = (), folders: Sequence[Path | None] = ()) -> None:
    """Before hours of measuring, not after them. Raises OSError; files and folders are there then, if empty."""
    for folder in (*folders, *(file and file.parent for file in files)):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        if file is not None:
            file.open("a").close()


def say(line: str) -> None:
    print(f"cuzkd bench: {line}", file=sys.stderr, flush=True)
