"""Who gets what, and who is given up: plain data in, decisions out.

Problem. Unbounded look-ahead fills the machine with finished partitions; work handed out too early can no
longer be overtaken by something urgent; circuits that take turns have their keys loaded again and again; a hung
prover holds its work for ever; and one partition that kills provers must not use up the attempts of those that
happened to be beside it.

Design. `decide` is a pure function of the queue's candidates, of what each prover holds, and of the time.
- A prover holds at most ready_target + max_parallel partitions that the device has not begun. The prover that holds
  least gets the next. CRITICAL does not wait for a place: one at a time goes to a prover that is full, too.
- CRITICAL and HIGH go in the order of arrival. Among NORMAL and LOW a prover goes on with the circuit of its
  latest offer for up to `group` partitions; then it is the oldest one's turn.
- A ticket on its second attempt or later is a suspect: it is offered to a prover that holds nothing else, and
  nothing is offered beside it. If the prover dies again, the blame is certain. Until one is empty, one prover, that
  which holds least, is given nothing of the suspect's priority or below; the others go on. What is more urgent
  than the suspect goes before it, and waits only while it runs.
- A partition that has failed in one prover is tried in others first, if there are any.
- Where host memory has no room for a circuit's key in each prover, no more of them are given partitions of it than
  there is room for: those that have the key, first. Else each would wait for memory that the others never give back.
- A prover without heartbeats, or with a partition that has been in one stage for longer than that stage may last,
  is replaced. Partitions that wait in a prover wait for others: they are overdue when nothing at all goes on
  there. Waiting for memory is not hanging: while a prover does, its partitions before the device are not overdue as
  long as memory can come, and what they have waited does not count afterwards.

Life of data. The engine builds the views, carries the decisions out, and asks again after the next change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from cuzkd.engine.job import Priority, Stage, Ticket
from cuzkd.engine.scheduling.queue import GROUPED

BEFORE_DEVICE = (Stage.OFFERED, Stage.SYNTHESISING, Stage.READY)
BEFORE_VECTORS = (Stage.OFFERED, Stage.SYNTHESISING)
IN_LINE = (Stage.OFFERED, Stage.READY)


@dataclass(frozen=True)
class Limits:
    """ready_target, max_parallel: as configured in every prover. group: partitions of one circuit in a row while
    others wait.
    """

    ready_target: int = 2
    max_parallel: int = 1
    heartbeat_s: float = 30.0
    group: int = 16

    @property
    def max_held(self) -> int:
        return self.ready_target + self.max_parallel


@dataclass(frozen=True)
class Held:
    """A partition in a prover. since_s: when it entered its stage. allowed_s: how long it may be there, None for any
    time. circuit, digest: of its circuit. waited_s: ProverView.waited_s at since_s.
    """

    partition_id: str
    stage: Stage
    since_s: float
    attempt: int = 1
    allowed_s: float | None = None
    priority: Priority = Priority.NORMAL
    digest: str = ""
    circuit: str = ""
    waited_s: float = 0.0


@dataclass(frozen=True)
class ProverView:
    """A prover that is ready. last_beat_s: when it was last heard of. last_progress_s: when any of its partitions last
    got further. circuit, streak: of its latest offer, and how many of that circuit in a row. closing: it finishes what
    it holds and is given nothing more. keys: circuits whose keys it has, or needs for what it holds.
    failed: partitions that have failed there of late. short: it waits for memory; memory_comes: which can come.
    waited_s: for how long it has done so, in all.
    """

    prover: str
    last_beat_s: float
    held: tuple[Held, ...] = ()
    last_progress_s: float = 0.0
    circuit: str = ""
    streak: int = 0
    backend: str = ""
    closing: bool = False
    keys: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    short: bool = False
    memory_comes: bool = True
    waited_s: float = 0.0


@dataclass(frozen=True)
class Offer:
    ticket: Ticket
    prover: str


@dataclass(frozen=True)
class Replace:
    """cause: for everybody's eyes. partition_id: the one that is overdue, if it is one."""

    prover: str
    cause: str
    partition_id: str = ""


@dataclass(frozen=True)
class Decisions:
    offers: tuple[Offer, ...] = ()
    replacements: tuple[Replace, ...] = ()


def decide(
    now_s: float,
    waiting: Sequence[Ticket],
    provers: Sequence[ProverView],
    limits: Limits,
    copies: Mapping[str, int] = MappingProxyType({}),
) -> Decisions:
    """waiting: PartitionQueue.candidates, of the circuits of these provers and `places` in number; or all that
    waits, best first. copies: by circuit, how many provers may have its key at once; of others, all of them.
    """
    replacements = tuple(found for view in provers if (found := _overdue(now_s, view, limits)))
    dying = {replacement.prover for replacement in replacements}
    open_ones = [view for view in provers if not view.closing and view.prover not in dying]
    everywhere = frozenset.intersection(*(view.failed for view in open_ones)) if open_ones else frozenset()
    loads = [_load(view, view.failed - everywhere) for view in open_ones]
    room = {name: most - sum(name in view.keys for view in provers) for name, most in copies.items()}
    return Decisions(tuple(_offers(waiting, loads, limits, room)), replacements)


def places(provers: Sequence[ProverView], limits: Limits) -> int:
    """How many offers one decision may make at most."""
    return len(provers) * (limits.max_held + 1)


# -- who gets what --


Room = dict[str, int]  # by circuit, of those that have few: how many more provers may load its key


@dataclass(eq=False)
class _Load:
    """How full a prover is, and what it is at, while offers are being made."""

    prover: str
    total: int  # everything it holds
    before_device: int
    urgent: bool  # whether one of those is CRITICAL
    suspect: bool  # whether it holds one
    circuit: str
    streak: int
    keys: set[str]
    avoids: frozenset[str]  # partitions that others are to try first
    reserved: bool = False  # for a suspect, once it is empty

    def is_open(self, priority: Priority, limits: Limits) -> bool:
        """Whether it may be given one more of this priority."""
        if self.suspect or self.reserved:
            return False
        lane = priority is Priority.CRITICAL and not self.urgent
        return lane or self.before_device < limits.max_held

    def may_have(self, ticket: Ticket, room: Room) -> bool:
        if ticket.circuit in room:
            return ticket.circuit in self.keys or room[ticket.circuit] > 0
        return ticket.partition_id not in self.avoids

    def choose(self, line: Sequence[Ticket], limits: Limits, room: Room) -> Ticket | None:
        """The one of a line, all of one priority, that it would go on with; None when it may have none of them."""
        if room or self.avoids:
            line = [ticket for ticket in line if self.may_have(ticket, room)]
        if line and line[0].priority in GROUPED and self.streak < limits.group:
            return next((ticket for ticket in line if ticket.circuit == self.circuit), line[0])
        return line[0] if line else None

    def take(self, ticket: Ticket, room: Room) -> None:
        if ticket.circuit in room and ticket.circuit not in self.keys:
            room[ticket.circuit] -= 1
        self.keys.add(ticket.circuit)
        self.total += 1
        self.before_device += 1
        self.urgent |= ticket.priority is Priority.CRITICAL
        self.suspect = ticket.attempt > 1
        self.streak = self.streak + 1 if ticket.circuit == self.circuit else 1
        self.circuit = ticket.circuit


def _load(view: ProverView, avoids: frozenset[str]) -> _Load:
    before_device = [held for held in view.held if held.stage in BEFORE_DEVICE]
    return _Load(
        view.prover,
        total=len(view.held),
        before_device=len(before_device),
        urgent=any(held.priority is Priority.CRITICAL for held in before_device),
        suspect=any(held.attempt > 1 for held in view.held),
        circuit=view.circuit,
        streak=view.streak,
        keys=set(view.keys),
        avoids=avoids,
    )


def _offers(waiting: Sequence[Ticket], loads: Sequence[_Load], limits: Limits, room: Room) -> Iterator[Offer]:
    for priority, tickets in groupby(waiting, key=lambda ticket: ticket.priority):
        line = list(tickets)
        while line:
            found = [
                (load, ticket)
                for load in loads
                if load.is_open(priority, limits) and (ticket := load.choose(line, limits, room))
            ]
            if not found:
                break  # what is less urgent may be given to one that may not have these
            load, ticket = min(found, key=_emptiest)
            line.remove(ticket)
            if ticket.attempt > 1 and load.total:  # nor is any other prover empty
                _reserve_one([load for load in loads if load.may_have(ticket, room)])
                continue
            load.take(ticket, room)
            yield Offer(ticket, load.prover)


def _emptiest(found: tuple[_Load, Ticket]) -> tuple[int, int, bool]:
    """First comes the one that holds least; of several one that can go on with its circuit."""
    load, ticket = found
    return load.before_device, load.total, ticket.circuit != load.circuit


def _reserve_one(loads: Sequence[_Load]) -> None:
    """Suspects wait for one prover: for one that has a suspect already, else for the one that holds least."""
    if not any(load.suspect or load.reserved for load in loads):
        min(loads, key=lambda load: load.total).reserved = True


# -- who is given up --


def _overdue(now_s: float, view: ProverView, limits: Limits) -> Replace | None:
    """Whether and why this prover is to be replaced."""
    silent_s = now_s - view.last_beat_s
    if silent_s > limits.heartbeat_s:
        cause = f"no heartbeat for {silent_s:.1f} s, at most {limits.heartbeat_s:g} s are allowed"
        return Replace(view.prover, cause)
    for held in view.held:
        waits = view.short and held.stage in BEFORE_VECTORS
        in_line = waits or held.stage in IN_LINE
        allowed_s = _allowed_s(held, view)
        if allowed_s is None or (waits and view.memory_comes):
            continue
        if now_s - _since_s(held, view, in_line) > allowed_s:
            cause = (
                f"a partition of circuit {held.circuit or held.digest} has been {held.stage} "
                f"for {now_s - held.since_s:.1f} s, at most {allowed_s:g} s are allowed"
                + (" without progress of any other" if in_line else "")
            )
            return Replace(view.prover, cause, held.partition_id)
    return None


def _since_s(held: Held, view: ProverView, in_line: bool) -> float:
    """When it began to take too long."""
    if in_line:
        return max(held.since_s, view.last_progress_s)
    waited_s = view.waited_s - held.waited_s if held.stage is Stage.SYNTHESISING else 0.0
    return held.since_s + waited_s


def _allowed_s(held: Held, view: ProverView) -> float | None:
    """Before the device it may wait for what others use or hold, for as long as these may: memory, a place, the
    device.
    """
    if held.stage not in BEFORE_DEVICE:
        return held.allowed_s
    all_s = [other.allowed_s for other in view.held]
    return None if None in all_s else max(s for s in all_s if s is not None)
