"""The prover fails in every way at every point: what was promised comes all the same.

One daemon meets all cases, each with a prover that is new. A job of each curve is under way when it happens.
"""

import os
import signal

import pytest
from faults.harness import Caller, Ledger, Place, table
from service.servers import wait_until

from cuzkd.engine.faults import PROVER_POINTS

ACTIONS = ("kill", "stop", "exit", "hang", "raise", "fault", "memory", "full")
CASES = table(ACTIONS, [point for point in PROVER_POINTS if point != "sums"])
CASES += [("flip", "sums"), ("flip", "selftest")]
# Of a bug inside a partition's stage the partition dies, and it alone.
MAY_FAIL = {"raise": frozenset({"internal"}), "full": frozenset({"internal", "exhausted"})}


@pytest.fixture(scope="module")
def world(template, tmp_path_factory):
    """One place for all of them; after a failure a new one."""
    made = []

    def give():
        if not made or made[-1].broken:
            made.append(Place(tmp_path_factory.mktemp("provers") / "place", template, max_lives=200))
            made[-1].start().serves()
        made[-1].broken = True
        return made[-1]

    yield give
    try:
        for place in made:
            if not place.broken:
                place.end()
    finally:
        for place in made:
            place.wreck()


def ready_pid(caller):
    """Of a prover that waits for work."""
    (device,) = caller.status().devices
    return device.prover_pid if device.state == "idle" else 0


@pytest.mark.parametrize(("action", "point"), CASES)
def test_it(world, action, point):
    place = world()
    with Caller(place.address) as caller:
        old = wait_until(lambda: ready_pid(caller), 30)
        n_acted = len(place.acted())
        place.plan.write_text(f"{action}:{point}:1")
        os.kill(old, signal.SIGKILL)
        ledger = Ledger(place.template)
        for curve, partitions in (("bn254", 2), ("bls12_381", 1)):
            ledger.ask(curve, partitions, may_fail=MAY_FAIL.get(action, frozenset()))
        ledger.see_through(place, 60)
        assert place.acted()[n_acted:] == [(action, point)], "the fault has not been met"
    assert place.process.poll() is None, "the daemon has died of its prover's death"
    begun, twice = place.book()
    assert begun and not twice, twice
    place.idle()
    assert len(place.provers()) <= 1
    place.broken = False
