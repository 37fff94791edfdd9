"""What a bench says: tables for a terminal and for RESULTS.md, numbers for programs, and on which machine.

Life of data: rows of text in a `Table`, plain dictionaries beside it; `Report` prints the one and writes both.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cuzkd
from cuzkd import terminal
from cuzkd.backend import cpu
from cuzkd.backend.protocol import Backend

GIB = 1 << 30


@dataclass(frozen=True)
class Table:
    """A title, and rows of text below a head; the first column names the row."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        return f"{self.title}\n\n{terminal.table(self.head, self.rows)}"

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "\n".join([f"**{self.title}**", "", *("| " + " | ".join(line) + " |" for line in lines)])


@dataclass
class Report:
    """The result of one bench. numbers: what the tables were made of, and more, for programs."""

    name: str
    backend: Backend
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        return "\n\n".join([f"cuzkd bench {self.name}: {where(self.backend)}", *self._parts("text")])

    def markdown(self) -> str:
        """A section for RESULTS.md: date, machine, command, tables, notes."""
        command = "cuzkd " + " ".join(sys.argv[1:])
        today = datetime.date.today().isoformat()
        head = f"## cuzkd bench {self.name}\n\n{today}, {where(self.backend)}:\n\n    {command}"
        return "\n\n".join([head, *self._parts("markdown")]) + "\n"

    def _parts(self, form: str) -> list[str]:
        return [getattr(table, form)() for table in self.tables] + self.notes

    def json(self) -> str:
        head = {"bench": self.name, "machine": machine(self.backend), "argv": sys.argv[1:]}
        return json.dumps(head | dict(self.numbers), indent=1, default=str)

    def write(self, json_file: Path | None = None, markdown_file: Path | None = None) -> None:
        """Print, and write the files that are asked for: these even if nobody reads any more what is printed."""
        try:
            print(self.text(), flush=True)
        finally:
            if json_file is not None:
                _write(json_file, self.json())
            if markdown_file is not None:
                _write(markdown_file, self.markdown())


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk has no name
        raise


def machine(backend: Backend) -> Mapping[str, Any]:
    """What numbers depend on."""
    return {
        "cuzkd": cuzkd.__version__,
        "device": backend.device_name,
        "backend": backend.name,
        "processor": cpu.CpuBackend().device_name,
        "cores": len(os.sched_getaffinity(0)),
        "threads": cpu.threads(),
        "native": cpu.build,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def where(backend: Backend) -> str:
    """The machine in one line."""
    at = machine(backend)
    memory = round(at["memory_bytes"] / GIB)
    host = f"{at['cores']} cores of {at['processor']} ({at['native']}), {memory} GiB"
    return host if backend.name != "cuda" else f"{at['device']}, {host}"
