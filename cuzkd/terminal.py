"""What people see: tables, a progress bar, times that read well. Knows nothing of proofs.

Problem: output that is neat on a terminal is noise in a file.
Design: a bar draws only where the stream is a terminal; tables are plain text, columns as wide as their
content.
Life of data: rows in, text out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TextIO

BAR_WIDTH = 30


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows below a head and a rule. The first column is aligned left, the others right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        return "  ".join(
            [first, *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))]
        )

    return "\n".join(
        text.rstrip() for text in (line(head), "-" * (sum(widths) + 2 * len(widths) - 2), *map(line, rows))
    )


def milliseconds(seconds: float | None) -> str:
    """ "12.3" for 0.0123 s; nothing where there is no such time."""
    return "" if seconds is None else f"{seconds * 1000:.1f}"


def byte_count(n_bytes: int) -> str:
    """ "1.5 GiB"."""
    size = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return ""


def counted(number: int, noun: str) -> str:
    """ "1 constraint", "3,016 constraints"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


class Bar:
    """A progress bar of `total` steps. Where the stream is no terminal it draws nothing."""

    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream = stream
        self._total = max(total, 1)
        self._shown = stream.isatty()
        self._started = time.monotonic()

    def show(self, done: int, note: str) -> None:
        """Draw: done steps of the total, and what is going on."""
        if self._shown:
            filled = BAR_WIDTH * min(done, self._total) // self._total
            bar = "█" * filled + "░" * (BAR_WIDTH - filled)
            seconds = time.monotonic() - self._started
            self._stream.write(f"\r\x1b[K{bar} {done}/{self._total} {note} {seconds:.1f} s")
            self._stream.flush()

    def close(self) -> None:
        """Take it away."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
