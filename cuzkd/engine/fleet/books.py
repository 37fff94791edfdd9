"""What the fleet knows of one prover: what it holds, when it was heard of, how long it has waited for memory.

Plain records, changed by the fleet alone; how the scheduler sees them is made here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cuzkd.engine.fleet.keys import Keys
from cuzkd.engine.fleet.patience import Patience
from cuzkd.engine.fleet.supervisor import Supervisor
from cuzkd.engine.fleet.ward import Ward
from cuzkd.engine.job import Stage, Ticket
from cuzkd.engine.scheduling.scheduler import Held, ProverView
from cuzkd.engine.wire import prover_pb2 as wire


@dataclass
class Holding:
    """A partition that a prover has. seen: as the scheduler sees it, made anew when it gets further."""

    ticket: Ticket
    seen: Held

    @property
    def stage(self) -> Stage:
        return self.seen.stage


@dataclass
class Waiting:
    """For how long a prover has had a request in the line for memory, in all."""

    before_s: float = 0.0
    since_s: float | None = None

    def note(self, waits: bool, now_s: float) -> bool:
        """How it is now. True: a wait is over."""
        was = self.since_s
        if waits and was is None:
            self.since_s = now_s
        elif not waits and was is not None:
            self.before_s, self.since_s = self.before_s + now_s - was, None
        return was is not None and not waits

    def total_s(self, now_s: float) -> float:
        return self.before_s + (0.0 if self.since_s is None else now_s - self.since_s)


@dataclass
class Prover:
    supervisor: Supervisor
    ward: Ward
    keys: Keys
    patience: Patience
    clock: Callable[[], float]
    ready: wire.Ready | None = None
    doubtful: bool = False  # its device has failed: it is given nothing more
    last_beat_s: float = 0.0
    last_progress_s: float = 0.0
    circuit: str = ""  # of its latest offer
    streak: int = 0  # offers of that circuit in a row
    holds: dict[str, Holding] = field(default_factory=dict)
    failed: deque[str] = field(default_factory=lambda: deque(maxlen=64))  # partitions, of late
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def idle(self) -> bool:
        """Whether nobody waits for anything of it."""
        return not self.holds and not self.keys.awaited

    @property
    def device(self) -> str:
        return self.ready.device if self.ready else ""

    @property
    def furthest(self) -> Holding | None:
        order = list(Stage)
        return max(self.holds.values(), key=lambda held: order.index(held.stage), default=None)

    def view(self, memory_comes: bool) -> ProverView:
        """Of one that is ready. memory_comes: whether what it may wait for can still come."""
        assert self.ready is not None
        return ProverView(
            self.supervisor.name,
            self.last_beat_s,
            tuple(held.seen for held in self.holds.values()),
            self.last_progress_s,
            self.circuit,
            self.streak,
            self.ready.backend,
            closing=self.ward.to_make_way(),
            failed=frozenset(self.failed),
            keys=self.keys.circuits | {held.ticket.circuit for held in self.holds.values()},
            short=self.waiting.since_s is not None,
            memory_comes=memory_comes,
            waited_s=self.waiting.total_s(self.clock()),
        )

    def seen(self, ticket: Ticket, stage: Stage) -> Held:
        """It has entered a stage."""
        now_s, backend = self.clock(), self.ready.backend if self.ready else ""
        return Held(
            ticket.partition_id,
            stage,
            now_s,
            ticket.attempt,
            self.patience.limit_s(ticket, backend, stage),
            ticket.priority,
            ticket.circuit_digest,
            ticket.circuit,
            self.waiting.total_s(now_s),
        )

    def excuse(self, away_s: float) -> None:
        """For so long, until now, nobody has listened: that time is held against nobody."""
        self.last_beat_s += away_s
        self.last_progress_s += away_s
        if self.waiting.since_s is not None:
            self.waiting.since_s += away_s
        for held in self.holds.values():
            held.seen = replace(held.seen, since_s=held.seen.since_s + away_s)
