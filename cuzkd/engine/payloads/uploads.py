"""Uploaded payloads between their last byte and the job that names them.

Problem. An upload whose client has gone must not lie about for ever, nor may a client that never submits
fill the disk with them; one that a job has used must be recognised when the client, having lost the reply,
submits the same request again, also after a restart.
Design. A table from our id to a spool file, with a bound on those that arrive or wait; the journal has the same rows. A
job takes an upload exactly once, at the moment it is accepted; the digest stays known until the upload's time is over,
so that a repeated request can still be compared. An upload is there for its owner alone.
Life. add -> find -> take [-> give_back, when the job could not be recorded] -> forgotten at expiry; not taken: file
removed at expiry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cuzkd.engine.job import SpoolFile
from cuzkd.engine.journal.rows import Upload
from cuzkd.errors import Exhausted, NotFound


class Uploads:
    """Owned by the engine's loop. Times are of its clock."""

    def __init__(self, expiry_s: float, max_waiting: int) -> None:
        self.expiry_s = expiry_s
        self._max_waiting = max_waiting
        self._waiting = 0  # not taken yet
        self._uploads: dict[str, Upload] = {}  # oldest first

    def require_room(self, arriving: int) -> None:
        """Raises Exhausted when no other may begin while so many are arriving."""
        if self._waiting + arriving >= self._max_waiting:
            raise Exhausted(
                f"uploads: {self._waiting + arriving} of at most {self._max_waiting} arrive or wait for a job; "
                "submit those, or try again later"
            )

    def add(self, upload: Upload) -> None:
        """From now on a job may take it. Or, of an earlier run of the daemon, has taken it."""
        self._uploads[upload.upload_id] = upload
        self._waiting += not upload.taken

    def find(self, upload_id: str, owner: str = "") -> SpoolFile:
        """Its file, also when a job has taken it (then only the digest is of use). Raises NotFound."""
        return self._find(upload_id, owner).file

    def require_free(self, upload_id: str) -> None:
        """Raises NotFound when a job has taken it, or when it has expired."""
        upload = self._uploads.get(upload_id)
        if upload is None:
            raise _unknown(upload_id)
        if upload.taken:
            raise NotFound(f"upload {upload_id}: another job has used it up; upload the file again")

    def take(self, upload_ids: Iterable[str]) -> None:
        """From now on the files are the job's: all of them, or NotFound and none."""
        for upload_id in (upload_ids := tuple(upload_ids)):
            self.require_free(upload_id)
        for upload_id in upload_ids:
            self._uploads[upload_id] = replace(self._uploads[upload_id], taken=True)
        self._waiting -= len(upload_ids)

    def give_back(self, upload_ids: Iterable[str]) -> list[str]:
        """That job does not exist after all. Returns those whose time was over meanwhile: nobody's now."""
        lapsed = []
        for upload_id in upload_ids:
            if upload_id in self._uploads:
                self._uploads[upload_id] = replace(self._uploads[upload_id], taken=False)
                self._waiting += 1
            else:
                lapsed.append(upload_id)
        return lapsed

    def expire(self, now_s: float) -> list[Upload]:
        """Forget those whose time is over; returns them."""
        over = []
        for upload in self._uploads.values():
            if upload.expires_s > now_s:
                break  # they come in order
            over.append(upload)
        for upload in over:
            del self._uploads[upload.upload_id]
        self._waiting -= sum(not upload.taken for upload in over)
        return over

    def _find(self, upload_id: str, owner: str) -> Upload:
        upload = self._uploads.get(upload_id)
        if upload is None or upload.owner != owner:
            raise _unknown(upload_id)
        return upload


def _unknown(upload_id: str) -> NotFound:
    return NotFound(f"upload {upload_id[:80]!r}: unknown, or it has expired")
