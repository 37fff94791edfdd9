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
from dataclasses import dataclass
from functools import partial

from cuzkd.backend.protocol import Backend, Span
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


def traced(pinning: Pinning, spans: list[Span]) -> Pinning:
    """The same, and a span of each call: phases pin and unpin."""

    def timed(phase: str, call: Callable[[], None]) -> None:
        began = time.monotonic()
        call()
        spans.append(Span(phase, "host", began, time.monotonic() - began))

    return Pinning(
        lambda address, nbytes: timed("pin", lambda: pinning.register(address, nbytes)),
        lambda address: timed("unpin", lambda: pinning.unregister(address)),
    )


class KeptPages:
    """See the module docstring. A slab holds whatever its last user left, so it is for one bench's witnesses alone.

    bytes_made, made_s: of all slabs so far.
    """

    name = "kept pages"

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._idle: list[Slab] = []
        self._used: list[Slab] = []
        self._took_s: dict[int, float] = {}  # to make the slab at an address
        self.bytes_made = 0

    def make(self, nbytes: int) -> Slab:
        """An idle slab of just this size (in pages), or a new one. Raises what the inner upstream raises."""
        size = round_to_pages(max(nbytes, 1))
        with self._lock:
            kept = next((slab for slab in self._idle if slab.nbytes == size), None)
            if kept is not None:
                self._idle.remove(kept)
        if kept is None:
            began = time.monotonic()
            kept = self._inner.make(size)
            with self._lock:
                self._took_s[kept.address] = time.monotonic() - began
                self.bytes_made += kept.nbytes
        with self._lock:
            self._used.append(kept)
        return Slab(kept.nbytes, kept.address, kept.view, [partial(self._keep, kept)])

    def _keep(self, kept: Slab) -> None:
        with self._lock:
            self._used.remove(kept)
            self._idle.append(kept)

    @property
    def made_s(self) -> float:
        with self._lock:
            return sum(self._took_s.values())

    def in_use(self) -> tuple[int, float]:
        """Bytes of slabs that are out just now, and seconds that their making took, whenever that was."""
        with self._lock:
            return sum(s.nbytes for s in self._used), sum(self._took_s[s.address] for s in self._used)

    def close(self) -> None:
        """Unmap what is idle: everything, once the pools over it are closed."""
        with self._lock:
            idle, self._idle = self._idle, []
        for kept in idle:
            kept.close()
