"""Clients that vanish in the middle of each call, and calculations that hang: nobody else feels it, nothing stays."""

import os
import signal
import threading
import time

import grpc
import pytest
from faults.harness import Caller, Ledger, code_of, lives
from service.servers import wait_until

from cuzkd.service.v1 import proving_pb2 as pb


class Vanishing:
    """A client of its own channel, gone without a goodbye at `leave`, which cuts its calls."""

    def __init__(self, address):
        self.caller = Caller(address)

    def leave(self):
        self.caller._channel.close()


def half_an_upload(caller, size, started):
    def parts():
        yield pb.UploadRequest(header=pb.UploadHeader(size_bytes=size))
        yield pb.UploadRequest(data=bytes(size // 2))
        started.set()
        threading.Event().wait(30)

    return caller.stub.Upload.future(parts())


@pytest.mark.parametrize("call", ["upload", "submit", "prove", "await", "watch", "input"])
def test_a_client_that_vanishes_takes_nothing_along(place, template, call):
    here, ledger = place(), Ledger(template)
    here.start().serves()
    ask = ledger.ask("bn254", 2)
    with Caller(here.address) as stays:
        descriptors = here.descriptors()
        for _ in range(5):
            goes = Vanishing(here.address)
            caller = goes.caller
            match call:
                case "upload":
                    started = threading.Event()
                    open_call = half_an_upload(caller, 1 << 16, started)
                    started.wait(10)
                case "submit":
                    open_call = caller.stub.SubmitProof.future(caller.request(ask))
                case "prove":
                    open_call = caller.stub.Prove.future(pb.ProveRequest(submit=caller.request(ask)))
                case "await" | "watch":
                    ask.job_id = caller.submit(ask)
                    if call == "await":
                        open_call = caller.stub.AwaitProof.future(pb.AwaitProofRequest(job_id=ask.job_id))
                    else:
                        open_call = caller.stub.WatchProof(pb.WatchProofRequest(job_id=ask.job_id))
                        next(open_call)
                case "input":
                    product = ledger.template.product()
                    wish = ledger.add([product], way="input")
                    open_call = caller.stub.SubmitProof.future(caller.request(wish))
            time.sleep(0.01)
            goes.leave()
            del open_call
        ledger.see_through(here)
        here.idle()
        wait_until(lambda: here.descriptors() <= descriptors + 1, 20)
        assert stays.status().serving
    ledger.settled(here)
    here.end()


def test_a_hung_calculation_ends_alone(place, template):
    """The intake process is stopped in the middle: its client is told, others go on, a new one is started."""
    here, ledger = place(intake={"timeout_s": 2.0}), Ledger(template)
    here.start().serves()
    with Caller(here.address) as caller:
        first = ledger.add([template.product()], way="input")
        ledger.see_through(here)
        (worker,) = [pid for pid, line in here.children().items() if "intake" in line]
        os.kill(worker, signal.SIGSTOP)
        with pytest.raises(grpc.RpcError) as caught:
            caller.call("SubmitProof", pb.SubmitProofRequest(
                circuit_id="product", partitions=[pb.Partition(input_json=template.input)]
            ), 20)  # fmt: skip
        assert (
            code_of(caught.value) == "invalid_input"
            and "took longer than the limit" in caught.value.details()
        )
        wait_until(lambda: worker not in here.children())
        ledger.ask("bn254")
        ledger.add([template.product(), template.product()], way="input")
        ledger.see_through(here)
    assert first.end
    ledger.settled(here)
    here.idle()
    here.end()


def test_nobody_outlives_a_killed_front(place, template):
    """Not even a prover and an intake process that are stopped."""
    here, ledger = place(), Ledger(template)
    here.start().serves()
    ledger.add([template.product()], way="input")
    ledger.see_through(here)
    children = here.children()
    assert any("prover" in line for line in children.values()), children
    assert any("intake" in line for line in children.values()), children
    for pid in children:
        os.kill(pid, signal.SIGSTOP)
    here.kill()
    wait_until(lambda: not [pid for pid in children if lives(pid)], 5)
    here.start()
    ledger.see_through(here)
    here.end()
