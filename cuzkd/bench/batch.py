"""`cuzkd bench batch`: two jobs' partitions of one circuit in one launch set, against one after the other.

    singles   launch, wait for the sums, launch the next
    queued    launch both, then wait: what the host does between two proofs is hidden, kernels are as they were
    set       one launch set of both: kernels are shared (`launch_batch`)

The same two partitions, with vectors made beforehand in page-locked memory, in all arrangements, which take turns.
The clock runs from the first launch, when both uploads have landed, to the last sum: transfers are the same in all.

In the first round, which is not counted, each arrangement's proofs are assembled and verified; later sums must be
equal to those. A backend without launch sets has singles alone: there the others are no different.

Life of data: a Subject per size -> its `Pair` of partitions -> `Measured` by arrangement -> Report.
"""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cuzkd.backend import cpu
from cuzkd.backend.protocol import U64, Backend, MsmSums, Span, Upload
from cuzkd.bench import subject, timeline
from cuzkd.bench.report import Report, Table
from cuzkd.bench.spread import Spread
from cuzkd.bench.subject import Subject
from cuzkd.curves import limbs
from cuzkd.curves.params import CURVES
from cuzkd.engine.prover.main import upstream_for
from cuzkd.engine.prover.synthesis import FR_BYTES
from cuzkd.errors import DeviceFault, InvalidInput
from cuzkd.groth16 import prover
from cuzkd.groth16.setup import DEVELOPMENT
from cuzkd.memory.budget import Budget
from cuzkd.memory.pool import PinnedPool

SET = 2  # partitions of a launch set
SIZES = (10_000, 1 << 20)
MIN_ROUNDS = 2
CLAIMED = 1.42  # singles over sets of two, as others measured it
SUMS = ("a_g1", "b_g1", "b_g2", "l_g1", "h_g1")


@dataclass(frozen=True)
class Options:
    """sizes: constraints; none: SIZES, or the first of them where there are no launch sets. rounds: counted ones, at
    most; of each size none begins after `seconds`, but MIN_ROUNDS are made.
    """

    curve: str = "bls12_381"
    sizes: Sequence[int] = ()
    rounds: int = 20
    seconds: float = 30.0
    traces: Path | None = None  # a folder for those of each arrangement's last round


# -- arrangements --------------------------------------------------------------------------------------------

Arrangement = Callable[[Any, Sequence[Upload]], list[MsmSums]]


def singles(backend: Backend, uploads: Sequence[Upload]) -> list[MsmSums]:
    return [backend.launch(upload).result() for upload in uploads]


def queued(backend: Backend, uploads: Sequence[Upload]) -> list[MsmSums]:
    runs = [backend.launch(upload) for upload in uploads]
    return [run.result() for run in runs]


def in_a_set(backend: Any, uploads: Sequence[Upload]) -> list[MsmSums]:
    return [run.result() for run in backend.launch_batch(uploads)]


def arrangements(backend: Backend) -> dict[str, Arrangement]:
    """Those that differ on this backend, by name."""
    if backend.in_place:  # its sets are singles, one after another
        return {"singles": singles}
    return {"singles": singles, "queued": queued, f"set of {SET}": in_a_set}


# -- what is proved ------------------------------------------------------------------------------------------


class Partition:
    """One witness of a circuit with its vectors, and the sums that made a proof which verified."""

    def __init__(self, bed: Subject, pool: PinnedPool, number: int) -> None:
        shape = bed.key.arrays
        rows = bed.backend.vector_rows(shape)
        columns = 3 if bed.backend.scratch_c else 2
        sizes = [shape.n_wires * FR_BYTES, *[rows * FR_BYTES] * columns]
        self._bed = bed
        self._leases = pool.lease_all(sizes, owner=bed.digest)
        self._z: U64 = bed.circuit.witness(number, self._leases[0].array("uint64", (shape.n_wires, 4)))
        self._columns: list[U64] = [lease.array("uint64", (rows, 4)) for lease in self._leases[1:]]
        self._publics = limbs.to_ints(self._z[1 : shape.n_public + 1])
        self._proved: MsmSums | None = None
        self._fill()

    def _fill(self) -> None:
        """a = A z and b = B z, rows past the constraints zero."""
        constraints, curve = self._bed.key.constraints, self._bed.key.vk.curve
        for matrix, out in zip((constraints.a, constraints.b), self._columns, strict=False):
            cpu.spmv_into(curve, matrix, self._z, out, 0, matrix.n_rows)
            out[matrix.n_rows :] = 0

    def upload(self) -> Upload:
        """On the device, landed."""
        backend = self._bed.backend
        if backend.in_place and self._proved is not None:
            self._fill()  # the proof before was made in them
        a, b, *c = self._columns
        upload = backend.upload(self._bed.loaded, a, b, c[0] if c else None, self._z)
        upload.wait()
        return upload

    def prove(self, sums: MsmSums) -> None:
        """Assemble and verify. Raises DeviceFault for sums that give no proof, or one of anything."""
        key, order = self._bed.key, CURVES[self._bed.key.vk.curve].r
        proof = prover.assemble(key, sums, secrets.randbelow(order), secrets.randbelow(order))
        self._bed.require_valid(proof, self._publics, self._bed.name)
        self._proved = sums

    def compare(self, sums: MsmSums) -> None:
        """Raises DeviceFault unless these are the sums that were proved."""
        for name in SUMS:
            if not np.array_equal(getattr(sums, name), getattr(self._proved, name)):
                raise DeviceFault(f"{self._bed.name}: {name} differs from that of the proof that verified")

    def close(self) -> None:
        """Give its memory back. Raises LeaseRevoked when somebody still looks at it."""
        del self._z, self._columns
        for lease in self._leases:
            lease.release()


@contextmanager
def _partitions(bed: Subject, count: int) -> Iterator[list[Partition]]:
    """In page-locked memory where there is a device."""
    pool = PinnedPool(upstream_for(bed.backend), Budget(1 << 62))
    with ExitStack() as undo:
        undo.callback(pool.close)
        made = []
        for number in range(count):
            made.append(Partition(bed, pool, number))
            undo.callback(made[-1].close)
        try:
            yield made
        except BaseException:
            undo.pop_all()  # frames of the error still look at the memory: it goes with the process
            raise


# -- rounds --------------------------------------------------------------------------------------------------


@dataclass
class Measured:
    """One arrangement, round by round: seconds a proof, on the clock and of kernels on the device."""

    wall_s: list[float] = field(default_factory=list)
    busy_s: list[float] = field(default_factory=list)
    spans: list[tuple[str, Span]] = field(default_factory=list)  # of the last round


def measure(bed: Subject, ways: dict[str, Arrangement], rounds: int, seconds: float) -> dict[str, Measured]:
    """Rounds of one size, after one that is not counted."""
    found = {name: Measured() for name in ways}
    with _partitions(bed, SET) as partitions:
        began = time.monotonic()
        for turn in range(rounds + 1):
            if turn > MIN_ROUNDS and time.monotonic() - began > seconds:
                break
            for name, way in ways.items():
                uploads = [partition.upload() for partition in partitions]
                start = time.monotonic()
                sums = way(bed.backend, uploads)
                wall_s = time.monotonic() - start
                for partition, one in zip(partitions, sums, strict=True):
                    partition.compare(one) if turn else partition.prove(one)
                if turn:
                    spans = [(f"partition {i}", span) for i, one in enumerate(sums) for span in one.spans]
                    busy_s = timeline.length(timeline.kernels(span for _, span in spans))
                    found[name].wall_s.append(wall_s / SET)
                    found[name].busy_s.append(busy_s / SET)
                    found[name].spans = spans
                del uploads
    return found


def run(backend: Backend, options: Options, say: Callable[[str], None]) -> Report:
    """Every size, every arrangement. Raises InvalidInput for too few rounds, DeviceFault for a wrong sum."""
    if options.rounds < MIN_ROUNDS:
        raise InvalidInput(f"rounds: expected at least {MIN_ROUNDS}, got {options.rounds}")
    ways = arrangements(backend)
    report = Report("batch", backend)
    report.numbers = {"options": vars(options), "claimed": CLAIMED, "sizes": []}
    for size in options.sizes or (SIZES if len(ways) > 1 else SIZES[:1]):
        with subject.make(options.curve, size, backend, distinct=SET, holding=SET) as bed:
            say(f"{size:,} constraints: {DEVELOPMENT}; made in {bed.made_s['key']:.1f} s")
            found = measure(bed, ways, options.rounds, options.seconds)
            report.tables.append(_table(bed, found))
            report.numbers["sizes"].append(_numbers(bed, found))
            if options.traces is not None:
                for name, one in found.items():
                    timeline.write_trace(options.traces / f"{size}-{name.replace(' ', '-')}.json", one.spans)
    if len(ways) == 1:
        report.notes = [
            f"Launch sets need a device: on backend {backend.name} every proof is launched alone."
        ]
    else:
        report.notes = [
            f"Ratio: singles over the arrangement, medians of the time on the clock. Others measured {CLAIMED} by "
            "batching two jobs. Both uploads have landed before the clock starts."
        ]
    report.notes.append(
        f"Key: {DEVELOPMENT}. Proofs of every arrangement verified; all later sums equal theirs."
    )
    return report


def _table(bed: Subject, found: dict[str, Measured]) -> Table:
    first = statistics.median(found["singles"].wall_s)
    rows = []
    for name, one in found.items():
        wall, busy = Spread.of(one.wall_s), Spread.of(one.busy_s)
        rows.append(
            (
                name,
                f"{1e3 * wall.median:.2f}",
                wall.quartiles(".2f"),
                f"{1e3 * busy.median:.2f}",
                f"{first / wall.median:.2f}",
            )
        )
    shape, rounds = bed.key.arrays, len(found["singles"].wall_s)
    return Table(
        f"{bed.circuit.n_constraints:,} constraints over {shape.curve}, domain 2^{shape.log_domain}, "
        f"{rounds} rounds of {SET}: ms a proof",
        ("arrangement", "median", "quartiles", "device busy", "ratio"),
        rows,
    )


def _numbers(bed: Subject, found: dict[str, Measured]) -> dict[str, Any]:
    first = statistics.median(found["singles"].wall_s)
    return {
        "n_constraints": bed.circuit.n_constraints,
        "log_domain": bed.key.arrays.log_domain,
        "arrangements": {
            name: {
                "wall_s": one.wall_s,
                "busy_s": one.busy_s,
                "wall": vars(Spread.of(one.wall_s)),
                "busy": vars(Spread.of(one.busy_s)),
                "ratio": first / statistics.median(one.wall_s),
            }
            for name, one in found.items()
        },
    }
