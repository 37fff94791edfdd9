"""All jobs that the daemon knows: the running ones, and the ended ones for a while.

Problem. Results kept for ever are a leak; results dropped at once are lost when the client was away; and
looking through all of them at every call makes a full daemon slow.
Design. Dictionaries in the order of arrival and of ending, so that every step costs the same however many
there are. Of an ended job an `EndedJob` stays for `expiry_s`, and only the newest `max_ended` stay, as far as their
results have room in `max_bytes`; of those dropped the ids are remembered for a while longer, to answer "expired"
instead of "unknown".
A job is there for its owner alone; ids of different owners never meet.
Life of a job. add -> end (by Jobs) -> expire; or restore -> expire.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator

from cuzkd.engine.ended import AnyJob, EndedJob
from cuzkd.engine.job import Job, Stage
from cuzkd.errors import NotFound

REMEMBERED = 4  # expired ids, as a multiple of max_ended
MOST_AT_ONCE = 1000  # jobs that one call of expire drops: others want the loop, too


class JobTable:
    """Owned by the engine's loop."""

    def __init__(self, expiry_s: float, max_ended: int, max_bytes: int) -> None:
        self._expiry_s = expiry_s
        self._max_ended = max_ended
        self._max_bytes = max_bytes
        self._bytes = 0  # of the ended ones
        self._running: dict[str, Job] = {}
        self._keys: Counter[tuple[str, str]] = Counter()  # (circuit, digest) of running jobs
        self._waiting: Counter[str] = Counter()  # partitions of running jobs, by circuit
        self._in_hand: Counter[str] = Counter()
        self._newest: dict[tuple[str, str], str] = {}  # job_id by owner and request_id
        self._ended: OrderedDict[str, EndedJob] = OrderedDict()  # oldest end first
        self._expired: OrderedDict[tuple[str, str], None] = OrderedDict()  # owner, job_id or request_id

    def add(self, job: Job) -> None:
        self._running[job.job_id] = job
        self._keys[job.request.circuit, job.digest] += 1
        self._count(job, 1)
        self._name(job.request.request_id, job)

    def end(self, job: Job) -> None:
        """The job has reached its end; it begins to age."""
        del self._running[job.job_id]
        self._keep(EndedJob.of(job))
        self._count(job, -1)
        key = job.request.circuit, job.digest
        self._keys[key] -= 1
        if not self._keys[key]:
            del self._keys[key]

    def restore(self, job: EndedJob) -> None:
        """One that has ended before this run; the oldest end comes first."""
        self._name(job.request_id, job)
        self._keep(job)

    def _name(self, request_id: str, job: AnyJob) -> None:
        """It has this request_id from now on, unless a later one has: ends are restored in another order than that of
        arrival.
        """
        earlier = self.newest(request_id, job.owner)
        if request_id and (earlier is None or earlier.sequence <= job.sequence):
            self._newest[job.owner, request_id] = job.job_id

    def _keep(self, job: EndedJob) -> None:
        self._ended[job.job_id] = job
        self._bytes += job.result_bytes

    def moved(self, circuit: str, before: Stage, after: Stage) -> None:
        """A partition of a running job is in another stage."""
        self._waiting[circuit] += (after is Stage.QUEUED) - (before is Stage.QUEUED)
        self._in_hand[circuit] += after.in_hand - before.in_hand

    def _count(self, job: Job, sign: int) -> None:
        waiting, circuit = job.stages[Stage.QUEUED], job.request.circuit
        self._waiting[circuit] += sign * waiting
        self._in_hand[circuit] += sign * (len(job.partitions) - waiting - job.stages[Stage.DONE])

    def loads(self) -> dict[str, tuple[int, int]]:
        """How many partitions of running jobs wait, and how many provers have, by circuit of any running job."""
        circuits = dict.fromkeys(circuit for circuit, _ in self._keys)
        return {circuit: (self._waiting[circuit], self._in_hand[circuit]) for circuit in circuits}

    def counts_on(self, circuit: str, digest: str) -> bool:
        """Whether a job that has not ended was accepted for this key."""
        return (circuit, digest) in self._keys

    @property
    def running(self) -> Iterator[Job]:
        """In the order of arrival; a copy, so that jobs may end meanwhile."""
        return iter(list(self._running.values()))

    def __len__(self) -> int:
        """How many run."""
        return len(self._running)

    def newest(self, request_id: str, owner: str = "") -> AnyJob | None:
        job_id = self._newest.get((owner, request_id), "")
        return self._running.get(job_id) or self._ended.get(job_id)

    def get(self, job_id: str) -> Job | None:
        """One that runs, by our id alone."""
        return self._running.get(job_id)

    def find(self, some_id: str, owner: str = "") -> AnyJob:
        """By job_id, or by request_id: then the newest job. Raises NotFound, "expired" or "unknown"; a job of somebody
        else is unknown.
        """
        job = self._running.get(some_id) or self._ended.get(some_id)
        if job is None or job.owner != owner:
            job = self.newest(some_id, owner)
        if job is None:
            why = "has expired" if (owner, some_id) in self._expired else "is unknown"
            raise NotFound(f"job {some_id[:80]!r} {why}")
        return job

    def expire(self, now_s: float) -> list[str]:
        """Drop what is too old or too much, not everything at once; returns the ids of the jobs that are gone."""
        dropped: list[str] = []
        while self._ended and len(dropped) < MOST_AT_ONCE:
            job = next(iter(self._ended.values()))
            full = len(self._ended) > self._max_ended
            full = full or (self._bytes > self._max_bytes and len(self._ended) > 1)
            if not full and now_s - job.end.at_s < self._expiry_s:
                break
            self._drop(job)
            dropped.append(job.job_id)
        return dropped

    def _drop(self, job: EndedJob) -> None:
        del self._ended[job.job_id]
        self._bytes -= job.result_bytes
        owner, request_id = job.owner, job.request_id
        self._expired[owner, job.job_id] = None
        if self._newest.get((owner, request_id)) == job.job_id:
            del self._newest[owner, request_id]
            self._expired[owner, request_id] = None
        while len(self._expired) > REMEMBERED * self._max_ended:
            self._expired.popitem(last=False)
