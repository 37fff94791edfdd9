"""Two thousand mixed jobs: what the daemon holds after them is what it held after two hundred."""

import concurrent.futures
import os
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults.harness import Caller, Ledger
from service.servers import wait_until

from cuzkd.service.v1 import proving_pb2 as pb

MIB = 1 << 20
BATCH = 50
WARM, ALL = 200, 2000
WAYS = ("bytes", "bytes", "upload", "path", "input", "bad")
# Threads that gRPC keeps (EventEngine: one for each core, 4 to 16). It makes more where these are all at work, and ends
# those when they have had nothing to do for 20 s.
RESERVE = min(max(os.cpu_count(), 4), 16)
BAD = frozenset({"unsatisfied_witness", "malformed_file", "invalid_witness"})


@dataclass
class Size:
    """What a process holds: bytes, threads by name, descriptors by what they lead to."""

    rss_bytes: int
    threads: Counter
    descriptors: Counter

    @classmethod
    def of(cls, pid):
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls(
            resident * os.sysconf("SC_PAGE_SIZE"),
            Counter(path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")),
            Counter(os.readlink(path).split(":")[0] for path in Path(f"/proc/{pid}/fd").iterdir()),
        )


def sizes(here, caller):
    """Of front, prover and intake, and the pinned bytes, once all is quiet: connections that are being closed are."""
    here.idle()
    wait_until(lambda: here.descriptors() == (time.sleep(0.5) or here.descriptors()))
    wait_until(lambda: caller.status().devices[0].state == "idle")
    wait_until(lambda: Size.of(here.process.pid).threads["event_engine"] <= RESERVE, 60)
    provers = here.provers()
    intake = [pid for pid, line in here.children().items() if "intake_process" in line]
    found = {"front": Size.of(here.process.pid)}
    found |= {f"prover-{i}": Size.of(pid) for i, pid in enumerate(provers)}
    found |= {f"intake-{i}": Size.of(pid) for i, pid in enumerate(sorted(intake))}
    return found, caller.status().pinned_memory_bytes


def bad_file(folder, rng, statement):
    """A witness that is none: one bit of it is wrong, or its end is missing."""
    data = bytearray(statement.witness.read_bytes())
    if rng.random() < 0.5:
        data[-32] ^= 1
    else:
        del data[-rng.randrange(1, 40) :]
    statement.witness.write_bytes(data)


def batch(rng, ledger):
    for _ in range(BATCH):
        way, priority = rng.choice(WAYS), rng.choice(pb.Priority.values())
        if way == "input":
            ledger.add([ledger.template.product()], way=way, priority=priority)
            continue
        curve, partitions = rng.choice(["bn254", "bls12_381"]), rng.choice([1, 1, 1, 2, 4])
        ask = ledger.ask(curve, partitions, way="bytes" if way == "bad" else way, priority=priority)
        if way == "bad":
            bad_file(ledger.template.folder, rng, ask.statements[-1])
            ask.may_fail = BAD


def run(rng, ledger, caller):
    """A batch from submission to its ends, many clients at once; some are cancelled on the way."""
    new = [ask for ask in ledger.asks if not ask.over]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for ask, submitted in [(ask, pool.submit(caller.submit, ask)) for ask in new]:
            ask.job_id = submitted.result()
    for ask in rng.sample(new, BATCH // 10):
        ask.cancelled = True
        caller.cancel(ask.job_id)
    while ledger.open:
        ledger.advance(caller)
    for ask in new:
        for statement in ask.statements:
            if statement.circuit != "product":
                statement.witness.unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_soak(place, template):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    here, ledger = place(), Ledger(template)
    here.start().serves()
    measured = {}
    with Caller(here.address) as caller:
        for jobs in range(BATCH, ALL + 1, BATCH):
            batch(rng, ledger)
            run(rng, ledger, caller)
            if jobs % WARM == 0:
                measured[jobs] = sizes(here, caller)
                print(jobs, {name: size.rss_bytes for name, size in measured[jobs][0].items()})
        states = {ask.end[0].value for ask in ledger.asks}
        assert states == {"done", "failed", "cancelled"}
        begun, twice = here.book()
        assert begun and not twice
    (before, pinned_before), (after, pinned_after) = measured[WARM], measured[ALL]
    assert before.keys() == after.keys()
    for name, size in after.items():
        first = before[name]
        assert abs(size.rss_bytes - first.rss_bytes) <= first.rss_bytes / 100 + 16 * MIB, (
            f"{name}: {first} {size}"
        )
        assert (size.threads, size.descriptors) == (first.threads, first.descriptors), (
            f"{name}: {first} {size}"
        )
    assert abs(pinned_after - pinned_before) <= pinned_before / 100 + 16 * MIB
    here.end()
