"""What the journal holds, as rows: how jobs and uploads become statements, and how rows become jobs again.

Problem. A row outlives the code that wrote it, and may have been damaged since. Design. One table for each thing, one
version number for all (VERSION); a function for each happening, which returns statements and touches nothing, so that
the loop makes them and another thread runs them. Contents are there as keyed MACs, files by their names in the spool;
no row holds a value of a witness. Times in rows are those of the wall (a restart ends the monotonic clock); `Times`
translates. Life of a row. accepted -> begun, attempt, proved -> ended -> forgotten.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuzkd.engine.ended import EndedJob
from cuzkd.engine.job import (
    End,
    Job,
    JobRequest,
    JobState,
    PartitionRecord,
    PartitionResult,
    Priority,
    SpoolFile,
    Stage,
    Ticket,
)

VERSION = 1  # in the file's user_version
RUNNING = "running"  # state of a row whose job has not ended
PUBLIC_BYTES = 32
MAX_UNPROVABLE = 10_000  # contents that are remembered as such

SCHEMA = """
CREATE TABLE job (
  job_id TEXT PRIMARY KEY, sequence INTEGER NOT NULL,
  owner TEXT NOT NULL, request_id TEXT NOT NULL, circuit TEXT NOT NULL, digest TEXT NOT NULL, content BLOB NOT NULL,
  priority INTEGER NOT NULL, deadline REAL NOT NULL, submitted REAL NOT NULL,
  state TEXT NOT NULL DEFAULT 'running', begun REAL, ended REAL,
  code TEXT NOT NULL DEFAULT '', message TEXT NOT NULL DEFAULT '',
  under_way INTEGER NOT NULL DEFAULT 0, crashes INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE partition (
  job_id TEXT NOT NULL, number INTEGER NOT NULL,
  file TEXT NOT NULL, nbytes INTEGER NOT NULL, mac BLOB NOT NULL, content BLOB NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 1,
  proof BLOB, publics BLOB, phases TEXT, backend TEXT, device TEXT, attempts INTEGER, key_digest TEXT, h2d INTEGER,
  PRIMARY KEY (job_id, number)
) WITHOUT ROWID;
CREATE TABLE upload (
  upload_id TEXT PRIMARY KEY, file TEXT NOT NULL, nbytes INTEGER NOT NULL, mac BLOB NOT NULL,
  owner TEXT NOT NULL, expires REAL NOT NULL, job_id TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX upload_of_job ON upload (job_id);
CREATE TABLE unprovable (number INTEGER PRIMARY KEY, content BLOB NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL);
CREATE TABLE life (clean INTEGER NOT NULL);
INSERT INTO life VALUES (1);
"""

Statements = tuple[tuple[str, Sequence[tuple[object, ...]]], ...]  # SQL, and the rows to run it for


@dataclass(frozen=True)
class Upload:
    """A payload that waits for a job; or (job_id) one that a job has taken, whose digest is of use as long as that job
    is known. expires_s: of the engine's clock, unless it is taken.
    """

    upload_id: str
    file: SpoolFile
    owner: str
    expires_s: float
    job_id: str = ""


@dataclass(frozen=True)
class Unprovable:
    """A content (keyed MAC of circuit and witness) for which there is no proof, and the error that says so."""

    content: bytes
    code: str
    message: str


@dataclass(frozen=True)
class Remembered:
    """Everything that earlier runs have left. running: in the order of arrival. ended: oldest end first. last_sequence:
    the highest place of any of them. clean: whether the last run closed the journal.
    """

    running: tuple[Job, ...] = ()
    ended: tuple[EndedJob, ...] = ()
    last_sequence: int = 0
    uploads: tuple[Upload, ...] = ()
    unprovable: tuple[Unprovable, ...] = ()
    clean: bool = True


class Times:
    """Between the engine's monotonic clock and the wall's. What the wall calls future is now: it was set back."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock = clock
        self._wall = wall

    def wall(self, clock_s: float) -> float:
        return self._wall() + (clock_s - self._clock())

    def clock(self, wall_s: float) -> float:
        return self._clock() + (wall_s - self._wall())

    def past(self, wall_s: float) -> float:
        return min(self.clock(wall_s), self._clock())


# -- happenings --


def accepted(job: Job, upload_ids: Iterable[str], times: Times) -> Statements:
    request, tickets = job.request, [record.ticket for record in job.partitions]
    row = (
        job.job_id, job.sequence, request.owner, request.request_id, request.circuit, job.digest, job.content,
        int(request.priority), request.deadline_s, times.wall(job.submitted_s),
    )  # fmt: skip
    files = [
        (
            job.job_id, ticket.index, Path(record.file.path).name, record.file.nbytes, record.file.digest,
            record.content,
        )
        for ticket, record in zip(tickets, job.partitions, strict=True)
    ]  # fmt: skip
    return (
        (
            "INSERT INTO job (job_id, sequence, owner, request_id, circuit, digest, content, priority, deadline,"
            " submitted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [row],
        ),
        (
            "INSERT INTO partition (job_id, number, file, nbytes, mac, content) VALUES (?, ?, ?, ?, ?, ?)",
            files,
        ),
        (
            "UPDATE upload SET job_id = ? WHERE upload_id = ?",
            [(job.job_id, upload_id) for upload_id in upload_ids],
        ),
    )


def begun(job: Job, times: Times) -> Statements:
    """A prover has been given some of it: if the daemon dies now, this job may be why."""
    begun_s = None if job.first_begun_s is None else times.wall(job.first_begun_s)
    return (("UPDATE job SET under_way = 1, begun = ? WHERE job_id = ?", [(begun_s, job.job_id)]),)


def attempt(ticket: Ticket) -> Statements:
    return (
        (
            "UPDATE partition SET attempt = ? WHERE job_id = ? AND number = ?",
            [(ticket.attempt, ticket.job_id, ticket.index)],
        ),
    )


def proved(job_id: str, result: PartitionResult) -> Statements:
    row = (
        result.proof, b"".join(result.publics), json.dumps(dict(result.phases)), result.backend, result.device,
        result.attempts, result.key_digest, result.h2d_bytes, job_id, result.index,
    )  # fmt: skip
    return (
        (
            "UPDATE partition SET proof = ?, publics = ?, phases = ?, backend = ?, device = ?, attempts = ?,"
            " key_digest = ?, h2d = ? WHERE job_id = ? AND number = ?",
            [row],
        ),
        (
            "UPDATE job SET crashes = 0 WHERE job_id = ?",
            [(job_id,)],
        ),  # it gets on: it is not what the daemon dies of
    )


def ended(job: Job, times: Times) -> Statements:
    end = job.end
    assert end is not None
    begun_s = None if job.first_begun_s is None else times.wall(job.first_begun_s)
    row = (end.state.value, times.wall(end.at_s), end.code, end.message, begun_s, job.job_id)
    return (
        (
            "UPDATE job SET state = ?, ended = ?, code = ?, message = ?, begun = ?, under_way = 0 WHERE job_id = ?",
            [row],
        ),
    )


def forgotten(job_ids: Iterable[str]) -> Statements:
    rows = [(job_id,) for job_id in job_ids]
    return tuple((f"DELETE FROM {table} WHERE job_id = ?", rows) for table in ("job", "partition", "upload"))


def uploaded(upload: Upload, times: Times) -> Statements:
    file = upload.file
    row = (
        upload.upload_id, Path(file.path).name, file.nbytes, file.digest, upload.owner, times.wall(upload.expires_s),
    )  # fmt: skip
    return (
        (
            "INSERT INTO upload (upload_id, file, nbytes, mac, owner, expires) VALUES (?, ?, ?, ?, ?, ?)",
            [row],
        ),
    )


def uploads_forgotten(upload_ids: Iterable[str]) -> Statements:
    return (("DELETE FROM upload WHERE upload_id = ?", [(upload_id,) for upload_id in upload_ids]),)


def found_unprovable(what: Unprovable) -> Statements:
    return (
        ("INSERT INTO unprovable (content, code, message) VALUES (?, ?, ?)", [(what.content, what.code, what.message)]),
        ("DELETE FROM unprovable WHERE number <= (SELECT max(number) FROM unprovable) - ?", [(MAX_UNPROVABLE,)]),
    )  # fmt: skip


def closed() -> Statements:
    """A clean end: nobody is suspected of anything."""
    return (
        ("UPDATE life SET clean = 1", [()]),
        ("UPDATE job SET crashes = 0, under_way = 0 WHERE state = ?", [(RUNNING,)]),
    )


def opened(clean: bool) -> Statements:
    """Another run begins. After an unclean end, whatever was under way is a suspect once more."""
    blame: Statements = (("UPDATE job SET crashes = crashes + 1 WHERE under_way = 1", [()]),)
    return (
        *(() if clean else blame),
        ("UPDATE job SET under_way = 0 WHERE under_way = 1", [()]),
        ("UPDATE life SET clean = 0", [()]),
    )


# -- reading --


def read(db: sqlite3.Connection, spool: Path, times: Times, clean: bool) -> Remembered:
    """All of it. spool: the folder of the files that rows name. Raises sqlite3.Error, ValueError where rows make no
    sense.
    """
    partitions: dict[str, list[sqlite3.Row]] = {}
    for row in db.execute("SELECT * FROM partition ORDER BY job_id, number"):
        partitions.setdefault(row["job_id"], []).append(row)
    running, ended, last_sequence = [], [], 0
    for row in db.execute("SELECT * FROM job ORDER BY sequence"):
        job = _job(row, partitions.pop(row["job_id"], []), spool, times)
        last_sequence = max(last_sequence, job.last_sequence)
        if job.end is None:
            running.append(job)
        else:
            ended.append(EndedJob.of(job))
    uploads = [
        Upload(
            row["upload_id"],
            SpoolFile(_path(row, spool), row["nbytes"], row["mac"]),
            row["owner"],
            times.clock(row["expires"]),
            row["job_id"],
        )
        for row in db.execute("SELECT * FROM upload ORDER BY expires")
    ]
    unprovable = [
        Unprovable(row["content"], row["code"], row["message"])
        for row in db.execute("SELECT * FROM unprovable ORDER BY number")
    ]
    return Remembered(
        running=tuple(running),
        ended=tuple(sorted(ended, key=lambda job: job.end.at_s)),
        last_sequence=last_sequence,
        uploads=tuple(uploads),
        unprovable=tuple(unprovable),
        clean=clean,
    )


def _job(row: sqlite3.Row, partitions: Sequence[sqlite3.Row], spool: Path, times: Times) -> Job:
    if not partitions or [part["number"] for part in partitions] != list(range(len(partitions))):
        raise ValueError(f"job {row['job_id']}: its partitions are not all there")
    request = JobRequest(
        row["circuit"], (), row["request_id"], Priority(row["priority"]), row["owner"], row["deadline"]
    )
    submitted_s = times.past(row["submitted"])
    records = [_record(row, part, spool, submitted_s) for part in partitions]
    job = Job(row["job_id"], request, row["content"], submitted_s, records, crashes=row["crashes"])
    if row["begun"] is not None:
        job.first_begun_s = times.past(row["begun"])
    if row["state"] != RUNNING:
        job.end = End(JobState(row["state"]), row["code"], row["message"], times.past(row["ended"]))
    return job


def _record(row: sqlite3.Row, part: sqlite3.Row, spool: Path, submitted_s: float) -> PartitionRecord:
    file = SpoolFile(_path(part, spool), part["nbytes"], part["mac"])
    ticket = Ticket(
        partition_id=f"{row['job_id']}/{part['number']}",
        job_id=row["job_id"],
        index=part["number"],
        circuit=row["circuit"],
        circuit_digest=row["digest"],
        spool_path=file.path,
        priority=Priority(row["priority"]),
        sequence=row["sequence"] + part["number"],
        attempt=part["attempt"],
    )
    record = PartitionRecord(ticket, file, since_s=submitted_s, content=part["content"])
    if part["proof"] is not None:
        record.stage, record.result = Stage.DONE, _result(part)
    return record


def _result(part: sqlite3.Row) -> PartitionResult:
    publics = part["publics"]
    return PartitionResult(
        index=part["number"],
        proof=part["proof"],
        publics=tuple(publics[at : at + PUBLIC_BYTES] for at in range(0, len(publics), PUBLIC_BYTES)),
        phases=json.loads(part["phases"]),
        backend=part["backend"],
        device=part["device"],
        attempts=part["attempts"],
        key_digest=part["key_digest"],
        h2d_bytes=part["h2d"],
    )


def _path(row: sqlite3.Row, spool: Path) -> str:
    name = row["file"]
    if not name or Path(name).name != name:
        raise ValueError(f"{name!r} is no name of a file in the spool")
    return str(spool / name)
