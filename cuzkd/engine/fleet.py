"""The provers as the engine sees them: what each holds, which keys it has loaded, what memory it was granted.

Problem. "This prover is gone" concerns its partitions, its memory, its keys and whoever waits for one of
them; each must be dealt with exactly once, and an answer that comes late must find nobody.
Design. One `Fleet` between the supervisors and the engine, on the engine's loop. It keeps per prover the
partitions that it was offered and has not answered. A message about any other partition is a late one, and is
dropped. A prover whose device has failed is replaced at once, and the partition that saw it fail is blamed.
When a prover dies for another reason, the partitions that it had begun are blamed; if it had begun none, all
are.

Life of a holding. offer -> stages -> done | failed | lost with the prover. A cancelled one is held until the
prover has answered: until then it still takes its place.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from cuzkd.engine.budget_desk import BudgetDesk
from cuzkd.engine.job import Stage, Ticket
from cuzkd.engine.scheduler import Held, ProverView
from cuzkd.engine.stats import CircuitLoaded, Event, Heartbeat, ProverState
from cuzkd.engine.supervisor import Supervisor
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import CuzkdError, DeviceFault, Unavailable, from_code

log = structlog.get_logger()

USELESS_AFTER = 3  # failed starts in a row after which a prover is not waited for


class Owner(Protocol):
    """Who owns the jobs. Calls come on the loop, after the fleet's own books are in order."""

    def stage_reached(self, ticket: Ticket, stage: Stage, prover: str) -> None: ...

    def partition_done(self, ticket: Ticket, done: wire.PartitionDone, ready: wire.Ready) -> None: ...

    def partition_failed(self, ticket: Ticket, failed: wire.PartitionFailed) -> None: ...

    def partitions_lost(self, blamed: Sequence[Ticket], others: Sequence[Ticket], cause: str) -> None: ...

    def fleet_changed(self) -> None:
        """There may be something to decide."""


@dataclass
class _Holding:
    ticket: Ticket
    stage: Stage
    since_s: float


@dataclass(frozen=True)
class _Loaded:
    digest: str
    nbytes: int


Answers = Callable[[wire.CircuitState], bool]  # is this the answer that somebody waits for?


def loaded(digest: str) -> Answers:
    """To a preload: the key is there, or why it is not."""
    return lambda state: state.digest == digest and (state.loaded or bool(state.error_code))


def unloaded(state: wire.CircuitState) -> bool:
    """To a drop."""
    return not state.error_code and (state.was_loaded or not state.loaded)


@dataclass
class _Prover:
    supervisor: Supervisor
    ready: wire.Ready | None = None
    doubtful: bool = False  # its device has failed: it is given nothing more
    last_beat_s: float = 0.0
    holds: dict[str, _Holding] = field(default_factory=dict)
    loaded: dict[str, _Loaded] = field(default_factory=dict)  # by circuit, but those that it was told to drop
    waiters: dict[str, list[tuple[Answers, asyncio.Future[wire.CircuitState]]]] = field(default_factory=dict)
    cause: str = ""  # of its last death


class Fleet:
    """Implements supervisor.Listener. Supervisors are added before start()."""

    def __init__(
        self, owner: Owner, desk: BudgetDesk, publish: Callable[[Event], None], clock: Callable[[], float]
    ) -> None:
        self._owner = owner
        self._desk = desk
        self._publish = publish
        self._clock = clock
        self._provers: dict[str, _Prover] = {}
        self._offers = itertools.count(1)
        self._last_use_s: dict[str, float] = {}  # circuit -> when a partition or a preload last needed it

    # -- for the engine --

    def add(self, supervisor: Supervisor) -> None:
        self._provers[supervisor.name] = _Prover(supervisor)

    def start(self) -> None:
        for prover in self._provers.values():
            prover.supervisor.start()

    async def stop(self) -> None:
        await asyncio.gather(*(prover.supervisor.stop() for prover in self._provers.values()))

    def views(self) -> list[ProverView]:
        """Those that can be given work."""
        return [
            ProverView(
                name,
                prover.last_beat_s,
                tuple(
                    Held(
                        pid,
                        held.stage,
                        held.since_s,
                        held.ticket.attempt,
                        priority=held.ticket.priority,
                        digest=held.ticket.circuit_digest,
                    )
                    for pid, held in prover.holds.items()
                ),
                backend=prover.ready.backend,
            )
            for name, prover in self._provers.items()
            if prover.ready is not None and not prover.doubtful
        ]

    def trouble(self) -> str:
        """Why no prover can work now; "" when one can."""
        if any(prover.ready is not None for prover in self._provers.values()):
            return ""
        causes = {prover.cause for prover in self._provers.values() if prover.cause}
        return f"no prover is ready: {'; '.join(sorted(causes)) or 'starting'}"

    def useless(self) -> bool:
        """No prover is ready, and none has come up for so long that work should not wait for it."""
        return all(
            prover.ready is None and prover.supervisor.failed_starts >= USELESS_AFTER
            for prover in self._provers.values()
        )

    def in_place(self) -> bool:
        """Whether every prover that is ready works in host memory."""
        ready = [prover.ready for prover in self._provers.values() if prover.ready is not None]
        return bool(ready) and all(r.backend != "cuda" for r in ready)

    def offer(self, ticket: Ticket, name: str) -> None:
        prover = self._provers[name]
        prover.holds[ticket.partition_id] = _Holding(ticket, Stage.OFFERED, self._clock())
        self._last_use_s[ticket.circuit] = self._clock()
        offer = wire.Offer(
            partition_id=ticket.partition_id,
            circuit=ticket.circuit,
            circuit_digest=ticket.circuit_digest,
            spool_path=ticket.spool_path,
            priority=ticket.priority,
            sequence=next(self._offers),  # the scheduler's order: not the queue's where circuits are grouped
            attempt=ticket.attempt,
        )
        prover.supervisor.send(wire.ToProver(offer=offer))

    def cancel(self, partition_id: str) -> None:
        """Ask whoever holds it to stop. It is held until that prover answers."""
        for prover in self._provers.values():
            if partition_id in prover.holds:
                prover.supervisor.send(wire.ToProver(cancel=wire.Cancel(partition_id=partition_id)))

    def replace(self, name: str, cause: str) -> None:
        self._provers[name].supervisor.replace(cause)

    def users(self, circuit: str) -> int:
        """Partitions of a circuit that provers hold."""
        return sum(
            held.ticket.circuit == circuit
            for prover in self._provers.values()
            for held in prover.holds.values()
        )

    def holding(self, name: str) -> Ticket | None:
        """What a prover is furthest with."""
        order = list(Stage)
        holds = self._provers[name].holds.values()
        furthest = max(holds, key=lambda held: order.index(held.stage), default=None)
        return None if furthest is None else furthest.ticket

    def loaded(self) -> set[tuple[str, str]]:
        """(circuit, digest) of the keys that provers have loaded."""
        return {
            (circuit, held.digest)
            for prover in self._provers.values()
            for circuit, held in prover.loaded.items()
        }

    async def preload(self, circuit: str, digest: str) -> float | None:
        """Have every ready prover load a key; seconds that it took, None when all had it.

        Raises Unavailable when there is no prover, DeviceFault when it dies, and what loading raises.
        """
        self._last_use_s[circuit] = self._clock()
        ready = self._ready()
        lacking = [p for p in ready if circuit not in p.loaded or p.loaded[circuit].digest != digest]
        message = wire.ToProver(preload=wire.Preload(circuit=circuit, digest=digest))
        states = await asyncio.gather(
            *(self._ask(prover, circuit, message, loaded(digest)) for prover in lacking)
        )
        for state in states:
            if state.error_code:
                raise from_code(state.error_code, state.error_message)
        return max((state.load_s for state in states), default=None)

    async def evict(self, circuit: str) -> int | None:
        """Have every prover let go of a key, and wait until partitions that use it have ended. Returns the bytes that
        were resident, None when none had it.
        """
        holders = [prover for prover in self._provers.values() if circuit in prover.loaded]
        nbytes = sum(prover.loaded.pop(circuit).nbytes for prover in holders)
        message = wire.ToProver(drop=wire.Drop(circuit=circuit))
        await asyncio.gather(*(self._ask(prover, circuit, message, unloaded) for prover in holders))
        return nbytes if holders else None

    def make_room(self, nbytes: int, min_idle_s: float) -> None:
        """Memory is short by nbytes: shrink idle pinned memory, then evict idle keys, the longest idle
        first.
        """
        for prover in self._provers.values():
            prover.supervisor.send(wire.ToProver(shrink_pool=wire.ShrinkPool(bytes=nbytes)))
        now_s = self._clock()
        loaded = {circuit for prover in self._provers.values() for circuit in prover.loaded}
        idle = [circuit for circuit in loaded if now_s - self._last_use_s.get(circuit, 0.0) >= min_idle_s]
        for circuit in sorted(idle, key=lambda circuit: self._last_use_s.get(circuit, 0.0)):
            if self.users(circuit) == 0:
                self.drop(circuit)
                return  # the next one only if it is still needed then

    def drop(self, circuit: str, digest: str = "") -> None:
        """Have provers let go of a circuit's key, or only of one with this digest. Partitions that use it finish."""
        for prover in self._provers.values():
            held = prover.loaded.get(circuit)
            if held is not None and digest in ("", held.digest):
                del prover.loaded[circuit]
                prover.supervisor.send(wire.ToProver(drop=wire.Drop(circuit=circuit, digest=held.digest)))

    def _ready(self) -> list[_Prover]:
        if trouble := self.trouble():
            raise Unavailable(trouble)
        return [prover for prover in self._provers.values() if prover.ready is not None]

    async def _ask(
        self, prover: _Prover, circuit: str, message: wire.ToProver, answers: Answers
    ) -> wire.CircuitState:
        future: asyncio.Future[wire.CircuitState] = asyncio.get_running_loop().create_future()
        prover.waiters.setdefault(circuit, []).append((answers, future))
        prover.supervisor.send(message)
        return await future

    # -- for the supervisors --

    def prover_starting(self, name: str, pid: int) -> None:
        self._desk.open(name)
        self._publish(ProverState(name, "starting", pid=pid))

    def prover_ready(self, name: str, ready: wire.Ready) -> None:
        prover = self._provers[name]
        prover.ready, prover.last_beat_s, prover.cause = ready, self._clock(), ""
        log.info("prover_ready", prover=name, pid=ready.pid, backend=ready.backend, device=ready.device_name)
        self._publish(
            ProverState(
                name,
                "ready",
                pid=ready.pid,
                backend=ready.backend,
                device=ready.device,
                device_name=ready.device_name,
                vram_total_bytes=ready.vram_total_bytes,
            )
        )
        self._owner.fleet_changed()

    def prover_said(self, name: str, message: wire.FromProver) -> None:
        prover = self._provers[name]
        prover.last_beat_s = self._clock()
        match message.WhichOneof("kind"):
            case "event":
                self._event(name, prover, message.event)
            case "done":
                if held := prover.holds.pop(message.done.partition_id, None):
                    prover.supervisor.proved()
                    self._used(held.ticket)
                    assert prover.ready is not None
                    self._owner.partition_done(held.ticket, message.done, prover.ready)
                    self._owner.fleet_changed()
            case "failed":
                if held := prover.holds.pop(message.failed.partition_id, None):
                    self._used(held.ticket)
                    if message.failed.error_code == DeviceFault.code:
                        prover.doubtful = True
                        prover.supervisor.replace(message.failed.error_message)
                    self._owner.partition_failed(held.ticket, message.failed)
                    self._owner.fleet_changed()
            case "grant_request":
                self._desk.ask(name, message.grant_request, lambda grant: _grant(prover.supervisor, grant))
            case "grant_return":
                self._desk.give_back(name, message.grant_return.bytes)
            case "heartbeat":
                self._publish(_heartbeat(name, message.heartbeat))
            case "circuit":
                self._circuit(name, prover, message.circuit)
            case "log":
                _log(name, message.log)
            case kind:
                raise CuzkdError(f"{name} sent a message of kind {kind!r}")

    def prover_died(self, name: str, cause: str) -> None:
        self._gone(name, "dead", cause)

    def prover_stopped(self, name: str) -> None:
        self._gone(name, "stopped", "the daemon is stopping")

    def _gone(self, name: str, state: str, cause: str) -> None:
        """The process is reaped: nothing that it held is being worked on any more."""
        prover = self._provers[name]
        blame_known = prover.doubtful  # the partition whose failure said so has had its answer
        prover.ready, prover.doubtful, prover.cause = None, False, cause
        holds, prover.holds = list(prover.holds.values()), {}
        prover.loaded.clear()
        waiters, prover.waiters = prover.waiters, {}
        for future in (future for asked in waiters.values() for _, future in asked):
            if not future.done():
                future.set_exception(DeviceFault(f"prover {name} died: {cause}"))
        self._desk.close(name)
        self._publish(ProverState(name, state, cause=cause))
        begun = [held.ticket for held in holds if held.stage is not Stage.OFFERED]
        waiting = [held.ticket for held in holds if held.stage is Stage.OFFERED]
        blamed = [] if blame_known else begun or waiting
        others = [held.ticket for held in holds if held.ticket not in blamed]
        self._owner.partitions_lost(blamed, others, cause)
        self._owner.fleet_changed()

    def _event(self, name: str, prover: _Prover, event: wire.PartitionEvent) -> None:
        held = prover.holds.get(event.partition_id)
        if held is None:
            return
        held.stage, held.since_s = Stage(event.stage), self._clock()
        self._owner.stage_reached(held.ticket, held.stage, name)
        self._owner.fleet_changed()

    def _circuit(self, name: str, prover: _Prover, state: wire.CircuitState) -> None:
        if not state.error_code:  # one that could not be loaded changes nothing
            if state.loaded:
                prover.loaded[state.circuit] = _Loaded(state.digest, state.bytes)
            else:
                prover.loaded.pop(state.circuit, None)
            self._publish(CircuitLoaded(name, state.circuit, state.loaded, state.bytes, state.load_s))
        asked = prover.waiters.pop(state.circuit, [])
        prover.waiters[state.circuit] = [one for one in asked if not one[0](state)]
        for answers, future in asked:
            if answers(state) and not future.done():
                future.set_result(state)

    def _used(self, ticket: Ticket) -> None:
        self._last_use_s[ticket.circuit] = self._clock()


def _grant(supervisor: Supervisor, grant: wire.Grant) -> None:
    supervisor.send(wire.ToProver(grant=grant))


def _heartbeat(name: str, beat: wire.Heartbeat) -> Heartbeat:
    return Heartbeat(
        prover=name,
        pinned_slab_bytes=beat.pinned_slab_bytes,
        pinned_leased_bytes=beat.pinned_leased_bytes,
        pinned_free_bytes=beat.pinned_free_bytes,
        slabs_made=beat.slabs_made,
        slabs_made_on_job_path=beat.slabs_made_on_job_path,
        h2d_bytes_total=beat.h2d_bytes_total,
        vram_used_bytes=beat.vram_used_bytes,
        synthesising=beat.synthesising,
        ready=beat.ready,
        device_busy=beat.device_busy,
        resident_key_bytes=beat.resident_key_bytes,
    )


LEVELS: Mapping[str, str] = {"debug": "debug", "info": "info", "warning": "warning"}


def _log(name: str, record: wire.LogRecord) -> None:
    """A prover's log event becomes one of ours; a level that we do not know is an error."""
    write = getattr(log, LEVELS.get(record.level, "error"))
    write(record.event, prover=name, **{**record.fields, **record.numbers})
