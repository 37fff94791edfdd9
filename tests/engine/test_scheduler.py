"""The scheduler with fake devices and a fake clock: it is a function, so it is asked."""

import random

import pytest

from cuzkd.engine.job import Priority, Stage, Ticket
from cuzkd.engine.scheduler import BEFORE_DEVICE, Held, Limits, ProverView, decide

LIMITS = Limits(ready_target=2, max_parallel=1, heartbeat_s=30.0, stage_s={Stage.PROVING: 100.0})


def ticket(sequence, attempt=1, priority=Priority.NORMAL):
    return Ticket(f"j/{sequence}", "j", 0, "c", "d", "/x", priority, sequence, attempt)


def holds(*stages, attempt=1, since_s=0.0):
    return tuple(Held(f"h/{n}", stage, since_s, attempt) for n, stage in enumerate(stages))


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
    assert offers([ticket(n) for n in range(4)], a, b) == [(0, "b"), (1, "b"), (2, "a"), (3, "b")]


def test_a_suspect_is_alone():
    suspect, other = ticket(1, attempt=2), ticket(2)
    assert offers([suspect, other], ProverView("p", 0.0)) == [(1, "p")]
    assert offers([suspect, other], ProverView("p", 0.0, holds(Stage.PROVING))) == []
    assert offers([other], ProverView("p", 0.0, holds(Stage.PROVING, attempt=2))) == []
    assert offers([suspect, other], ProverView("p", 0.0), ProverView("q", 0.0)) == [(1, "p"), (2, "q")]
    # it is not starved: nothing behind it goes to the prover that it waits for
    assert offers([suspect, other], ProverView("p", 0.0, holds(Stage.VERIFYING))) == []


def test_no_prover_no_offer():
    assert decide(0.0, [ticket(1)], [], LIMITS).offers == ()


def test_a_silent_prover_is_replaced_and_given_nothing():
    assert decide(30.0, [], [ProverView("p", 0.0)], LIMITS).replacements == ()
    decisions = decide(30.1, [ticket(1)], [ProverView("p", 0.0), ProverView("q", 30.0)], LIMITS)
    assert [(r.prover, "no heartbeat for 30.1 s" in r.cause) for r in decisions.replacements] == [("p", True)]
    assert [o.prover for o in decisions.offers] == ["q"]


def test_a_stage_has_a_deadline():
    held = holds(Stage.PROVING, since_s=5.0)
    assert decide(105.0, [], [ProverView("p", 105.0, held)], LIMITS).replacements == ()
    (replacement,) = decide(105.5, [], [ProverView("p", 105.5, held)], LIMITS).replacements
    assert "h/0 has been proving for 100.5 s" in replacement.cause
    unlimited = holds(Stage.SYNTHESISING, since_s=0.0)
    assert decide(9e9, [], [ProverView("p", 9e9, unlimited)], LIMITS).replacements == ()


def test_the_bound_holds_whatever_happens():
    random.seed(5)
    for _ in range(200):
        limits = Limits(random.randint(1, 3), random.randint(1, 3))
        provers = [
            ProverView(
                f"p{n}",
                0.0,
                holds(*random.choices(list(BEFORE_DEVICE), k=random.randint(0, limits.max_held))),
            )
            for n in range(random.randint(1, 3))
        ]
        waiting = [ticket(n, attempt=random.choice((1, 1, 1, 2))) for n in range(random.randint(0, 12))]
        made = decide(0.0, waiting, provers, limits).offers
        assert [o.ticket for o in made] == waiting[: len(made)]
        for prover in provers:
            mine = [o for o in made if o.prover == prover.prover]
            assert len(mine) + len(prover.held) <= limits.max_held
            if any(o.ticket.attempt > 1 for o in mine):
                assert len(mine) == 1 and not prover.held
