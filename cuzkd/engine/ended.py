"""What is kept of a job that has ended.

Problem. Ten thousand ended jobs are kept for clients that were away; a record with tickets, files, events and results
as they were made takes ten kilobytes. Design. `EndedJob` has what a view shows and what a repeated request is compared
with, and nothing else. A result is a string of bytes (`_pack`) beside what it has in common with all others of its
circuit (`_Common`, one object for all of them). Views are made when they are asked for. Life. Made when an end is
announced, or read from the journal; dropped when it expires.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field
from functools import lru_cache

from cuzkd.engine.job import End, Job, JobState, JobView, PartitionResult, Priority, Stage

KINDS = 1024  # of results: circuits, devices and sets of phases that are shared
NUMBERS = struct.Struct("<IQ")  # attempts, h2d_bytes


@dataclass(frozen=True)
class _Common:
    """What results have in common. publics: bytes of each."""

    phases: tuple[str, ...]
    publics: tuple[int, ...]
    backend: str
    device: str
    key_digest: str


@lru_cache(KINDS)
def _shared(common: _Common) -> _Common:
    return common


def _pack(result: PartitionResult) -> tuple[_Common, bytes]:
    common = _Common(
        tuple(result.phases),
        tuple(map(len, result.publics)),
        result.backend,
        result.device,
        result.key_digest,
    )
    seconds = struct.pack(f"<{len(result.phases)}d", *result.phases.values())
    numbers = NUMBERS.pack(result.attempts, result.h2d_bytes)
    return _shared(common), b"".join((numbers, seconds, *result.publics, result.proof))


def _unpack(index: int, common: _Common, packed: bytes) -> PartitionResult:
    attempts, h2d_bytes = NUMBERS.unpack_from(packed)
    at = NUMBERS.size
    seconds = struct.unpack_from(f"<{len(common.phases)}d", packed, at)
    at += 8 * len(seconds)
    publics = []
    for nbytes in common.publics:
        publics.append(packed[at : at + nbytes])
        at += nbytes
    return PartitionResult(
        index=index,
        proof=packed[at:],
        publics=tuple(publics),
        phases=dict(zip(common.phases, seconds, strict=True)),
        backend=common.backend,
        device=common.device,
        attempts=attempts,
        key_digest=common.key_digest,
        h2d_bytes=h2d_bytes,
    )


@dataclass(frozen=True, slots=True, eq=False)
class EndedJob:
    """owner, request_id, content: as in its request. digest: of the key that it was accepted for. queue_wait_s,
    total_s: as in its views. result_bytes: about what its results take in the journal, and more than they take here.
    """

    job_id: str
    sequence: int
    request_id: str
    owner: str
    circuit: str
    digest: str
    priority: Priority
    content: bytes = field(repr=False)
    end: End
    queue_wait_s: float
    total_s: float
    stages: tuple[tuple[Stage, int], ...]
    result_bytes: int
    _results: tuple[tuple[_Common, bytes], ...] = field(repr=False)

    @classmethod
    def of(cls, job: Job) -> EndedJob:
        """A job whose end is chosen."""
        end, request = job.end, job.request
        assert end is not None
        begun_s = end.at_s if job.first_begun_s is None else job.first_begun_s
        done = end.state is JobState.DONE
        return cls(
            job_id=job.job_id,
            sequence=job.sequence,
            request_id=request.request_id,
            owner=sys.intern(request.owner),
            circuit=sys.intern(request.circuit),
            digest=sys.intern(job.digest),
            priority=request.priority,
            content=job.content,
            end=end,
            queue_wait_s=begun_s - job.submitted_s,
            total_s=end.at_s - job.submitted_s,
            stages=tuple(_went(record.stage, record.ticket.attempt) for record in job.partitions),
            result_bytes=job.result_bytes,
            _results=tuple(_pack(record.result) for record in job.partitions if record.result)
            if done
            else (),
        )

    def view(self) -> JobView:
        end = self.end
        done = end.state is JobState.DONE
        return JobView(
            job_id=self.job_id,
            request_id=self.request_id,
            circuit=self.circuit,
            priority=self.priority,
            state=end.state,
            partitions=len(self.stages),
            partitions_done=sum(stage is Stage.DONE for stage, _ in self.stages),
            results=tuple(_unpack(index, *result) for index, result in enumerate(self._results)),
            error_code=end.code,
            error_message=end.message,
            queue_position=0,
            queue_wait_s=self.queue_wait_s,
            total_s=self.total_s,
            progress=1.0 if done else 0.0,
            stages=self.stages,
        )


AnyJob = Job | EndedJob


@lru_cache(KINDS)
def _went(stage: Stage, attempt: int) -> tuple[Stage, int]:
    """The same for all partitions that went alike."""
    return stage, attempt
