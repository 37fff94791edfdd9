"""Who gets what, and who is given up: plain data in, decisions out.

Problem. Unbounded look-ahead fills the machine with finished partitions; work handed out too early can no
longer be overtaken by something urgent; a hung prover holds its work for ever; and one partition that kills
provers must not use up the attempts of those that happened to be beside it.

Design. `decide` is a pure function of the queue's head, of what each prover holds, and of the time.
- A prover holds at most ready_target + max_parallel partitions that the device has not begun. The best ticket
goes
  to the prover that holds least.
- A ticket on its second attempt or later is a suspect: it is offered to a prover that holds nothing else, and
  nothing is offered beside it. If the prover dies again, the blame is certain. Work behind a suspect waits
  for it.
- A prover without heartbeats, or with a partition that has been in one stage for longer than that stage may
last,
  is replaced.

Life of data. The engine builds the views, carries the decisions out, and asks again after the next change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cuzkd.engine.job import Stage, Ticket

BEFORE_DEVICE = (Stage.OFFERED, Stage.SYNTHESISING, Stage.READY)


@dataclass(frozen=True)
class Limits:
    """ready_target, max_parallel: as configured in every prover. stage_s: how long a stage may last, in
    seconds.
    """

    ready_target: int = 2
    max_parallel: int = 1
    heartbeat_s: float = 30.0
    stage_s: Mapping[Stage, float] = field(default_factory=dict)

    @property
    def max_held(self) -> int:
        return self.ready_target + self.max_parallel


@dataclass(frozen=True)
class Held:
    """A partition in a prover. since_s: when it entered its stage."""

    partition_id: str
    stage: Stage
    since_s: float
    attempt: int = 1


@dataclass(frozen=True)
class ProverView:
    """A prover that is ready for work. last_beat_s: when it was last heard of."""

    prover: str
    last_beat_s: float
    held: tuple[Held, ...] = ()


@dataclass(frozen=True)
class Offer:
    ticket: Ticket
    prover: str


@dataclass(frozen=True)
class Replace:
    prover: str
    cause: str


@dataclass(frozen=True)
class Decisions:
    offers: tuple[Offer, ...] = ()
    replacements: tuple[Replace, ...] = ()


@dataclass
class _Load:
    """How full a prover is while offers are being made."""

    prover: str
    total: int  # everything it holds
    before_device: int
    suspect: bool


def decide(
    now_s: float, waiting: Sequence[Ticket], provers: Sequence[ProverView], limits: Limits
) -> Decisions:
    """waiting: the queue's head, best first, at least as many as all provers together can take."""
    replacements = tuple(
        Replace(view.prover, cause) for view in provers if (cause := _overdue(now_s, view, limits))
    )
    dying = {replacement.prover for replacement in replacements}
    loads = [_load(view) for view in provers if view.prover not in dying]
    offers = []
    for ticket in waiting:
        load = _choose(ticket, loads, limits)
        if load is None:
            break  # nobody overtakes the best one
        load.total += 1
        load.before_device += 1
        load.suspect = ticket.attempt > 1
        offers.append(Offer(ticket, load.prover))
    return Decisions(tuple(offers), replacements)


def _load(view: ProverView) -> _Load:
    return _Load(
        view.prover,
        total=len(view.held),
        before_device=sum(held.stage in BEFORE_DEVICE for held in view.held),
        suspect=any(held.attempt > 1 for held in view.held),
    )


def _choose(ticket: Ticket, loads: Sequence[_Load], limits: Limits) -> _Load | None:
    """The prover that holds least, of those that may take this one."""
    if ticket.attempt > 1:
        open_to_it = [load for load in loads if load.total == 0]
    else:
        open_to_it = [load for load in loads if load.before_device < limits.max_held and not load.suspect]
    return min(open_to_it, key=lambda load: (load.before_device, load.total), default=None)


def _overdue(now_s: float, view: ProverView, limits: Limits) -> str:
    """Why this prover is to be replaced; "" when it is not."""
    silent_s = now_s - view.last_beat_s
    if silent_s > limits.heartbeat_s:
        return f"no heartbeat for {silent_s:.1f} s, at most {limits.heartbeat_s:g} s are allowed"
    for held in view.held:
        allowed_s = limits.stage_s.get(held.stage)
        if allowed_s is not None and now_s - held.since_s > allowed_s:
            return (
                f"partition {held.partition_id} has been {held.stage} for {now_s - held.since_s:.1f} s, "
                f"at most {allowed_s:g} s are allowed"
            )
    return ""
