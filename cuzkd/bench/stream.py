"""`cuzkd bench stream`: what a daemon adds to proving, when jobs come one after another.

Problem: between two proofs a daemon has messages to read, files to sync, processes to talk to. A device that waits for
that is a device that was paid for and does nothing.
Design: three ways to prove the same witnesses with the same key take turns, round after round, each for as many proofs:

    library   groth16.prover in one process, one after another, each verified: what is aimed at
    threads   a prover's threads in this process (pipeline.py): the engine without a front
    daemon    a job for so many witnesses, so many jobs at a time, as clients send them (or refer to what they have
              uploaded, or to files on the server); from the first call to the last answer

A ratio is the library's time over another's in the same round: 1 is as fast, above 1 is faster. What the daemon's
processes have used of the processors is read from the kernel, and how busy its device was from its log.
Every proof of the daemon and of the threads is verified here once more, outside of what is timed.

Life of data: rounds -> seconds for each proof, by way -> ratios -> Report.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cuzkd.backend.protocol import Backend
from cuzkd.bench import pipeline, served, subject, timeline
from cuzkd.bench.pipeline import Pipeline, Setting
from cuzkd.bench.porep import holders
from cuzkd.bench.report import Report, Table
from cuzkd.bench.served import Daemon, Processes
from cuzkd.bench.spread import Spread
from cuzkd.bench.subject import Subject
from cuzkd.client import CALL_TIMEOUT_S
from cuzkd.engine.job import PHASES
from cuzkd.errors import InvalidInput
from cuzkd.formats import wtns
from cuzkd.groth16 import prover
from cuzkd.groth16.setup import DEVELOPMENT
from cuzkd.service.v1 import proving_pb2 as pb

TIMING = "gpu_timing"  # the event of the daemon's log that tells of one proof
LOG_PATIENCE_S = 10.0
LIBRARY, THREADS, DAEMON = "library", "threads", "daemon"
READY_TARGET = 2  # as the daemon has it by default
TARGET = 0.95
JOB_S = 0.1  # jobs of this length and more shall reach it
FIRST_SIZES = {
    "cuda": 1 << 18
}  # tried when none is given, and doubled until a job is long enough; elsewhere:
FIRST_SIZE = 1 << 12


@dataclass(frozen=True)
class Options:
    """n_constraints: 0 for the least power of two, or about it, with which a proof takes JOB_S. proofs: of each way in
    each round. partitions: of a job. in_flight: jobs at a time. on_server: the daemon is told where its witnesses are,
    instead of being sent them; uploaded: they are uploaded ahead of each round, and jobs refer to them. folder: where
    its state goes, and witnesses.
    """

    curve: str = "bls12_381"
    n_constraints: int = 0
    proofs: int = 24
    rounds: int = 5
    partitions: int = 1
    in_flight: int = 6
    on_server: bool = False
    uploaded: bool = False
    folder: Path | None = None


@dataclass
class Found:
    """Seconds of one proof, by way, a number for each round; of processors, by process, in all of them."""

    each_s: dict[str, list[float]] = field(default_factory=lambda: {LIBRARY: [], THREADS: [], DAEMON: []})
    processors_s: dict[str, list[float]] = field(
        default_factory=lambda: {LIBRARY: [], "client": [], "front": [], "prover": []}
    )
    phases_s: list[dict[str, float]] = field(default_factory=list)  # of the daemon's proofs
    job_s: list[float] = field(default_factory=list)  # from the daemon's acceptance to the end
    # Share of the time from the first to the last kernel in which the device worked; by way, a number for each round
    # of which it is known.
    busy: dict[str, list[float]] = field(default_factory=lambda: {THREADS: [], DAEMON: []})

    def ratios(self, way: str) -> list[float]:
        return [ours / its for ours, its in zip(self.each_s[LIBRARY], self.each_s[way], strict=True)]


def run(backend: Backend, options: Options, say: Callable[[str], None]) -> Report:
    """All rounds. Raises what proving raises, DeviceFault for a proof that does not verify."""
    for name, value, least in (("--rounds", options.rounds, 2), ("--proofs", options.proofs, 2)):
        if value < least:
            raise InvalidInput(f"{name}: expected at least {least}, got {value}")
    if options.proofs % options.partitions:
        raise InvalidInput(f"--proofs: expected a multiple of {options.partitions}, got {options.proofs}")
    size = options.n_constraints or _size(backend, options.curve)
    holding = holders(backend, READY_TARGET)
    with (
        subject.make(options.curve, size, backend, options.folder, options.proofs, 2 * holding) as bed,
        served.opened(backend, options.folder, _settings(bed)) as daemon,
    ):
        daemon.install(bed)
        daemon.start()
        for number in range(options.proofs):
            bed.witness(number)
        with pipeline.opened(bed, Setting(ready_target=READY_TARGET)) as threads:
            found = _Rounds(bed, threads, daemon, options, say).found()
        daemon.stop()
    return _report(backend, options, size, found)


def _size(backend: Backend, curve: str) -> int:
    """By the second proof of a small circuit: what grows with the size is most of it."""
    size = FIRST_SIZES.get(backend.name, FIRST_SIZE)
    with subject.make(curve, size, backend, distinct=1) as bed:
        for _ in range(2):
            began = time.perf_counter()
            _prove(bed, 0)
        seconds = time.perf_counter() - began
    return size << max(0, math.ceil(math.log2(JOB_S / seconds)))


def _prove(bed: Subject, number: int) -> None:
    """The way of a library: from a file to a proof that was verified."""
    with wtns.map(bed.witness(number)) as file:
        witness = np.frombuffer(file.values, np.uint64).reshape(-1, 4).copy()
    prover.prove_with(bed.backend, bed.key, bed.loaded, witness)


def _settings(bed: Subject) -> served.Settings:
    return {"wire": {"server_folders": [str(bed.folder.resolve())]}}


class _Rounds:
    def __init__(
        self, bed: Subject, threads: Pipeline, daemon: Daemon, options: Options, say: Callable[[str], None]
    ) -> None:
        self._bed, self._threads, self._daemon = bed, threads, daemon
        self._options, self._say = options, say
        self._calls = served.stub(daemon.channel())
        self._uploads: list[str] = []
        self._read = 0  # of the daemon's log, bytes
        self._ways = {LIBRARY: self._library, THREADS: self._in_threads, DAEMON: self._by_daemon}

    def found(self) -> Found:
        """One round that is not counted, then the others; who begins changes with each."""
        found, order = Found(), list(self._ways)
        for way in order:
            self._ways[way](Found())
        for number in range(self._options.rounds):
            for way in order[number % 3 :] + order[: number % 3]:
                found.each_s[way].append(self._ways[way](found) / self._options.proofs)
            self._say(", ".join(f"{way} {1e3 * found.each_s[way][-1]:.1f} ms" for way in order))
        return found

    def _library(self, found: Found) -> float:
        began_processor_s = time.process_time()
        began = time.perf_counter()
        for number in range(self._options.proofs):
            _prove(self._bed, number)
        seconds = time.perf_counter() - began
        found.processors_s[LIBRARY].append(time.process_time() - began_processor_s)
        return seconds

    def _in_threads(self, found: Found) -> float:
        done = self._threads.run(self._options.proofs, self._options.in_flight * self._options.partitions)
        found.busy[THREADS].append(timeline.busy([span for record in done.records for span in record.spans]))
        for record in done.records:
            self._bed.require_valid(*record.decoded(self._bed.key.vk.curve), "a proof told verified")
        return done.wall_s

    def _by_daemon(self, found: Found) -> float:
        size = self._options.partitions
        jobs = [range(first, first + size) for first in range(0, self._options.proofs, size)]
        if self._options.uploaded:
            self._uploads = [
                self._daemon.client.upload(self._bed.witness(number))
                for number in range(self._options.proofs)
            ]
        _, self._read = self._daemon.said(TIMING, self._read)
        before, began_processor_s = self._daemon.processor_time(), time.process_time()
        began = time.perf_counter()
        with ThreadPoolExecutor(self._options.in_flight) as clients:
            answers = list(clients.map(self._job, jobs))
        seconds = time.perf_counter() - began
        used = self._daemon.processor_time().since(before)
        self._note(found, answers, used, time.process_time() - began_processor_s)
        self._note_busy(found)
        for numbers, answer in zip(jobs, answers, strict=True):
            served.require_right(self._bed, answer, numbers)
        return seconds

    def _note_busy(self, found: Found) -> None:
        """The device's share of this round, once the log tells of all its proofs."""
        said: list[dict[str, Any]] = []
        deadline = time.monotonic() + LOG_PATIENCE_S
        while True:
            lines, self._read = self._daemon.said(TIMING, self._read)
            said += lines
            if len(said) >= self._options.proofs or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        if len(said) != self._options.proofs:
            self._say(
                f"the log tells of {len(said)} proofs of {self._options.proofs}: not how busy the device was"
            )
            return
        window_s = max(s["kernels_end_s"] for s in said) - min(s["kernels_begin_s"] for s in said)
        found.busy[DAEMON].append(sum(s["kernels_busy_s"] for s in said) / window_s)

    def _job(self, numbers: range) -> pb.AwaitProofResponse:
        paths = [self._bed.witness(number) for number in numbers]
        if not (self._options.on_server or self._options.uploaded):
            return served.ended(self._daemon.client, self._daemon.client.submit(self._bed.name, paths))
        request = pb.SubmitProofRequest(circuit_id=self._bed.name)
        for number, path in zip(numbers, paths, strict=True):
            if self._options.uploaded:
                request.partitions.add(upload_id=self._uploads[number])
            else:
                request.partitions.add(server_path=str(path.resolve()))
        job_id = self._calls.SubmitProof(request, timeout=CALL_TIMEOUT_S).job_id
        return served.ended(self._daemon.client, job_id)

    def _note(
        self, found: Found, answers: list[pb.AwaitProofResponse], used: Processes, client_s: float
    ) -> None:
        for answer in answers:
            found.job_s.append(answer.total_ms / 1e3)
            found.phases_s += [{p.name: p.seconds for p in result.phases} for result in answer.results]
        for process, seconds in (
            ("client", client_s),
            ("front", used.front_s),
            ("prover", used.prover_s),
        ):
            found.processors_s[process].append(seconds)


# -- tables --------------------------------------------------------------------------------------------------


def _report(backend: Backend, options: Options, size: int, found: Found) -> Report:
    report = Report("stream", backend)
    report.tables = [_speed(found), _busy(found), _processors(options, found), *_phases(found)]
    library_s = statistics.median(found.each_s[LIBRARY])
    job_s = library_s * options.partitions
    sent = "uploaded before" if options.uploaded else "sent by a client"
    sent = "named by their places on the server" if options.on_server else sent
    report.notes = [
        f"{options.rounds} rounds of {options.proofs} proofs of each way, {size:,} constraints on {options.curve}; "
        f"{options.in_flight} jobs of {options.partitions} at a time, witnesses {sent}. Aimed at: {TARGET:g} with jobs "
        f"of {JOB_S:g} s and more; here a job takes {job_s:.3f} s. Verified here once more: all but the library's, "
        "which verifies its own within its time.",
        f"Keys: {DEVELOPMENT}.",
    ]
    report.numbers = {
        "options": vars(options) | {"n_constraints": size},
        "each_s": found.each_s,
        "ratio": {way: vars(Spread.of(found.ratios(way))) for way in (THREADS, DAEMON)},
        "long_enough": job_s >= JOB_S,
        "processors_s": found.processors_s,
        "found": asdict(found),
    }
    return report


def _speed(found: Found) -> Table:
    rows = []
    for way, seconds in found.each_s.items():
        each, ratio = Spread.of(seconds), Spread.of(found.ratios(way))
        row = [way, f"{1e3 * each.median:.1f}", each.quartiles(), f"{ratio.median:.3f}"]
        rows.append([*row, ratio.quartiles(".3f", 1), f"{ratio.least:.3f}"])
    return Table("A stream of proofs", ["way", "proof, ms", "quartiles", "ratio", "quartiles", "least"], rows)


def _busy(found: Found) -> Table:
    rows = []
    for way, shares in found.busy.items():
        if len(shares) < 2:  # its log did not tell
            continue
        share = Spread.of([100 * value for value in shares])
        rows.append([way, f"{share.median:.1f}", share.quartiles(".1f", 1), f"{share.least:.1f}"])
    return Table(
        "Device busy, % of the time from the first to the last kernel",
        ["way", "median", "quartiles", "least"],
        rows,
    )


def _processors(options: Options, found: Found) -> Table:
    rows = [
        [process, f"{1e3 * statistics.median(seconds) / options.proofs:.1f}"]
        for process, seconds in found.processors_s.items()
    ]
    return Table("Time of processors for each proof, medians", ["process", "ms"], rows)


def _phases(found: Found) -> list[Table]:
    seen = {phase for phases in found.phases_s for phase in phases}
    order = [phase for phase in PHASES if phase in seen] + sorted(seen.difference(PHASES))
    rows = []
    for phase in order:
        seconds = Spread.of([phases.get(phase, 0.0) for phases in found.phases_s])
        rows.append(
            [phase, f"{1e3 * seconds.median:.2f}", seconds.quartiles(".2f"), f"{1e3 * seconds.most:.2f}"]
        )
    whole = Spread.of(found.job_s)
    rows.append(["job, all", f"{1e3 * whole.median:.0f}", whole.quartiles(".0f"), f"{1e3 * whole.most:.0f}"])
    return [Table("Phases of the daemon's proofs", ["phase", "ms", "quartiles", "most"], rows)]
