"""Where slabs come from: ordinary pages, pages locked for a device, or nowhere.

Problem. Page-locking through the driver's own allocator costs about half a second per GiB, mostly spent on
touching small pages one after another. A mapping asked to use huge pages, touched first and registered
afterwards, costs a fraction of that. Registration has limits of its own: drivers refuse ranges of 512 GiB
and more, and a return code that nobody looks at comes back later as a false out-of-memory.

Design. Upstreams nest: `RegisteringUpstream(PagesUpstream(), register, unregister)`. This floor knows no
device; the two callables come from whoever owns one. Slabs are private to the process, left out of core
dumps and not inherited by a fork (a page-locked page must never become copy-on-write).

Life of a slab. made (mapped, touched: the pages exist from here on) -> ranges leased by the pool -> closed:
unregistered first, then unmapped.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cuzkd.errors import Exhausted

PAGE_BYTES = mmap.PAGESIZE
REGISTER_CHUNK_BYTES = 64 << 30


def round_to_pages(nbytes: int) -> int:
    return -(-nbytes // PAGE_BYTES) * PAGE_BYTES


@dataclass
class Slab:
    """A page-aligned mapping. `nbytes` is exact: what the operating system gave, a multiple of the page
    size.
    """

    nbytes: int
    address: int
    view: memoryview
    on_close: list[Callable[[], None]] = field(default_factory=list)

    def close(self) -> None:
        """Undo the making, newest step first; every step is taken, the first error is raised. Idempotent."""
        errors: list[Exception] = []
        while self.on_close:
            try:
                self.on_close.pop()()
            except Exception as error:  # the mapping must go even when the driver will not unregister it
                errors.append(error)
        if errors:
            raise errors[0]


class Upstream(Protocol):
    name: str

    def make(self, nbytes: int) -> Slab:
        """A slab of at least nbytes, rounded up to whole pages. Raises Exhausted, naming the bytes asked."""


def map_pages(nbytes: int) -> tuple[mmap.mmap, Slab]:
    """A private anonymous mapping, in whole pages, none of which is there yet. Raises Exhausted."""
    size = round_to_pages(max(nbytes, 1))
    try:
        mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise Exhausted(f"mapping a slab of {size} bytes failed: {error}") from error
    view = memoryview(mapping)

    def unmap() -> None:
        view.release()
        mapping.close()

    return mapping, Slab(size, int(np.frombuffer(view, np.uint8).ctypes.data), view, [unmap])


class PagesUpstream:
    """Anonymous private pages, huge where the kernel has them, all of them touched by `threads` threads.

    huge: False asks for pages of the ordinary size alone, to see what the others are worth.
    """

    name = "pages"

    def __init__(self, threads: int = 1, huge: bool = True) -> None:
        self._threads = max(1, threads)
        self._huge = huge

    def make(self, nbytes: int) -> Slab:
        mapping, slab = map_pages(nbytes)
        for advice in (mmap.MADV_DONTDUMP, mmap.MADV_DONTFORK):
            mapping.madvise(advice)
        with contextlib.suppress(OSError):  # a kernel without huge pages: slower to make, no less right
            mapping.madvise(mmap.MADV_HUGEPAGE if self._huge else mmap.MADV_NOHUGEPAGE)
        self._touch(np.frombuffer(slab.view, np.uint8))
        return slab

    def _touch(self, whole: NDArray[np.uint8]) -> None:
        """One write to each page: the system makes and clears it. Takes four fifths of the time of clearing it again,
        and a tenth of MADV_POPULATE_WRITE, which goes through huge pages in small steps.
        """
        share = round_to_pages(-(-len(whole) // self._threads))

        def touch(at: int) -> None:
            whole[at : at + share : PAGE_BYTES] = 0  # NumPy releases the GIL

        with ThreadPoolExecutor(self._threads) as threads:
            list(threads.map(touch, range(0, len(whole), share)))


class RegisteringUpstream:
    """Slabs of another upstream, page-locked in chunks.

    register(address, nbytes) and unregister(address) check their driver's return code and raise one of
    cuzkd.errors.
    """

    def __init__(
        self,
        upstream: Upstream,
        register: Callable[[int, int], None],
        unregister: Callable[[int], None],
        chunk_bytes: int = REGISTER_CHUNK_BYTES,
    ) -> None:
        self.name = f"registered {upstream.name}"
        self._upstream = upstream
        self._register = register
        self._unregister = unregister
        self._chunk_bytes = chunk_bytes

    def make(self, nbytes: int) -> Slab:
        """Raises Exhausted, naming chunk and slab, when the driver has no more; nothing stays registered
        then.
        """
        slab = self._upstream.make(nbytes)
        for at in range(0, slab.nbytes, self._chunk_bytes):
            size = min(self._chunk_bytes, slab.nbytes - at)
            try:
                self._register(slab.address + at, size)
            except BaseException as error:
                slab.close()
                if isinstance(error, Exhausted):
                    where = f"{size} bytes at offset {at} of a slab of {slab.nbytes} bytes"
                    raise Exhausted(f"page-locking {where}: {error}") from error
                raise
            slab.on_close.append(partial(self._unregister, slab.address + at))
        return slab


class FailingUpstream:
    """For tests: the first `good` slabs are made, every later one fails as a full machine would."""

    name = "failing"

    def __init__(self, upstream: Upstream, good: int = 0) -> None:
        self._upstream = upstream
        self.good = good

    def make(self, nbytes: int) -> Slab:
        if self.good <= 0:
            raise Exhausted(f"mapping a slab of {nbytes} bytes failed: out of memory")
        self.good -= 1
        return self._upstream.make(nbytes)
