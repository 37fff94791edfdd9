"""`cuzkd bench load`: how fast a daemon answers while hundreds of clients wait for their proofs, half of them dead.

Problem: a daemon in which each waiting call costs a thread, or in which a client that has gone away is still served,
answers status, health and new jobs ever more slowly.
Design: the same calls in three scenes: nothing else is going on; the prover is at work; the prover is at work, and
clients wait, each on a connection of its own, for jobs that do not end meanwhile. A quarter of the clients is killed,
a quarter is stopped: their connections are open, and nobody is there. Calls take turns, one at a time. A submitted job
is a witness that no other has. At the end every job that was submitted for its time has been proved and is verified
here, and every living client has been told the end of its job.

What waits, and what keeps the prover at work, are jobs of the lowest priority, put into the queue while the prover
stands still. Life of data: times of calls by scene -> Spread and the 99th percentile -> Report.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from grpc_health.v1 import health_pb2, health_pb2_grpc

from cuzkd.backend.protocol import Backend
from cuzkd.bench import served, subject, waiters
from cuzkd.bench.report import Report, Table
from cuzkd.bench.served import Daemon
from cuzkd.bench.spread import Spread
from cuzkd.bench.subject import Subject
from cuzkd.client import CALL_TIMEOUT_S
from cuzkd.errors import CuzkdError, InvalidInput
from cuzkd.groth16.setup import DEVELOPMENT
from cuzkd.service.v1 import proving_pb2 as pb

CALLS = ("GetStatus", "health", "SubmitProof")
SCENES = ("nothing else", "at work", "at work, clients wait")
WARM_UP = 5  # calls of each kind that are not counted
RATE_FROM = 32  # proofs that tell how long one takes
MANY = 1_000_000  # partitions: no limit that would be met
PATIENCE_S = 3600.0  # of the supervisor, with a prover that stands still
LANES = 4  # submissions at a time, of what is not measured


@dataclass(frozen=True)
class Options:
    """waiting: clients, a multiple of 4. samples: of each call in each scene. busy_s: about how long the prover is kept
    at work in each scene. folder: where the daemon's state goes.
    """

    curve: str = "bn254"
    n_constraints: int = 1 << 10
    waiting: int = 500
    samples: int = 300
    busy_s: float = 30.0
    folder: Path | None = None


@dataclass(frozen=True)
class Measured:
    """Seconds of each call of one kind in one scene."""

    call: str
    scene: str
    seconds: tuple[float, ...]

    @property
    def p99_s(self) -> float:
        """So many of a hundred took no longer."""
        return sorted(self.seconds)[math.ceil(0.99 * len(self.seconds)) - 1]


def run(backend: Backend, options: Options, say: Callable[[str], None]) -> Report:
    """All scenes. Raises what proving raises, CuzkdError when a client did not wait for as long as was measured."""
    if options.waiting < 4 or options.waiting % 4:
        raise InvalidInput(f"--waiting: expected a multiple of 4, got {options.waiting}")
    if options.samples < 2:
        raise InvalidInput(f"--samples: expected at least 2, got {options.samples}")
    distinct = len(SCENES) * (options.samples + WARM_UP) + RATE_FROM + 1
    settings: served.Settings = {
        "queue": {"max_partitions": MANY},
        "supervision": {"heartbeat_s": PATIENCE_S},
    }
    with (
        subject.make(options.curve, options.n_constraints, backend, distinct=distinct) as bed,
        served.opened(backend, options.folder, settings) as daemon,
    ):
        daemon.install(bed)
        daemon.start()
        bench = _Bench(daemon, bed, options, say)
        measured, told = bench.scenes()
        daemon.stop()
    return _report(backend, options, measured, told, bench.proof_s)


class _Bench:
    """numbers: witnesses are counted up, so that none is sent twice."""

    def __init__(self, daemon: Daemon, bed: Subject, options: Options, say: Callable[[str], None]) -> None:
        self._daemon, self._bed, self._options, self._say = daemon, bed, options, say
        self._number = 0
        self._submitted: list[tuple[str, int]] = []  # job, witness
        self._unwanted: list[str] = []  # jobs that nobody shall wait for
        self.proof_s = self._rate()

    def scenes(self) -> tuple[list[Measured], dict[str, int]]:
        """Times of all calls in all scenes, and what living clients were told at the end."""
        measured = self._scene(SCENES[0])
        with self._daemon.standing_still():
            self._keep_busy()
        measured += self._scene(SCENES[1])
        with ExitStack() as clients:
            with self._daemon.standing_still():
                self._keep_busy()
                jobs = self._submit_all(self._options.waiting, 1)
                alive = self._clients(clients, jobs)
            measured += self._scene(SCENES[2])
            still = alive.ask("")
            if still.waiting != alive.count:
                raise CuzkdError(
                    f"only {still.waiting} of {alive.count} clients were waiting at the end: --busy must be more"
                )
            self._say(f"{alive.count} living clients still wait; their jobs are cancelled")
            self._cancel_all()
            told = alive.ask("end").ended
        if told != {"CANCELLED": alive.count}:
            raise CuzkdError(f"{alive.count} clients waited for cancelled jobs; they were told {told}")
        for job_id, number in self._submitted:
            self._daemon.proved(self._bed, job_id, [number])
        self._say(f"{len(self._submitted)} proofs verified")
        return measured, told

    # -- what is measured --

    def _scene(self, scene: str) -> list[Measured]:
        channel = self._daemon.channel()
        calls, health = served.stub(channel), health_pb2_grpc.HealthStub(channel)
        rounds = self._options.samples + WARM_UP
        numbers = range(self._number, self._number + rounds)
        self._number += rounds
        payloads = [self._bed.witness(number).read_bytes() for number in numbers]
        times: dict[str, list[float]] = {call: [] for call in CALLS}

        def timed(call: str, method: Callable[..., object], request: object) -> object:
            began = time.perf_counter()
            answer = method(request, timeout=CALL_TIMEOUT_S)
            times[call].append(time.perf_counter() - began)
            return answer

        for number, payload in zip(numbers, payloads, strict=True):
            timed("GetStatus", calls.GetStatus, pb.GetStatusRequest())
            timed("health", health.Check, health_pb2.HealthCheckRequest())
            answer = timed("SubmitProof", calls.SubmitProof, served.submission(self._bed, payload))
            assert isinstance(answer, pb.SubmitProofResponse)
            self._submitted.append((answer.job_id, number))
        measured = [Measured(call, scene, tuple(seconds[WARM_UP:])) for call, seconds in times.items()]
        self._say(f"{scene}: " + ", ".join(f"{m.call} p99 {1e3 * m.p99_s:.1f} ms" for m in measured))
        return measured

    # -- what goes on beside it --

    def _rate(self) -> float:
        """Seconds that a proof takes in a stream."""
        numbers = range(self._number, self._number + RATE_FROM)
        self._number += RATE_FROM
        self._daemon.prove(self._bed, numbers[0])  # loads the key
        began = time.monotonic()
        job_id = self._daemon.client.submit(self._bed.name, [self._bed.witness(n) for n in numbers])
        self._daemon.proved(self._bed, job_id, numbers)
        seconds = (time.monotonic() - began) / RATE_FROM
        self._say(f"a proof takes {1e3 * seconds:.1f} ms in a stream")
        return seconds

    def _keep_busy(self) -> None:
        """The prover has work for busy_s from now on."""
        missing = math.ceil(self._options.busy_s / self.proof_s) - self._pending()
        inline = max(1, self._daemon.client.status().stream_above_bytes // self._bed.witness_bytes - 1)
        if missing > 0:
            self._submit_all(math.ceil(missing / inline), inline)
            self._say(f"{missing} partitions queued to keep the prover at work")

    def _pending(self) -> int:
        return sum(queue.pending for queue in self._daemon.client.status().queues)

    def _submit_all(self, jobs: int, partitions: int) -> list[str]:
        """So many unimportant jobs, always of the same witness."""
        witness = self._bed.witness(self._bed.distinct - 1).read_bytes()
        client, name = self._daemon.client, self._bed.name
        with ThreadPoolExecutor(LANES) as lanes:
            made = list(
                lanes.map(lambda _: client.submit(name, [witness] * partitions, priority=pb.LOW), range(jobs))
            )
        self._unwanted += made
        return made

    def _cancel_all(self) -> None:
        """Those of the clients first, which are behind the others: else they would be reached meanwhile."""
        with ThreadPoolExecutor(LANES) as lanes:
            list(lanes.map(self._daemon.client.cancel, reversed(self._unwanted)))

    def _clients(self, block: ExitStack, jobs: list[str]) -> Clients:
        """Those that are alive, once the others are not any more."""
        quarter = len(jobs) // 4
        killed, stopped, alive = (
            block.enter_context(_clients(self._daemon.target, part))
            for part in (jobs[:quarter], jobs[quarter : 2 * quarter], jobs[2 * quarter :])
        )
        killed.process.kill()
        stopped.stop()
        self._say(f"{len(jobs)} clients wait; {killed.count} of them killed, {stopped.count} stopped")
        return alive


@dataclass(frozen=True)
class Tally:
    """Of a process of clients. ended: how many were told which status."""

    waiting: int
    ended: dict[str, int]


class Clients:
    """A process of them; see waiters.py."""

    def __init__(self, target: str, jobs: list[str]) -> None:
        self.count = len(jobs)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", waiters.__name__, target, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say("\n".join(jobs) + "\n")
        if (line := self._line()) != waiters.READY:
            raise CuzkdError(f"clients that should wait said {line!r}")

    def ask(self, what: str) -> Tally:
        """How many wait, and what the others were told."""
        self._say(what)
        return Tally(**json.loads(self._line()))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def _clients(target: str, jobs: list[str]) -> Iterator[Clients]:
    clients = Clients(target, jobs)
    try:
        yield clients
    finally:
        clients.close()


# -- tables --------------------------------------------------------------------------------------------------


def _report(
    backend: Backend, options: Options, measured: list[Measured], told: dict[str, int], proof_s: float
) -> Report:
    report = Report("load", backend)
    head = ["call, ms", "scene", "median", "quartiles", "p99", "most"]
    rows = []
    for m in sorted(measured, key=lambda m: CALLS.index(m.call)):
        spread = Spread.of(m.seconds)
        row = [m.call, m.scene, f"{1e3 * spread.median:.2f}", spread.quartiles(".2f")]
        rows.append([*row, f"{1e3 * m.p99_s:.2f}", f"{1e3 * spread.most:.2f}"])
    report.tables = [Table(f"{options.samples} calls of each kind in each scene", head, rows)]
    quarter = options.waiting // 4
    report.notes = [
        f"{options.waiting} clients wait, on a connection each: {quarter} of them are killed, {quarter} stopped. Each "
        "living one was told the end of its job. A proof of those that keep the prover at work takes "
        f"{1e3 * proof_s:.1f} ms in a stream ({options.n_constraints:,} constraints on {options.curve}). Every proof "
        "of a call that was measured is verified here once more.",
        f"Keys: {DEVELOPMENT}.",
    ]
    report.numbers = {
        "options": vars(options),
        "calls": [asdict(m) | {"p99_s": m.p99_s, **vars(Spread.of(m.seconds))} for m in measured],
        "told": told,
        "proof_s": proof_s,
    }
    return report
