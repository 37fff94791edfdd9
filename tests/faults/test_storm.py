"""Everything at once, by chance: faults of front and prover, kills from outside, cancels. A seed says which."""

import contextlib
import os
import random
import signal
import threading

import grpc
import pytest
from faults.harness import Caller, Ledger

from cuzkd.engine.faults import FRONT_POINTS, PROVER_POINTS
from cuzkd.service.v1 import proving_pb2 as pb

PROVER_ACTIONS = ("kill", "exit", "stop", "fault", "memory", "hold")
FRONT_ACTIONS = ("kill", "exit", "stop", "hold")
ROUNDS = 3  # of the first seed, which is in every run, one


def plan(rng, actions, points, items):
    return ",".join(f"{rng.choice(actions)}:{rng.choice(points)}:1@{rng.randrange(6)}" for _ in range(items))


def outside(rng, here, quiet):
    """Kills and stops of processes at any moment."""
    while not quiet.wait(rng.uniform(0.3, 1.5)):
        victims = here.provers() + ([here.process.pid] if rng.random() < 0.3 else [])
        if victims:
            victim, number = rng.choice(victims), rng.choice([signal.SIGKILL, signal.SIGSTOP])
            if number == signal.SIGSTOP and victim != here.process.pid and not settled(here, victim):
                continue  # the kernel has not been told yet to kill it with its front: stopped, it would stay for ever
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, number)


def settled(here, pid):
    """Whether a prover has its lock, and is bound to its front."""
    locks = (here.state / "provers").glob("*.lock")
    return any(lock.read_text().strip() == str(pid) for lock in locks)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_storm(place, template, seed):
    rng = random.Random(seed)
    # A partition that is innocent of its prover's death is blamed all the same if it had begun.
    blame = frozenset({"device_fault"})
    here, ledger = place(engine={"max_attempts": 6}), Ledger(template)
    here.start()
    quiet = threading.Event()
    with here.tended():
        wind = threading.Thread(target=outside, args=(rng, here, quiet))
        wind.start()
        try:
            for _ in range(1 if seed == 1 else ROUNDS):
                here.plan.write_text(plan(rng, PROVER_ACTIONS, [p for p in PROVER_POINTS if p != "sums"], 4))
                here.front_plan.write_text(plan(rng, FRONT_ACTIONS, FRONT_POINTS, 2))
                for _ in range(8):
                    curve, way = rng.choice(["bn254", "bls12_381"]), rng.choice(["bytes", "upload", "path"])
                    priority = rng.choice(pb.Priority.values())
                    ledger.ask(curve, rng.randrange(1, 4), way=way, priority=priority, may_fail=blame)
                with Caller(here.address) as caller:
                    ledger.advance(caller, 0.05)
                    for ask in rng.sample(ledger.asks, 2):
                        if ask.job_id and not ask.end:
                            ask.cancelled = True
                            try:
                                caller.cancel(ask.job_id)
                            except grpc.RpcError:
                                continue
            quiet.set()
            here.plan.write_text("")
            here.front_plan.write_text("")
            ledger.see_through(here, 120)
            ledger.settled(here)
        finally:
            quiet.set()
            wind.join()
    here.serves().idle()
    here.end()
