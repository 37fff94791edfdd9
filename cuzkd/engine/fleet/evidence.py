"""What the driver counts of a device's errors, for whoever must decide whether to send it back.

Problem. Wrong proofs and lost devices look alike in a daemon's log; error counters, temperature and the link tell a
card that is dying from one that is hot or badly seated. The driver may hang just then, and older ones know fewer
fields.
Design. One look with nvidia-smi when a device goes into quarantine, off the request path, bounded in time; fields that
this driver does not know are left out, one by one, as it complains. No nvidia-smi: no evidence. One that fails is
evidence itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

PATIENCE_S = 5.0  # all together
FIELDS = (
    "uuid",
    "name",
    "driver_version",
    "pci.bus_id",
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.aggregate.total",
    "retired_pages.pending",
    "remapped_rows.pending",
    "remapped_rows.failure",
    "temperature.gpu",
    "power.draw",
    "clocks_event_reasons.active",
    "pcie.link.gen.current",
    "pcie.link.width.current",
    "memory.used",
)
MAX_WORDS = 300  # characters of what it says when it fails
_UNKNOWN_FIELD = re.compile(r'Field "([^"]+)" is not a valid field')
_NO_VALUE = re.compile(r"\[.*\]|N/A")
T = TypeVar("T")


def counters(device: str, patience_s: float = PATIENCE_S, command: str = "nvidia-smi") -> dict[str, str]:
    """The driver's numbers by FIELDS, with "error" where it could not be asked. {}: no nvidia-smi. Blocks, at most
    for patience_s and the end of a killed process.

    device: UUID; "" for the only one that there is.
    """
    end_s = time.monotonic() + patience_s
    fields = list(FIELDS)
    while fields:
        try:
            code, out = ask(command, device, fields, end_s - time.monotonic())
        except OSError:
            return {}
        except subprocess.TimeoutExpired:
            return {"error": f"nvidia-smi did not answer within {patience_s:g} s"}
        if code == 0:
            return _values(fields, out)
        unknown = _UNKNOWN_FIELD.search(out)
        if unknown is None or unknown[1] not in fields:
            return {"error": f"nvidia-smi: status {code}: {' '.join(out.split())[:MAX_WORDS]}"}
        fields.remove(unknown[1])
    return {}


def gather(look: Callable[[], T]) -> asyncio.Future[T]:
    """look() in a thread that nobody need wait for, not even the end of this process: a process that is stuck in the
    driver cannot be killed.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def done(found: T) -> None:
        if not future.done():
            future.set_result(found)

    def work() -> None:
        found = look()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(done, found)

    threading.Thread(target=work, name="evidence", daemon=True).start()
    return future


def ask(command: str, device: str, fields: Sequence[str], left_s: float) -> tuple[int, str]:
    """nvidia-smi's exit status, and what it says of one device, or a line for each. Raises OSError, TimeoutExpired."""
    query = [command, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    with subprocess.Popen(
        [*query, f"--id={device}"] if device else query,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, _ = process.communicate(timeout=max(left_s, 0.0))
        except BaseException:
            process.kill()
            raise
    return process.returncode, out


def _values(fields: Sequence[str], out: str) -> dict[str, str]:
    """Of one line of comma-separated values; of several devices nobody knows which is meant."""
    lines = out.splitlines()
    values = [value.strip() for value in lines[0].split(",")] if len(lines) == 1 else []
    if len(values) != len(fields):
        return {"error": f"nvidia-smi gave {len(lines)} lines, of which the first has {len(values)} values"}
    return {name: v for name, v in zip(fields, values, strict=True) if v and not _NO_VALUE.fullmatch(v)}
