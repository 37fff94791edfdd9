"""How long things take: learned from what they took, used for deadlines and for what clients are told.

Problem. A hang can only be told from slow work by somebody who knows how slow the work is, and that differs by five
orders of magnitude between circuits and backends. A client that waits wants to know how long.
Design. `Estimates` holds decaying means of seconds by circuit digest, backend and stage, in one small file. They are
only estimates: a missing or damaged file means starting to learn again, never an error. `forecast` is a pure
function of them, of what goes before a job in the queue, and of what the provers hold; it looks at sums, never at
single partitions that wait. It says None as soon as one part is unknown.
Life of a number. phases of a verified proof -> learn -> means -> limits and forecasts; save, now and then.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuzkd.engine.job import Stage
from cuzkd.engine.scheduling.scheduler import Held, ProverView
from cuzkd.errors import InvalidInput
from cuzkd.formats.files import written_whole
from cuzkd.formats.json_depth import is_deeper

# What of a partition's phases is work of its stage. Left out: what waits (queue_wait, gpu_wait), and what only the
# first partition of a circuit pays (key_load).
WORK: Mapping[Stage, Collection[str]] = {
    Stage.SYNTHESISING: ("witness", "synthesis", "stage_copy", "pin"),
    Stage.PROVING: (
        "h2d", "spmv", "ntt_h", "prep_msm", "msm_h", "msm_l", "msm_a", "msm_b_g1", "msm_b_g2", "d2h", "unpin",
    ),
    Stage.VERIFYING: ("assembly", "verify"),
}  # fmt: skip
MEMORY = 8  # a mean forgets about an eighth of itself with each new value
MAX_KNOWN = 1000  # circuit and backend; the one that was longest not proved goes
DEEPEST = 8  # brackets that are open at once
MAX_FILE_BYTES = 1 << 20
HANGS_AFTER = 30  # times what a stage took so far
# Of an unknown circuit: far more than the slowest machine takes for a row of its domain, or than the slowest disk for
# that row's share of the key.
ROW_S: Mapping[str, float] = {"cuda": 2e-5}
ROW_OF_OTHERS_S = 2e-4


@dataclass(frozen=True)
class _Mean:
    """Seconds by stage of WORK, over so many partitions (at most MEMORY)."""

    seconds: Mapping[Stage, float]
    weight: int


class Estimates:
    """Seconds that partitions of a circuit took, by stage and backend. path: of the file, None to keep none.
    Thread-safe.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()  # over the two below
        self._known: dict[tuple[str, str], _Mean] = {} if path is None else _read(path)
        self._changed = False

    def learn(self, digest: str, backend: str, seconds: Mapping[str, float]) -> None:
        """One more partition was proved. seconds: its phases, by name (job.PHASES; others are ignored)."""
        new = {stage: sum(seconds.get(phase, 0.0) for phase in phases) for stage, phases in WORK.items()}
        if not all(_is_time(s) for s in new.values()):
            return
        with self._lock:
            old = self._known.pop((digest, backend), _Mean({}, 0))
            weight = min(old.weight + 1, MEMORY)
            means = {}
            for stage, s in new.items():
                before = old.seconds.get(stage, s)
                means[stage] = before + (s - before) / weight
            self._known[digest, backend] = _Mean(means, weight)  # at the end: the newest
            while len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._changed = True

    def stage_s(self, digest: str, backend: str, stage: Stage) -> float | None:
        """Seconds of work in a stage; None when nobody knows, or when no work is done in it."""
        known = self._known.get((digest, backend))
        return None if known is None else known.seconds.get(stage)

    def service_s(self, digest: str, backend: str) -> float | None:
        """Seconds by which one more partition delays those behind it. On the processor the stages share its cores;
        beside a device they overlap, and the longest counts.
        """
        known = self._known.get((digest, backend))
        if known is None:
            return None
        return max(known.seconds.values()) if backend == "cuda" else sum(known.seconds.values())

    def proof_s(self, digest: str, backend: str) -> float | None:
        """Seconds from a partition's beginning to its end in a prover that does nothing else."""
        known = self._known.get((digest, backend))
        return None if known is None else sum(known.seconds.values())

    def limit_s(self, digest: str, backend: str, stage: Stage, least_s: float, log_domain: int) -> float:
        """How long a partition may be in a stage until it is thought to hang; at least least_s.

        Synthesis may have to wait for the key, whose size is known; partitions that wait in line wait for others: as
        long as these may take (scheduler._overdue).
        """
        if stage not in WORK:
            return max(self.limit_s(digest, backend, other, least_s, log_domain) for other in WORK)
        by_size_s = math.ldexp(ROW_S.get(backend, ROW_OF_OTHERS_S), log_domain)
        took_s = self.stage_s(digest, backend, stage)
        if took_s is None:
            return max(least_s, by_size_s)
        if stage is Stage.SYNTHESISING:
            return max(least_s, by_size_s, HANGS_AFTER * took_s)
        return max(least_s, HANGS_AFTER * took_s)

    def share(self, digest: str, backend: str, stage: Stage, elapsed_s: float) -> float:
        """How much of a partition's work is done, 0 to 1, elapsed_s after it entered a stage. Of an unknown circuit
        every stage is a third.
        """
        if stage in (Stage.QUEUED, Stage.OFFERED):
            return 0.0
        if stage is Stage.DONE:
            return 1.0
        known = self._known.get((digest, backend))
        works = dict.fromkeys(WORK, 1.0) if known is None else known.seconds
        total = sum(works.values()) or 1.0
        at = Stage.PROVING if stage is Stage.READY else stage
        order = list(WORK)
        done = sum(works[of] for of in order[: order.index(at)])
        if stage is not Stage.READY and known is not None:
            done += min(max(elapsed_s, 0.0), works[at])
        return min(done / total, 1.0)

    def save(self) -> None:
        """Write the file if anything was learned since. A full disk is no error: the numbers stay in memory."""
        with self._lock:
            if self._path is None or not self._changed:
                return
            text = json.dumps(
                [
                    [digest, backend, mean.weight, mean.seconds]
                    for (digest, backend), mean in self._known.items()
                ]
            )
            self._changed = False
        with contextlib.suppress(OSError, InvalidInput), written_whole(self._path, 0o600) as file:
            file.write(text.encode())


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _read(path: Path) -> dict[tuple[str, str], _Mean]:
    """What can be understood of a file; of no file, nothing."""
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_FILE_BYTES).decode()
        found = [] if is_deeper(text, DEEPEST) else json.loads(text)
    except (OSError, ValueError):
        return {}
    known = {}
    for entry in found if isinstance(found, list) else []:
        match entry:
            case [str(digest), str(backend), int(weight), dict(seconds)] if (
                0 < weight <= MEMORY and set(seconds) == set(WORK) and all(map(_is_time, seconds.values()))
            ):
                known[digest, backend] = _Mean({Stage(name): float(s) for name, s in seconds.items()}, weight)
    return dict(list(known.items())[-MAX_KNOWN:])


# -- when will it end --


@dataclass(frozen=True)
class Forecast:
    """Seconds from now until the first of some waiting partitions is begun, and until the last of all is proved."""

    begin_s: float
    end_s: float


def forecast(
    now_s: float,
    provers: Sequence[ProverView],
    estimates: Estimates,
    digest: str,
    *,
    held: Collection[str] = (),
    waiting: int = 0,
    ahead: Mapping[str, int] | None = None,
) -> Forecast | None:
    """When a job of one circuit will end; None when a part is unknown, or no prover is ready.

    digest: of the circuit. held: ids of those of its partitions that provers hold. waiting: how many of it wait, or
    would if it were submitted now. ahead: PartitionQueue.ahead of the first of these.
    """
    try:
        return _forecast(now_s, provers, estimates, digest, held, waiting, ahead or {})
    except _Unknown:
        return None


def queue_s(
    provers: Sequence[ProverView], estimates: Estimates, ahead: Mapping[str, int], count: int
) -> float | None:
    """Seconds until `count` of those that wait will have left the queue; for one who was told that it is full."""
    try:
        open_ = [view for view in provers if not view.closing]
        rate = sum(1 / seconds for seconds in _work_s(open_, estimates, ahead) if seconds)
    except _Unknown:
        return None
    total = sum(ahead.values())
    return min(count, total) / total / rate if rate else None


class _Unknown(Exception):
    pass


def _forecast(
    now_s: float,
    provers: Sequence[ProverView],
    estimates: Estimates,
    digest: str,
    held: Collection[str],
    waiting: int,
    ahead: Mapping[str, int],
) -> Forecast:
    end_s = max((_last_s(now_s, view, estimates, held) for view in provers), default=0.0)
    if not waiting:
        return Forecast(0.0, end_s)
    provers = [view for view in provers if not view.closing]
    if not provers:
        raise _Unknown
    busy_s = [sum(_left_s(now_s, h, view, estimates) for h in view.held) for view in provers]
    before_s = _work_s(provers, estimates, ahead)
    mine_s = _work_s(provers, estimates, {digest: waiting})
    begin_s = _shared_s(busy_s, before_s)
    all_s = _shared_s(busy_s, [a + b for a, b in zip(before_s, mine_s, strict=True)])
    proof_s = max(_known(estimates.proof_s(digest, view.backend)) for view in provers)
    verify_s = max(_known(estimates.stage_s(digest, v.backend, Stage.VERIFYING)) for v in provers)
    return Forecast(begin_s, max(end_s, all_s + verify_s, begin_s + proof_s))


def _known(seconds: float | None) -> float:
    if seconds is None:
        raise _Unknown
    return seconds


def _work_s(provers: Sequence[ProverView], estimates: Estimates, work: Mapping[str, int]) -> list[float]:
    """How long each prover alone would take for so many partitions of circuits."""
    by_backend = {
        backend: sum(n * _known(estimates.service_s(digest, backend)) for digest, n in work.items())
        for backend in {view.backend for view in provers}
    }
    return [by_backend[view.backend] for view in provers]


def _left_s(now_s: float, held: Held, view: ProverView, estimates: Estimates) -> float:
    """By how much a partition that a prover holds still delays those behind it."""
    service_s = _known(estimates.service_s(held.digest, view.backend))
    return service_s * (1 - estimates.share(held.digest, view.backend, held.stage, now_s - held.since_s))


def _last_s(now_s: float, view: ProverView, estimates: Estimates, mine: Collection[str]) -> float:
    """Until a prover is through with the last of some partitions that it holds; 0 when it holds none of them."""
    order = list(Stage)
    delay_s = last_s = 0.0
    for held in sorted(view.held, key=lambda held: (-order.index(held.stage), -held.priority)):
        if held.partition_id in mine:
            proof_s = _known(estimates.proof_s(held.digest, view.backend))
            share = estimates.share(held.digest, view.backend, held.stage, now_s - held.since_s)
            last_s = delay_s + proof_s * (1 - share)
        delay_s += _left_s(now_s, held, view, estimates)
    return last_s


def _shared_s(busy_s: Sequence[float], alone_s: Sequence[float]) -> float:
    """When work that waits is done, if each prover takes of it as soon as it is free, like water that fills vessels:
    after busy_s prover p does 1 / alone_s[p] of it per second.
    """
    rate = filled = at_s = 0.0
    for free_s, whole_s in sorted(zip(busy_s, alone_s, strict=True)):
        if filled + rate * (free_s - at_s) >= 1:
            break
        filled += rate * (free_s - at_s)
        at_s = free_s
        if whole_s <= 0:
            return at_s
        rate += 1 / whole_s
    return at_s + (1 - filled) / rate
