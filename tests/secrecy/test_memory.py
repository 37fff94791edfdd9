"""What is left of a witness in memory when its job is over.

The control first: while a partition is under way its values are found, so that finding none later means something.
"""

import os
import signal
import time

import pytest
from faults.harness import ROUNDS, Caller, Ledger
from secrecy.marks import MARKER, in_memory, marks, secrets
from secrecy.test_written import product
from service.servers import wait_until

from cuzkd.curves.params import CURVES
from cuzkd.service.v1 import proving_pb2 as pb


def wanted(curve):
    return marks(curve, secrets(curve, ROUNDS, MARKER))


def forgotten(pids, mine):
    """Nothing of it is left, or soon nothing is: idle memory may be wiped in the background."""
    left = {}
    for _ in range(10):
        left = {pid: found for pid in pids if (found := in_memory(pid, mine))}
        if not left:
            return
        time.sleep(0.5)
    raise AssertionError(f"values of the witness are left: {left}")


def quiet(here, caller):
    here.idle()
    wait_until(lambda: caller.status().devices[0].state == "idle")


EVERY_RUN = {("bn254", "bytes"), ("bn254", "path"), ("bls12_381", "upload")}


@pytest.mark.parametrize(
    ("curve", "way"),
    [
        pytest.param(curve, way, marks=() if (curve, way) in EVERY_RUN else pytest.mark.slow)
        for curve in CURVES
        for way in ("bytes", "upload", "path")
    ],
)
def test_provers(place, template, curve, way):
    """Not in the slabs of its pool, nor anywhere else."""
    here, ledger = place(engine={"heartbeat_s": 60.0, "least_stage_s": 60.0}), Ledger(template)
    here.plan.write_text("stop:launch:1")
    here.start().serves()
    with Caller(here.address) as caller:
        ask = ledger.add([template.chain(curve, MARKER)], way=way)
        ask.job_id = caller.submit(ask)
        wait_until(here.acted)
        (prover,) = here.provers()
        assert in_memory(prover, wanted(curve)), "it is there while it is worked on"
        os.kill(prover, signal.SIGCONT)
        ledger.see_through(here)
        quiet(here, caller)
        assert here.provers() == [prover]
        forgotten([prover], wanted(curve))
    ledger.settled(here)
    here.end()


@pytest.mark.parametrize("end", ["cancelled", "unsatisfied_witness", "device_fault"])
def test_provers_after_other_ends(place, template, end):
    here, ledger = place(engine={"heartbeat_s": 60.0, "least_stage_s": 60.0}), Ledger(template)
    here.start().serves()
    with Caller(here.address) as caller:
        ask = ledger.add([template.chain("bn254", MARKER)])
        if end == "cancelled":
            here.plan.write_text("hold:launch:1")
            ask.cancelled, ask.job_id = True, caller.submit(ask)
            wait_until(here.acted)
            caller.cancel(ask.job_id)
        elif end == "device_fault":
            here.plan.write_text("fault:verify:1")
        else:
            bad = bytearray(ask.statements[0].witness.read_bytes())
            bad[-1 - 40] ^= 1
            request = pb.SubmitProofRequest(
                circuit_id="chain-bn254", partitions=[pb.Partition(witness=bytes(bad))]
            )
            assert caller.wait(caller.call("SubmitProof", request).job_id).error_code == end
        ledger.see_through(here)
        quiet(here, caller)
        forgotten(here.provers(), wanted("bn254"))
    here.end()


@pytest.mark.parametrize("way", ["bytes", "upload", "path"])
def test_front(place, template, way):
    """The front passes payloads on to the disk and keeps nothing of them. The control is a public value of the result,
    which it does keep.
    """
    here, ledger = place(), Ledger(template)
    here.start().serves()
    with Caller(here.address) as caller:
        ask = ledger.add([template.chain("bn254", MARKER)], way=way)
        ledger.see_through(here)
        for _ in range(3):  # others follow
            ledger.ask("bn254", way=way)
        ledger.see_through(here)
        quiet(here, caller)
        public = ask.statements[0].publics[0].to_bytes(32, "big")
        assert in_memory(here.process.pid, {"public": public})
        forgotten([here.process.pid], wanted("bn254"))
    here.end()


def test_intake(place, template):
    """Not in the intake process and not in the prover. In the front nothing that was calculated; the text of a request
    may stay in what gRPC has received, and in small blocks of memory, until later requests come to lie there: while a
    connection is open its buffer is gRPC's, and what the C library and Python keep of small blocks for their next use
    nobody overwrites for us.
    """
    here, ledger = place(), Ledger(template)
    here.start().serves()
    with Caller(here.address) as caller:
        request = pb.SubmitProofRequest(
            circuit_id="product", partitions=[pb.Partition(input_json=product(MARKER))]
        )
        assert caller.wait(caller.call("SubmitProof", request).job_id, 20).results
        ledger.add([template.product()], way="input")
        ledger.see_through(here)
        quiet(here, caller)
        intake = [pid for pid, line in here.children().items() if "intake" in line]
        assert intake
        all_forms = marks("bn254", [MARKER])
        forgotten([*intake, *here.provers()], all_forms)
        forgotten(
            [here.process.pid],
            {name: mark for name, mark in all_forms.items() if not name.startswith("decimal")},
        )
    here.end()
