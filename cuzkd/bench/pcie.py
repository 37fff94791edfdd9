"""What crosses the bus, as the driver's management library (NVML) counts it: a witness who is not us.

NVML tells the rate over the last 20 ms or so; it counts all that passes, packet headers included, of every process.
Small copies fall between two looks. Loaded by ctypes: the library is part of the driver, and what we need of it is
one function. Where it is missing or the card has no such counter there are no samples, and no error.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
RX_BYTES = 1  # NVML_PCIE_UTIL_RX_BYTES: what the device receives
UNIT_BYTES = 1000  # "KB/s"
PAUSE_S = 0.002


@dataclass(frozen=True)
class Sample:
    """bytes_s: rate of what the device received, between these two times of time.monotonic()."""

    begin_s: float
    end_s: float
    bytes_s: float


@dataclass
class Samples:
    """Complete once the block is left. why_none: why there are none, for people."""

    taken: list[Sample] = field(default_factory=list)
    why_none: str = ""

    def during(self, intervals: Sequence[tuple[float, float]]) -> float | None:
        """Mean bytes/s of the samples that lie wholly inside one of the intervals (begin, end); None: no such."""
        inside = [
            sample.bytes_s
            for sample in self.taken
            if any(begin <= sample.begin_s and sample.end_s <= end for begin, end in intervals)
        ]
        return sum(inside) / len(inside) if inside else None


class Counter:
    """The receiving side of one GPU. Raises OSError where it cannot be read."""

    def __init__(self, uuid: str, library: Any = None) -> None:
        self._nvml = library or ctypes.CDLL(LIBRARY)
        self._check("nvmlInit_v2", self._nvml.nvmlInit_v2())
        self._handle = ctypes.c_void_p()
        found = self._nvml.nvmlDeviceGetHandleByUUID(
            ctypes.c_char_p(uuid.encode()), ctypes.byref(self._handle)
        )
        self._check("nvmlDeviceGetHandleByUUID", found)
        self.read()

    def read(self) -> float:
        """Bytes/s over the last 20 ms or so. Blocks about that long."""
        value = ctypes.c_uint()
        told = self._nvml.nvmlDeviceGetPcieThroughput(
            self._handle, ctypes.c_uint(RX_BYTES), ctypes.byref(value)
        )
        self._check("nvmlDeviceGetPcieThroughput", told)
        return value.value * UNIT_BYTES

    @staticmethod
    def _check(name: str, code: int) -> None:
        if code != 0:
            raise OSError(f"{name}: NVML says {code}")


@contextmanager
def watched(uuid: str, library: Any = None) -> Iterator[Samples]:
    """Samples of a block, taken by a thread. uuid: of the GPU ("GPU-..."). library: in place of the driver's."""
    samples, over = Samples(), threading.Event()
    try:
        counter = Counter(uuid, library)
    except (OSError, AttributeError) as error:
        samples.why_none = str(error)
        yield samples
        return

    def look() -> None:
        while not over.wait(PAUSE_S):
            began = time.monotonic()
            try:
                rate = counter.read()
            except OSError as error:
                samples.why_none = str(error)
                return
            samples.taken.append(Sample(began, time.monotonic(), rate))

    watcher = threading.Thread(target=look, name="bench-pcie", daemon=True)
    watcher.start()
    try:
        yield samples
    finally:
        over.set()
        watcher.join()
