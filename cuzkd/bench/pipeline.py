"""The threads of a prover, in this process and without a front: partitions in, records out.

What is measured is the engine itself (engine/prover/workers.py): its lines, its pool, its device mutex, its
finalisers. Here is only the other end of its channel. It grants memory from a budget of its own, keeps a
fixed number of partitions in flight, and collects what the engine says of each.

Life: Pipeline(subject) -> run(n) -> Run, as often as wanted -> close.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuzkd.backend import cpu
from cuzkd.backend.protocol import Span
from cuzkd.bench import timeline
from cuzkd.bench.subject import Provable
from cuzkd.curves.params import CURVES
from cuzkd.engine.channel import Channel
from cuzkd.engine.fleet.budget_desk import BudgetDesk
from cuzkd.engine.prover.canary import Canary
from cuzkd.engine.prover.main import Groth16, upstream_for
from cuzkd.engine.prover.partition import Partition
from cuzkd.engine.prover.synthesis import Host, Synthesis
from cuzkd.engine.prover.transfer import Transfer
from cuzkd.engine.prover.workers import Parts, Workers
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import CuzkdError, InvalidInput, LeaseRevoked, from_code
from cuzkd.formats import proof_bytes
from cuzkd.groth16.keys import Proof
from cuzkd.memory.hints import CapacityHints
from cuzkd.memory.pool_stats import PoolStats
from cuzkd.memory.upstream import Upstream

PROVER = "bench"
PRIORITY = 2
PATIENCE_S = 5.0  # with what is under way when a run ends early


@dataclass(frozen=True)
class Record:
    """One partition that was proved, and whose proof the finaliser has verified."""

    number: int
    spans: tuple[Span, ...]
    proof: bytes
    publics: tuple[bytes, ...]
    h2d_bytes: int

    def decoded(self, curve: str) -> tuple[Proof, list[int]]:
        """The proof and its public inputs."""
        return proof_bytes.decode(curve, self.proof), [int.from_bytes(value, "big") for value in self.publics]

    @property
    def seconds(self) -> dict[str, float]:
        """How long each phase took. Phases that ran beside each other count in full."""
        out: dict[str, float] = {}
        for span in self.spans:
            out[span.phase] = out.get(span.phase, 0.0) + span.seconds
        return out


@dataclass(frozen=True)
class Run:
    """records: by number. began_s, ended_s: first offer and last answer, on the clock of time.monotonic()."""

    records: tuple[Record, ...]
    began_s: float
    ended_s: float
    pool: PoolStats
    budget_peak_bytes: int

    @property
    def wall_s(self) -> float:
        return self.ended_s - self.began_s

    def write_trace(self, path: Path) -> None:
        """What happened when, for a browser; see timeline.write_trace."""
        named = [(f"partition {record.number}", span) for record in self.records for span in record.spans]
        timeline.write_trace(path, named)


@dataclass
class Setting:
    """How the engine is set up. Zeros and None stand for what the daemon does by default."""

    transfer: Transfer | None = None
    upstream: Upstream | None = None
    host: Host = cpu
    synthesis: Callable[..., Synthesis] = Synthesis
    ready_target: int = 2
    synthesis_threads: int = 1
    budget_bytes: int = 0  # 0: no limit that would ever be met
    slab_bytes: int = 0
    wipe: bool = True


@dataclass
class _Flight:
    """What is under way. numbers: offered and not answered. answers: for one of them, or why there will be no more."""

    numbers: set[int] = field(default_factory=set)
    answers: queue.SimpleQueue[tuple[int, wire.PartitionDone | CuzkdError] | CuzkdError] = field(
        default_factory=queue.SimpleQueue
    )
    spans: dict[str, tuple[Span, ...]] = field(default_factory=dict)
    observed: threading.Condition = field(default_factory=threading.Condition)


class Pipeline:
    """See the module docstring. One user at a time."""

    def __init__(self, subject: Provable, setting: Setting | None = None) -> None:
        setting = setting or Setting()
        self._subject = subject
        self._flight = _Flight()
        self._offered = 0
        self.pending = 0  # partitions of the run without an answer, those yet to be offered included
        self._desk = BudgetDesk(setting.budget_bytes or 1 << 62, short_of=lambda nbytes: None)
        self._desk.open(PROVER)
        ours, theirs = socket.socketpair()
        self._sockets = ours, theirs
        self._channel = Channel(ours, wire.FromProver)
        config = wire.Configure(
            max_parallel_synthesis=setting.synthesis_threads,
            ready_target=setting.ready_target,
            wipe=setting.wipe,
            slab_bytes=setting.slab_bytes,
        )
        parts = Parts(
            backend=subject.backend,
            host=setting.host,
            groth16=Groth16(),
            upstream=setting.upstream or upstream_for(subject.backend),
            open_circuit=lambda name: subject,
            order=lambda curve: CURVES[curve].r,
            hints=CapacityHints(None),
            canary=Canary(subject.backend).sings,
            transfer=setting.transfer,
            synthesis=setting.synthesis,
            observe=self._observe,
        )
        self.workers = Workers(Channel(theirs, wire.ToProver), config, parts, leave=lambda code: None)
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("bench-front", self._listen), ("prover", self.workers.run))
        ]
        for thread in self._threads:
            thread.start()

    # -- partitions --

    def prewarm(self, count: int) -> float:
        """Have pinned memory for `count` partitions before the first comes; returns the seconds that it took.

        Raises what the upstream raises when there is no more to be had.
        """
        began = time.monotonic()
        pool, nbytes = self.workers.pool, self._subject.lease_bytes
        pool.prewarm(nbytes, count)
        while pool.stats().prewarming and pool.stats().slabs < count:
            time.sleep(0.001)
        with ExitStack() as leases:
            # What could not be made ahead: a lease asks in earnest, and is told why. In the circuit's name: no wiping.
            for _ in range(count):
                leases.enter_context(pool.lease(nbytes, owner=self._subject.digest))
        return time.monotonic() - began

    def run(self, count: int, in_flight: int = 0, done: Callable[[int], None] = lambda number: None) -> Run:
        """Prove `count` partitions, each with its own witness, `in_flight` at a time (0: all at once).

        done(number): called as each ends. Raises the first error of any of them, once those under way are through; when
        the prover is no more, or on an interrupt, those are cancelled.
        """
        if count < 1:
            raise InvalidInput(f"partitions: expected at least 1, got {count}")
        began_s = time.monotonic()
        try:
            records = self._prove(count, min(in_flight or count, count), done)
        except BaseException:
            self._give_up()
            raise
        ended_s = time.monotonic()
        return Run(tuple(records), began_s, ended_s, self.workers.pool.stats(), self._desk.budget.peak_bytes)

    def _prove(self, count: int, in_flight: int, done: Callable[[int], None]) -> list[Record]:
        """See run. The records are in order of their numbers."""
        self.pending = count
        first = self._offered
        for _ in range(in_flight):
            self._offer()
        records: list[Record] = []
        error: CuzkdError | None = None
        while self._flight.numbers:
            told = self._flight.answers.get()
            if isinstance(told, CuzkdError):
                raise error or told
            number, answer = told
            self._flight.numbers.discard(number)
            self.pending -= 1
            if isinstance(answer, CuzkdError):
                error = error or answer
                self.pending = len(self._flight.numbers)
            else:
                records.append(self._record(answer))
                done(records[-1].number)
            if error is None and self._offered - first < count:
                self._offer()
        if error is not None:
            raise error
        return sorted(records, key=lambda record: record.number)

    def _give_up(self) -> None:
        """Cancel what is under way and wait for it, so that memory can be given back; not for long, because native
        code hears of nothing.
        """
        numbers = self._flight.numbers
        for number in numbers:
            self._send(cancel=wire.Cancel(partition_id=str(number)))
        deadline = time.monotonic() + PATIENCE_S
        while numbers and (left := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                told = self._flight.answers.get(timeout=left)
                if isinstance(told, tuple):
                    numbers.discard(told[0])

    def _offer(self) -> None:
        number = self._offered
        witness = self._subject.witness(number)
        self._offered += 1
        self._flight.numbers.add(number)
        self._send(
            offer=wire.Offer(
                partition_id=str(number),
                circuit=self._subject.name,
                circuit_digest=self._subject.digest,
                spool_path=str(witness),
                priority=PRIORITY,
                sequence=number,
                attempt=1,
            )
        )

    def _observe(self, partition: Partition) -> None:
        with self._flight.observed:
            self._flight.spans[partition.id] = tuple(partition.spans)
            self._flight.observed.notify()

    def _record(self, done: wire.PartitionDone) -> Record:
        number = int(done.partition_id)
        with self._flight.observed:  # the answer may overtake the observation
            self._flight.observed.wait_for(lambda: done.partition_id in self._flight.spans)
            spans = self._flight.spans.pop(done.partition_id)
        return Record(number, spans, done.proof, tuple(done.publics), done.h2d_bytes)

    # -- the other end of the channel --

    def _listen(self) -> None:
        while (message := self._channel.receive()) is not None:
            kind = message.WhichOneof("kind")
            if kind == "grant_request":
                self._desk.ask(PROVER, message.grant_request, lambda grant: self._send(grant=grant))
            elif kind == "grant_return":
                self._desk.give_back(PROVER, message.grant_return.bytes)
            elif kind == "done":
                self._flight.answers.put((int(message.done.partition_id), message.done))
            elif kind == "failed":
                why = from_code(message.failed.error_code, message.failed.error_message)
                self._flight.answers.put((int(message.failed.partition_id), why))
            elif kind == "fatal":
                why = from_code(message.fatal.error_code, message.fatal.error_message)
                self._flight.answers.put(why)

    def _send(self, **kind: Any) -> None:
        self._channel.send(wire.ToProver(**kind))

    def close(self) -> None:
        """End the threads and give pinned memory back. The subject's key stays loaded.

        Raises LeaseRevoked when a partition is still under way: its memory goes with the process.
        """
        self._send(shutdown=wire.Shutdown())
        self._threads[1].join()
        try:
            self.workers.pool.close()
        finally:
            ours, theirs = self._sockets
            ours.shutdown(socket.SHUT_RDWR)
            self._threads[0].join()
            ours.close()
            theirs.close()


@contextmanager
def opened(subject: Provable, setting: Setting | None = None) -> Iterator[Pipeline]:
    """A pipeline for a block."""
    pipeline = Pipeline(subject, setting)
    try:
        yield pipeline
    except BaseException:
        with suppress(LeaseRevoked):  # a second error, which says less
            pipeline.close()
        raise
    pipeline.close()
