"""Which backend: by name, or the best that this machine has.

Modules are imported only when asked for: a machine without cupy, or a process that must not touch a device,
never imports it.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import cast

from cuzkd.backend.protocol import Backend
from cuzkd.errors import DeviceFault, Exhausted, Unavailable

NAMES = ("cpu", "cuda", "reference", "auto")
INSTALL = "install cuzkd[cuda12] (or cuzkd[cuda13]) on a machine with an NVIDIA driver"


@dataclass(frozen=True)
class Choice:
    """A backend, and in one line for the log why it is this one."""

    backend: Backend
    reason: str


def choose(name: str, vram_bytes: int = 0) -> Choice:
    """The backend called `name`; with "auto" cuda where a device answers, else cpu. vram_bytes: what a device may use
    of its memory; 0: what is free.

    Raises Unavailable when it cannot be had here, saying what to install; "auto" never does for want of a
    GPU.
    """
    if name == "auto":
        try:
            return Choice(_cuda(vram_bytes), "auto: a CUDA device answers")
        except (Unavailable, DeviceFault, Exhausted) as error:
            return Choice(_cpu(), f"auto: cpu, because {error}")
    if name == "cpu":
        return Choice(_cpu(), "cpu: asked for")
    if name == "cuda":
        return Choice(_cuda(vram_bytes), "cuda: asked for")
    if name == "reference":
        from cuzkd.backend.reference import ReferenceBackend

        return Choice(cast(Backend, ReferenceBackend()), "reference: asked for")
    raise ValueError(f"backend: expected one of {', '.join(NAMES)}, got '{name}'")


def load(name: str) -> Backend:
    """choose(), without the reason."""
    return choose(name).backend


# The casts: a backend takes only its own keys and uploads, which the protocol cannot express.


def _cpu() -> Backend:
    try:
        from cuzkd.backend.cpu import CpuBackend
    except ImportError as error:
        raise Unavailable(f"the native module cuzkd.kernels._native does not load: {error}") from error
    return cast(Backend, CpuBackend())


def _cuda(vram_bytes: int) -> Backend:
    try:
        importlib.import_module("cupy")
    except ImportError as error:
        raise Unavailable(f"backend cuda needs cupy ({error}): {INSTALL}") from error
    from cuzkd.backend.cuda import CudaBackend

    return cast(Backend, CudaBackend(limit_bytes=vram_bytes))
