"""Whether a device may work: what has happened to one prover decides who computes in its next life.

Problem. A device that fails now and then costs every job its attempts; one that fails always takes the service down
although the processor could serve; and one that was shut out for ever needs somebody to come and let it in again.
Not everything that ends a process is the device's doing: the kernel kills for memory, operators kill, we have bugs.

Design. Pure bookkeeping for one prover, over all its processes: told what happened and when, it says which backend
the next process opens, how long to wait before, and whether the device goes into quarantine. Against a device count
deaths that it may have caused (a fault it reported, a failed self-test, a hang, a crash in native code), its absence
where it had been seen, and wrong proofs that a second attempt put right. A proof that verified at the first attempt
ends the row; `quarantine_after` in a row begin a quarantine. After it the device is on probation: the next process
tests it before it is ready. If it passes it has returned, otherwise the next quarantine is twice as long.

    policy     a healthy device     in quarantine
    prefer     auto                 cpu; when the time is over, that prover makes way
               cuda, where named    the same, while no other device works and nobody else stands in (standin.py)
    require    cuda                 nobody; accepted jobs wait
    cpu        cpu                  (there is none: a processor that fails is only given longer pauses)

Where policy is prefer and no device was named or ever seen, the processor works, and nothing is said of quarantine. A
device that was named counts as seen: that it is not there is a failure.

Life. One `Health` per prover, from the daemon's start to its end. A restart of the daemon forgets it: the first
process tests the device anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

from cuzkd.errors import DeviceFault, Exhausted, Unavailable

BACKENDS = {"prefer": "auto", "require": "cuda", "cpu": "cpu", "reference": "reference"}  # by policy
HOSTS = ("cpu", "reference")  # backends without a device
USELESS_AFTER = 3  # failed starts in a row after which a prover is not counted on


@dataclass(frozen=True)
class Rules:
    """policy: key of BACKENDS. quarantine_after: failures in a row. Seconds: of the first quarantine and the longest,
    each twice as long as the one before it; of the pause after a death, and the longest, likewise.
    """

    policy: str = "prefer"
    quarantine_after: int = 2
    quarantine_s: float = 60.0
    longest_quarantine_s: float = 3600.0
    first_pause_s: float = 0.5
    longest_pause_s: float = 60.0


@dataclass(frozen=True)
class Death:
    """How a process ended. cause: one sentence. stage: of the pipeline, or "selftest", where it is known. code: of
    cuzkd.errors, if it said one. device: UUID, if it said one. suspect: the device may be what it died of. asked: we
    wanted it gone; nothing is counted.
    """

    cause: str
    stage: str = ""
    code: str = ""
    device: str = ""
    suspect: bool = False
    asked: bool = False


@dataclass(frozen=True)
class Quarantine:
    """A device is left alone from now on, for so many seconds. stage, cause: of the last failure."""

    device: str
    cause: str
    stage: str
    failures: int
    seconds: float


@dataclass(frozen=True)
class Returned:
    """A device is back: it has passed its self-test after a quarantine."""

    device: str


@dataclass(frozen=True)
class HealthView:
    """state: starting, ready, dead, quarantined (the device is, whoever works meanwhile), stopped. cause: of the
    quarantine, or of the last death; "" when all is well. until_s: end of the quarantine on the engine's clock.
    failures: of the device, in a row. backend: of the process that is ready, else "". device: UUID of the last device
    seen, "" if there was none.
    """

    state: str
    cause: str
    until_s: float | None
    failures: int
    backend: str
    device: str = ""


class Health:
    """All times are of one clock, in seconds; the caller passes `now_s`. device: UUID, where it must be this one."""

    def __init__(self, rules: Rules, device: str = "") -> None:
        self._rules = rules
        self._stands_in = rules.policy == "prefer"
        backend = BACKENDS[rules.policy]
        self._wanted = "cuda" if device and backend == "auto" else backend  # of a healthy device
        self._state = "starting"
        self._tries = False  # this process is to open a device
        self._backend = ""  # of this process, once it is ready
        self._device = device  # UUID of the last one seen; "" where there never was one
        self._failures = 0
        self._cause = ""
        self._until_s: float | None = None  # None: not in quarantine, nor on probation
        self._quarantines = 0  # since the last proof that verified at once
        self._fruitless = 0  # processes in a row that died without a proof
        self._failed_starts = 0  # processes in a row that died before they were ready
        self._down_since_s: float | None = None  # None: a process is ready, or none was ever begun

    # -- what happens --

    def began(self, now_s: float) -> str:
        """A process starts: the backend that it is to open."""
        self._state = "starting"
        if self._down_since_s is None:
            self._down_since_s = now_s
        stands_in = self._rules.policy == "prefer" and self._shut_out(now_s)
        backend = "cpu" if stands_in else self._wanted
        self._tries = backend not in HOSTS
        return backend

    def ready(self, now_s: float, backend: str, device: str) -> Returned | Quarantine | None:
        """It has passed its self-test. A Quarantine: the device that there was does not answer any more, the process
        works without it.
        """
        self._state, self._backend = "ready", backend
        self._failed_starts, self._down_since_s = 0, None
        on_probation = self._until_s is not None
        if backend in HOSTS and self._tries and (self._device or on_probation):
            self._failures += 1
            return self._quarantine(now_s, "no CUDA device answers any more", "start", "")
        if backend in HOSTS and on_probation:
            return None  # it stands in
        self._cause = ""
        if backend not in HOSTS:
            self._device = device
        if not on_probation:
            return None
        self._until_s, self._failures = None, 0
        return Returned(device)

    def proved(self, now_s: float, attempts: int) -> Quarantine | None:
        """A proof that verified; attempts: how often its sums were computed in this process."""
        self._fruitless = 0
        if self._backend in HOSTS or self._shut_out(now_s):
            return None
        if attempts > 1:
            return self._failed(
                now_s, "a proof did not verify, another one of the same witness did", "verify", ""
            )
        self._failures = self._quarantines = 0
        return None

    def died(self, now_s: float, death: Death) -> Quarantine | None:
        """The process is gone."""
        was_ready = self._state == "ready"
        had_device = self._backend not in HOSTS if was_ready else self._tries
        had_device &= death.device not in HOSTS  # "auto" may have come to the processor
        self._state, self._backend = "dead", ""
        if self._down_since_s is None:
            self._down_since_s = now_s
        if death.asked:
            return None
        if had_device and death.device:
            self._device = death.device
        self._fruitless += 1
        self._failed_starts += not was_ready
        if not self._shut_out(now_s):
            self._cause = death.cause
            if had_device and self._speaks_against_it(death, was_ready):
                return self._failed(now_s, death.cause, death.stage, death.device)
        return None

    def stopped(self) -> None:
        self._state, self._backend = "stopped", ""

    def may_stand_in(self, allowed: bool) -> None:
        """Whether the processor may work while this device is left alone. Where policy is not prefer it never may."""
        self._stands_in = allowed and self._rules.policy == "prefer"

    # -- what follows --

    def pause_s(self, now_s: float) -> float:
        """How long to wait before the next process."""
        if not self._stands_in and self._until_s is not None and self._shut_out(now_s):
            return self._until_s - now_s
        if not self._fruitless:
            return 0.0
        doubled = self._rules.first_pause_s * 2.0 ** min(self._fruitless - 1, 32)
        return min(doubled, self._rules.longest_pause_s)

    def to_make_way(self, now_s: float) -> bool:
        """Whether this process is to end as soon as it holds nothing: for the device whose quarantine is over, because
        its own device has gone into one, or because it is not to stand in any more.
        """
        if self._state != "ready" or self._until_s is None:
            return False
        if self._backend in HOSTS:
            return not (self._shut_out(now_s) and self._stands_in)
        return self._shut_out(now_s)

    def works(self) -> bool:
        """Its device is neither left alone nor on probation, and its process is there, or likely to be soon."""
        return self._until_s is None and self._failed_starts < USELESS_AFTER

    def left_alone(self, now_s: float) -> bool:
        """Its device is in quarantine, or a process that stands in for it has not ended yet."""
        stands_in = not self._tries and self._state in ("starting", "ready")
        return self._shut_out(now_s) or (self._until_s is not None and stands_in)

    def useless(self, now_s: float) -> bool:
        """Nothing is ready, and nothing is likely to be soon: new work goes elsewhere."""
        if self._state == "ready":
            return False
        waits = not self._stands_in and self._shut_out(now_s)
        return waits or self._failed_starts >= USELESS_AFTER

    def hopeless(self, now_s: float) -> bool:
        """Nothing has been ready for as long as the longest quarantine lasts: accepted work need not wait for it."""
        if not self.useless(now_s) or self._down_since_s is None:
            return False
        return now_s - self._down_since_s >= self._rules.longest_quarantine_s

    def view(self, now_s: float) -> HealthView:
        shut_out = self._shut_out(now_s)
        return HealthView(
            "quarantined" if shut_out and self._state != "stopped" else self._state,
            self._cause,
            self._until_s if shut_out else None,
            self._failures,
            self._backend,
            self._device,
        )

    # -- inside --

    def _shut_out(self, now_s: float) -> bool:
        return self._until_s is not None and now_s < self._until_s

    def _speaks_against_it(self, death: Death, was_ready: bool) -> bool:
        """Against the device that this process had, or was to find."""
        if self._until_s is not None and not was_ready:
            return True  # on probation: whatever it was, the device has not passed
        missed = death.code == Unavailable.code and bool(self._device)
        full = death.code == Exhausted.code and not was_ready  # others have its memory
        return death.suspect or missed or full or death.code == DeviceFault.code

    def _failed(self, now_s: float, cause: str, stage: str, device: str) -> Quarantine | None:
        self._failures += 1
        self._cause = cause
        if self._until_s is None and self._failures < self._rules.quarantine_after:
            return None
        return self._quarantine(now_s, cause, stage, device)

    def _quarantine(self, now_s: float, cause: str, stage: str, device: str) -> Quarantine:
        doubled = self._rules.quarantine_s * 2.0 ** min(self._quarantines, 32)
        seconds = min(doubled, self._rules.longest_quarantine_s)
        self._quarantines += 1
        self._cause, self._until_s = cause, now_s + seconds
        self._fruitless, self._failed_starts = min(self._fruitless, 1), 0  # whoever stands in begins afresh
        return Quarantine(device or self._device, cause, stage, self._failures, seconds)
