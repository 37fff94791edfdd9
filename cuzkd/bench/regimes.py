"""Ways for a partition's vectors to reach the device, to be compared with everything else the same.

Problem. Pageable copies, pinning in place, staging, zero-copy: each has been argued for with numbers of its own
machine and its own program. Only side by side, in one engine, do they say anything.
Design. Each is an engine.prover.transfer.Transfer. Synthesis, queues, mutex and kernels are the daemon's; so is the
copy itself (`copy_up`), but for the one that copies through a ring. A regime differs in the kind of memory that its
vectors are made in, and in what happens to them around the copy: spans `pin`, `stage_copy`, `unpin`, all in the thread
that feeds the device.
Life. REGIMES[name].opened(place) -> the transfer, given to a pipeline -> at the block's end what was made beforehand
(staging buffers, threads) goes back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from cuzkd.backend.protocol import U64, Backend
from cuzkd.bench.locking import RegisterAll, extents, register_all
from cuzkd.bench.slabs import Pinning
from cuzkd.engine.prover.device import on_device
from cuzkd.engine.prover.partition import Partition, Vectors
from cuzkd.engine.prover.transfer import Transfer, ZeroCopy, copy_up
from cuzkd.errors import LeaseRevoked
from cuzkd.memory.budget import Budget
from cuzkd.memory.lease import Lease
from cuzkd.memory.pool import PinnedPool
from cuzkd.memory.upstream import RegisteringUpstream, Upstream, round_to_pages

PIECE_BYTES = 32 << 20  # what a staging thread copies at a time


@dataclass
class Place:
    """What regimes are made of.

    pages: ordinary memory. threads: as many as there are, for "all" of them.
    sizes: bytes of z, a, b, c of one partition, for what is made beforehand.
    in_flight: partitions under way at a time, and of a group that is registered together. The pipeline must let as
    many have vectors (Setting.ready_target), or a group would never be complete.
    pending: partitions of the run that have no answer yet, those to come included (Pipeline.pending).
    ring: a new ring of small page-locked pieces. attach, detach: give the device the matrices, so that it can
    evaluate, and take them away.
    """

    backend: Backend
    pinning: Pinning
    pages: Upstream
    threads: int
    sizes: Sequence[int]
    in_flight: int
    pending: Callable[[], int]
    ring: Callable[[], Any]
    attach: Callable[[], None]
    detach: Callable[[], None]

    def group(self) -> int:
        """Partitions that are to be registered together: all in flight, or what is left at the end of a run."""
        return min(self.in_flight, self.pending())

    @property
    def locked(self) -> Upstream:
        """Page-locked memory."""
        return RegisteringUpstream(self.pages, self.pinning.register, self.pinning.unregister)


# -- copied from where they are ------------------------------------------------------------------------------


class Direct(ZeroCopy):
    """The engine's own way, whatever kind of memory the vectors are in."""

    def __init__(
        self, backend: Backend, name: str, columns: str = "abc", holding_device: bool = False
    ) -> None:
        super().__init__(backend)
        self.name = name
        self.columns = columns
        self.holding_device = holding_device


# -- page-locked where they are ------------------------------------------------------------------------------


class Register:
    """Each vector is page-locked for its copy alone."""

    columns = "abc"

    def __init__(self, backend: Backend, pinning: Pinning, name: str, holding_device: bool = False) -> None:
        self.name = name
        self.holding_device = holding_device
        self._backend = backend
        self._pinning = pinning

    def made(self, partition: Partition) -> None:
        """Nothing is done to them before it is their turn."""

    def upload(self, partition: Partition) -> None:
        with partition.timed("pin"):
            locked = register_all(self._pinning, extents(partition.made))
        try:
            copy_up(self._backend, partition)
        finally:
            with partition.timed("unpin"):
                locked.close()


# -- copied on the host first --------------------------------------------------------------------------------


class Copier:
    """memcpy by a number of threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="stage")

    def copy(self, moves: Iterable[tuple[int, int, int]]) -> None:
        """(to, from, bytes), in pieces that the threads take in turn; done on return."""
        pieces = [
            (to + at, source + at, min(PIECE_BYTES, nbytes - at))
            for to, source, nbytes in moves
            for at in range(0, nbytes, PIECE_BYTES)
        ]
        for _ in self._pool.map(lambda piece: ctypes.memmove(*piece), pieces):  # releases the GIL
            pass

    def close(self) -> None:
        self._pool.shutdown()


class Staged:
    """Vectors are copied into page-locked buffers, made beforehand, and cross from there."""

    columns = "abc"
    holding_device = False

    def __init__(self, place: Place, name: str, buffers: PinnedPool, copier: Copier) -> None:
        self.name = name
        self._backend = place.backend
        self._buffers = buffers
        self._copier = copier

    def made(self, partition: Partition) -> None:
        """They stay in ordinary memory until there is a buffer."""

    def upload(self, partition: Partition) -> None:
        sizes = [nbytes for _, nbytes in extents(partition.made)]
        leases = self._buffers.lease_all(sizes, owner=partition.digest, give_up=partition.cancelled.is_set)
        try:
            with partition.timed("stage_copy"):
                self._copier.copy(
                    (lease.address, source, nbytes)
                    for lease, (source, nbytes) in zip(leases, extents(partition.made), strict=True)
                )
            # No name for the arrays: a lease ends only when nobody looks at it.
            copy_up(self._backend, partition, _like(partition.made, iter(leases)))
        except BaseException:
            for lease in leases:
                with suppress(
                    LeaseRevoked
                ):  # the error's frames may look at it; the range comes back with them
                    lease.release()
            raise
        for lease in leases:
            lease.release()


def _like(vectors: Vectors, leases: Iterator[Lease]) -> Vectors:
    """Vectors of the same shapes, in leases that come in the order z, a, b, c."""

    def place(array: U64 | None) -> Any:
        return None if array is None else next(leases).array("uint64", array.shape)

    return Vectors(place(vectors.z), place(vectors.a), place(vectors.b), place(vectors.c))


def _staged(place: Place, name: str, threads: int, stack: ExitStack) -> Transfer:
    buffers = PinnedPool(place.locked, Budget(1 << 62), wipe=False)  # all of it is one bench's data
    stack.callback(buffers.close)
    buffers.lease(sum(map(round_to_pages, place.sizes))).release()  # made now, not on a partition's path
    copier = Copier(threads)
    stack.callback(copier.close)
    return Staged(place, name, buffers, copier)


class Overlapped:
    """Copied by several threads through a ring of small page-locked pieces: one is filled while others cross."""

    columns = "abc"
    holding_device = False

    def __init__(self, place: Place, name: str, ring: Any) -> None:
        self.name = name
        self._backend: Any = place.backend  # only a device's upload knows rings
        self._ring = ring

    def made(self, partition: Partition) -> None:
        """They stay in ordinary memory."""

    def upload(self, partition: Partition) -> None:
        made = partition.made
        with on_device("upload"):
            partition.upload = self._backend.upload(
                partition.key.loaded, made.a, made.b, made.c, made.z, ring=self._ring
            )
            partition.upload.wait()


# -- the table -----------------------------------------------------------------------------------------------


def _device_eval(place: Place, name: str, stack: ExitStack) -> Transfer:
    place.attach()
    stack.callback(place.detach)
    return Direct(place.backend, name, columns="")


def _overlapped(place: Place, name: str, stack: ExitStack) -> Transfer:
    ring = place.ring()
    stack.callback(ring.close)
    return Overlapped(place, name, ring)


@dataclass(frozen=True)
class Regime:
    """A line of the table. says: what happens, for people. locked: vectors are made in page-locked memory.

    build(place, name, stack): the transfer; what it needs closed afterwards goes on the stack.
    """

    name: str
    says: str
    build: Callable[[Place, str, ExitStack], Transfer]
    locked: bool = False

    @contextmanager
    def opened(self, place: Place) -> Iterator[Transfer]:
        """Its transfer, for a block."""
        with ExitStack() as stack:
            yield self.build(place, self.name, stack)

    def upstream(self, place: Place) -> Upstream:
        """Where the vectors' memory is to come from."""
        return place.locked if self.locked else place.pages


STAGED_BY = {f"staged-{n or 'all'}": n for n in (1, 2, 4, 8, 0)}  # threads; 0 is all there are


def _staged_by(name: str, threads: int) -> Regime:
    by = f"{threads or 'all'} thread{'s' * (threads != 1)}"

    def build(place: Place, name: str, stack: ExitStack) -> Transfer:
        return _staged(place, name, threads or place.threads, stack)

    return Regime(name, f"copied by {by} into a page-locked buffer, then across", build)


_TABLE = (
    Regime("pageable", "ordinary memory, plain copy", lambda place, name, _: Direct(place.backend, name)),
    Regime(
        "pageable-inside",
        "the same, while the device is the partition's own",
        lambda place, name, _: Direct(place.backend, name, holding_device=True),
    ),
    Regime(
        "register",
        "page-locked for the copy, before the mutex",
        lambda place, name, _: Register(place.backend, place.pinning, name),
    ),
    Regime(
        "register-inside",
        "page-locked for the copy, inside the mutex",
        lambda place, name, _: Register(place.backend, place.pinning, name, holding_device=True),
    ),
    Regime(
        "register-all",
        "all in flight page-locked before the first crosses, until the last is through",
        lambda place, name, _: RegisterAll(place.backend, place.pinning, place.group),
    ),
    *(_staged_by(*staged) for staged in STAGED_BY.items()),
    Regime(
        "staged-overlapped",
        "through a ring of small page-locked pieces, filled while others cross",
        _overlapped,
    ),
    Regime(
        "zero-copy",
        "synthesised into page-locked memory, plain copy",
        lambda place, name, _: Direct(place.backend, name),
        locked=True,
    ),
    Regime(
        "zero-copy-ab",
        "the same without c, which the device makes (the daemon's way)",
        lambda place, name, _: Direct(place.backend, name, columns="ab"),
        locked=True,
    ),
    Regime("device-eval", "z alone crosses; the device makes the rest", _device_eval, locked=True),
)
REGIMES = {regime.name: regime for regime in _TABLE}
