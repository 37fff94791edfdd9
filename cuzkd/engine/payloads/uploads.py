"""Uploaded payloads between their last byte and the job that names them.

Problem. An upload whose client has gone must not lie about for ever, nor may a client that never submits
fill the disk with them; one that a job has used must be recognised when the client, having lost the reply,
submits the same request again, also after a restart.
Design. A table from our id to a spool file, with a bound on those that arrive or wait; the journal has the same rows. A
job takes an upload exactly once, at the moment it is accepted; the digest stays known as long as that job is, so that a
repeated request can be compared. An upload is there for its owner alone.
Life. add -> find -> take [-> give_back, when the job could not be recorded] -> forgotten with its job; not taken: file
removed at expiry.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from cuzkd.engine.journal.rows import Upload
from cuzkd.errors import Exhausted, NotFound


class Uploads:
    """Owned by the engine's loop. Times are of its clock."""

    def __init__(self, expiry_s: float, max_waiting: int) -> None:
        self.expiry_s = expiry_s
        self._max_waiting = max_waiting
        self._waiting: dict[str, Upload] = {}  # whose time is over first comes first
        self._taken: dict[str, tuple[str, bytes]] = {}  # owner and digest
        self._of_job: dict[str, list[str]] = {}  # which of them a job has taken

    def require_room(self, arriving: int) -> None:
        """Raises Exhausted when no other may begin while so many are arriving."""
        if len(self._waiting) + arriving >= self._max_waiting:
            raise Exhausted(
                f"uploads: {len(self._waiting) + arriving} of at most {self._max_waiting} arrive or wait for a job; "
                "submit those, or try again later"
            )

    def add(self, upload: Upload) -> None:
        """From now on a job may take it. Or, of an earlier run of the daemon, has taken it."""
        if upload.job_id:
            self._keep([upload], upload.job_id)
        else:
            self._waiting[upload.upload_id] = upload

    def find(self, upload_id: str, owner: str = "") -> Upload:
        """One that waits. Raises NotFound, also when a job has taken it."""
        upload = self._waiting.get(upload_id)
        if upload is not None and upload.owner == owner:
            return upload
        self.digest(upload_id, owner)  # else it is unknown
        raise NotFound(f"upload {upload_id}: another job has used it up; upload the file again")

    def digest(self, upload_id: str, owner: str = "") -> bytes:
        """Of its content, also when a job has taken it. Raises NotFound."""
        if (upload := self._waiting.get(upload_id)) is not None:
            found = upload.owner, upload.file.digest
        else:
            found = self._taken.get(upload_id, ("", b""))
        whose, digest = found
        if whose != owner or not digest:
            raise NotFound(f"upload {upload_id[:80]!r}: unknown, or it has expired")
        return digest

    def take(self, uploads: Sequence[Upload], job_id: str) -> None:
        """From now on the files are the job's: all of them, or NotFound and none."""
        for upload in uploads:
            self.find(upload.upload_id, upload.owner)
        for upload in uploads:
            del self._waiting[upload.upload_id]
        self._keep(uploads, job_id)

    def give_back(self, uploads: Iterable[Upload], job_id: str) -> None:
        """That job does not exist after all; they wait again, and those whose time was over meanwhile not for long."""
        self.forget([job_id])
        waiting = {**self._waiting, **{upload.upload_id: upload for upload in uploads}}
        self._waiting = dict(sorted(waiting.items(), key=lambda item: item[1].expires_s))

    def forget(self, job_ids: Iterable[str]) -> None:
        """These jobs are unknown from now on, and so are the uploads that they have taken."""
        for job_id in job_ids:
            for upload_id in self._of_job.pop(job_id, ()):
                del self._taken[upload_id]

    def expire(self, now_s: float) -> list[Upload]:
        """Forget those that wait and whose time is over; returns them."""
        over = []
        for upload in self._waiting.values():
            if upload.expires_s > now_s:
                break  # they come in order
            over.append(upload)
        for upload in over:
            del self._waiting[upload.upload_id]
        return over

    def _keep(self, uploads: Iterable[Upload], job_id: str) -> None:
        for upload in uploads:
            self._taken[upload.upload_id] = sys.intern(upload.owner), upload.file.digest
            self._of_job.setdefault(job_id, []).append(upload.upload_id)
