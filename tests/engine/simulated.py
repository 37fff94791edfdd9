"""A front and its provers in simulated time: the real queue, scheduler and estimates, fake devices, no waiting.

Problem. That nothing is lost, starved or proved twice shows only over thousands of jobs, with deaths and hangs at any
moment. Design. One heap of events; after each the front decides, as the engine does. A prover is a pipeline: threads of
synthesis with a bounded number of finished partitions, one urgent lane, one device, verification; each line takes the
most urgent, then what was offered first. `World` keeps the front's books and checks the laws at every step.
Life of a partition. submit -> offer -> stages -> one end, whatever happens to its provers meanwhile.
"""

import heapq
import itertools
import random
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from cuzkd.engine.job import Priority, Stage, Ticket
from cuzkd.engine.scheduling.estimates import Estimates
from cuzkd.engine.scheduling.queue import PartitionQueue
from cuzkd.engine.scheduling.scheduler import BEFORE_DEVICE, Held, Limits, ProverView, decide, places

BACKEND = "fake"
LEAST_S = 60.0  # no stage of a healthy partition takes half as long
BEAT_S = 5.0
RESTART_S = 3.0
CANCEL_S = 0.5
LOG_DOMAIN = 3
NEXT = {Stage.SYNTHESISING: Stage.READY, Stage.PROVING: Stage.VERIFYING, Stage.VERIFYING: Stage.DONE}


@dataclass(frozen=True)
class Circuit:
    """Seconds that a partition of it takes in each stage, and its key to load."""

    name: str
    synthesis_s: float = 1.0
    proving_s: float = 4.0
    verifying_s: float = 0.5
    key_s: float = 10.0

    def stage_s(self, stage):
        return {
            Stage.SYNTHESISING: self.synthesis_s,
            Stage.PROVING: self.proving_s,
            Stage.VERIFYING: self.verifying_s,
        }[stage]


@dataclass
class Partition:
    """What is to become of a ticket: in its first `bad_attempts` attempts it does something in one stage. action: kill
    or hang the prover.
    """

    ticket: Ticket
    circuit: Circuit
    submitted_s: float
    action: str = ""
    bad_stage: Stage = Stage.PROVING
    bad_attempts: int = 0
    attempts: int = 0
    begun_s: float | None = None
    end: str = ""
    ended_s: float | None = None

    def misbehaves(self, stage, attempt):
        return self.action if stage is self.bad_stage and attempt <= self.bad_attempts else ""


@dataclass
class Holding:
    ticket: Ticket
    stage: Stage
    since_s: float
    number: int  # of the offer
    lane: bool = False
    cancelled: bool = False


@dataclass
class Prover:
    """A process and the front's book of what it holds. life: events of an earlier one mean nothing."""

    name: str
    ready: bool = True
    life: int = 0
    beat_s: float = 0.0
    silent: bool = False  # it lives and says nothing more
    sick: bool = False  # something hangs in it
    progress_s: float = 0.0
    circuit: str = ""
    streak: int = 0
    holds: dict = field(default_factory=dict)
    keys: OrderedDict = field(default_factory=OrderedDict)
    loads: int = 0
    slots: int = 0
    threads: int = 0
    lane: bool = True
    device: bool = True


class World:
    """keys: how many a prover can have loaded at once. jitter: 0.5 makes work take between half and one and a half."""

    def __init__(self, provers=1, limits=None, keys=1, max_attempts=3, jitter=0.0, seed=0):
        self.limits = limits or Limits(heartbeat_s=3 * BEAT_S)
        self.now_s = 0.0
        self.queue = PartitionQueue(100_000)
        self.estimates = Estimates(None)
        self.provers = {f"p{n}": Prover(f"p{n}") for n in range(provers)}
        self.partitions = {}
        self.offered = []  # (partition id, prover), in order
        self.replaced = []
        self._keys, self._max_attempts, self._jitter = keys, max_attempts, jitter
        self._random = random.Random(seed)
        self._events, self._ties, self._sequences = [], itertools.count(), itertools.count(1)
        for prover in self.provers.values():
            self._boot(prover)
        self.at(0.0, self._tick)

    # -- what tests say --

    def at(self, time_s, event, *arguments):
        heapq.heappush(self._events, (time_s, next(self._ties), event, arguments))

    def submit(self, circuit, priority=Priority.NORMAL, **behaviour):
        number = next(self._sequences)
        ticket = Ticket(
            f"j{number}/0", f"j{number}", 0, circuit.name, f"d{circuit.name}", "/x", priority, number
        )
        self.partitions[ticket.partition_id] = Partition(ticket, circuit, self.now_s, **behaviour)
        self.queue.push([ticket])
        return ticket.partition_id

    def cancel(self, partition_id):
        partition = self.partitions[partition_id]
        if partition.end:
            return
        self._end(partition, "cancelled")
        if self.queue.remove(partition.ticket):
            return
        for prover in self.provers.values():
            if partition_id in prover.holds:
                self.at(self.now_s + CANCEL_S, self._cancel_inside, prover, prover.life, partition_id)

    def die(self, prover):
        """The process is gone: who had begun is blamed, or if nobody had, all are."""
        if not prover.ready:
            return
        holds, prover.holds = list(prover.holds.values()), {}
        begun = [held for held in holds if held.stage is not Stage.OFFERED]
        prover.ready = False
        for held in holds:
            partition = self.partitions[held.ticket.partition_id]
            if partition.end:
                continue
            if held.stage is Stage.OFFERED and begun:
                self.queue.put_back([held.ticket])
            elif held.ticket.attempt < self._max_attempts:
                partition.ticket = replace(held.ticket, attempt=held.ticket.attempt + 1)
                self.queue.put_back([partition.ticket])
            else:
                self._end(partition, "failed")
        self.at(self.now_s + RESTART_S, self._boot, prover)

    def run(self, until_s=1e6):
        """Until every partition has ended and nothing is left to happen but ticks."""
        while self._events and not (self._all_ended() and self._only_ticks()):
            self.now_s, _, event, arguments = heapq.heappop(self._events)
            assert self.now_s < until_s, [p for p in self.partitions.values() if not p.end][:5]
            event(*arguments)
            self._decide()
        assert not len(self.queue) and not any(prover.holds for prover in self.provers.values())
        return self

    # -- the front --

    def view(self, prover):
        return ProverView(
            prover.name,
            prover.beat_s,
            tuple(
                Held(
                    held.ticket.partition_id,
                    held.stage,
                    held.since_s,
                    held.ticket.attempt,
                    self.estimates.limit_s(
                        held.ticket.circuit_digest, BACKEND, held.stage, LEAST_S, LOG_DOMAIN
                    ),
                    held.ticket.priority,
                    held.ticket.circuit_digest,
                )
                for held in prover.holds.values()
            ),
            prover.progress_s,
            prover.circuit,
            prover.streak,
            BACKEND,
        )

    def views(self):
        return [self.view(prover) for prover in self.provers.values() if prover.ready]

    def _decide(self):
        views = self.views()
        waiting = self.queue.candidates({view.circuit for view in views}, places(views, self.limits))
        decisions = decide(self.now_s, waiting, views, self.limits)
        for replacement in decisions.replacements:
            prover = self.provers[replacement.prover]
            assert prover.silent or prover.sick, f"a healthy prover is replaced: {replacement.cause}"
            self.replaced.append(prover.name)
            self.die(prover)
        for offer in decisions.offers:
            assert self.queue.remove(offer.ticket)
            self._offer(offer.ticket, self.provers[offer.prover])

    def _offer(self, ticket, prover):
        holders = [p.name for p in self.provers.values() if ticket.partition_id in p.holds]
        assert not holders, f"{ticket.partition_id} is with {holders}, and is offered to {prover.name}"
        assert not self.partitions[ticket.partition_id].end, "what has ended is offered"
        self.offered.append((ticket.partition_id, prover.name))
        prover.streak = prover.streak + 1 if prover.circuit == ticket.circuit else 1
        prover.circuit = ticket.circuit
        prover.holds[ticket.partition_id] = Holding(ticket, Stage.OFFERED, self.now_s, len(self.offered))
        before_device = [h for h in prover.holds.values() if h.stage in BEFORE_DEVICE]
        assert len(before_device) <= self.limits.max_held + 1, "more than there are places"
        assert len(prover.holds) == 1 or all(h.ticket.attempt == 1 for h in prover.holds.values()), (
            "beside a suspect"
        )
        self._work(prover)

    def _end(self, partition, how):
        assert not partition.end, f"{partition.ticket.partition_id} ended as {partition.end}, and again"
        partition.end, partition.ended_s = how, self.now_s

    def _tick(self):
        self.at(self.now_s + 1.0, self._tick)

    def _all_ended(self):
        idle = all(prover.ready and not prover.holds for prover in self.provers.values())
        return idle and all(partition.end for partition in self.partitions.values())

    def _only_ticks(self):
        return all(event[2] in (self._tick, self._beat) for event in self._events)

    # -- the provers --

    def _boot(self, prover):
        self.provers[prover.name] = fresh = Prover(
            prover.name,
            life=prover.life + 1,
            progress_s=self.now_s,
            loads=prover.loads,
            slots=self.limits.ready_target,
            threads=self.limits.max_parallel,
        )
        self._beat(fresh)

    def _beat(self, prover):
        if prover.ready and not prover.silent:
            prover.beat_s = self.now_s
            self.at(self.now_s + BEAT_S, self._beat, prover)

    def _work(self, prover):
        """Begin whatever can be begun."""
        while held := self._next(prover, Stage.OFFERED):
            lane = prover.lane and held.ticket.priority is Priority.CRITICAL
            if not lane and not (prover.threads and prover.slots):
                break
            held.lane = lane
            if lane:
                prover.lane = False
            else:
                prover.threads -= 1
                prover.slots -= 1
            partition = self.partitions[held.ticket.partition_id]
            if partition.begun_s is None:
                partition.begun_s = self.now_s
            partition.attempts += 1
            self._enter(prover, held, Stage.SYNTHESISING, self._key_s(prover, partition.circuit))
        if prover.device and (held := self._next(prover, Stage.READY)):
            prover.device = False
            self._leave_slot(prover, held)
            self._enter(prover, held, Stage.PROVING)

    def _next(self, prover, stage):
        line = [held for held in prover.holds.values() if held.stage is stage and not held.cancelled]
        return min(line, key=lambda held: (-held.ticket.priority, held.number), default=None)

    def _key_s(self, prover, circuit):
        if circuit.name in prover.keys:
            prover.keys.move_to_end(circuit.name)
            return 0.0
        prover.keys[circuit.name] = None
        prover.loads += 1
        if len(prover.keys) > self._keys:
            prover.keys.popitem(last=False)
        return circuit.key_s

    def _enter(self, prover, held, stage, more_s=0.0):
        held.stage, held.since_s, prover.progress_s = stage, self.now_s, self.now_s
        partition = self.partitions[held.ticket.partition_id]
        match partition.misbehaves(stage, held.ticket.attempt):
            case "hang":
                prover.sick = True
                return
            case "kill":
                self.at(self.now_s + 0.1, self._killed, prover, prover.life)
                return
        if stage in NEXT:
            took_s = partition.circuit.stage_s(stage) * (1 + self._jitter * self._random.uniform(-1, 1))
            self.at(self.now_s + took_s + more_s, self._left, prover, prover.life, held, took_s)

    def _left(self, prover, life, held, took_s):
        """A stage is over."""
        if prover.life != life or not prover.ready or prover.silent:  # silent as a stopped process is
            return
        stage = held.stage
        if stage is Stage.SYNTHESISING and not held.lane:
            prover.threads += 1
        if stage is Stage.PROVING:
            prover.device = True
        partition = self.partitions[held.ticket.partition_id]
        if partition.end:  # cancelled: it stops where a stage ends
            self._let_go(prover, held)
        elif NEXT[stage] is Stage.DONE:
            del prover.holds[held.ticket.partition_id]
            prover.progress_s = self.now_s
            self._end(partition, "done")
            circuit = partition.circuit
            phases = {"synthesis": circuit.synthesis_s, "msm_h": circuit.proving_s, "verify": took_s}
            self.estimates.learn(held.ticket.circuit_digest, BACKEND, phases)
        else:
            self._enter(prover, held, NEXT[stage])
        self._work(prover)

    def _leave_slot(self, prover, held):
        if held.lane:
            prover.lane = True
        else:
            prover.slots += 1

    def _let_go(self, prover, held):
        if held.stage in (Stage.SYNTHESISING, Stage.READY):
            self._leave_slot(prover, held)
        del prover.holds[held.ticket.partition_id]
        prover.progress_s = self.now_s

    def _cancel_inside(self, prover, life, partition_id):
        if prover.life == life and prover.ready and (held := prover.holds.get(partition_id)):
            held.cancelled = True
            if held.stage in (Stage.OFFERED, Stage.READY):
                self._let_go(prover, held)
            self._work(prover)

    def _killed(self, prover, life):
        if prover.life == life:
            self.die(prover)
