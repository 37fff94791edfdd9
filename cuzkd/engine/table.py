"""All jobs that the daemon knows: the running ones, and the ended ones for a while.

Problem. Results kept for ever are a leak; results dropped at once are lost when the client was away; and
looking through all of them at every call makes a full daemon slow.
Design. Dictionaries in the order of arrival and of ending, so that every step costs the same however many
there are. An ended job stays for `expiry_s`, and only the newest `max_ended` stay; of those dropped the ids
are remembered for a while longer, to answer "expired" instead of "unknown".
Life of a job. add -> end (by the engine) -> expire.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from cuzkd.engine.job import Job
from cuzkd.errors import NotFound

REMEMBERED = 4  # expired ids, as a multiple of max_ended


class JobTable:
    """Owned by the engine's loop."""

    def __init__(self, expiry_s: float, max_ended: int) -> None:
        self._expiry_s = expiry_s
        self._max_ended = max_ended
        self._jobs: dict[str, Job] = {}
        self._running: dict[str, Job] = {}
        self._newest: dict[str, Job] = {}  # by request_id
        self._ended: OrderedDict[str, Job] = OrderedDict()  # oldest end first
        self._expired: OrderedDict[str, None] = OrderedDict()

    def add(self, job: Job) -> None:
        self._jobs[job.job_id] = self._running[job.job_id] = job
        if job.request.request_id:
            self._newest[job.request.request_id] = job

    def end(self, job: Job) -> None:
        """The job has reached its end; it begins to age."""
        self._ended[job.job_id] = self._running.pop(job.job_id)

    def counts_on(self, circuit: str, digest: str) -> bool:
        """Whether a job that has not ended was accepted for this key."""
        return any(
            job.request.circuit == circuit and job.partitions[0].ticket.circuit_digest == digest
            for job in self._running.values()
        )

    @property
    def running(self) -> Iterator[Job]:
        """In the order of arrival; a copy, so that jobs may end meanwhile."""
        return iter(list(self._running.values()))

    def __len__(self) -> int:
        """How many run."""
        return len(self._running)

    def newest(self, request_id: str) -> Job | None:
        return self._newest.get(request_id) if request_id else None

    def get(self, job_id: str) -> Job | None:
        """By our id alone."""
        return self._jobs.get(job_id)

    def find(self, some_id: str) -> Job:
        """By job_id, or by request_id: then the newest job. Raises NotFound, "expired" or "unknown"."""
        job = self._jobs.get(some_id) or self.newest(some_id)
        if job is None:
            why = "has expired" if some_id in self._expired else "is unknown"
            raise NotFound(f"job {some_id[:80]!r} {why}")
        return job

    def expire(self, now_s: float) -> int:
        """Drop what is too old or too much; returns how many jobs were."""
        dropped = 0
        while self._ended:
            job = next(iter(self._ended.values()))
            assert job.ended_s is not None
            if len(self._ended) <= self._max_ended and now_s - job.ended_s < self._expiry_s:
                break
            self._drop(job)
            dropped += 1
        return dropped

    def _drop(self, job: Job) -> None:
        del self._ended[job.job_id], self._jobs[job.job_id]
        self._expired[job.job_id] = None
        request_id = job.request.request_id
        if request_id and self._newest.get(request_id) is job:
            del self._newest[request_id]
            self._expired[request_id] = None
        while len(self._expired) > REMEMBERED * self._max_ended:
            self._expired.popitem(last=False)
