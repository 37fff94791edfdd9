"""A leased range of a slab, and the proof that nobody looks at it any more.

Problem. numpy arrays over shared memory outlive whatever their maker promised. A pool that only trusts its
callers will one day hand a buffer to a new job while the last one still reads it.

Design. Every lease has one root buffer object. Memoryviews, slices of them, arrays and views of arrays all
keep that object alive, so a dead weak reference to it proves that nothing can read the range; numpy and
CPython count for us.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cuzkd.errors import LeaseRevoked
from cuzkd.memory.ranges import Range

if TYPE_CHECKING:
    from typing_extensions import Buffer

Return = Callable[[Range, str, "weakref.ref[NDArray[np.uint8]]"], None]


class Lease:
    """`nbytes` bytes, page-aligned, until `release`. Made by PinnedPool alone. A context manager.

    owner: whose data is in it. generation: unique within its pool; no later lease of the same bytes has it.
    """

    def __init__(
        self, give_back: Return, taken: Range, nbytes: int, *, owner: str, generation: int, wipe: bool
    ) -> None:
        self._give_back = give_back
        self._range = taken
        self.nbytes = nbytes
        self.owner = owner
        self.generation = generation
        self._root: NDArray[np.uint8] | None = np.frombuffer(
            taken.arena.slab.view, np.uint8, count=nbytes, offset=taken.offset
        )
        self._views: list[memoryview] = []
        if wipe:
            ctypes.memset(self.address, 0, taken.nbytes)  # releases the GIL

    @property
    def _live(self) -> NDArray[np.uint8]:
        if self._root is None:
            raise LeaseRevoked(f"lease {self.generation} of {self.nbytes} bytes was used after its end")
        return self._root

    @property
    def address(self) -> int:
        """Where it lies, for native calls. Not to be kept past the lease."""
        return self._live.ctypes.data

    def view(self) -> memoryview:
        """The bytes, writable. Raises ValueError on any use after release."""
        view = memoryview(cast("Buffer", self._live))
        self._views.append(view)
        return view

    def array(self, dtype: DTypeLike, shape: int | Sequence[int]) -> NDArray[Any]:
        """The first bytes as an array of this dtype and shape. Must be dropped before release."""
        kind = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        needed = kind.itemsize * int(np.prod(shape, dtype=np.int64))
        if needed > self.nbytes:
            raise ValueError(f"an array of {shape} {kind} is {needed} bytes, the lease holds {self.nbytes}")
        return self._live[:needed].view(kind).reshape(shape)

    def release(self) -> None:
        """End it. Idempotent. Raises LeaseRevoked, once, when a view of it is still alive; see PinnedPool."""
        if self._root is None:
            return
        for view in self._views:
            with contextlib.suppress(
                BufferError
            ):  # something made from it lives: the weak reference will tell
                view.release()
        self._views.clear()
        root = weakref.ref(self._root)
        self._root = None
        self._give_back(self._range, self.owner, root)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.release()
