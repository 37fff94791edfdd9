"""The front dies at every point, and again at the next start: what it had answered holds.

Clients submit in every way, some cancel, all ask again under the same ids; an operator starts the daemon whenever it is
gone. `stop`: it hangs, until the operator kills it.
"""

import signal
import threading
import time

import pytest
from faults.harness import Caller, Ledger, table
from service.servers import wait_until

from cuzkd.engine.faults import FRONT_POINTS
from cuzkd.service.v1 import proving_pb2 as pb

ACTIONS = ("kill", "exit", "stop")


def crowd(ledger):
    """A little of everything."""
    for priority in (pb.LOW, pb.NORMAL, pb.CRITICAL):
        ledger.ask("bn254", 2, priority=priority)
    ledger.ask("bls12_381", way="upload")
    ledger.ask("bls12_381", 2, way="path")
    ledger.add([ledger.template.product()], way="input")


@pytest.mark.parametrize(("action", "point"), table(ACTIONS, FRONT_POINTS))
def test_it(place, template, action, point):
    here, ledger = place(), Ledger(template)
    # Once when the first comes by, once more soon after: two deaths, the second of them in the middle of a recovery.
    here.front_plan.write_text(f"{action}:{point}:1,{action}:{point}:1@1")
    crowd(ledger)
    here.start()
    with here.tended():
        ledger.see_through(here)
        crowd(ledger)
        ledger.see_through(here)
        assert here.acted(here.front_plan) == [(action, point)] * 2, here.story()
        ledger.settled(here)
    assert here.lives == 3
    here.idle()
    here.end()


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("point", ["accepted", "offered", "result", "ended"])
def test_front_and_prover_fail_together(place, template, action, point):
    here, ledger = place(engine={"max_attempts": 6}), Ledger(template)
    here.front_plan.write_text(f"{action}:{point}:1@1")
    here.plan.write_text("stop:launch:1@1,kill:verify:1,fault:witness:1@3")
    crowd(ledger)
    here.start()
    with here.tended():
        ledger.see_through(here)
        ledger.settled(here)
    here.idle()
    here.end()


@pytest.mark.parametrize("after_s", [0.05, pytest.param(0.2, marks=pytest.mark.slow), 0.5, 0.9])
def test_killed_again_and_again_while_it_starts(place, template, after_s):
    here, ledger = place(), Ledger(template)
    crowd(ledger)
    here.start().serves()
    with Caller(here.address) as caller:
        ledger.advance(caller, 0.01)
    here.kill()
    for _ in range(3):
        here.start()
        time.sleep(after_s)
        here.kill()
    here.start()
    ledger.see_through(here)
    ledger.settled(here)
    here.idle()
    here.end()


def test_ends_are_the_same_after_a_kill_of_an_idle_daemon(place, template):
    """Completed, failed and cancelled: by job_id and by request_id, also for whoever submits the same again."""
    here, ledger = place(), Ledger(template)
    here.start().serves()
    crowd(ledger)
    bad = ledger.ask("bn254", may_fail=frozenset({"unsatisfied_witness"}))
    spoiled = bytearray(bad.statements[0].witness.read_bytes())
    spoiled[-32] ^= 1
    bad.statements[0].witness.write_bytes(spoiled)
    ledger.see_through(here)
    here.kill()
    here.start().serves()
    ledger.settled(here)
    before = len(here.book()[0])
    with Caller(here.address) as caller:
        for ask in ledger.asks:
            assert caller.submit(ask) == ask.job_id, "the same request is the same job"
        ledger.settled(here)
    assert len(here.book()[0]) == before, "and nothing of it is proved again"
    here.idle()
    here.end()


def test_waiters_and_watchers_of_a_killed_daemon_are_told(place, template):
    """A call that is open when the daemon dies ends; it does not hang."""
    here, ledger = place(), Ledger(template)
    here.plan.write_text("hang:launch:1000")
    here.start().serves()
    ask = ledger.ask("bn254")
    ended = []
    with Caller(here.address) as caller:
        ask.job_id = caller.submit(ask)

        def follow():
            try:
                for _ in caller.stub.WatchProof(pb.WatchProofRequest(job_id=ask.job_id)):
                    pass
            except Exception as error:
                ended.append(error)

        watcher = threading.Thread(target=follow)
        watcher.start()
        time.sleep(0.2)
        here.kill(signal.SIGKILL)
        watcher.join(20)
        assert not watcher.is_alive() and ended
    here.plan.unlink()
    here.start()
    ledger.see_through(here)
    ledger.settled(here)
    here.end()


@pytest.mark.parametrize("action", ["stop", "hang", "hold"])
def test_a_prover_of_a_killed_front_does_not_work_beside_its_successor(place, template, action):
    """It has begun what the next daemon gives to its own prover; stopped, it could go on at any moment."""
    here, ledger = place(), Ledger(template)
    here.plan.write_text(f"{action}:launch:1")
    here.start().serves()
    ask = ledger.ask("bls12_381", 2)
    with Caller(here.address) as caller:
        ask.job_id = caller.submit(ask)
        wait_until(here.acted)
    here.kill()
    here.start()
    ledger.see_through(here)
    begun, _ = here.book()
    assert max(map(begun.count, begun)) == 2, "it was begun by both"
    ledger.settled(here)
    here.idle()
    here.end()
