"""Uploaded payloads between their last byte and the job that names them.

Problem. An upload whose client has gone must not lie about for ever, nor may a client that never submits
fill the disk with them; one that a job has used must be recognised when the client, having lost the reply,
submits the same request again.
Design. A table from our id to a spool file, with a bound on those that arrive or wait. A job takes an upload
exactly once, at the moment it is accepted; the digest stays known until the upload's time is over, so that a
repeated request can still be compared.
Life. add -> find -> take -> forgotten at expiry; not taken: file removed at expiry.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from cuzkd.engine.job import SpoolFile
from cuzkd.errors import Exhausted, NotFound


@dataclass
class _Upload:
    file: SpoolFile
    expires_s: float
    taken: bool = False


class Uploads:
    """Owned by the engine's loop. Times are of its clock."""

    def __init__(self, expiry_s: float, max_waiting: int) -> None:
        self._expiry_s = expiry_s
        self._max_waiting = max_waiting
        self._waiting = 0  # not taken yet
        self._uploads: dict[str, _Upload] = {}  # oldest first

    def require_room(self, arriving: int) -> None:
        """Raises Exhausted when no other may begin while so many are arriving."""
        if self._waiting + arriving >= self._max_waiting:
            raise Exhausted(
                f"uploads: {self._waiting + arriving} of at most {self._max_waiting} arrive or wait for a job; "
                "submit those, or try again later"
            )

    def add(self, file: SpoolFile, now_s: float) -> str:
        """The id under which a job may take this file."""
        upload_id = str(uuid.uuid4())
        self._uploads[upload_id] = _Upload(file, now_s + self._expiry_s)
        self._waiting += 1
        return upload_id

    def find(self, upload_id: str) -> SpoolFile:
        """Its file, also when a job has taken it (then only the digest is of use). Raises NotFound."""
        upload = self._uploads.get(upload_id)
        if upload is None:
            raise NotFound(f"upload {upload_id[:80]!r}: unknown, or it has expired")
        return upload.file

    def require_free(self, upload_id: str) -> None:
        """Raises NotFound when a job has taken it."""
        self.find(upload_id)
        if self._uploads[upload_id].taken:
            raise NotFound(f"upload {upload_id}: another job has used it up; upload the file again")

    def take(self, upload_id: str) -> None:
        """From now on the file is the job's."""
        self.require_free(upload_id)
        self._uploads[upload_id].taken = True
        self._waiting -= 1

    def expire(self, now_s: float) -> list[SpoolFile]:
        """Forget those whose time is over; returns the files that nobody has taken."""
        over = [key for key, upload in self._uploads.items() if upload.expires_s <= now_s]
        files = [upload.file for key in over if not (upload := self._uploads.pop(key)).taken]
        self._waiting -= len(files)
        return files
