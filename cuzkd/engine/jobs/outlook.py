"""What clients are shown of a job: its record, and what is expected of it.

Problem. Whoever waits wants to know how far a job is and when it ends; working that out for hundreds of watchers at
every change would keep the loop from working. Design. `Outlook` asks the estimates, which know sums only, and remembers
the answer of each job for a moment. Nothing that is not learned yet is made up: then `expected_s` is None.
Life. Made for a view; kept for REMEMBERED_S.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from cuzkd.engine.ended import AnyJob, EndedJob
from cuzkd.engine.fleet.fleet import Fleet
from cuzkd.engine.job import Job, JobView, Priority, Stage
from cuzkd.engine.scheduling.estimates import Estimates, Forecast, forecast, queue_s
from cuzkd.engine.scheduling.queue import PartitionQueue
from cuzkd.engine.scheduling.scheduler import ProverView

REMEMBERED_S = 0.2


class Outlook:
    """Owned by the engine's loop."""

    def __init__(
        self, queue: PartitionQueue, fleet: Fleet, estimates: Estimates, clock: Callable[[], float]
    ) -> None:
        self._queue = queue
        self._fleet = fleet
        self._estimates = estimates
        self._clock = clock
        self._known: WeakKeyDictionary[Job, tuple[float, float, float | None]] = WeakKeyDictionary()

    def view(self, job: AnyJob) -> JobView:
        """The job as it is now."""
        if isinstance(job, EndedJob):
            return job.view()
        if job.state.ended:
            return EndedJob.of(job).view()
        now_s = self._clock()
        waits = job.first_waiting
        position = 0 if waits is None else self._queue.position(waits.ticket)
        at_s, share, end_s = self._known.get(job, (-math.inf, 0.0, None))
        if now_s - at_s > REMEMBERED_S:
            provers = self._fleet.views()
            expected = self._forecast(job, provers, now_s)
            share = self._share(job, provers, now_s)
            end_s = None if expected is None else now_s + expected.end_s
            self._known[job] = now_s, share, end_s
        expected_s = None if end_s is None else max(end_s - now_s, 0.0)
        return job.view(now_s, position, share, expected_s)

    def accepted(self, job: AnyJob) -> JobView:
        """The same without what is expected, which its submitter does not hear: a submit is to be quick."""
        if isinstance(job, EndedJob) or job.first_waiting is None:
            return self.view(job)
        return job.view(self._clock(), self._queue.position(job.first_waiting.ticket))

    def begin_s(self, digest: str, priority: Priority, count: int = 1) -> float | None:
        """How long a job that is submitted now would wait for its turn."""
        found = forecast(
            self._clock(),
            self._fleet.views(),
            self._estimates,
            digest,
            waiting=count,
            ahead=self._queue.ahead(priority),
        )
        return None if found is None else found.begin_s

    def wait_s(self) -> float | None:
        """How long a NORMAL job that is submitted now would wait for those before it."""
        ahead = self._queue.ahead(Priority.NORMAL)
        count = sum(ahead.values())
        return queue_s(self._fleet.views(), self._estimates, ahead, count) if count else 0.0

    def room_s(self, count: int) -> float | None:
        """How long until so many partitions will have left the queue."""
        return queue_s(self._fleet.views(), self._estimates, self._queue.ahead(Priority.LOW), count)

    def _share(self, job: Job, provers: Sequence[ProverView], now_s: float) -> float:
        """How much of the job's work is done, 0 to 1."""
        backends = {view.prover: view.backend for view in provers}
        done: float = job.stages[Stage.DONE]
        for record in job.in_hand:
            backend = backends.get(record.prover, "")
            done += self._estimates.share(job.digest, backend, record.stage, now_s - record.since_s)
        return min(done / len(job.partitions), 1.0)

    def _forecast(self, job: Job, provers: Sequence[ProverView], now_s: float) -> Forecast | None:
        waits = job.first_waiting
        ahead = {} if waits is None else self._queue.ahead(waits.ticket.priority, waits.ticket.sequence)
        return forecast(
            now_s,
            provers,
            self._estimates,
            job.digest,
            held=[record.ticket.partition_id for record in job.in_hand],
            waiting=job.stages[Stage.QUEUED],
            ahead=ahead,
        )
