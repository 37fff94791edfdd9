"""Grants over the desk, the auto limit, and what can never fit."""

import asyncio
import random
from dataclasses import replace
from unittest.mock import Mock

import pytest
from engine.front import manifest

from cuzkd.circuits.manifest import SectionEntry
from cuzkd.engine.fleet.budget_desk import BudgetDesk, auto_limit, need_bytes, working_bytes
from cuzkd.engine.fleet.copies import Copies
from cuzkd.engine.fleet.fleet import Fleet
from cuzkd.engine.fleet.health import Health, Rules
from cuzkd.engine.fleet.patience import Patience
from cuzkd.engine.job import Priority, Ticket
from cuzkd.engine.scheduling.estimates import Estimates
from cuzkd.engine.scheduling.scheduler import ProverView
from cuzkd.engine.wire import prover_pb2 as wire
from cuzkd.errors import CuzkdError, NeverFits, NotFound

GIB = 1 << 30


class Desk(BudgetDesk):
    """With answers and shortages written down."""

    def __init__(self, limit_bytes):
        self.answers, self.shortages = [], []
        super().__init__(limit_bytes, self.shortages.append)

    def request(self, prover, number, nbytes, now=False):
        request = wire.GrantRequest(request_id=number, bytes=nbytes, what="slab", now=now)
        self.ask(prover, request, lambda g: self.answers.append((g.request_id, g.bytes, g.error_code)))


def test_first_come_first_served_over_all_provers():
    desk = Desk(100)
    desk.open("p")
    desk.open("q")
    desk.request("p", 1, 60)
    desk.request("q", 1, 50)
    desk.request("p", 2, 10)
    assert desk.answers == [(1, 60, "")] and desk.shortages == [10, 10]
    assert desk.short_bytes() == 10
    desk.give_back("p", 20)
    assert desk.answers == [(1, 60, ""), (1, 50, ""), (2, 10, "")]
    assert (desk.held_bytes("p"), desk.held_bytes("q"), desk.budget.used_bytes) == (50, 50, 100)
    assert desk.short_bytes() == 0
    with pytest.raises(CuzkdError, match="returns 51 bytes and holds 50"):
        desk.give_back("q", 51)


def test_returns_come_in_any_size():
    desk = Desk(100)
    desk.open("p")
    for number, nbytes in enumerate((10, 20, 30)):
        desk.request("p", number, nbytes)
    for nbytes in (1, 34, 5, 20):
        desk.give_back("p", nbytes)
    assert desk.held_bytes("p") == desk.budget.used_bytes == 0


def test_now_or_never_or_later():
    desk = Desk(100)
    desk.open("p")
    desk.request("p", 1, 101)
    desk.request("p", 2, 101, now=True)
    desk.request("p", 3, 90, now=True)
    desk.request("p", 4, 11, now=True)
    assert desk.answers == [(1, 0, "never_fits"), (2, 0, "never_fits"), (3, 90, ""), (4, 0, "exhausted")]
    assert desk.budget.waiting == 0


def test_what_is_withdrawn_holds_up_nobody():
    desk = Desk(100)
    desk.open("p")
    desk.request("p", 1, 60)
    desk.request("p", 2, 50)
    desk.request("p", 3, 40)
    desk.request("p", 2, 0)  # withdrawn: the one behind it is served
    assert desk.answers == [(1, 60, ""), (3, 40, "")]
    desk.request("p", 3, 0)  # too late: its grant is on the way, and comes back
    desk.give_back("p", 40)
    assert (desk.held_bytes("p"), desk.budget.used_bytes, desk.budget.waiting) == (60, 60, 0)
    desk.request("p", 4, 0)  # nothing at all is asked for
    assert desk.answers[-1] == (4, 0, "") and desk.held_bytes("p") == 60


def test_death_returns_everything_and_serves_the_others():
    desk = Desk(100)
    desk.open("p")
    desk.open("q")
    desk.request("p", 1, 70)
    desk.request("p", 2, 80)
    desk.request("q", 1, 90)
    desk.close("p")
    desk.close("p")
    assert desk.answers == [(1, 70, ""), (1, 90, "")]
    assert (desk.held_bytes("p"), desk.budget.used_bytes) == (0, 90)
    desk.open("p")
    desk.request("p", 1, 10)
    assert desk.answers[-1] == (1, 10, "")


def lay(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = {"proc/meminfo": f"MemTotal: {64 * GIB // 1024} kB\nMemFree: 1 kB\n"}


GROUPS, TOP = "proc/self/cgroup", "sys/fs/cgroup"
OLD = f"{TOP}/memory/j/memory.limit_in_bytes"


@pytest.mark.parametrize(
    ("files", "total", "source"),
    [
        ({}, 64 * GIB, "MemTotal"),
        ({GROUPS: "0::/a/b\n"}, 64 * GIB, "MemTotal"),
        (
            {
                GROUPS: "0::/a/b\n",
                f"{TOP}/a/b/memory.max": "max",
                f"{TOP}/a/memory.max": str(8 * GIB),
                f"{TOP}/memory.max": str(9 * GIB),
            },
            8 * GIB,
            "a/memory.max",
        ),
        (
            {
                GROUPS: "0::/a\n",
                f"{TOP}/a/memory.max": str(8 * GIB),
                f"{TOP}/a/memory.high": str(7 * GIB),
            },
            7 * GIB,
            "a/memory.high",
        ),
        ({GROUPS: "0::/not/here\n", f"{TOP}/memory.max": str(4 * GIB)}, 4 * GIB, "cgroup/memory.max"),
        ({GROUPS: "5:cpu:/x\n4:memory:/j\n", OLD: str(2 * GIB)}, 2 * GIB, "memory.limit_in_bytes"),
        ({GROUPS: "4:memory:/j\n", OLD: str(2**63 - 4096)}, 64 * GIB, "MemTotal"),
        (  # the older layout has levels, too
            {
                GROUPS: "4:memory:/j/k\n",
                f"{TOP}/memory/j/k/memory.limit_in_bytes": str(5 * GIB),
                OLD: str(3 * GIB),
            },
            3 * GIB,
            "memory/j/memory.limit_in_bytes",
        ),
        (  # both layouts at once
            {GROUPS: "4:memory:/j\n0::/u\n", OLD: str(7 * GIB), f"{TOP}/u/memory.max": str(6 * GIB)},
            6 * GIB,
            "u/memory.max",
        ),
        # a group outside of what this container sees: its own root counts
        ({GROUPS: "0::/../../x\n", f"{TOP}/memory.max": str(4 * GIB)}, 4 * GIB, "cgroup/memory.max"),
        ({GROUPS: "0::/\n", f"{TOP}/memory.max": str(999 * GIB)}, 64 * GIB, "MemTotal"),
    ],
)
def test_auto_limit_is_the_smallest_one_less_a_margin(tmp_path, files, total, source):
    limit = auto_limit(lay(tmp_path, {**MEMINFO, **files}), margin_bytes=1000)
    assert limit.limit_bytes == total - 1000 and source in limit.source and str(total) in limit.source


def test_auto_limit_of_this_machine():
    limit = auto_limit()
    assert limit.limit_bytes > 0 and limit.source


def test_never_fits_has_both_numbers():
    points = SectionEntry("a_g1", GIB, "uint64", (GIB // 2,), ())
    circuit = manifest(log_domain=20, n_wires=1000, key_bytes=5 * GIB, sections=(points,))
    need = need_bytes(circuit, in_place=True)
    assert need == 5 * GIB + 3 * 32 * 2**20 + 32768
    assert need_bytes(circuit, in_place=False) == 2 * GIB  # its head, and what its points pass through
    many = replace(circuit, n_constraints=1 << 26)  # their vectors, and of the key all but its points
    assert need_bytes(many, in_place=False) == GIB + 2 * (2**31 + 4096) + 32768
    desk = Desk(need - 1)
    with pytest.raises(NeverFits, match=f"{need} bytes.*{need - 1} bytes"):
        desk.require_possible(circuit, in_place=True)
    Desk(need).require_possible(circuit, in_place=True)


async def settled():
    """Let every task go on as far as it can: nothing here waits for anything but memory."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_front_stands_in_the_same_line():
    async def scenario():
        desk = Desk(100)
        desk.open("p")
        desk.request("p", 1, 60)
        own = asyncio.create_task(desk.reserve_async(50, "a large message"))
        await settled()
        desk.request("p", 2, 10)  # would fit, and does not overtake
        assert not own.done() and desk.answers == [(1, 60, "")] and desk.shortages == [10, 10]
        desk.give_back("p", 10)
        reservation = await own
        assert (reservation.nbytes, desk.budget.used_bytes, desk.short_bytes()) == (50, 100, 10)
        reservation.release()
        assert desk.answers[-1] == (2, 10, "") and desk.budget.used_bytes == 60

    asyncio.run(scenario())


def test_the_front_is_told_at_once_what_never_fits():
    async def scenario():
        desk = Desk(100)
        with pytest.raises(NeverFits, match=r"intake needs 101 bytes, the whole host budget is 100 bytes"):
            await desk.reserve_async(101, "intake")
        assert desk.budget.waiting == 0
        (await desk.reserve_async(100, "intake")).release()

    asyncio.run(scenario())


@pytest.mark.parametrize("granted_first", [False, True], ids=["waiting", "granted, not yet resumed"])
def test_who_is_cancelled_holds_nothing_and_holds_up_nobody(granted_first):
    async def scenario():
        desk = Desk(100)
        desk.open("p")
        desk.request("p", 1, 60)
        own = asyncio.create_task(desk.reserve_async(50, "message"))
        await settled()
        desk.request("p", 2, 40)
        if granted_first:
            desk.give_back("p", 60)
        own.cancel()
        with pytest.raises(asyncio.CancelledError):
            await own
        if not granted_first:
            desk.give_back("p", 60)
        assert desk.answers == [(1, 60, ""), (2, 40, "")]
        assert (desk.budget.used_bytes, desk.budget.waiting, desk.short_bytes()) == (40, 0, 0)

    asyncio.run(scenario())


def test_a_grant_that_comes_while_the_cancelled_one_has_not_left_goes_back():
    async def scenario():
        desk = Desk(100)
        desk.open("p")
        desk.request("p", 1, 60)
        own = asyncio.create_task(desk.reserve_async(50, "message"))
        await settled()
        own.cancel()
        desk.give_back("p", 60)  # before the task has seen that it is cancelled
        with pytest.raises(asyncio.CancelledError):
            await own
        assert (desk.budget.used_bytes, desk.budget.waiting) == (0, 0)

    asyncio.run(scenario())


def test_neither_large_nor_small_requests_starve():
    """Everybody always wants more, in sizes from a byte to all there is: every grant is that of the oldest request."""
    source = random.Random(11)
    desk = Desk(1000)
    granted, held = [], []
    for prover in "pq":
        desk.open(prover)

    def ask(number, prover):
        def answer(grant):
            granted.append(grant.request_id)
            held.append((prover, grant.bytes))

        nbytes = source.choice((1000, 999, 500, 10, 1))
        desk.ask(prover, wire.GrantRequest(request_id=number, bytes=nbytes, what="slab"), answer)

    def return_one():
        desk.give_back(*held.pop(source.randrange(len(held))))
        assert desk.budget.used_bytes == sum(nbytes for _, nbytes in held) <= 1000

    for number in range(500):
        ask(number, source.choice("pq"))
        while desk.budget.waiting > 5:
            return_one()
    while held:
        return_one()
    assert granted == list(range(500)) and desk.budget.waiting == 0


class Told:
    """A supervisor as far as the fleet tells it things."""

    def __init__(self, name):
        self.name, self.messages = name, []

    def send(self, message):
        self.messages.append(message)


def test_a_shortage_shrinks_idle_pools_then_evicts_the_key_that_was_idle_longest():
    now, owner = [0.0], Mock()
    desk = BudgetDesk(100, lambda nbytes: fleet.make_room(nbytes, min_idle_s=10.0))
    fleet = Fleet(
        owner, desk, lambda event: None, lambda: now[0], Patience(Estimates(None), 900.0, lambda _: 0)
    )
    told = Told("p")
    fleet.add(told, Health(Rules("cpu", 3, 60.0, 3600.0)))
    fleet.prover_starting("p", 1)
    fleet.prover_ready("p", wire.Ready(backend="cpu"))

    def happens(at_s, **kind):
        now[0] = at_s
        told.messages.clear()
        fleet.prover_said("p", wire.FromProver(**kind))
        return [(m.WhichOneof("kind"), m.drop.circuit or m.shrink_pool.bytes) for m in told.messages]

    def wants(at_s, number, nbytes):
        return happens(at_s, grant_request=wire.GrantRequest(request_id=number, bytes=nbytes, what="key"))

    def gone(at_s, circuit):
        return happens(at_s, circuit=wire.CircuitState(circuit=circuit, was_loaded=True))

    assert wants(0, 1, 90) == [("grant", 0)]
    newer = "older by name, newer by use"
    for at_s, circuit in ((1, "old"), (2, newer), (25, "busy"), (26, "at work")):
        fleet.offer(Ticket(circuit, "j", 0, circuit, "d", "/x", Priority.NORMAL, at_s), "p")
        happens(at_s, circuit=wire.CircuitState(circuit=circuit, loaded=True, digest="d", bytes=30))
        if circuit == "at work":  # the requests are not all that goes on there
            happens(at_s, event=wire.PartitionEvent(partition_id=circuit, stage="proving"))
        else:
            happens(at_s, failed=wire.PartitionFailed(partition_id=circuit, error_code="cancelled"))
    assert wants(30, 2, 30) == [("shrink_pool", 20), ("drop", "old")]
    assert wants(30, 3, 10) == [("shrink_pool", 20)]  # one is going already
    assert happens(31, grant_return=wire.GrantReturn(bytes=20)) == [("grant", 0)]
    assert gone(31, "old") == []
    assert wants(31, 4, 10) == [("shrink_pool", 10), ("drop", newer)]
    assert gone(32, newer) == []
    assert wants(32, 5, 10) == [("shrink_pool", 10)]  # "busy" has not been idle for long enough
    assert happens(33, grant_return=wire.GrantReturn(bytes=20)) == [("grant", 0), ("grant", 0)]
    # once nothing else goes on there, it has been idle for long enough
    done = wire.PartitionDone(partition_id="at work", attempts_inside=1)
    assert happens(34, done=done) == [("shrink_pool", 10), ("drop", "busy")]
    assert gone(35, "busy") == []
    assert happens(35, grant_return=wire.GrantReturn(bytes=10)) == [("grant", 0)]
    assert desk.budget.used_bytes == 100 and desk.held_bytes("p") == 100


def test_how_many_provers_have_room_for_a_circuit():
    circuit = replace(manifest(), key_bytes=10 * GIB, n_wires=1 << 25)  # a vector of a GiB
    need, working = (ask(circuit, in_place=False) for ask in (need_bytes, working_bytes))
    assert GIB < working <= need
    for limit, copies in (
        (need - 1, 1),
        (need, 1),
        (need + working - 1, 1),
        (need + working, 2),
        (need + 3 * working, 4),
    ):
        assert Desk(limit).copies(circuit, in_place=False) == copies


def ticket_of(circuit):
    return Ticket("a", "j", 0, circuit, f"d-{circuit}", "/x", Priority.LOW, 1)


def test_circuits_of_which_few_copies_fit():
    asked = []

    def find(name):
        asked.append(name)
        if name == "gone":
            raise NotFound(name)
        return name

    copies = Copies(lambda name, in_place: {"large": 1, "small": 9}[name] + in_place, find)
    waiting = [ticket_of(name) for name in ("large", "small", "gone", "large")]
    devices = [ProverView(name, 0.0, backend="cuda") for name in "pqr"]
    assert copies(waiting, devices[:1]) == {} and asked == []
    for _ in range(2):
        assert copies(waiting, devices) == {"large": 1}
    assert asked == ["large", "small", "gone"]
    assert copies(waiting, [ProverView(name, 0.0, backend="cpu") for name in "pqr"]) == {"large": 2}
