"""What proofs with a key will take of device memory, known before anything is on the device.

Problem: a proof that runs out of memory has cost its time, and memory asked for amid a proof makes the device wait. How
much a proof takes depends on all that is enqueued for it, in four files.
Design: a *dry run*. The code that enqueues a proof walks over lanes that launch nothing and copy nothing, but note
every buffer that comes and goes (`DryLane`); its grids and buffers follow from sizes alone, so it takes the same way
as the real one. What was noted is played through the pool's rule, best fit in one block, and the smallest block that
serves it is what the lane is to keep (`Lane.reserve`). `plan_for` goes through ways of using a device, the fastest
first, and takes the first that fits: all points resident or some streamed (cuda_stream.py), the next upload beside a
proof or not, larger or smaller groups of windows.
Life of the data: a KeyShape and bytes of memory -> MemoryPlan, which is kept with the key.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from cuzkd import errors
from cuzkd.backend.cuda_density import MOST_DENSE, TOGETHER
from cuzkd.backend.cuda_device import Buffer
from cuzkd.backend.cuda_lists import Density
from cuzkd.backend.cuda_msm import Sums, Table
from cuzkd.backend.cuda_ntt import FR_BYTES, Transforms
from cuzkd.backend.cuda_run import Batch
from cuzkd.backend.cuda_stream import ALIGNED, OVER_H, OVER_Z, SLOTS, Chunk, Parked, point_bytes
from cuzkd.backend.cuda_tables import best_table
from cuzkd.backend.cuda_upload import Columns, Memory
from cuzkd.backend.protocol import QUERIES, KeyShape
from cuzkd.curves.params import CURVES

UNIT = 512  # bytes that a buffer of the pool takes a multiple of
MOST_CHUNKS = 4096  # of a proof: more would take their time in launches alone
LEAST_TABLE = 1 << 16  # points: of fewer a sum takes the time of its rounds, whatever there is to add in them
TABLE_SHARE = 4  # of the memory that is left, for a table: other keys want some, and matrices
MARGIN = 32  # a plan leaves a 32nd of the memory, for what the pool's rule makes of it in another order
SLOT_BYTES = (
    1 << 30,
    1 << 28,
    1 << 26,
    1 << 24,
    1 << 20,
    1 << 16,
)  # of a buffer for streamed points, the fastest first


@dataclass(frozen=True)
class MemoryPlan:
    """How proofs with a key use device memory. uploads: that are there at a time; one, and none crosses beside a proof.
    streamed: queries whose points pass through buffers of slot_bytes. parked: the witness waits on the host until the
    quotient is made. evaluating: the device makes a and b. table: of the H query (cuda_tables.py).
    The rest are bytes: of points and matrices, of tables, of an upload, and of what the two lanes of kernels keep.
    """

    uploads: int
    parallel_g2: bool
    group_bytes: int = 0  # of cuda_msm.Sums; 0: its own
    streamed: tuple[str, ...] = ()
    slot_bytes: int = 0
    parked: bool = False
    evaluating: bool = False
    table: Table | None = None
    resident_bytes: int = 0
    table_bytes: int = 0
    upload_bytes: int = 0
    scratch_bytes: int = 0
    side_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        working = self.table_bytes + self.uploads * self.upload_bytes + self.scratch_bytes + self.side_bytes
        return self.resident_bytes + working


class _Noted:
    """An address in a DryLane."""

    ptr = UNIT

    def __init__(self, lane: DryLane, nbytes: int) -> None:
        self._lane, self._number = lane, len(lane.sizes)
        lane.sizes.append(-(-max(nbytes, 1) // UNIT) * UNIT)
        lane.trace.append(self._number)

    def __del__(self) -> None:
        self._lane.trace.append(~self._number)


class DryLane:
    """cuda_device.Lane, on which nothing happens. trace: number i for a buffer of sizes[i] that came, ~i for one that
    went. launches: kernels so far.
    """

    def __init__(self, device: Any, name: str) -> None:
        self.device, self.name = device, name
        self.sizes: list[int] = []
        self.trace: list[int] = []
        self.launches = 0

    def scratch(self, nbytes: int) -> Buffer:
        return Buffer(_Noted(self, nbytes), nbytes)

    zeros = scratch

    def put(self, array: np.ndarray[Any, Any]) -> Buffer:
        return self.scratch(array.nbytes)

    def launch(self, *_: Any, shared_bytes: int = 0) -> None:
        self.launches += 1

    def nothing(self, *_: Any) -> None:
        """Waits, copies and clears take no memory."""

    record = wait = clear = copy_in = copy_out = reserve = nothing

    def event(self) -> Any:
        return None


def arena_bytes(sizes: Sequence[int], trace: Sequence[int]) -> int:
    """Of the smallest block, by some steps, in which the pool's rule serves a trace (DryLane)."""
    most, live, there = 0, 0, set()
    for i in trace:
        if i >= 0:
            there.add(i)
            live += sizes[i]
        elif ~i in there:  # else it came before the trace began
            live -= sizes[~i]
        most = max(most, live)
    while (short := _misfit(sizes, trace, most)) is not None:
        most += short
    return most


def _misfit(sizes: Sequence[int], trace: Sequence[int], block: int) -> int | None:
    """The size of the first buffer that finds no place in a block of so many bytes, or None."""
    free = [(0, block)]  # [begin, end), in order
    places: dict[int, tuple[int, int]] = {}
    for i in trace:
        if i >= 0:
            fitting = [(end - begin, begin, end) for begin, end in free if end - begin >= sizes[i]]
            if not fitting:
                return sizes[i]
            _, begin, end = min(fitting)
            free.remove((begin, end))
            places[i] = begin, begin + sizes[i]
            if begin + sizes[i] < end:
                bisect.insort(free, (begin + sizes[i], end))
        elif ~i in places:
            begin, end = places.pop(~i)
            at = bisect.bisect(free, (begin, end))
            if at < len(free) and free[at][0] == end:
                end = free.pop(at)[1]
            if at and free[at - 1][1] == begin:
                at -= 1
                begin = free.pop(at)[0]
            free.insert(at, (begin, end))
    return None


class _DryBatch(Batch):
    """Of the chunks of a streamed key it takes the first ones and the last, over either scalars: others are like
    these."""

    def _chunks(self, slot_bytes: int) -> Iterator[Chunk]:
        for over_h in (True, False):
            few: list[Chunk] = []
            for chunk in super()._chunks(slot_bytes):
                if chunk.over_h == over_h:
                    few = [*few[:SLOTS], chunk]
            yield from few


class DryRun:
    """A backend without a device, but as large as one, for cuda_run.Batch. Tables are made once for all plans of a
    shape, for which several threads may ask.
    """

    def __init__(self, shape: KeyShape, device: Any) -> None:
        self.shape = shape
        self.gpu = SimpleNamespace(
            processors=device.processors,
            total_bytes=device.total_bytes,
            shared_bytes=device.shared_bytes,
            locked=lambda nbytes: SimpleNamespace(ptr=0),
        )
        self.lanes = {name: DryLane(self.gpu, name) for name in ("copy", "compute", "side", "keys")}
        vars(self.gpu).update(self.lanes)
        compute = cast(Any, self.lanes["compute"])
        self.parallel_g2 = False
        self._lock = threading.Lock()  # over the lanes and parallel_g2
        self._transforms = Transforms(compute, shape.curve, shape.root_family)
        self._transforms.prepare(shape.log_domain)
        self.table_bytes = arena_bytes(compute.sizes, compute.trace)

    def transforms(self, curve: str, root_family: int) -> Transforms:
        return self._transforms

    def sums(self, curve: str, lane: Any, group_bytes: int = 0) -> Sums:
        sums = Sums(lane, curve)
        sums.group_bytes = group_bytes or sums.group_bytes
        return sums

    def of(
        self, plan: MemoryPlan, matrix_bytes: int = 0, batch: int = 1, room: int | None = None
    ) -> MemoryPlan:
        """The plan with its bytes. matrix_bytes: of A and B, where it is evaluating. room: what it has to fit into;
        where points, tables and uploads alone do not, what lanes keep is left out.
        """
        shape, column = self.shape, FR_BYTES * self.shape.domain
        resident = {
            q: point_bytes(shape, q) * shape.shape_of(q)[0] for q in QUERIES if q not in plan.streamed
        }
        if plan.table is not None:
            resident["h_g1"] *= plan.table.copies
        bases = {q: Buffer(SimpleNamespace(ptr=UNIT), nbytes) for q, nbytes in resident.items()}
        host = {q: np.broadcast_to(np.uint64(0), shape.shape_of(q)) for q in plan.streamed}
        matrix = SimpleNamespace(n_rows=shape.n_rows or shape.domain, multiply=lambda *_: None)
        key = SimpleNamespace(
            shape=shape,
            bases=bases,
            host=host,
            densities=None,  # below
            tables={} if plan.table is None else {"h_g1": plan.table},
            streamed=plan.streamed,
            plan=plan,
            matrices=(matrix, matrix),
        )
        z = FR_BYTES * shape.n_wires
        no_array = np.empty((0, 4), np.uint64)

        def upload() -> Any:
            fixed = SimpleNamespace(ptr=UNIT)
            columns = None if plan.evaluating else Columns(Buffer(fixed, 3 * column), matrix.n_rows, 2)
            witness = Parked(no_array, lambda: None) if plan.parked else Buffer(fixed, z)
            return SimpleNamespace(key=key, landed=None, take=lambda: Memory(witness, columns))

        plan = replace(
            plan,
            resident_bytes=sum(resident.values()) + matrix_bytes,
            table_bytes=self.table_bytes,
            upload_bytes=(0 if plan.parked else z) + (0 if plan.evaluating else 3 * column),
        )
        if room is not None and plan.total_bytes > room:
            return plan
        compute = side = 0
        with self._lock:
            self.parallel_g2 = plan.parallel_g2
            for key.densities in [{}] if plan.streamed else [{}, self._thin()]:
                for lane in self.lanes.values():
                    lane.trace.clear()
                _DryBatch(cast(Any, self), [upload() for _ in range(batch)], paced=False)
                kept = (
                    arena_bytes(lane.sizes, lane.trace)
                    for lane in (self.lanes["compute"], self.lanes["side"])
                )
                compute, side = map(max, (compute, side), kept)
        return replace(plan, scratch_bytes=compute, side_bytes=side)

    def _thin(self) -> dict[str, Density]:
        """Densities (cuda_density.py) that take the most memory: points as they are, but lists for each."""
        bases, nowhere = int(MOST_DENSE * self.shape.n_wires), Buffer(SimpleNamespace(ptr=UNIT), 0)
        return {q: density for queries in TOGETHER for density in [Density(nowhere, bases)] for q in queries}


def plan_for(
    dry: DryRun,
    room_bytes: int,
    parallel_g2: bool,
    matrix_bytes: int | None = None,
    table: Table | None = None,
) -> MemoryPlan:
    """The first of `ways` that leaves a MARGINth of room_bytes. matrix_bytes: the device is to make a and b from
    matrices of so many. table: there is one for H. NeverFits, with what the last of them takes.
    """
    room = room_bytes - room_bytes // MARGIN
    least: MemoryPlan | None = None
    for way in ways(dry, room, parallel_g2, matrix_bytes is not None):
        fitted = replace(way, table=None if way.streamed else table)
        least = dry.of(fitted, matrix_bytes or 0, room=room)
        if least.total_bytes <= room:
            return least
    assert least is not None
    raise errors.NeverFits(
        f"proofs over 2^{dry.shape.log_domain} rows and {dry.shape.n_wires} wires take at least {least.total_bytes} "
        f"bytes of device memory; there are {room} of {room_bytes}"
    )


def with_table(dry: DryRun, plan: MemoryPlan, room_bytes: int) -> MemoryPlan:
    """The plan with a table for H in a TABLE_SHAREth of what it leaves of room_bytes, if that helps."""
    shape, left = dry.shape, room_bytes - room_bytes // MARGIN - plan.total_bytes
    point = point_bytes(shape, "h_g1")
    bits = CURVES[shape.curve].r.bit_length()
    table = best_table(shape.domain, bits, point, max(0, left) // TABLE_SHARE)
    if table is None or plan.streamed or shape.domain < LEAST_TABLE:
        return plan
    made = dry.of(replace(plan, table=table))
    return made if made.total_bytes - plan.total_bytes <= left else plan


def ways(dry: DryRun, room: int, parallel_g2: bool, evaluating: bool) -> Iterator[MemoryPlan]:
    """Plans without their bytes, the fastest first."""
    small = max(1, dry.sums(dry.shape.curve, dry.lanes["compute"]).group_bytes // 8)
    for uploads in (2, 1):
        if parallel_g2:
            yield MemoryPlan(uploads, True, evaluating=evaluating)
        yield MemoryPlan(uploads, False, evaluating=evaluating)
        yield MemoryPlan(uploads, False, small, evaluating=evaluating)
    if evaluating:  # matrices take room that points would rather have
        return
    least = None
    for uploads in (2, 1):
        for slot_bytes in SLOT_BYTES:
            if least is not None and dry.shape.points_bytes > MOST_CHUNKS * slot_bytes:
                continue
            for group in (0, small):
                least = MemoryPlan(uploads, False, group, QUERIES, slot_bytes)
                left = room - dry.of(least, room=room).total_bytes
                if left >= 0:
                    yield replace(least, streamed=_streamed(dry.shape, left))
    assert least is not None
    column, z = FR_BYTES * dry.shape.domain, FR_BYTES * dry.shape.n_wires + ALIGNED
    for slot_bytes in SLOT_BYTES:
        if z + SLOTS * slot_bytes <= 2 * column and dry.shape.points_bytes <= MOST_CHUNKS * slot_bytes:
            least = replace(least, uploads=1, slot_bytes=slot_bytes, parked=True)
            yield least
    yield least  # which does not fit either


def _streamed(shape: KeyShape, left: int) -> tuple[str, ...]:
    """Queries that find no room in so many bytes, those over the witness being kept first."""
    streamed = []
    for query in (*OVER_Z, *OVER_H):
        nbytes = point_bytes(shape, query) * shape.shape_of(query)[0]
        if nbytes <= left:
            left -= nbytes
        else:
            streamed.append(query)
    return tuple(streamed)
