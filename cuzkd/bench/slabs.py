"""Host memory of a bench: made once, used by one regime after another; and what making and locking it cost.

Problem. Touching the pages of four partitions at full size takes three seconds, registering them half of that. A dozen
regimes that each made their own would spend most of a bench on it.
Design. `KeptPages` is an upstream whose slabs come back to it when a pool closes them, and go to the next pool.
Whether they are page-locked meanwhile is the business of whatever is nested around it. Their cost is not lost: each
slab remembers what its making took, and whoever is given it is charged that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from cuzkd.backend.protocol import Backend
from cuzkd.memory.upstream import Slab, Upstream, round_to_pages


@dataclass(frozen=True)
class Pinning:
    """register(address, nbytes) and unregister(address) page-lock memory and undo it: cudaHostRegister, or what stands
    in for it. They raise cuzkd.errors.
    """

    register: Callable[[int, int], None]
    unregister: Callable[[int], None]


def pinning_of(backend: Backend) -> Pinning | None:
    """The device's; None where there is none to copy to."""
    if backend.name != "cuda":
        return None
    from cuzkd.backend import cuda  # needs cupy, which is there if the backend is

    return Pinning(cuda.register_host, cuda.unregister_host)


class TimedPinning:
    """A Pinning that adds up seconds. One thread at a time."""

    def __init__(self, pinning: Pinning) -> None:
        self._pinning = pinning
        self.register_s = self.unregister_s = 0.0

    def register(self, address: int, nbytes: int) -> None:
        began = time.monotonic()
        self._pinning.register(address, nbytes)
        self.register_s += time.monotonic() - began

    def unregister(self, address: int) -> None:
        began = time.monotonic()
        self._pinning.unregister(address)
        self.unregister_s += time.monotonic() - began


@dataclass(eq=False)
class _Kept:
    """A slab of the inner upstream, and the seconds that its making took."""

    slab: Slab
    made_s: float


@dataclass
class KeptPages:
    """See the module docstring. A slab holds whatever its last user left, so it is for one bench's witnesses alone.

    bytes_made, made_s: of slabs made so far. charged_s: what the slabs handed out so far took, those used again
    included.
    """

    inner: Upstream
    name: str = "kept pages"
    bytes_made: int = 0
    made_s: float = 0.0
    charged_s: float = 0.0
    _idle: list[_Kept] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def make(self, nbytes: int) -> Slab:
        """An idle slab of just this size (in pages), or a new one. Raises what the inner upstream raises."""
        size = round_to_pages(max(nbytes, 1))
        with self._lock:
            kept = next((one for one in self._idle if one.slab.nbytes == size), None)
            if kept is not None:
                self._idle.remove(kept)
        if kept is None:
            began = time.monotonic()
            slab = self.inner.make(size)
            kept = _Kept(slab, time.monotonic() - began)
            with self._lock:
                self.bytes_made += slab.nbytes
                self.made_s += kept.made_s
        with self._lock:
            self.charged_s += kept.made_s
        return Slab(kept.slab.nbytes, kept.slab.address, kept.slab.view, [partial(self._keep, kept)])

    def _keep(self, kept: _Kept) -> None:
        with self._lock:
            self._idle.append(kept)

    def close(self) -> None:
        """Unmap what is idle: everything, once the pools over it are closed."""
        with self._lock:
            idle, self._idle = self._idle, []
        for kept in idle:
            kept.slab.close()
