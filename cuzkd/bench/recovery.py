"""`cuzkd bench recovery`: how long a daemon takes to go on, after what ends its work.

Problem: a prover that crashed, a job that nobody wants any more and a daemon that was killed cost whoever waits more
than the work itself, when keys, contexts and queues come back slowly, or not at all.
Design: three parts, each several times, all seen from a client.

    kill      kill -9 of the prover, whose key is in the page cache: at rest (a job is submitted then), and at work (its
              job is given to the next one). From the kill to the proof.
    cancel    CancelProof of a large job, at moments spread over its life. Until the call has returned; until the job is
              CANCELLED for whoever watches it; until the prover has nothing in hand, memory and device included; until
              a small job that was submitted right after it is proved.
    restart   kill -9 of the daemon with jobs in its queue, and a start on the same state. Until it serves, until the
              first proof, until the last. No job may be lost.

Beside them, what the same takes when nothing has happened. Every proof is verified here, against its own witness.
Life of data: seconds by what they are of -> Report.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cuzkd.backend.protocol import Backend
from cuzkd.bench import served, subject
from cuzkd.bench.report import Report, Table
from cuzkd.bench.served import Daemon
from cuzkd.bench.subject import Subject
from cuzkd.errors import CuzkdError, InvalidInput
from cuzkd.groth16.setup import DEVELOPMENT

PARTS = ("kill", "cancel", "restart")
TRIES = 20  # to kill a prover before it is done
PROVING = 0.9  # of what a job takes; the rest is its way there and back
LANES = 4  # submissions at a time, of what is not measured
AT_WORK = ("synthesising", "proving", "verifying")
FREE = "idle"  # the state of a device that has nothing in hand
PATIENCE_S = 300.0  # with what a cancel should bring about
LOOK_EVERY_S = 0.005


@dataclass(frozen=True)
class Options:
    """n_constraints: of the jobs of kill and restart, and of the small one after a cancel. cancel_constraints: of those
    that are cancelled. rounds: of kill and of restart. cancels: how many. queued: jobs when the daemon is killed.
    """

    curve: str = "bls12_381"
    parts: tuple[str, ...] = PARTS
    n_constraints: int = 1 << 12
    cancel_constraints: int = 1 << 20
    rounds: int = 3
    cancels: int = 6
    queued: int = 50
    folder: Path | None = None


@dataclass
class Found:
    """Seconds, by part and by what they are of. cancelled_at: the state of each job when it was cancelled."""

    seconds: dict[str, dict[str, list[float]]] = field(default_factory=lambda: {part: {} for part in PARTS})
    cancelled_at: list[str] = field(default_factory=list)

    def note(self, part: str, what: str, seconds: float) -> None:
        self.seconds[part].setdefault(what, []).append(seconds)


def run(backend: Backend, options: Options, say: Callable[[str], None]) -> Report:
    """The parts asked for. Raises what proving raises, CuzkdError when a job is lost."""
    if unknown := set(options.parts).difference(PARTS):
        raise InvalidInput(f"--parts: expected some of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    for name, value in (
        ("--rounds", options.rounds),
        ("--cancels", options.cancels),
        ("--queued", options.queued),
    ):
        if value < 1:
            raise InvalidInput(f"{name}: expected at least 1, got {value}")
    found = Found()
    with (
        subject.make(options.curve, options.n_constraints, backend, distinct=options.queued + 1) as bed,
        served.opened(backend, options.folder, {}) as daemon,
    ):
        daemon.install(bed)
        if "kill" in options.parts:
            with _running(daemon):
                _kill(daemon, bed, options.rounds, found, say)
        if "cancel" in options.parts:
            with subject.make(options.curve, options.cancel_constraints, backend, distinct=1) as large:
                say(f"key of {options.cancel_constraints:,} constraints made in {large.made_s['key']:.1f} s")
                daemon.install(large)
                with _running(daemon):
                    _cancel(daemon, bed, large, options.cancels, found, say)
        if "restart" in options.parts:
            _restart(daemon, bed, options, found, say)
    return _report(backend, options, found)


# -- the prover is killed ------------------------------------------------------------------------------------


def _kill(daemon: Daemon, bed: Subject, rounds: int, found: Found, say: Callable[[str], None]) -> None:
    daemon.prove(bed, 0)  # loads the key
    for number in range(rounds):
        found.note("kill", "a proof, nothing has happened", _proof_s(daemon, bed))
        found.note("kill", "killed at rest, to the proof", _killed_at_rest(daemon, bed))
        _proof_s(daemon, bed)
        found.note("kill", "killed at work, to its proof", _killed_at_work(daemon, bed))
        say(f"kill {number + 1}: " + _latest(found, "kill"))


def _killed_at_rest(daemon: Daemon, bed: Subject) -> float:
    killed = daemon.provers()
    began = time.perf_counter()
    daemon.kill_provers()
    _proof_s(daemon, bed)
    seconds = time.perf_counter() - began
    if set(killed) & set(daemon.provers()):
        raise CuzkdError("a prover was killed, and is still the daemon's")
    return seconds


def _killed_at_work(daemon: Daemon, bed: Subject) -> float:
    """A prover may be done before it is dead: then another time."""
    for _ in range(TRIES):
        job_id = daemon.client.submit(bed.name, [bed.witness(0)])
        if not _at_work(daemon, job_id):
            continue
        daemon.kill_provers()
        began = time.perf_counter()
        answer = served.ended(daemon.client, job_id)
        seconds = time.perf_counter() - began
        served.require_right(bed, answer, [0])
        if answer.results[0].attempts > 1:
            return seconds
        _proof_s(daemon, bed)  # whoever comes next is there
    raise CuzkdError(
        f"the prover was done before it could be killed, {TRIES} times: --constraints must be more"
    )


# -- a job is cancelled --------------------------------------------------------------------------------------


def _cancel(
    daemon: Daemon, bed: Subject, large: Subject, cancels: int, found: Found, say: Callable[[str], None]
) -> None:
    """Moments are spread evenly over what the job takes. Every other time it is seen when the prover has nothing in
    hand, the other times when the next job is done: the one would be in the way of the other.
    """
    _proof_s(daemon, large)  # loads the key
    whole_s = _proof_s(daemon, large)
    found.note("cancel", "the job, nothing has happened", whole_s)
    _proof_s(daemon, bed)
    found.note("cancel", "the next job, nothing has happened", _proof_s(daemon, bed))
    after = (
        ("until the prover has nothing in hand", _until_free),
        ("until the next job is done", _proof_s),
    )
    provers = daemon.provers()
    for number in range(cancels):
        job_id = daemon.client.submit(large.name, [large.witness(0)])
        if not _at_work(daemon, job_id):
            raise CuzkdError("a job was done before it could be cancelled: --cancel-constraints must be more")
        watcher = _Watcher(daemon, job_id)
        time.sleep(PROVING * whole_s * number / cancels)
        at = watcher.now()
        began = time.perf_counter()
        if not daemon.client.cancel(job_id):
            say(f"cancel {number + 1}: it came too late")
            continue
        found.note("cancel", "until the call returns", time.perf_counter() - began)
        what, done = after[number % len(after)]
        done(daemon, bed)
        seconds = time.perf_counter() - began
        found.note("cancel", what, seconds)
        found.note("cancel", "until its watcher knows", watcher.ended("cancelled") - began)
        found.cancelled_at.append(at)
        say(f"cancel {number + 1}, {at}: {what} {seconds:.3f} s")
    if daemon.provers() != provers:
        raise CuzkdError("a cancel has cost a prover")


class _Watcher:
    """Follows a job."""

    def __init__(self, daemon: Daemon, job_id: str) -> None:
        self._state = ""
        self._at = 0.0
        self._seen = threading.Event()
        self._states = daemon.client.watch(job_id)
        self._thread = threading.Thread(target=self._follow, name="bench-watcher", daemon=True)
        self._thread.start()

    def now(self) -> str:
        """The state that was seen last. Waits for the first."""
        self._seen.wait(PATIENCE_S)
        return self._state

    def ended(self, state: str) -> float:
        """When it did. Raises CuzkdError when it did not, or otherwise."""
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive() or self._state != state:
            raise CuzkdError(f"a job should have been {state} after {PATIENCE_S:.0f} s, and is {self._state}")
        return self._at

    def _follow(self) -> None:
        for view in self._states:
            self._state, self._at = view.state, time.perf_counter()
            self._seen.set()


def _until_free(daemon: Daemon, bed: Subject) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(device.state != FREE for device in daemon.client.status().devices):
        if time.monotonic() > deadline:
            raise CuzkdError(f"the prover has a cancelled job in hand after {PATIENCE_S:.0f} s")
        time.sleep(LOOK_EVERY_S)


# -- the daemon is killed ------------------------------------------------------------------------------------


def _restart(
    daemon: Daemon, bed: Subject, options: Options, found: Found, say: Callable[[str], None]
) -> None:
    numbers = range(1, options.queued + 1)
    for number in range(options.rounds):
        began = time.perf_counter()
        daemon.start()
        found.note("restart", "until it serves, nothing queued", time.perf_counter() - began)
        _proof_s(daemon, bed)
        found.note("restart", "until the first proof, nothing queued", time.perf_counter() - began)
        with daemon.standing_still():
            with ThreadPoolExecutor(LANES) as clients:
                paths = [bed.witness(n) for n in numbers]
                jobs = list(clients.map(lambda path: daemon.client.submit(bed.name, [path]), paths))
            daemon.kill()
        began = time.perf_counter()
        daemon.start()
        found.note("restart", "until it serves", time.perf_counter() - began)
        answers = []
        for job_id in jobs:  # they were submitted side by side: whichever is first, all are before the last
            answers.append(served.ended(daemon.client, job_id))
            if len(answers) == 1:
                found.note("restart", "until a first proof", time.perf_counter() - began)
        found.note("restart", "until all are proved", time.perf_counter() - began)
        for witness, answer in zip(numbers, answers, strict=True):
            served.require_right(bed, answer, [witness])
        daemon.stop()
        say(f"restart {number + 1}: " + _latest(found, "restart"))


# -- both ----------------------------------------------------------------------------------------------------


@contextmanager
def _running(daemon: Daemon) -> Iterator[None]:
    daemon.start()
    yield
    daemon.stop()


def _proof_s(daemon: Daemon, bed: Subject) -> float:
    """Of one job, from its submission to its answer."""
    began = time.perf_counter()
    answer = served.ended(daemon.client, daemon.client.submit(bed.name, [bed.witness(0)]))
    seconds = time.perf_counter() - began
    served.require_right(bed, answer, [0])
    return seconds


def _at_work(daemon: Daemon, job_id: str) -> bool:
    """Wait until a prover has begun with a job. False: it has ended already."""
    return any(view.state in AT_WORK for view in daemon.client.watch(job_id))


def _latest(found: Found, part: str) -> str:
    return ", ".join(f"{what} {seconds[-1]:.3f} s" for what, seconds in found.seconds[part].items())


# -- tables --------------------------------------------------------------------------------------------------


def _report(backend: Backend, options: Options, found: Found) -> Report:
    report = Report("recovery", backend)
    for part, of_part in found.seconds.items():
        rows = [
            [
                what,
                f"{statistics.median(seconds):.3f}",
                f"{min(seconds):.3f}",
                f"{max(seconds):.3f}",
                str(len(seconds)),
            ]
            for what, seconds in of_part.items()
        ]
        if rows:
            report.tables.append(Table(part, ["seconds", "median", "least", "most", "times"], rows))
    report.notes = [
        f"Jobs of {options.n_constraints:,} constraints on {options.curve}; those that are cancelled have "
        f"{options.cancel_constraints:,}. {options.queued} jobs are in the queue when the daemon is killed. Keys "
        "are in the page cache. Every proof is verified here, against the witness that was sent.",
        f"Keys: {DEVELOPMENT}.",
    ]
    report.numbers = {
        "options": vars(options),
        "seconds": found.seconds,
        "cancelled_at": found.cancelled_at,
    }
    return report
