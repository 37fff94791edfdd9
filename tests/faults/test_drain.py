"""SIGTERM under load: with time to finish, without, hurried, and with a prover that hangs."""

import concurrent.futures
import signal

import grpc
import pytest
from faults.harness import Caller, Ledger, code_of
from service.servers import wait_until

from cuzkd.service.v1 import proving_pb2 as pb


def load(here, ledger, caller, jobs=6):
    for number in range(jobs):
        ask = ledger.ask(("bn254", "bls12_381")[number % 2], 2)
        ask.job_id = caller.submit(ask)


def waiters(ledger, caller, pool):
    """A call for each job that waits for ever."""
    return [pool.submit(_wait, caller, ask.job_id) for ask in ledger.asks]


def _wait(caller, job_id):
    try:
        return caller.call("AwaitProof", pb.AwaitProofRequest(job_id=job_id), 60)
    except grpc.RpcError as error:
        return error


def set_drain(here, seconds):
    toml = here.folder / "toml"
    toml.write_text(toml.read_text().replace("drain_s = 20", f"drain_s = {seconds}"))


def finished(here, ledger):
    """The next daemon has the rest, and all of it."""
    here.start()
    ledger.see_through(here)
    ledger.settled(here)
    here.idle()
    here.end()


def test_with_time_what_is_under_way_ends_and_the_rest_is_handed_back(place, template):
    here, ledger = place(), Ledger(template)
    here.plan.write_text("hold:launch:3")
    here.start().serves()
    with Caller(here.address) as caller, concurrent.futures.ThreadPoolExecutor(16) as pool:
        load(here, ledger, caller)
        calls = waiters(ledger, caller, pool)
        here.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not caller.status().serving)
        with pytest.raises(grpc.RpcError) as caught:
            caller.submit(ledger.ask("bn254"))
        assert code_of(caught.value) == "unavailable", caught.value
        first = ledger.asks[0]
        assert caller.submit(first) == first.job_id, "a repeated request finds its job, draining or not"
        assert here.process.wait(30) == 0, here.story()
        answers = [call.result(5) for call in calls]
    done = [a for a in answers if isinstance(a, pb.AwaitProofResponse)]
    told = [a for a in answers if isinstance(a, grpc.RpcError)]
    assert all(a.status == pb.AwaitProofResponse.COMPLETED for a in done), "stopping cancels nothing"
    assert all(a.code() is grpc.StatusCode.UNAVAILABLE for a in told), told
    assert done, "what the prover held was given time"
    for ask, answer in zip(ledger.asks, answers, strict=False):
        if answer in done:
            ask.end = ledger._judge(ask, answer)
    assert not here.processes()
    finished(here, ledger)


@pytest.mark.parametrize("fault", ["hang:launch:1000", "stop:witness:1000"])
@pytest.mark.parametrize("hurried", [False, True])
def test_without_time_all_is_handed_back(place, template, fault, hurried):
    """Also when the prover does not hear of it."""
    here, ledger = (
        place(engine={"least_stage_s": 60.0, "heartbeat_s": 60.0}, timing={"shutdown_s": 1.0}),
        Ledger(template),
    )
    set_drain(here, 60 if hurried else 0)
    here.plan.write_text(fault)
    here.start().serves()
    with Caller(here.address) as caller, concurrent.futures.ThreadPoolExecutor(16) as pool:
        load(here, ledger, caller, 3)
        calls = waiters(ledger, caller, pool)
        wait_until(here.acted)
        here.process.send_signal(signal.SIGTERM)
        if hurried:
            wait_until(lambda: here.events("draining"))
            here.process.send_signal(signal.SIGTERM)
        assert here.process.wait(20) == 0, here.story()
        for call in calls:
            answer = call.result(5)
            assert isinstance(answer, grpc.RpcError), f"{answer}: nothing has ended"
            assert answer.code() is grpc.StatusCode.UNAVAILABLE, answer
    assert not here.processes()
    here.plan.unlink()
    finished(here, ledger)


def test_a_restart_under_load_costs_no_job(place, template):
    """Five times over, with clients that keep submitting."""
    here, ledger = place(), Ledger(template)
    set_drain(here, 1)
    here.start().serves()
    for _ in range(5):
        with Caller(here.address) as caller:
            load(here, ledger, caller, 4)
            ledger.advance(caller, 0.01)
        assert here.kill(signal.SIGTERM) == 0, here.story()
        here.start().serves()
    ledger.see_through(here)
    ledger.settled(here)
    here.idle()
    here.end()
