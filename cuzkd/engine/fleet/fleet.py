"""The provers as the engine sees them: what each holds, which keys it has loaded, what memory it was granted.

Problem. "This prover is gone" concerns its partitions, its memory, its keys and whoever waits for one of
them; each must be dealt with exactly once, and an answer that comes late must find nobody.
Design. One `Fleet` between the supervisors and the engine, on the engine's loop. It keeps per prover the
partitions that it was offered and has not answered. A message about any other partition is a late one, and is
dropped. A prover whose device has failed is replaced at once, and the partition that saw it fail is blamed.
When a prover dies for another reason, the partitions that it had begun are blamed; if it had begun none, all
are. One that is to make way (health.py) is given nothing more, and is replaced as soon as it holds nothing.

Life of a holding. offer -> stages -> done | failed | lost with the prover. A cancelled one is held until the
prover has answered: until then it still takes its place.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from cuzkd.engine.fleet import room, said
from cuzkd.engine.fleet.books import Holding, Prover
from cuzkd.engine.fleet.budget_desk import BudgetDesk
from cuzkd.engine.fleet.health import Death, Health, HealthView
from cuzkd.engine.fleet.keys import Keys, evict_everywhere, load_everywhere
from cuzkd.engine.fleet.patience import Patience
from cuzkd.engine.fleet.standin import elect
from cuzkd.engine.fleet.supervisor import Supervisor
from cuzkd.engine.fleet.ward import Ward
from cuzkd.engine.job import Stage, Ticket
from cuzkd.engine.scheduling.attendance import Attendance
from cuzkd.engine.scheduling.scheduler import ProverView
from cuzkd.engine.stats import CircuitLoaded, Event, LaunchSet, ProverState
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import CuzkdError, DeviceFault, Unavailable

log = structlog.get_logger()

# Messages that show that something goes on in a prover.
PROGRESS = {"event", "done", "failed", "circuit", "grant_request", "grant_return"}
MAKES_WAY = Death("makes way for another backend", asked=True)


class Owner(Protocol):
    """Who owns the jobs. Calls come on the loop, after the fleet's own books are in order."""

    def stage_reached(self, ticket: Ticket, stage: Stage, prover: str) -> None: ...

    def partition_done(self, ticket: Ticket, done: wire.PartitionDone, ready: wire.Ready) -> None: ...

    def partition_failed(self, ticket: Ticket, failed: wire.PartitionFailed) -> None: ...

    def partition_mishandled(self, ticket: Ticket, error: Exception) -> None:
        """One of the two above has raised this."""

    def partitions_lost(self, blamed: Sequence[Ticket], others: Sequence[Ticket], cause: str) -> None: ...

    def fleet_changed(self) -> None:
        """There may be something to decide."""


class Fleet:
    """Implements supervisor.Listener. Supervisors are added before start()."""

    def __init__(
        self,
        owner: Owner,
        desk: BudgetDesk,
        publish: Callable[[Event], None],
        clock: Callable[[], float],
        patience: Patience,
        away_after_s: float = math.inf,
    ) -> None:
        """away_after_s: without a call of `attend` for so long nobody has listened to provers."""
        self._owner = owner
        self._desk = desk
        self._publish = publish
        self._clock = clock
        self._patience = patience
        self._provers: dict[str, Prover] = {}
        self._attendance = Attendance(away_after_s)
        self._offers = itertools.count(1)
        self._stand_in = ""  # the prover whose processor may work, if any

    # -- for the engine --

    def add(self, supervisor: Supervisor, health: Health) -> None:
        ward = Ward(supervisor.name, health, self._publish, self._clock)
        keys = Keys(supervisor.send)
        self._provers[supervisor.name] = Prover(supervisor, ward, keys, self._patience, self._clock)

    def start(self) -> None:
        for prover in self._provers.values():
            prover.supervisor.start()

    async def stop(self) -> None:
        await asyncio.gather(*(prover.supervisor.stop() for prover in self._provers.values()))

    def views(self) -> list[ProverView]:
        """Those that can be given work, and those that finish what they hold."""
        self.attend()
        waits = self._waits()
        comes = not any(waits) or room.may_come(self._provers.values(), waits, self._desk.front_holds)
        return [p.view(comes) for p in self._provers.values() if p.ready is not None and not p.doubtful]

    def _waits(self) -> list[room.Waits]:
        return [self._desk.waits(name) for name in self._provers]

    def trouble(self) -> str:
        """Why no prover can work now; "" when one can."""
        if any(prover.ready is not None for prover in self._provers.values()):
            return ""
        causes = [(name, cause) for name, prover in self._provers.items() if (cause := prover.ward.trouble())]
        said = [f"{name}: {cause}" if len(self._provers) > 1 else cause for name, cause in causes]
        return f"no prover is ready: {'; '.join(said) or 'starting'}"

    def useless(self) -> bool:
        """No prover is ready, and none is likely to be soon: new work should go elsewhere."""
        return all(prover.ward.useless() for prover in self._provers.values())

    def hopeless(self) -> bool:
        """None has been ready for as long as the longest quarantine: work that was accepted need not wait for it."""
        return all(prover.ward.hopeless() for prover in self._provers.values())

    def health(self, name: str) -> HealthView:
        """Of a prover and its device."""
        return self._provers[name].ward.view()

    def tick(self) -> None:
        """What time alone brings about: a device whose quarantine is over is to be tried again."""
        self._elect()
        for prover in self._provers.values():
            self._let_go(prover)

    def _elect(self, latest: str = "") -> None:
        """Say whose processor may work. latest: a prover that decides next, without being asked."""
        wards = {name: prover.ward for name, prover in self._provers.items()}
        before, self._stand_in = self._stand_in, elect(wards, self._stand_in, latest)
        for name, ward in wards.items():
            ward.may_stand_in(name == self._stand_in)
        if self._stand_in not in ("", before, latest):
            self._provers[self._stand_in].supervisor.hurry()  # it waits for the end of its quarantine

    def _let_go(self, prover: Prover) -> None:
        if prover.ready is not None and prover.idle and prover.ward.to_make_way():
            prover.supervisor.replace(MAKES_WAY)

    def in_place(self) -> bool:
        """Whether every prover that is ready works in host memory."""
        ready = [prover.ready for prover in self._provers.values() if prover.ready is not None]
        return bool(ready) and all(r.backend != "cuda" for r in ready)

    def offer(self, ticket: Ticket, name: str) -> None:
        prover = self._provers[name]
        prover.holds[ticket.partition_id] = Holding(ticket, prover.seen(ticket, Stage.OFFERED))
        prover.streak = prover.streak + 1 if ticket.circuit == prover.circuit else 1
        prover.circuit = ticket.circuit
        prover.keys.used_s[ticket.circuit] = self._clock()
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

    def replace(self, name: str, cause: str, partition_id: str = "") -> None:
        """Of one that hangs: its device may be why. partition_id: with which, for the log alone."""
        prover = self._provers[name]
        log.error("prover_hangs", prover=name, cause=cause, partition_id=partition_id)
        stage = prover.furthest
        death = Death(cause, stage.stage if stage else "", device=prover.device, suspect=True)
        prover.supervisor.replace(death)

    def attend(self) -> None:
        """The loop is here. For as long as it was away, provers could not be heard: that time does not count."""
        if away_s := self._attendance.away_s(self._clock()):
            log.warning("front_was_away", seconds=round(away_s, 3))
            for prover in self._provers.values():
                prover.excuse(away_s)

    def users(self, circuit: str) -> int:
        """Partitions of a circuit that provers hold."""
        return sum(
            held.ticket.circuit == circuit
            for prover in self._provers.values()
            for held in prover.holds.values()
        )

    def holding(self, name: str) -> Ticket | None:
        """What a prover is furthest with."""
        furthest = self._provers[name].furthest
        return None if furthest is None else furthest.ticket

    def loaded(self) -> set[tuple[str, str]]:
        """(circuit, digest) of the keys that provers have loaded."""
        return {key for prover in self._provers.values() for key in prover.keys.loaded}

    async def preload(self, circuit: str, digest: str) -> float | None:
        """Have every ready prover load a key; seconds that it took, None when all had it.

        Raises Unavailable when there is no prover, DeviceFault when it dies, and what loading raises.
        """
        return await load_everywhere([p.keys for p in self._ready()], circuit, digest, self._clock())

    async def evict(self, circuit: str) -> int | None:
        """Have every prover let go of a key, and wait until partitions that use it have ended. Returns the bytes that
        were resident, None when none had it.
        """
        return await evict_everywhere((prover.keys for prover in self._provers.values()), circuit)

    def make_room(self, nbytes: int, min_idle_s: float) -> None:
        """Memory is short by nbytes: shrink idle pinned memory, drop the key that can best be spared (room.py)."""
        provers = list(self._provers.values())
        for prover in provers:
            prover.supervisor.send(wire.ToProver(shrink_pool=wire.ShrinkPool(bytes=nbytes)))
        waits, front_waits = self._waits(), self._desk.front_waits
        if found := room.gives_way(provers, waits, front_waits, self._clock(), min_idle_s):
            prover, circuit = found
            prover.keys.make_way(circuit)  # the next one only if it is still needed then

    def drop(self, circuit: str, digest: str = "") -> None:
        """Have provers let go of a circuit's key, or only of one with this digest. Partitions that use it finish."""
        for prover in self._provers.values():
            prover.keys.drop(circuit, digest)

    def _ready(self) -> list[Prover]:
        if trouble := self.trouble():
            raise Unavailable(trouble)
        ready = [p for p in self._provers.values() if p.ready and not p.doubtful and not p.ward.to_make_way()]
        if not ready:
            raise Unavailable("the prover is about to be replaced; try again")
        return ready

    # -- for the supervisors --

    def prover_begins(self, name: str) -> str:
        return self._provers[name].ward.begins()

    def prover_starting(self, name: str, pid: int) -> None:
        self._desk.open(name)
        self._publish(ProverState(name, "starting", pid=pid))

    def prover_ready(self, name: str, ready: wire.Ready) -> None:
        prover = self._provers[name]
        prover.ready = ready
        prover.last_beat_s = prover.last_progress_s = self._clock()
        prover.circuit, prover.streak = "", 0
        log.info("prover_ready", prover=name, pid=ready.pid, backend=ready.backend, device=ready.device_name)
        self._publish(said.ready_state(name, ready))
        prover.ward.ready(ready)
        self._elect()
        self._owner.fleet_changed()

    def prover_said(self, name: str, message: wire.FromProver) -> None:
        """Raises what is wrong with the message. What goes wrong with ours is logged: the prover is well."""
        prover = self._provers[name]
        kind = message.WhichOneof("kind")
        prover.last_beat_s = self._clock()
        if kind in PROGRESS:
            prover.last_progress_s = prover.last_beat_s
        match kind:
            case "event":
                self._event(name, prover, message.event)
            case "done":
                self._answered(
                    name, message.done.partition_id, lambda held: self._done(name, held, message.done)
                )
            case "failed":
                failed = message.failed
                self._answered(name, failed.partition_id, lambda held: self._failed(name, held, failed))
            case "grant_request":
                self._desk.ask(name, message.grant_request, lambda grant: self._grant(name, grant))
                self._note_waiting(name)
            case "grant_return":
                self._desk.give_back(name, message.grant_return.bytes)
            case "heartbeat":
                self._publish(said.heartbeat(name, message.heartbeat))
            case "circuit":
                state = message.circuit
                prover.keys.heard(state)
                if not state.error_code:
                    self._publish(CircuitLoaded(name, state.circuit, state.loaded, state.bytes, state.load_s))
            case "log":
                said.write_down(name, message.log)
            case _:
                raise CuzkdError(f"{name} sent a message of kind {kind!r}")
        self._let_go(prover)

    def _grant(self, name: str, grant: wire.Grant) -> None:
        self._provers[name].supervisor.send(wire.ToProver(grant=grant))
        self._note_waiting(name)

    def _note_waiting(self, name: str) -> None:
        prover, now_s = self._provers[name], self._clock()
        if prover.waiting.note(bool(self._desk.waits(name)), now_s):
            prover.last_progress_s = now_s

    def _answered(self, name: str, partition_id: str, tell: Callable[[Holding], None]) -> None:
        """A partition has its answer. The prover holds it until its owner has taken that; an owner who can neither do
        that nor count it as a failure gets it back when the prover is thought to hang with it.
        """
        prover = self._provers[name]
        held = prover.holds.get(partition_id)
        if held is None:
            return
        prover.keys.used_s[held.ticket.circuit] = self._clock()
        try:
            try:
                tell(held)
            except Exception as error:
                log.exception("answer_mishandled", prover=name, partition_id=partition_id)
                self._owner.partition_mishandled(held.ticket, error)
            prover.holds.pop(partition_id, None)
        except Exception:
            log.exception("answer_untaken", prover=name, partition_id=partition_id)
        self._owner.fleet_changed()
        if prover.waiting.since_s is not None and not room.busy(prover, self._desk.waits(name)):
            self._desk.press()

    def _done(self, name: str, held: Holding, done: wire.PartitionDone) -> None:
        prover = self._provers[name]
        assert prover.ready is not None
        prover.ward.proved(done.attempts_inside)
        self._publish(LaunchSet(name, max(done.launch_set, 1)))
        self._owner.partition_done(held.ticket, done, prover.ready)

    def _failed(self, name: str, held: Holding, failed: wire.PartitionFailed) -> None:
        prover = self._provers[name]
        prover.failed.append(failed.partition_id)
        if failed.error_code == DeviceFault.code:
            prover.doubtful = True
            prover.supervisor.replace(said.device_failed(failed, prover.device))
        self._owner.partition_failed(held.ticket, failed)

    def prover_died(self, name: str, death: Death) -> float:
        ward = self._provers[name].ward
        ward.died(death)
        self._elect(latest=name)
        self._gone(name, "stopped" if death.asked else "dead", death.cause)
        if ward.useless() and (view := ward.view()).state == "quarantined":  # and nobody stands in
            self._publish(ProverState(name, view.state, device=view.device, cause=view.cause))
        return ward.pause_s()

    def prover_stopped(self, name: str) -> None:
        self._provers[name].ward.stopped()
        self._gone(name, "stopped", "the daemon is stopping")

    def _gone(self, name: str, state: str, cause: str) -> None:
        """The process is reaped: nothing that it held is being worked on any more."""
        prover = self._provers[name]
        blame_known = prover.doubtful  # the partition whose failure said so has had its answer
        prover.ready, prover.doubtful = None, False
        holds, prover.holds = list(prover.holds.values()), {}
        prover.keys.gone(DeviceFault(f"prover {name} died: {cause}"))
        self._desk.close(name)
        self._note_waiting(name)
        self._publish(ProverState(name, state, cause=cause))
        begun = [held.ticket for held in holds if held.stage is not Stage.OFFERED]
        waiting = [held.ticket for held in holds if held.stage is Stage.OFFERED]
        blamed = [] if blame_known else begun or waiting
        others = [held.ticket for held in holds if held.ticket not in blamed]
        prover.failed += [ticket.partition_id for ticket in blamed]
        self._owner.partitions_lost(blamed, others, cause)
        self._owner.fleet_changed()

    def _event(self, name: str, prover: Prover, event: wire.PartitionEvent) -> None:
        held = prover.holds.get(event.partition_id)
        if held is None:
            return
        held.seen = prover.seen(held.ticket, Stage(event.stage))
        try:
            self._owner.stage_reached(held.ticket, held.stage, name)
        except Exception:  # it gets on all the same
            log.exception("stage_mishandled", prover=name, partition_id=event.partition_id)
        if held.stage is Stage.PROVING:  # the only step that frees a place
            self._owner.fleet_changed()
