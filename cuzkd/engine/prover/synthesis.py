"""Synthesis: from a witness file to the vectors a, b (and c), written once, straight into leased memory.

The stage of a partition before the device. In order: the key is there (or loaded), the file's header fits
the circuit, one lease per vector (all together or none; the time until they are there is the phase `pin`; a key
that is dropped meanwhile, to make room, is given back and taken again), the witness copied and range-checked
into z, then blocks of rows of A z and B z written by native threads into the place where the device will read
them. There is no second copy of anything.

What is made beside z is what the transfer wants to carry (transfer.py): a and b, in the daemon, and nothing where
the device has the matrices. Where C is known, C z is written too and compared with a o b row by row, so that an
unsatisfied witness is the client's error, with the number of its constraint, before the device sees anything. A key
without C leaves that to verification, and so does the device: a partition whose proof did not verify comes here again,
and is then made and compared on the host, whoever made it the first time.

Rows: as many as the backend wants (`vector_rows`), those past the constraints are zero. What `c` is for:
the check where C is known, working space where the backend has `scratch_c`; else it is not leased.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from cuzkd.backend.protocol import U64, Backend, SparseMatrix
from cuzkd.engine.faults import NoFaults
from cuzkd.engine.prover.partition import Partition, Vectors
from cuzkd.engine.prover.report import Reporter
from cuzkd.engine.prover.residency import Residency
from cuzkd.engine.prover.transfer import Transfer
from cuzkd.errors import Cancelled, InvalidKey, InvalidWitness, UnsatisfiedWitness
from cuzkd.formats import wtns
from cuzkd.memory.pool import PinnedPool
from cuzkd.memory.upstream import round_to_pages
from cuzkd.memory.vec import PinnedVec

FR_BYTES = 32
# Between two looks at the cancel flag: 4 to 9 ms on two threads, 1 ms on sixteen, which shorter blocks would wake too
# often.
BLOCK_ROWS = 1 << 19


class Host(Protocol):
    """The services of backend/cpu.py that synthesis uses. See ARCHITECTURE.md for their contracts."""

    def copy_witness(self, curve: str, raw: Any, out: U64) -> int: ...

    def spmv_into(
        self, curve: str, matrix: SparseMatrix, z: U64, out: U64, row_begin: int, row_end: int
    ) -> None: ...

    def first_mismatch(self, curve: str, a: U64, b: U64, c: U64, begin: int, end: int) -> int: ...


class Synthesis:
    """Makes partitions ready. One object, used by all synthesis threads."""

    def __init__(
        self,
        backend: Backend,
        host: Host,
        residency: Residency,
        pool: PinnedPool,
        transfer: Transfer,
        reporter: Reporter,
        faults: NoFaults,
        need: Callable[[str, int], None],
    ) -> None:
        """need(digest, nbytes): told what leases a partition of a circuit takes, before it asks for them."""
        self._backend = backend
        self._host = host
        self._residency = residency
        self._pool = pool
        self._transfer = transfer
        self._reporter = reporter
        self._faults = faults
        self._need = need

    def run(self, partition: Partition) -> None:
        """Fill partition.vectors and .publics. Whatever it holds by then is the partition's to give back.

        Raises MalformedFile, InvalidWitness, UnsatisfiedWitness, Cancelled, and what key and memory raise.
        """
        partition.check()
        partition.stage = "synthesising"
        self._reporter.stage(partition.id, partition.stage)
        self._take_key(partition)
        self._faults.at("witness")
        with wtns.map(partition.spool_path) as witness:
            self._require_fits(partition, witness)
            partition.check()
            while not self._lease(partition):
                partition.resident = None
                partition.free("key")
                self._take_key(partition)
            with partition.timed("witness"):
                self._copy(partition, witness.values)
                witness.close()  # unmapping gigabytes takes its time
        partition.check()
        with partition.timed("synthesis"):
            self._rows(partition)
        self._transfer.made(partition)
        self._faults.at("synthesis")
        partition.check()
        partition.stage = "ready"
        self._reporter.stage(partition.id, partition.stage)
        self._faults.at("ready")
        partition.ready_at = time.monotonic()

    def _take_key(self, partition: Partition) -> None:
        with partition.timed("key_load"):
            key = self._residency.use(partition.circuit, partition.digest, partition.check)
        partition.resident = key
        partition.hold("key", lambda: self._residency.done_with(key))

    def _require_fits(self, partition: Partition, witness: wtns.WitnessFile) -> None:
        arrays = partition.key.proving.arrays
        witness.header.require_fits(partition.circuit, arrays.curve, arrays.n_wires)

    def _lease(self, partition: Partition) -> bool:
        """False: its key was dropped meanwhile. Whoever waits for that key's memory may stand before it in the line."""
        proving = partition.key.proving
        rows = self._backend.vector_rows(proving.arrays)
        made = max(proving.constraints.a.n_rows, proving.constraints.b.n_rows)
        if made > rows:
            raise InvalidKey(
                f"circuit {partition.circuit}: {made} rows of constraints, the key has room for {rows}"
            )
        with_c = self._backend.scratch_c or proving.constraints.c is not None
        vectors = 0 if not self._columns(partition) else 3 if with_c else 2
        sizes = [proving.arrays.n_wires * FR_BYTES, *[rows * FR_BYTES] * vectors]
        self._need(partition.digest, sum(map(round_to_pages, sizes)))
        self._faults.at("lease")
        with partition.timed("pin"):
            try:
                self.lease(partition, sizes)
            except Cancelled:
                partition.check()
                return False
        return True

    # How rows come by their memory. The way before this one is in bench/growing.py.

    def lease(self, partition: Partition, sizes: Sequence[int]) -> None:
        """Give the partition its leases, of so many bytes: for z, a, b, c, as far as they are made."""
        partition.leases = self._pool.lease_all(
            sizes,
            owner=partition.digest,
            give_up=lambda: partition.cancelled.is_set() or partition.key.dropped,
            urgent=partition.urgent,
        )

    def vec(self, partition: Partition, number: int, rows: int) -> PinnedVec:
        """A vector of so many rows, to be written into lease `number`."""
        return PinnedVec(partition.leases[number], capacity_rows=rows)

    def _columns(self, partition: Partition) -> str:
        """Those that cross beside z, as in transfer.py."""
        by_device = partition.key.evaluates and not partition.attempts_inside
        return "" if by_device else self._transfer.columns

    def _copy(self, partition: Partition, values: memoryview) -> None:
        arrays = partition.key.proving.arrays
        z: U64 = partition.leases[0].array("uint64", (arrays.n_wires, 4))
        wrong = self._host.copy_witness(arrays.curve, values, z)
        if wrong >= 0:
            raise InvalidWitness(
                f"witness for circuit {partition.circuit}: the value of wire {wrong} is not below "
                f"the order of {arrays.curve}"
            )
        if z[0].tolist() != [1, 0, 0, 0]:
            raise InvalidWitness(f"witness for circuit {partition.circuit}: wire 0, the constant, is not 1")
        partition.publics = [
            int.from_bytes(z[wire].tobytes(), "little") for wire in range(1, arrays.n_public + 1)
        ]

    def _rows(self, partition: Partition) -> None:
        proving = partition.key.proving
        curve, constraints = proving.arrays.curve, proving.constraints
        rows = self._backend.vector_rows(proving.arrays)
        z: U64 = partition.leases[0].array("uint64", (proving.arrays.n_wires, 4))
        columns = self._columns(partition)
        if not columns:
            partition.vectors = Vectors(z, None, None, None)
            return
        a = self._product(partition, constraints.a, z, 1, rows)
        b = self._product(partition, constraints.b, z, 2, rows)
        c: U64 | None = None
        if constraints.c is not None:
            c = self._product(partition, constraints.c, z, 3, rows)
            wrong = self._host.first_mismatch(curve, a, b, c, 0, rows)
            if wrong >= 0:
                raise UnsatisfiedWitness(
                    f"the witness does not satisfy circuit {partition.circuit}: "
                    f"constraint {wrong} is the first that fails"
                )
            if not self._backend.scratch_c and "c" not in columns:
                c = None
                partition.leases.pop().release()
        elif self._backend.scratch_c:
            space = self.vec(partition, 3, rows)
            space.extend(rows)
            c = space.finish()
        partition.vectors = Vectors(z, a, b, c)

    def _product(self, partition: Partition, matrix: SparseMatrix, z: U64, number: int, rows: int) -> U64:
        """matrix z in Montgomery form, `rows` rows, those past the matrix zero; block by block."""
        curve = partition.key.proving.arrays.curve
        vec = self.vec(partition, number, rows)
        while vec.rows < matrix.n_rows:
            partition.check()
            begin, end = vec.rows, min(vec.rows + BLOCK_ROWS, matrix.n_rows)
            window = _window(matrix, begin, end)
            self._host.spmv_into(curve, window, z, vec.extend(end - begin), 0, end - begin)
        vec.extend(rows - matrix.n_rows)[:] = 0
        return vec.finish()


def _window(matrix: SparseMatrix, begin: int, end: int) -> SparseMatrix:
    """Rows [begin, end) of a matrix, as a view: row_ptr goes on pointing into all of its entries."""
    return SparseMatrix(
        matrix.n_cols, matrix.row_ptr[begin : end + 1], matrix.cols, matrix.coeff, matrix.table
    )
