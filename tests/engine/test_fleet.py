"""The fleet's books, with provers that are lists of messages and a clock that is a number."""

import asyncio
import math
import threading
from unittest.mock import Mock

import pytest

from cuzkd.engine.fleet.budget_desk import BudgetDesk
from cuzkd.engine.fleet.fleet import Fleet
from cuzkd.engine.fleet.health import Death, Health, Rules
from cuzkd.engine.fleet.patience import LARGEST, Patience
from cuzkd.engine.fleet.ward import Ward
from cuzkd.engine.job import Priority, Stage, Ticket
from cuzkd.engine.scheduling.estimates import Estimates
from cuzkd.engine.scheduling.scheduler import Limits, decide
from cuzkd.engine.stats import DeviceReturned, LaunchSet, ProverState, Quarantined
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import DeviceFault, InvalidKey, NotFound, Unavailable

PATIENCE_S = 30.0
GPU = "GPU-1"


class Told:
    """A supervisor that starts nothing."""

    def __init__(self, name):
        self.name = name
        self.messages = []
        self.orders = []
        self.hurried = False

    def send(self, message):
        self.messages.append(message)

    def replace(self, death):
        self.orders.append(death)

    def hurry(self):
        self.hurried = True


class Here:
    """A fleet of one prover."""

    def __init__(self, away_after_s=math.inf, **rules):
        self.now_s = 0.0
        self.events = []
        self.owner = Mock()
        self.told = Told("p")
        self.estimates = Estimates(None)
        self.fleet = Fleet(
            self.owner,
            BudgetDesk(1 << 20, lambda nbytes: None),
            self.events.append,
            lambda: self.now_s,
            Patience(self.estimates, 100.0, lambda circuit: 3),
            away_after_s,
        )
        self.fleet.add(self.told, Health(Rules(**rules)))

    def up(self, backend="cpu"):
        self.fleet.prover_begins("p")
        self.fleet.prover_starting("p", 1)
        device = GPU if backend == "cuda" else "cpu"
        self.fleet.prover_ready("p", wire.Ready(backend=backend, device=device))
        return self

    def says(self, at_s, **kind):
        self.now_s = at_s
        self.fleet.prover_said("p", wire.FromProver(**kind))

    def offer(self, name, circuit="square"):
        self.fleet.offer(Ticket(name, "j", 0, circuit, f"d-{circuit}", "/x", Priority.HIGH, 1, 2), "p")

    @property
    def view(self):
        (view,) = self.fleet.views()
        return view


def stage(name, stage):
    return wire.PartitionEvent(partition_id=name, stage=stage)


def test_what_the_scheduler_sees():
    here = Here().up()
    here.now_s = 5.0
    for name, circuit in (("a", "square"), ("b", "square"), ("c", "cube")):
        here.offer(name, circuit)
    assert (here.view.circuit, here.view.streak, here.view.backend) == ("cube", 1, "cpu")
    here.says(7.0, event=stage("a", "synthesising"))
    here.says(9.0, heartbeat=wire.Heartbeat())
    assert (here.view.last_beat_s, here.view.last_progress_s) == (9.0, 7.0)
    held = {one.partition_id: one for one in here.view.held}
    assert (held["a"].stage, held["a"].since_s, held["b"].since_s) == (Stage.SYNTHESISING, 7.0, 5.0)
    assert (held["a"].allowed_s, held["a"].priority, held["a"].attempt) == (100.0, Priority.HIGH, 2)
    assert held["c"].digest == "d-cube"
    here.estimates.learn("d-square", "cpu", {"synthesis": 50.0, "verify": 1.0})
    here.says(10.0, event=stage("a", "synthesising"))  # what is known when it enters a stage counts
    assert {one.partition_id: one.allowed_s for one in here.view.held}["a"] == 1500.0
    here.says(11.0, circuit=wire.CircuitState(circuit="square", loaded=True))
    assert here.view.last_progress_s == 11.0


def test_a_circuit_that_cannot_be_looked_at_gets_the_patience_of_the_largest():
    asked = []

    def log_domain(circuit):
        asked.append(circuit)
        raise NotFound(circuit)

    patience = Patience(Estimates(None), 1.0, log_domain)
    ticket = Ticket("a", "j", 0, "square", "d", "/x", Priority.LOW, 1)
    for _ in range(2):
        assert patience.limit_s(ticket, "cpu", Stage.PROVING) >= 2e-4 * 2**LARGEST
    assert asked == ["square"]


def test_how_many_were_launched_together_is_told():
    here = Here().up()
    here.offer("a")
    here.says(1.0, done=wire.PartitionDone(partition_id="a", attempts_inside=1, launch_set=4))
    here.offer("b")
    here.says(1.0, done=wire.PartitionDone(partition_id="b", attempts_inside=1))
    assert [event.size for event in here.events if isinstance(event, LaunchSet)] == [4, 1]


def test_who_is_blamed_for_a_death():
    here = Here().up()
    for name in "abc":
        here.offer(name)
    here.says(1.0, event=stage("b", "proving"))
    assert here.fleet.prover_died("p", Death("killed by SIGKILL")) == 0.5
    blamed, others, cause = here.owner.partitions_lost.call_args.args
    assert ([t.partition_id for t in blamed], [t.partition_id for t in others]) == (["b"], ["a", "c"])
    assert cause == "killed by SIGKILL" and here.fleet.views() == []


def test_a_failed_device_is_given_up_with_its_stage_and_uuid():
    here = Here(quarantine_after=1).up("cuda")
    here.offer("a")
    failed = wire.PartitionFailed(
        partition_id="a", error_code="device_fault", error_message="m", stage="msm_h"
    )
    here.says(1.0, failed=failed)
    (order,) = here.told.orders
    assert (order.stage, order.device, order.suspect) == ("msm_h", GPU, True)
    assert here.fleet.views() == [] and here.fleet.trouble() == ""


def test_one_that_hangs_is_given_up_with_the_stage_that_it_is_at():
    here = Here().up("cuda")
    here.offer("a")
    here.says(1.0, event=stage("a", "proving"))
    here.fleet.replace("p", "no heartbeat")
    assert here.told.orders == [Death("no heartbeat", "proving", device=GPU, suspect=True)]


def test_a_prover_that_is_to_make_way_finishes_first():
    async def body():
        here = Here(quarantine_after=1, quarantine_s=10.0).up("cuda")
        here.offer("a")
        here.offer("b")
        wrong = wire.PartitionDone(partition_id="a", attempts_inside=2)
        here.says(1.0, done=wrong)
        assert here.view.closing and not here.told.orders
        with pytest.raises(Unavailable, match="about to be replaced"):
            await here.fleet.preload("square", "d")
        here.says(2.0, done=wire.PartitionDone(partition_id="b", attempts_inside=1))
        assert here.told.orders[0].asked
        here.fleet.prover_died("p", here.told.orders[0])
        assert here.fleet.prover_begins("p") == "cpu"
        states = [event.state for event in here.events if isinstance(event, ProverState)]
        assert states == ["starting", "ready", "stopped"]

    asyncio.run(body())


def test_a_preload_that_is_awaited_is_waited_for_and_the_tick_lets_go():
    async def body():
        here = Here(quarantine_after=1, quarantine_s=10.0).up("cuda")
        loading = asyncio.create_task(here.fleet.preload("cube", "d"))
        await asyncio.sleep(0)
        here.offer("a")
        here.says(1.0, done=wire.PartitionDone(partition_id="a", attempts_inside=2))
        here.fleet.tick()
        assert here.view.closing and not here.told.orders
        here.says(2.0, circuit=wire.CircuitState(circuit="cube", loaded=True, digest="d", load_s=3.0))
        assert await loading == 3.0
        here.fleet.tick()
        assert here.told.orders

    asyncio.run(body())


def test_keys():
    async def body():
        here = Here().up()
        fleet, told = here.fleet, here.told

        def loaded(digest, **more):
            here.says(1.0, circuit=wire.CircuitState(circuit="square", digest=digest, **more))

        first, second = (asyncio.create_task(fleet.preload("square", digest)) for digest in "xy")
        await asyncio.sleep(0)
        loaded("y", error_code="invalid_key", error_message="the installed one is x")
        with pytest.raises(InvalidKey, match="installed one is x"):
            await second
        loaded("x", loaded=True, bytes=100, load_s=2.0)
        assert await first == 2.0 and fleet.loaded() == {("square", "x")}
        assert await fleet.preload("square", "x") is None
        evicting = asyncio.create_task(fleet.evict("square"))
        await asyncio.sleep(0)
        loaded("", was_loaded=True)
        assert await evicting == 100
        assert await fleet.evict("square") is None
        loaded("x", loaded=True, bytes=100)
        told.messages.clear()
        fleet.drop("square", "other")
        assert not told.messages
        fleet.drop("square", "x")
        fleet.drop("square", "x")
        assert [message.drop.digest for message in told.messages] == ["x"]
        lost = asyncio.create_task(fleet.preload("square", "x"))
        await asyncio.sleep(0)
        fleet.prover_died("p", Death("killed"))
        with pytest.raises(DeviceFault, match="p died: killed"):
            await lost
        with pytest.raises(Unavailable, match="killed"):
            await fleet.preload("square", "x")

    asyncio.run(body())


def test_a_return_is_told_after_its_quarantine_however_long_the_driver_takes():
    async def body():
        now_s, events, answer = [0.0], [], threading.Event()
        changed = asyncio.Event()

        def publish(event):
            events.append(event)
            changed.set()

        def look(device):
            answer.wait(PATIENCE_S)
            return {"uuid": device}

        ward = Ward("p", Health(Rules(quarantine_after=1)), publish, lambda: now_s[0], look)
        ready = wire.Ready(backend="cuda", device=GPU)
        ward.begins()
        ward.ready(ready)
        ward.died(Death("an ECC error", "msm_h", "device_fault", GPU, suspect=True))
        now_s[0] = 60.0
        ward.begins()
        ward.ready(ready)
        assert ward.view().state == "ready" and not events
        answer.set()
        async with asyncio.timeout(PATIENCE_S):
            while len(events) < 2:
                changed.clear()
                await changed.wait()
        quarantined, returned = events
        assert isinstance(quarantined, Quarantined) and quarantined.counters == {"uuid": GPU}
        assert (quarantined.stage, quarantined.seconds) == ("msm_h", 60.0)
        assert returned == DeviceReturned("p", GPU)

    asyncio.run(body())


# -- several --


class Both:
    """A fleet of two with named devices."""

    def __init__(self, **rules):
        self.now_s = 0.0
        self.events = []
        self.told = {name: Told(name) for name in "pq"}
        self.fleet = Fleet(
            Mock(),
            BudgetDesk(1 << 20, lambda nbytes: None),
            self.events.append,
            lambda: self.now_s,
            Patience(Estimates(None), 100.0, lambda circuit: 3),
        )
        for name, told in self.told.items():
            self.fleet.add(told, Health(Rules(quarantine_after=1, quarantine_s=60.0, **rules), f"GPU-{name}"))

    def up(self, name, backend="cuda"):
        begun = self.fleet.prover_begins(name)
        self.fleet.prover_starting(name, 1)
        self.fleet.prover_ready(name, wire.Ready(backend=backend, device=f"GPU-{name}"))
        return begun

    def says(self, name, **kind):
        self.fleet.prover_said(name, wire.FromProver(**kind))

    def fails(self, name):
        """Returns the pause until its next process."""
        return self.fleet.prover_died(
            name, Death("an ECC error", "msm_h", "device_fault", f"GPU-{name}", suspect=True)
        )


def test_the_last_one_to_fail_stands_in_until_another_returns():
    async def body():
        here = Both()
        assert here.up("p") == here.up("q") == "cuda"
        assert here.fails("p") == 60.0, "it waits"
        here.now_s = 1.0
        assert here.fails("q") == 0.5 and here.fleet.prover_begins("q") == "cpu"
        here.fleet.prover_starting("q", 2)
        here.fleet.prover_ready("q", wire.Ready(backend="cpu", device="cpu"))
        here.fleet.tick()
        assert not here.told["p"].hurried and here.fleet.trouble() == ""
        here.now_s = 60.0
        assert here.up("p") == "cuda"
        here.fleet.tick()
        assert [order.asked for order in here.told["q"].orders] == [True]
        assert here.fleet.prover_died("q", here.told["q"].orders[0]) == 1.0, "until its quarantine is over"
        assert here.events[-1] == ProverState("q", "quarantined", device="GPU-q", cause="an ECC error")

    asyncio.run(body())


def test_while_one_is_tried_again_the_other_stands_in():
    async def body():
        here = Both()
        here.up("p"), here.up("q")
        here.fails("p")
        here.now_s = 10.0
        here.fails("q")
        here.up("q", "cpu")
        here.now_s = 60.0
        assert here.fleet.prover_begins("p") == "cuda"
        assert here.fails("p") == 120.0, "q does it"
        here.now_s = 70.0
        here.fleet.tick()
        assert here.told["q"].orders and not here.told["p"].hurried, "not before q is gone"
        here.fleet.prover_died("q", here.told["q"].orders[0])
        assert here.told["p"].hurried and here.fleet.prover_begins("p") == "cpu"
        assert here.fleet.prover_begins("q") == "cuda"

    asyncio.run(body())


def test_of_each_prover_the_key_that_is_idle_there_gives_way():
    async def body():
        here = Both()
        here.up("p"), here.up("q")
        loading = asyncio.create_task(here.fleet.preload("square", "d"))
        await asyncio.sleep(0)
        for name in "pq":
            here.says(name, circuit=wire.CircuitState(circuit="square", loaded=True, digest="d", bytes=100))
        await loading
        here.now_s = 50.0
        here.fleet.offer(Ticket("a", "j", 0, "square", "d", "/x", Priority.LOW, 1), "p")

        def dropped():
            return {
                name: [m.drop.circuit for m in told.messages if m.HasField("drop")]
                for name, told in here.told.items()
            }

        here.fleet.make_room(10, min_idle_s=60.0)
        assert dropped() == {"p": [], "q": []}
        here.fleet.make_room(10, min_idle_s=50.0)
        assert dropped() == {"p": [], "q": ["square"]}, "in use in p"
        assert {view.prover: view.keys for view in here.fleet.views()} == {"p": {"square"}, "q": set()}

    asyncio.run(body())


# -- room for one key, and two circuits --

KEY, VECTORS = 60, 30  # bytes; of each circuit


class Tight:
    """A prover, and memory for one circuit at a time. It does with keys and memory what a real one does."""

    def __init__(self, **rules):
        self.now_s = 0.0
        self.told = Told("p")
        self.desk = BudgetDesk(100, lambda nbytes: self.fleet.make_room(nbytes, min_idle_s=300.0))
        patience = Patience(Estimates(None), 20.0, lambda circuit: 3)
        self.fleet = Fleet(Mock(), self.desk, lambda event: None, lambda: self.now_s, patience)
        self.fleet.add(self.told, Health(Rules(**rules)))
        self.fleet.prover_begins("p"), self.fleet.prover_starting("p", 1)
        self.fleet.prover_ready("p", wire.Ready(backend="cpu", device="cpu"))

    def says(self, **kind):
        self.fleet.prover_said("p", wire.FromProver(**kind))

    def asks(self, number, nbytes, what):
        self.says(grant_request=wire.GrantRequest(request_id=number, bytes=nbytes, what=what))

    def offer(self, name, circuit, stage_of=""):
        self.fleet.offer(Ticket(name, "j", 0, circuit, f"d-{circuit}", "/x", Priority.NORMAL, 1), "p")
        if stage_of:
            self.says(event=stage(name, stage_of))

    def loaded(self, circuit):
        self.says(circuit=wire.CircuitState(circuit=circuit, loaded=True, digest=f"d-{circuit}", bytes=KEY))

    def closes(self, circuit):
        """It was told to, and does."""
        self.says(grant_return=wire.GrantReturn(bytes=KEY))
        self.says(circuit=wire.CircuitState(circuit=circuit, was_loaded=True))

    @property
    def drops(self):
        return [m.drop.circuit for m in self.told.messages if m.HasField("drop")]

    @property
    def granted(self):
        return [m.grant.request_id for m in self.told.messages if m.HasField("grant")]

    def overdue(self, now_s):
        self.now_s = now_s
        self.says(heartbeat=wire.Heartbeat())
        return decide(now_s, [], self.fleet.views(), Limits()).replacements

    def proved_one(self):
        """Of a; its key stays."""
        self.offer("a1", "a", "synthesising")
        self.asks(1, KEY, "key")
        self.loaded("a")
        self.says(event=stage("a1", "proving"))
        self.says(done=wire.PartitionDone(partition_id="a1", attempts_inside=1))
        return self


def test_a_key_gives_way_though_partitions_that_have_not_begun_want_it():
    tight = Tight().proved_one()
    tight.offer("b", "b", "synthesising")
    tight.offer("a2", "a")  # behind b
    tight.asks(2, KEY, "key")
    assert tight.drops == ["a"] and tight.granted == [1]
    tight.fleet.make_room(20, 300.0)
    assert tight.drops == ["a"], "one is on its way"
    tight.closes("a")
    assert tight.granted == [1, 2]
    assert tight.overdue(19.0) == ()


def test_a_key_in_use_stays_and_goes_when_its_user_has_ended():
    tight = Tight().proved_one()
    tight.offer("a2", "a", "proving")
    tight.offer("b", "b", "synthesising")
    tight.asks(2, KEY, "key")
    tight.fleet.make_room(20, 0.0)
    assert tight.drops == []
    tight.says(done=wire.PartitionDone(partition_id="a2", attempts_inside=1))
    assert tight.drops == ["a"]


def test_a_key_gives_way_though_its_user_has_begun_if_that_waits_behind_another_key():
    """b's key waits for a's room, and a2 for vectors behind it, which its prover cannot get before."""
    tight = Tight().proved_one()
    tight.offer("a2", "a", "synthesising")
    tight.offer("b", "b", "synthesising")
    tight.asks(2, KEY, "key")
    assert tight.drops == []  # a2 may be at its rows
    tight.asks(3, VECTORS, "slab")
    assert tight.drops == ["a"]


def test_vectors_alone_take_no_key_from_who_waits_for_them():
    tight = Tight().proved_one()
    other = tight.desk.budget.reserve(30, "the front's")
    tight.offer("a2", "a", "synthesising")
    tight.asks(2, VECTORS, "slab")
    tight.fleet.make_room(20, 0.0)
    assert tight.drops == [] and tight.overdue(1e6) == (), "the front gives back in the end"
    other.release()
    assert tight.granted == [1, 2]
    assert tight.overdue(1e6 + 19.0) == (), "what it has waited does not count"
    (replacement,) = tight.overdue(1e6 + 21.0)
    assert "of circuit a has been synthesising" in replacement.cause and replacement.partition_id == "a2"


def test_preloads_follow_the_same_rules():
    async def body():
        tight = Tight().proved_one()
        loading = asyncio.create_task(tight.fleet.preload("b", "d-b"))
        await asyncio.sleep(0)
        tight.asks(2, KEY, "key")
        assert tight.drops == ["a"]
        tight.closes("a")
        assert tight.granted == [1, 2]
        tight.loaded("b")
        await loading

    asyncio.run(body())


def test_one_that_waits_for_what_can_never_come_is_given_up():
    """It holds memory that belongs to no key: lost, by a bug."""
    tight = Tight()
    tight.asks(1, 90, "lost")
    tight.offer("b", "b", "synthesising")
    tight.asks(2, KEY, "key")
    assert tight.overdue(20.0) == ()
    (replacement,) = tight.overdue(20.5)
    assert "without progress" in replacement.cause


def test_one_that_hangs_at_the_device_is_found_while_another_waits_for_memory():
    tight = Tight().proved_one()
    tight.offer("a2", "a", "proving")
    tight.offer("b", "b", "synthesising")
    tight.asks(2, KEY, "key")
    (replacement,) = tight.overdue(21.0)
    assert "a has been proving" in replacement.cause


def test_the_front_can_wait_while_a_prover_works_and_not_when_none_does():
    async def body():
        tight = Tight().proved_one()
        tight.offer("c", "c", "synthesising")
        asked = asyncio.create_task(tight.desk.reserve_async(60, "intake"))
        await asyncio.sleep(0)
        assert tight.drops == []
        tight.says(failed=wire.PartitionFailed(partition_id="c", error_code="cancelled"))
        tight.desk.press()  # as every tick does
        assert tight.drops == ["a"]
        tight.closes("a")
        (await asked).release()

    asyncio.run(body())


# -- what goes wrong in the front --


@pytest.mark.parametrize("kind", ["done", "failed"])
@pytest.mark.parametrize("untaken", [False, True])
def test_an_answer_that_its_owner_cannot_take_is_no_fault_of_the_prover(kind, untaken):
    here = Here().up()
    here.offer("a")
    error = MemoryError()
    here.owner.partition_done.side_effect = here.owner.partition_failed.side_effect = error
    if untaken:
        here.owner.partition_mishandled.side_effect = error
    answer = {
        "done": wire.PartitionDone(partition_id="a", attempts_inside=1),
        "failed": wire.PartitionFailed(partition_id="a", error_code="internal"),
    }[kind]
    here.says(1.0, **{kind: answer})
    ((ticket, told),) = [call.args for call in here.owner.partition_mishandled.call_args_list]
    assert ticket.partition_id == "a" and told is error
    assert [held.partition_id for held in here.view.held] == (["a"] if untaken else [])
    here.fleet.prover_died("p", Death("hung"))  # who has not been told of it is told now
    blamed, others, _ = here.owner.partitions_lost.call_args.args
    assert [t.partition_id for t in (*blamed, *others)] == (["a"] if untaken else [])


def test_time_for_which_the_loop_was_away_does_not_count():
    here = Here(away_after_s=1.0).up()
    here.offer("a")
    here.says(1.0, event=stage("a", "proving"))
    limits = Limits(heartbeat_s=30.0)

    def given_up(at_s):
        here.now_s = at_s
        return [one.cause for one in decide(at_s, [], here.fleet.views(), limits).replacements]

    assert given_up(1.5) == []
    assert given_up(501.5) == [], "nobody has listened since 1.5"
    for at_s in range(502, 532):
        assert given_up(float(at_s)) == []
    (cause,) = given_up(531.5)
    assert cause.startswith("no heartbeat for 30.5 s")
    for at_s in range(532, 602):
        here.says(float(at_s), heartbeat=wire.Heartbeat())
        assert given_up(float(at_s)) == []
    (cause,) = given_up(601.5)
    assert "a partition of circuit square has been proving for 100.5 s" in cause
