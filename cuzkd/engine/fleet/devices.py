"""Which devices there is a prover for.

Problem. The numbers of devices differ between CUDA, the driver's tools and the environment, and change with a slot; a
device that is listed and not used, or the other way round, goes unnoticed for months.
Design. Devices are named by their UUIDs, or by as much of one as tells it from all others; the driver of the process
that is to use it is the one who knows whether it is there. "all" asks nvidia-smi, once, bounded in time.
Life. Settings -> `provers_for`, at the start -> a prover for each name, whose process sees that device alone.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from cuzkd.engine.fleet import evidence
from cuzkd.engine.fleet.health import BACKENDS, HOSTS

log = structlog.get_logger()

FIRST = ""  # whichever device a process comes upon first
ALL = ("all",)
PATIENCE_S = 15.0  # a driver that nobody keeps awake takes a second for each device
_UUID = re.compile(r"^\s*(GPU-[0-9a-f-]{36})\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """uuids: in the driver's order. trouble: what the driver's tool complains of, "" for nothing."""

    uuids: tuple[str, ...]
    trouble: str


async def provers_for(policy: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """The device of each prover: UUIDs, or FIRST alone: where none is named, for the processor, and where "all" finds
    none; then that prover will say what it misses.
    """
    if BACKENDS[policy] in HOSTS or not wanted:
        return (FIRST,)
    if tuple(wanted) != ALL:
        return tuple(wanted)
    try:
        async with asyncio.timeout(2 * PATIENCE_S):  # one that is killed and does not go
            found = await evidence.gather(installed)
    except TimeoutError:
        found = Found((), "nvidia-smi was killed, and is still there")
    if found.trouble or not found.uuids:
        log.warning("devices_in_doubt", found=found.uuids, trouble=found.trouble or "it knows of none")
    return found.uuids or (FIRST,)


def installed(patience_s: float = PATIENCE_S, command: str = "nvidia-smi") -> Found:
    """All devices that the driver knows of, whatever CUDA_VISIBLE_DEVICES says. Blocks, at most for patience_s and the
    end of a killed process.
    """
    try:
        code, out = evidence.ask(command, "", ["uuid"], patience_s)
    except OSError as error:
        return Found((), f"{command} cannot be started: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Found((), f"{command} did not answer within {patience_s:g} s")
    words = " ".join(_UUID.sub("", out).split())[: evidence.MAX_WORDS]
    trouble = f"{command}: status {code}: {words}" if code or words else ""
    return Found(tuple(_UUID.findall(out)), trouble)  # one that is lost does not take the others along


def visible(device: str) -> Mapping[str, str]:
    """The environment of a process that is to see this device alone; of FIRST, nothing is changed."""
    return {} if device == FIRST else {"CUDA_VISIBLE_DEVICES": device}
