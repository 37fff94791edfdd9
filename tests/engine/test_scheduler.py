"""The scheduler with fake devices and a fake clock: it is a function, so it is asked."""

import random

import pytest

from cuzkd.engine.job import Priority, Stage, Ticket
from cuzkd.engine.scheduling.queue import PartitionQueue
from cuzkd.engine.scheduling.scheduler import BEFORE_DEVICE, Held, Limits, ProverView, decide, places

LIMITS = Limits(ready_target=2, max_parallel=1, heartbeat_s=30.0, group=3)
NORMAL, HIGH, LOW, CRITICAL = Priority.NORMAL, Priority.HIGH, Priority.LOW, Priority.CRITICAL


def ticket(sequence, attempt=1, priority=NORMAL, circuit="c"):
    return Ticket(f"j/{sequence}", "j", 0, circuit, f"d{circuit}", "/x", priority, sequence, attempt)


def holds(*stages, attempt=1, since_s=0.0, allowed_s=None, priority=NORMAL):
    return tuple(
        Held(f"h/{n}", stage, since_s, attempt, allowed_s, priority, "d") for n, stage in enumerate(stages)
    )


def offers(waiting, *provers):
    return [(o.ticket.sequence, o.prover) for o in decide(0.0, waiting, provers, LIMITS).offers]


def test_an_idle_prover_is_filled_up_to_its_bound():
    assert offers([ticket(n) for n in range(9)], ProverView("p", 0.0)) == [(0, "p"), (1, "p"), (2, "p")]


@pytest.mark.parametrize(
    ("stages", "room"),
    [
        ((Stage.OFFERED, Stage.SYNTHESISING, Stage.READY), 0),
        ((Stage.READY, Stage.READY), 1),
        ((Stage.PROVING, Stage.VERIFYING), 3),
        ((Stage.PROVING, Stage.READY, Stage.READY, Stage.SYNTHESISING), 0),
    ],
)
def test_what_the_device_has_begun_does_not_count(stages, room):
    assert len(offers([ticket(n) for n in range(9)], ProverView("p", 0.0, holds(*stages)))) == room


def test_the_one_that_holds_least_gets_the_next():
    a, b = ProverView("a", 0.0, holds(Stage.READY, Stage.READY)), ProverView("b", 0.0)
    assert offers([ticket(n) for n in range(3)], a, b) == [(0, "b"), (1, "b"), (2, "b")]
    a, b = (ProverView(name, 0.0, holds(Stage.READY)) for name in "ab")
    assert offers([ticket(n) for n in range(9)], a, b) == [(0, "a"), (1, "b"), (2, "a"), (3, "b")]


def test_of_those_that_hold_equally_little_the_one_that_knows_the_circuit_gets_the_next():
    a, b = ProverView("a", 0.0, circuit="x", streak=9), ProverView("b", 0.0, circuit="c", streak=9)
    assert offers([ticket(1)], a, b) == offers([ticket(1, priority=CRITICAL)], a, b) == [(1, "b")]


FULL = (Stage.OFFERED, Stage.SYNTHESISING, Stage.READY)


def test_one_critical_goes_to_a_full_prover():
    urgent = [ticket(n, priority=CRITICAL) for n in (1, 2)]
    full = ProverView("p", 0.0, holds(*FULL))
    assert offers([*urgent, ticket(3, priority=HIGH)], full) == [(1, "p")]
    beside = ProverView("p", 0.0, holds(*FULL) + holds(Stage.SYNTHESISING, priority=CRITICAL))
    assert offers(urgent, beside) == []
    begun = ProverView("p", 0.0, holds(*FULL) + holds(Stage.PROVING, priority=CRITICAL))
    assert offers(urgent, begun) == [(1, "p")]
    assert offers([ticket(1, priority=HIGH)], full) == []


def test_a_prover_goes_on_with_its_circuit_then_it_is_the_oldest_ones_turn():
    waiting = [ticket(n, circuit="ab"[n % 2]) for n in range(20)]
    seen, view = [], ProverView("p", 0.0)
    for _ in range(10):
        offer = decide(0.0, waiting, [view], Limits(1, 0, group=3)).offers[0].ticket
        waiting.remove(offer)
        seen.append(offer.sequence)
        view = ProverView(
            "p",
            0.0,
            circuit=offer.circuit,
            streak=view.streak + 1 if view.circuit == offer.circuit else 1,
        )
    assert seen == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7]


def test_what_is_urgent_is_not_grouped():
    view = ProverView("p", 0.0, circuit="a", streak=1)
    for priority in (HIGH, CRITICAL):
        waiting = [ticket(1, priority=priority, circuit="b"), ticket(2, priority=priority, circuit="a")]
        assert offers(waiting, view)[0] == (1, "p")
    # nor does a group overtake a better priority
    waiting = [ticket(9, priority=HIGH, circuit="b"), ticket(1, circuit="a"), ticket(0, priority=LOW)]
    assert [n for n, _ in offers(waiting, view)] == [9, 1, 0]


def test_two_provers_two_circuits():
    waiting = [ticket(n, circuit="ab"[n % 2]) for n in range(8)]
    a, b = ProverView("p", 0.0, circuit="a", streak=1), ProverView("q", 0.0, circuit="b", streak=1)
    assert offers(waiting, a, b)[:4] == [(0, "p"), (1, "q"), (2, "p"), (3, "q")]


def test_a_suspect_is_alone():
    suspect, other = ticket(1, attempt=2), ticket(2)
    assert offers([suspect, other], ProverView("p", 0.0)) == [(1, "p")]
    assert offers([suspect, other], ProverView("p", 0.0, holds(Stage.PROVING))) == []
    assert offers([other], ProverView("p", 0.0, holds(Stage.PROVING, attempt=2))) == []
    assert offers([suspect, other], ProverView("p", 0.0), ProverView("q", 0.0)) == [(1, "p"), (2, "q")]
    # it is not starved: nothing behind it goes to the prover that it waits for
    assert offers([suspect, other], ProverView("p", 0.0, holds(Stage.VERIFYING))) == []


def test_a_suspect_keeps_one_prover_free_and_no_other():
    waiting = [ticket(1, attempt=2), ticket(2, attempt=3), ticket(3), ticket(4, priority=LOW)]
    a, b = (
        ProverView("a", 0.0, holds(Stage.PROVING, Stage.VERIFYING)),
        ProverView("b", 0.0, holds(Stage.PROVING)),
    )
    assert offers(waiting, a, b) == [(3, "a"), (4, "a")]
    # the one that runs a suspect is the one that others wait for
    a = ProverView("a", 0.0, holds(Stage.PROVING, attempt=2))
    assert offers(waiting[1:], b, a) == [(3, "b"), (4, "b")]


def test_what_is_more_urgent_waits_for_a_suspect_only_while_it_runs():
    urgent, suspect = ticket(5, priority=CRITICAL), ticket(1, attempt=2)
    assert offers([urgent, suspect], ProverView("p", 0.0, holds(Stage.PROVING))) == [(5, "p")]
    assert offers([urgent], ProverView("p", 0.0, holds(Stage.PROVING, attempt=2))) == []


def test_a_prover_that_closes_is_given_nothing_and_watched():
    view = ProverView("p", 0.0, holds(Stage.PROVING, allowed_s=9.0), closing=True)
    assert offers([ticket(1, priority=CRITICAL)], view) == []
    assert offers([ticket(1)], view, ProverView("q", 0.0)) == [(1, "q")]
    assert decide(10.0, [], [view], LIMITS).replacements and decide(99.0, [], [view], LIMITS).replacements


def test_no_prover_no_offer():
    assert decide(0.0, [ticket(1)], [], LIMITS).offers == ()


def test_a_silent_prover_is_replaced_and_given_nothing():
    assert decide(30.0, [], [ProverView("p", 0.0)], LIMITS).replacements == ()
    decisions = decide(30.1, [ticket(1)], [ProverView("p", 0.0), ProverView("q", 30.0)], LIMITS)
    assert [(r.prover, "no heartbeat for 30.1 s" in r.cause) for r in decisions.replacements] == [("p", True)]
    assert [o.prover for o in decisions.offers] == ["q"]


@pytest.mark.parametrize("stage", [Stage.SYNTHESISING, Stage.PROVING, Stage.VERIFYING])
def test_a_stage_has_a_deadline(stage):
    held = holds(stage, since_s=5.0, allowed_s=100.0)
    for progress_s in (0.0, 104.0):
        assert decide(105.0, [], [ProverView("p", 105.0, held, progress_s)], LIMITS).replacements == ()
        (replacement,) = decide(105.5, [], [ProverView("p", 105.5, held, progress_s)], LIMITS).replacements
        assert replacement.cause == (
            f"a partition of circuit d has been {stage} for 100.5 s, at most 100 s are allowed"
        )
        assert replacement.partition_id == "h/0"
    unlimited = holds(stage, since_s=0.0)
    assert decide(9e9, [], [ProverView("p", 9e9, unlimited)], LIMITS).replacements == ()


@pytest.mark.parametrize("stage", [Stage.OFFERED, Stage.READY])
def test_what_waits_in_a_prover_is_overdue_when_nothing_goes_on_there(stage):
    held = holds(stage, since_s=5.0, allowed_s=100.0)
    assert decide(200.0, [], [ProverView("p", 200.0, held, 100.0)], LIMITS).replacements == ()
    (replacement,) = decide(200.5, [], [ProverView("p", 200.5, held, 100.0)], LIMITS).replacements
    assert "195.5 s" in replacement.cause and "without progress of any other" in replacement.cause


@pytest.mark.parametrize("stage", BEFORE_DEVICE)
def test_before_the_device_one_may_wait_for_what_another_may_take(stage):
    held = holds(stage, allowed_s=10.0) + holds(Stage.PROVING, allowed_s=100.0)
    assert decide(100.0, [], [ProverView("p", 100.0, held)], LIMITS).replacements == ()
    assert decide(100.5, [], [ProverView("p", 100.5, held)], LIMITS).replacements
    held = holds(stage, allowed_s=10.0) + holds(Stage.PROVING)
    assert decide(9e9, [], [ProverView("p", 9e9, held)], LIMITS).replacements == ()
    # but not the other way round
    held = holds(Stage.PROVING, allowed_s=10.0) + holds(stage, allowed_s=100.0)
    assert decide(10.5, [], [ProverView("p", 10.5, held)], LIMITS).replacements


def chance(random, limits):
    """Provers and a queue in any state that can be."""
    provers = [
        ProverView(
            f"p{n}",
            0.0,
            tuple(
                Held(f"p{n}/{k}", random.choice(list(Stage)[1:6]), 0.0, random.choice((1, 1, 1, 2)),
                     priority=random.choice(list(Priority)))
                for k in range(random.randint(0, limits.max_held))
            ),
            circuit=random.choice("abc"),
            streak=random.randint(0, 4),
        )
        for n in range(random.randint(0, 3))
    ]  # fmt: skip
    queue = PartitionQueue(100)
    queue.push(
        [
            ticket(n, random.choice((1, 1, 1, 2)), random.choice(list(Priority)), random.choice("abcde"))
            for n in random.sample(range(1000), random.randint(0, 40))
        ]
    )
    return provers, queue


def test_the_bounds_hold_whatever_happens():
    source = random.Random(5)
    for _ in range(2000):
        limits = Limits(source.randint(1, 3), source.randint(0, 3), group=source.randint(0, 4))
        provers, queue = chance(source, limits)
        made = decide(0.0, list(queue), provers, limits).offers
        assert len({o.ticket.sequence for o in made}) == len(made)
        for prover in provers:
            mine = [o.ticket for o in made if o.prover == prover.prover]
            waits = [held for held in prover.held if held.stage in BEFORE_DEVICE]
            lane = any(t.priority is CRITICAL for t in mine)
            assert not mine or len(mine) + len(waits) <= limits.max_held + lane
            if any(t.attempt > 1 for t in mine):
                assert len(mine) == 1 and not prover.held
            if any(held.attempt > 1 for held in prover.held):
                assert not mine
        if [t for t in queue if t.attempt == 1][len(made) :]:  # it is not for idleness that they wait
            for prover in provers:
                taken = [o for o in made if o.prover == prover.prover]
                suspects = [h for h in prover.held if h.attempt > 1]
                waits = [held for held in prover.held if held.stage in BEFORE_DEVICE]
                if not suspects and all(t.attempt == 1 for t in queue):
                    assert len(taken) + len(waits) >= limits.max_held


def test_the_candidates_are_all_that_it_needs_to_see():
    source = random.Random(6)
    for _ in range(2000):
        limits = Limits(source.randint(1, 3), source.randint(0, 3), group=source.randint(0, 4))
        provers, queue = chance(source, limits)
        candidates = queue.candidates({view.circuit for view in provers}, places(provers, limits))
        assert decide(0.0, candidates, provers, limits) == decide(0.0, list(queue), provers, limits)


# -- where not every prover can have every key --


def with_keys(name, *circuits, held=()):
    return ProverView(name, 0.0, held, keys=frozenset(circuits))


def offers_with(copies, waiting, *provers):
    found = decide(0.0, waiting, provers, LIMITS, copies).offers
    return [(o.ticket.sequence, o.prover) for o in found]


def test_no_more_provers_than_there_is_room_for_its_key_are_given_a_circuit():
    waiting = [ticket(n) for n in range(1, 9)]
    p, q, r = (with_keys(name) for name in "pqr")
    circuit = waiting[0].circuit
    assert {prover for _, prover in offers_with({circuit: 1}, waiting, p, q, r)} == {"p"}
    assert {prover for _, prover in offers_with({circuit: 2}, waiting, p, q, r)} == {"p", "q"}
    assert {prover for _, prover in offers_with({}, waiting, p, q, r)} == {"p", "q", "r"}


def test_those_that_have_the_key_come_first_and_one_that_ends_still_has_it():
    waiting = [ticket(n) for n in range(1, 9)]
    circuit = waiting[0].circuit
    p, q = with_keys("p"), with_keys("q", circuit)
    assert {prover for _, prover in offers_with({circuit: 1}, waiting, p, q)} == {"q"}
    ending = ProverView("q", 0.0, closing=True, keys=frozenset({circuit}))
    assert offers_with({circuit: 1}, waiting, p, ending) == []


def test_others_go_on_behind_a_circuit_that_has_no_room():
    waiting = [ticket(n, priority=HIGH) for n in range(1, 9)]
    waiting += [ticket(n, circuit="other") for n in range(9, 12)]
    circuit = waiting[0].circuit
    given = offers_with({circuit: 1}, waiting, with_keys("p", circuit), with_keys("q"))
    assert {n for n, prover in given if prover == "q"} == {9, 10, 11}
    assert {n for n, prover in given if prover == "p"} == {1, 2, 3}


def test_a_suspect_waits_for_one_that_may_have_its_key():
    suspect = ticket(1, attempt=2)
    busy = with_keys("p", suspect.circuit, held=(Held("x", Stage.PROVING, 0.0),))
    waiting = [suspect, ticket(2, circuit="other")]
    given = offers_with({suspect.circuit: 1}, waiting, busy, with_keys("q"))
    assert given == [(2, "q")], "p is kept free, q goes on"


# -- somewhere else --


def failed_in(name, *sequences, held=()):
    return ProverView(name, 0.0, held, failed=frozenset(f"j/{n}" for n in sequences))


def test_what_failed_in_one_prover_is_tried_in_another_one():
    suspect = ticket(1, attempt=2)
    idle, busy = failed_in("p", 1), failed_in("q", held=holds(Stage.PROVING))
    assert offers([suspect, ticket(2)], idle, busy) == [(2, "p")], "q is kept free for it"
    assert offers([suspect, ticket(2)], failed_in("q"), idle) == [(1, "q"), (2, "p")]


def test_what_failed_everywhere_is_tried_anywhere():
    suspect = ticket(1, attempt=3)
    assert offers([suspect], failed_in("p", 1), failed_in("q", 1, held=holds(Stage.PROVING))) == [(1, "p")]
    assert offers([suspect], failed_in("p", 1)) == [(1, "p")]
    ending = ProverView("q", 0.0, closing=True)
    assert offers([suspect], failed_in("p", 1), ending) == [(1, "p")]


def test_where_the_key_has_no_room_elsewhere_it_stays():
    suspect = ticket(1, attempt=2)
    here = ProverView("p", 0.0, keys=frozenset({"c"}), failed=frozenset({"j/1"}))
    assert offers_with({"c": 1}, [suspect], here, with_keys("q")) == [(1, "p")]
