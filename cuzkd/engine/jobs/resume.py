"""After a restart: what the journal remembers is held against what is in the spool.

Problem. The daemon may have been killed anywhere: between a file and its row, between a proof and its end, between an
end and the removal of files; and a job may be what kills it, each time again. Design. Rows are what was promised. A job
whose files are there, of the right size, goes on at its old place; one whose files are not fails and says so; one that
was under way at MAX_CRASHES ends of the daemon in a row without a proof between them fails, too, so that the others get
on. Files that no row names were promised to nobody and are removed. What is in the files is looked at later (intact).
Life. look, once, before anything is accepted.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from cuzkd.engine.job import Job, PartitionRecord, Stage
from cuzkd.engine.journal.rows import Remembered, Upload
from cuzkd.engine.payloads.spool import Spool

MAX_CRASHES = 5


@dataclass(frozen=True)
class Found:
    """running: in the order of arrival, each with why it cannot go on ("" when it can). uploads: whose files are there,
    or are not needed. lost_uploads: ids of the others. swept: how many files were removed.
    """

    running: tuple[tuple[Job, str], ...]
    uploads: tuple[Upload, ...]
    lost_uploads: tuple[str, ...]
    swept: int


def look(remembered: Remembered, spool: Spool) -> Found:
    """Blocks on the disk."""
    running = tuple((job, _trouble(job)) for job in remembered.running)
    jobs = {job.job_id for job in remembered.running} | {job.job_id for job in remembered.ended}
    uploads = [
        upload
        for upload in remembered.uploads
        if (upload.job_id in jobs if upload.job_id else not _wrong(upload.file.path, upload.file.nbytes))
    ]
    named = {record.file.path for job, _ in running for record in job.partitions}
    named |= {upload.file.path for upload in uploads if not upload.job_id}
    kept = {upload.upload_id for upload in uploads}
    return Found(
        running=running,
        uploads=tuple(uploads),
        lost_uploads=tuple(u.upload_id for u in remembered.uploads if u.upload_id not in kept),
        swept=spool.sweep(named),
    )


def _trouble(job: Job) -> str:
    if job.crashes >= MAX_CRASHES:
        return f"the daemon died {job.crashes} times while it was being proved"
    for record in job.partitions:
        if wrong := _lacks(record):
            return f"partition {record.ticket.index}: after a restart of the daemon its payload {wrong}"
    return ""


def _lacks(record: PartitionRecord) -> str:
    """What is wrong with the file of a partition that needs one."""
    return "" if record.stage is Stage.DONE else _wrong(record.file.path, record.file.nbytes)


def _wrong(path: str, nbytes: int) -> str:
    try:
        found = os.lstat(path)
    except OSError:
        return "is gone from the spool"
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file any more"
    return "" if found.st_size == nbytes else f"has {found.st_size} bytes, and had {nbytes}"
