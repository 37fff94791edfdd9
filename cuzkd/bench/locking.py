"""Vectors that are page-locked where they are: what is registered, when, and by whom it is undone.

Problem. One partition's vectors can be registered around their copy by whoever copies them. To register those of a
whole group together, as the original did, the group must be complete first and nobody may wait for himself.
Design. `register_all` does and undoes a list of ranges as one. `RegisterAll` is a transfer with a memory: who waits to
be registered, who is, and who is still to cross.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial

from cuzkd.backend.protocol import Backend
from cuzkd.bench.slabs import Pinning
from cuzkd.engine.prover.partition import Partition, Vectors
from cuzkd.engine.prover.transfer import copy_up

RECHECK_S = 0.005

Extent = tuple[int, int]  # address, bytes


def extents(vectors: Vectors) -> list[Extent]:
    """Where each vector lies, in the order z, a, b, c."""
    arrays = (vectors.z, vectors.a, vectors.b, vectors.c)
    return [(array.ctypes.data, array.nbytes) for array in arrays if array is not None]


def register_all(pinning: Pinning, ranges: Iterable[Extent]) -> ExitStack:
    """Page-lock each range; closing what is returned undoes it. On an error nothing stays locked."""
    with ExitStack() as undo:
        for address, nbytes in ranges:
            pinning.register(address, nbytes)
            undo.callback(pinning.unregister, address)
        return undo.pop_all()


class RegisterAll:
    """Vectors of a whole group are page-locked before the first of it may cross, until the last of it is through.

    A group is complete when `size` partitions are made; then the first to be uploaded registers for all. The last to
    be let go of (proved, failed, cancelled) unregisters for all, and only then the next group's turn comes. Meanwhile
    memory that was copied already may go to partitions of the next group, which are written into it while it is still
    locked: no harm in that.

    Uploads come from one thread. It waits for partitions that others make and finish, never for one that it would have
    to upload itself: a stranger who comes while members of a group are still to cross (one that is proved once more)
    is copied as it is. Its memory may be in ranges of the group, so it cannot be registered.
    """

    name = "register-all"
    columns = "abc"
    holding_device = False

    def __init__(self, backend: Backend, pinning: Pinning, size: Callable[[], int]) -> None:
        """size: of a group, as things stand."""
        self._backend = backend
        self._pinning = pinning
        self._size = size
        self._changed = threading.Condition()  # over all below; never held while something is (un)registered
        self._waiting: list[Partition] = []  # made, of no group yet
        self._group: set[Partition] = set()  # page-locked, and not through
        self._to_cross: set[Partition] = set()  # those of the group that are still to be uploaded
        self._locked = ExitStack()

    def made(self, partition: Partition) -> None:
        with self._changed:
            self._waiting.append(partition)
            partition.hold("group", partial(self._leave, partition))
            self._changed.notify_all()

    def upload(self, partition: Partition) -> None:
        began = time.monotonic()
        members, ranges = self._group_with(partition)
        if members:
            partition.add("gpu_wait", began)
            with partition.timed("pin"):
                locked = register_all(self._pinning, ranges)
            self._join(members, locked)
        copy_up(self._backend, partition)
        with self._changed:
            self._to_cross.discard(partition)

    def _group_with(self, partition: Partition) -> tuple[list[Partition], list[Extent]]:
        """Who is to be page-locked now, and what; nobody, if it has its group or is a stranger.

        Waits for the others. Raises Cancelled meanwhile.
        """
        with self._changed:
            if partition in self._group:
                return [], []
            if self._to_cross:
                self._waiting.remove(partition)
                return [], []
            while self._group or len(self._waiting) < self._size():
                partition.check()
                self._changed.wait(RECHECK_S)  # also for the size, whose changes nobody tells
            made = [member.vectors for member in self._waiting]
            ranges = [extent for vectors in made if vectors is not None for extent in extents(vectors)]
            return list(self._waiting), ranges

    def _join(self, members: list[Partition], locked: ExitStack) -> None:
        with self._changed:
            joined = [member for member in members if member in self._waiting]  # but not who left meanwhile
            self._waiting = [other for other in self._waiting if other not in joined]
            self._group.update(joined)
            self._to_cross.update(joined)
            self._locked.callback(locked.close)

    def _leave(self, partition: Partition) -> None:
        """Called once for each that was made, by whoever lets it go."""
        with self._changed:
            if partition in self._waiting:
                self._waiting.remove(partition)
            self._to_cross.discard(partition)
            last = self._group == {partition}
            if not last:
                self._group.discard(partition)
            locked = self._locked.pop_all() if last else ExitStack()
        try:
            if last:
                with partition.timed("unpin"):
                    locked.close()
        finally:
            with self._changed:
                self._group.discard(partition)
                self._changed.notify_all()
