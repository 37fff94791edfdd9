"""A device that is wrong once, for a while, and always; a processor in disguise plays it."""

import re

import grpc
import pytest
from faults.harness import Caller, Ledger, code_of
from service.servers import wait_until

from cuzkd.service.v1 import proving_pb2 as pb

DEVICE = "GPU-of-the-tests"
WRONG = "flip:sums:100000,flip:selftest:100000"
SETTINGS = {"engine": {"quarantine_after": 2, "quarantine_s": 2.0, "longest_quarantine_s": 8.0}}


def device(here):
    with Caller(here.address) as caller:
        (found,) = caller.status().devices
        return found


def refused(ledger, caller):
    """Whether a new job is. One that is not counts."""
    ask = ledger.ask("bls12_381")
    try:
        ask.job_id = caller.submit(ask)
        return False
    except grpc.RpcError as error:
        assert code_of(error) == "unavailable", error
        ledger.asks.remove(ask)
        return True


def backends(here, ledger):
    """Of the results of the last job."""
    with Caller(here.address) as caller:
        return {result.backend for result in caller.wait(ledger.asks[-1].job_id).results}


def wrong(here):
    here.plan.write_text(WRONG)


def right_again(here):
    here.plan.write_text("")


@pytest.mark.parametrize("policy", ["prefer", "require"])
def test_wrong_once_is_made_again_and_counted(place, template, policy):
    here, ledger = place(device=DEVICE, policy=policy, **SETTINGS), Ledger(template)
    here.plan.write_text("flip:sums:1")
    here.start().serves()
    ledger.ask("bn254")
    ledger.see_through(here)
    with Caller(here.address) as caller:
        (result,) = caller.wait(ledger.asks[0].job_id).results
        assert (result.backend, result.device, result.attempts) == ("cuda", DEVICE, 2)
        text = caller.call("GetMetrics", pb.GetMetricsRequest()).prometheus_text
    assert re.search(r'retr\w*{[^}]*reason="self_verify"[^}]*} 1', text), "it is counted"
    assert device(here).state == "idle", "once is no reason for quarantine"
    ledger.settled(here)
    here.end()


def test_preferred_and_wrong_for_a_while_the_processor_stands_in(place, template):
    here, ledger = place(device=DEVICE, policy="prefer", **SETTINGS), Ledger(template)
    here.start().serves()
    ledger.ask("bn254")
    ledger.see_through(here)
    assert backends(here, ledger) == {"cuda"}
    wrong(here)
    for curve in ("bn254", "bls12_381", "bn254"):
        ledger.ask(curve, 2)
    ledger.see_through(here)
    assert backends(here, ledger) == {"cpu"}, "nobody has to wait for the device"
    with Caller(here.address) as caller:
        assert caller.status().serving
    (event, *_) = here.events("device_quarantined") or [None]
    assert event and DEVICE in str(event), here.story()
    right_again(here)
    wait_until(lambda: device(here).backend == "cuda" and device(here).state == "idle", 40)
    ledger.ask("bls12_381")
    ledger.see_through(here)
    assert backends(here, ledger) == {"cuda"}
    ledger.settled(here)
    here.idle()
    here.end()


def test_required_and_wrong_for_a_while_jobs_wait(place, template):
    """Not serving, and what was accepted is proved when the device is right again."""
    here, ledger = place(device=DEVICE, policy="require", **SETTINGS), Ledger(template)
    here.start().serves()
    ask = ledger.ask("bn254", 2)
    wrong(here)
    with Caller(here.address) as caller:
        ask.job_id = caller.submit(ask)
        wait_until(lambda: not caller.status().serving, 40)
        assert caller.status().not_serving_reason
        wait_until(lambda: refused(ledger, caller), 20)
    right_again(here)
    ledger.see_through(here, 60)
    assert backends(here, ledger) == {"cuda"}
    ledger.settled(here)
    here.idle()
    here.end()


@pytest.mark.slow
def test_required_and_wrong_for_ever_jobs_end_and_say_why(place, template):
    here, ledger = place(device=DEVICE, policy="require", **SETTINGS), Ledger(template)
    here.start().serves()
    ask = ledger.ask("bn254", may_fail=frozenset({"unavailable", "device_fault"}))
    wrong(here)
    with Caller(here.address) as caller:
        ask.job_id = caller.submit(ask)
    ledger.see_through(here, 120)
    assert ask.end[1] in ask.may_fail, ask.end
    here.idle()
    here.end()


def test_required_and_none_there(place, template):
    """It starts, says why it does not serve, refuses, and ends by SIGTERM as ever."""
    here, ledger = place(policy="require", **SETTINGS), Ledger(template)
    here.start()
    with Caller(here.address) as caller:
        wait_until(lambda: "no CUDA device" in caller.status().not_serving_reason, 40)
        wait_until(lambda: refused(ledger, caller), 20)
    for (
        ask
    ) in ledger.asks:  # what was accepted before it was sure waits for as long as the longest quarantine
        ask.may_fail = frozenset({"unavailable"})
    ledger.see_through(here)
    here.idle()
    here.end()


def test_preferred_and_none_there_is_the_processor_quietly(place, template):
    here, ledger = place(policy="prefer", **SETTINGS), Ledger(template)
    here.start().serves()
    ledger.ask("bn254")
    ledger.see_through(here)
    assert backends(here, ledger) == {"cpu"} and not here.events("device_quarantined")
    ledger.settled(here)
    here.end()


def test_a_self_test_that_fails_lets_nothing_through(place, template):
    """A device that is wrong from the start proves nothing, ever."""
    here, ledger = place(device=DEVICE, policy="prefer", **SETTINGS), Ledger(template)
    wrong(here)
    here.start()
    wait_until(lambda: device(here).backend == "cpu", 40)
    assert ("flip", "selftest") in here.acted() and ("flip", "sums") not in here.acted()
    ledger.ask("bn254")
    ledger.see_through(here)
    assert backends(here, ledger) == {"cpu"}
    ledger.settled(here)
    here.end()
