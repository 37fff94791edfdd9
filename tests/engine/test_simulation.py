"""The laws over many jobs, in simulated time (engine/simulated.py): what is checked at every step stands there: nothing
is offered twice or after its end, nothing beside a suspect, no place too many, no healthy prover replaced.
"""

import functools
import random

import pytest
from engine.simulated import Circuit, World
from hypothesis import given, settings
from hypothesis import strategies as some

from cuzkd.engine.job import Priority, Stage
from cuzkd.engine.scheduling.estimates import forecast
from cuzkd.engine.scheduling.scheduler import Limits

NORMAL, HIGH, LOW, CRITICAL = Priority.NORMAL, Priority.HIGH, Priority.LOW, Priority.CRITICAL
CIRCUITS = (
    Circuit("small", 0.2, 0.5, 0.1, 2.0),
    Circuit("usual"),
    Circuit("large", 9.0, 20.0, 1.0, 15.0),
    Circuit("slow to synthesise", 12.0, 2.0, 0.5, 5.0),
)

circuits = some.sampled_from(CIRCUITS)
priorities = some.sampled_from([LOW, NORMAL, NORMAL, HIGH, CRITICAL])
times = some.floats(0, 200)
submissions = some.lists(some.tuples(times, circuits, priorities), min_size=1, max_size=40)
limits = some.builds(
    Limits, some.integers(1, 3), some.integers(1, 2), some.just(15.0), some.sampled_from([0, 1, 3, 16])
)
worlds = some.builds(
    World,
    some.integers(1, 3),
    limits,
    keys=some.integers(1, 3),
    jitter=some.sampled_from([0.0, 0.5]),
    seed=some.integers(0, 99),
)
bad_stages = some.sampled_from([Stage.SYNTHESISING, Stage.PROVING, Stage.VERIFYING])


def ends(world):
    return [partition.end for partition in world.partitions.values()]


@settings(deadline=None)
@given(worlds, submissions)
def test_all_that_is_submitted_is_proved(world, submitted):
    for at_s, circuit, priority in submitted:
        world.at(at_s, world.submit, circuit, priority)
    world.run()
    assert ends(world) == ["done"] * len(submitted) and not world.replaced
    assert len(world.offered) == len(submitted)  # each once


@settings(deadline=None)
@given(worlds, submissions, some.lists(some.tuples(times, some.integers(0, 39)), max_size=20))
def test_what_is_cancelled_ends_and_the_rest_is_proved(world, submitted, cancels):
    for at_s, circuit, priority in submitted:
        world.at(at_s, world.submit, circuit, priority)

    def cancel(number):
        if number < len(world.partitions):
            world.cancel(list(world.partitions)[number])

    for at_s, number in cancels:
        world.at(at_s, cancel, number)
    world.run()
    assert set(ends(world)) <= {"done", "cancelled"} and not world.replaced
    assert all(p.attempts == 1 for p in world.partitions.values() if p.end == "done")


@settings(deadline=None)
@given(
    worlds, submissions, some.lists(some.tuples(times, circuits, bad_stages, some.integers(1, 9)), max_size=3)
)
def test_who_kills_or_hangs_provers_fails_alone(world, submitted, bad):
    for at_s, circuit, priority in submitted:
        world.at(at_s, world.submit, circuit, priority)
    for number, (at_s, circuit, stage, attempts) in enumerate(bad):

        def submit(circuit=circuit, stage=stage, attempts=attempts, action=("kill", "hang")[number % 2]):
            world.submit(circuit, action=action, bad_stage=stage, bad_attempts=attempts)

        world.at(at_s, submit)
    world.run()
    for partition in world.partitions.values():
        guilty = partition.bad_attempts >= 3
        assert partition.end == ("failed" if guilty else "done")
        # the first blame may be by chance, each later one is certain
        assert guilty or partition.ticket.attempt <= max(2, partition.bad_attempts + 1)


@settings(deadline=None)
@given(worlds, submissions, some.lists(some.tuples(times, some.integers(0, 2), some.booleans()), max_size=6))
def test_provers_that_die_or_fall_silent_lose_nothing(world, submitted, deaths):
    for at_s, circuit, priority in submitted:
        world.at(at_s, world.submit, circuit, priority)

    def strike(number, silently):
        prover = world.provers[f"p{number % len(world.provers)}"]
        if silently:
            prover.silent = True
        else:
            world.die(prover)

    for at_s, number, silently in deaths:
        world.at(at_s, strike, number, silently)
    world.run()
    for partition in world.partitions.values():
        assert partition.end == "done" or (partition.end == "failed" and partition.ticket.attempt == 3)
    if len(deaths) < 3:
        assert ends(world) == ["done"] * len(submitted)


@pytest.mark.parametrize("seed", range(3))
def test_thousands_of_jobs_and_everything_at_once(seed):
    source = random.Random(seed)
    world = World(3, keys=2, jitter=0.5, seed=seed)
    at_s = 0.0
    for _ in range(2000):
        at_s += source.expovariate(0.5)
        circuit, priority = source.choice(CIRCUITS), source.choice([LOW, NORMAL, NORMAL, HIGH, CRITICAL])
        chance = source.random()
        behaviour = {}
        if chance < 0.01:
            stage = source.choice([Stage.SYNTHESISING, Stage.PROVING])
            behaviour = {"action": source.choice(["kill", "hang"]), "bad_stage": stage}
            behaviour["bad_attempts"] = source.randint(1, 4)
        world.at(at_s, functools.partial(world.submit, circuit, priority, **behaviour))
        if chance > 0.9:
            world.at(
                at_s + source.expovariate(0.05), lambda: world.cancel(source.choice(list(world.partitions)))
            )
        if chance > 0.99:
            strike = source.choice([world.die, lambda prover: setattr(prover, "silent", True)])
            world.at(at_s, lambda s=strike: s(source.choice(list(world.provers.values()))))
    world.run()
    counts = {end: ends(world).count(end) for end in ("done", "failed", "cancelled")}
    assert sum(counts.values()) == 2000 and counts["done"] > 1700 and 50 < counts["cancelled"] < 250
    assert 0 < counts["failed"] < 20 and len(world.replaced) > 10


@settings(deadline=None)
@given(worlds, submissions)
def test_critical_is_begun_at_once(world, submitted):
    """Unless CRITICAL ones go before it; then each of them takes one place for as long as it is not on the device."""
    before = {}

    def submit(circuit, priority):
        waits = [p for p in world.partitions.values() if p.ticket.priority is CRITICAL and not p.end]
        before[world.submit(circuit, priority)] = len(waits)

    for at_s, circuit, priority in submitted:
        world.at(at_s, submit, circuit, priority)
    world.run()
    one_s = 1.5 * max(c.key_s + c.synthesis_s + c.proving_s for c in CIRCUITS)
    for pid, partition in world.partitions.items():
        if partition.ticket.priority is CRITICAL:
            waited_s = partition.begun_s - partition.submitted_s
            assert waited_s <= before[pid] * 2 * one_s
            assert before[pid] or waited_s == 0


@settings(deadline=None)
@given(worlds, submissions, some.lists(some.tuples(times, circuits), min_size=1, max_size=3))
def test_critical_overtakes_everything_but_what_the_device_is_at(world, submitted, urgent):
    """From the moment when a CRITICAL one is synthesised it waits for one proof at most."""
    for at_s, circuit, priority in submitted:
        world.at(at_s, world.submit, circuit, min(priority, HIGH))
    for n, (at_s, circuit) in enumerate(urgent):
        world.at(at_s + 1000 * n, world.submit, circuit, CRITICAL)  # one after another
    world.run()
    proof_s = 1.5 * max(circuit.proving_s for circuit in CIRCUITS)
    for partition in world.partitions.values():
        if partition.ticket.priority is CRITICAL:
            circuit = partition.circuit
            own_s = circuit.key_s + 1.5 * (circuit.synthesis_s + circuit.proving_s + circuit.verifying_s)
            assert partition.ended_s - partition.submitted_s <= own_s + proof_s


@settings(deadline=None)
@given(
    some.lists(circuits, min_size=2, max_size=40),
    some.integers(1, 3),
    some.integers(2, 16),
)
def test_nobody_starves_behind_a_group(names, provers, group):
    """The oldest that waits is passed over by at most one group of each prover."""
    world = World(provers, Limits(2, 1, 15.0, group), keys=3)
    for circuit in names:
        world.submit(circuit)
    world.run()
    order = [int(pid[1:].split("/")[0]) for pid, _ in world.offered]
    for oldest in sorted(order):
        since = max((order.index(n) for n in order if n < oldest), default=-1)  # when it became the oldest
        passed = order[since + 1 : order.index(oldest)] if order.index(oldest) > since else []
        assert len(passed) <= group * provers


def loads(names, group, keys=1):
    world = World(1, Limits(2, 1, 15.0, group), keys=keys)
    for circuit in names:
        world.submit(circuit)
    world.run()
    return world.provers["p0"].loads


def test_grouping_loads_keys_less_often():
    small, usual = CIRCUITS[:2]
    assert (loads([small, usual] * 32, 1), loads([small, usual] * 32, 16)) == (64, 4)
    source = random.Random(4)
    for keys in (1, 2):
        many = [source.choice(CIRCUITS) for _ in range(300)]
        assert loads(many, 16, keys) * 3 < loads(many, 1, keys)


@settings(deadline=None)
@given(some.lists(circuits, min_size=1, max_size=60), some.integers(2, 16))
def test_grouping_never_loads_keys_more_often(names, group):
    assert loads(names, group) <= loads(names, 1)


def test_each_of_two_provers_keeps_to_a_circuit():
    world = World(2, keys=1)
    small, usual = CIRCUITS[:2]
    for _ in range(16):
        world.submit(small)
        world.submit(usual)
    world.run()
    assert sum(prover.loads for prover in world.provers.values()) <= 6  # one at a time would be 32


@pytest.mark.parametrize("provers", [1, 2, 4])
@pytest.mark.parametrize("mixed", [False, True])
def test_what_clients_are_told_comes_true(provers, mixed):
    """Jobs of known circuits, told when they come, and again half-way: the real end is near."""
    source = random.Random(2)
    names = [source.choice(CIRCUITS[:2]) if mixed else CIRCUITS[1] for _ in range(200)]
    world = World(provers, keys=4, limits=Limits(2, 1, 15.0, group=1))
    for circuit in CIRCUITS:
        phases = {"synthesis": circuit.synthesis_s, "msm_h": circuit.proving_s, "verify": circuit.verifying_s}
        for prover in world.provers.values():
            prover.keys[circuit.name] = None
        for _ in range(8):
            world.estimates.learn(f"d{circuit.name}", "cuda", phases)
    told = {}

    def tell(pid):
        partition = world.partitions[pid]
        if partition.end:
            return
        held = any(pid in prover.holds for prover in world.provers.values())
        ticket = partition.ticket
        views = [replaced_backend(view) for view in world.views()]
        told.setdefault(pid, []).append(
            world.now_s
            + forecast(
                world.now_s,
                views,
                world.estimates,
                ticket.circuit_digest,
                held=[pid] if held else [],
                waiting=0 if held else 1,
                ahead=world.queue.ahead(ticket.priority, ticket.sequence),
            ).end_s
        )

    for circuit in names:
        pid = world.submit(circuit)
        world.at(0.0, tell, pid)
        world.at(200.0 / provers, tell, pid)
    world.run()
    assert sum(len(times) for times in told.values()) > 250
    for pid, times in told.items():
        for end_s in times:
            assert abs(end_s - world.partitions[pid].ended_s) <= 10


def replaced_backend(view):
    return type(view)(**{**view.__dict__, "backend": "cuda"})
