"""What the daemon has promised and what has become of it, on the disk before anybody hears of it.

Problem. A daemon that is killed must know afterwards which jobs it had accepted, which of their proofs it had, and what
it had told whom; and a submit must not wait for more than one sync of the disk, however many come together.

Design. SQLite in STATE/journal.sqlite (0600, write-ahead log, synced at each commit): a record that a crash has torn is
dropped with its checksum, whatever was committed before stays. One thread of its own runs all statements. What is
posted while a transaction is on its way to the disk goes into the next one, all of it: syncs are shared. Two kinds of
records: those that ask for leave (a job, an upload) fail when they cannot be written, and nothing has happened; those
that tell what has happened are kept until they are written (`retry`), in order. The database is locked for this process
alone. journal_rows knows the tables.

Life of a record. posted -> in a transaction -> committed; or refused; or kept, and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from cuzkd.engine.faults import NoFaults
from cuzkd.engine.job import Job, PartitionResult, Ticket
from cuzkd.engine.journal import rows
from cuzkd.engine.journal.file import FILE, make, require_ours
from cuzkd.engine.journal.rows import Remembered, Statements, Times, Unprovable, Upload
from cuzkd.engine.stats import Event, JournalWrite
from cuzkd.errors import CuzkdError, Exhausted, InvalidInput

log = structlog.get_logger()

PATIENCE_S = 0.1  # that records wait for others, where nobody waits for them
CLOSE_S = 10.0  # a disk that takes longer for the last records is not waited for
# What is wrong with one record, and not with the disk: it alone fails.
WRONG = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError, sqlite3.InterfaceError)

Heard = Callable[[], None]


def _nothing() -> None:
    pass


@dataclass(eq=False)
class _Post:
    """leave: whom it asks for; it fails where it cannot be written. tried: called after the first transaction it was
    in, whatever became of that. written: called once it is on the disk.
    """

    statements: Statements
    leave: asyncio.Future[None] | None = None
    tried: Heard = _nothing
    written: Heard = _nothing
    patient: bool = False
    wrong: Exception | None = None


class Journal:
    """Owned by the engine's loop. clock: the engine's; wall: seconds since the epoch."""

    def __init__(
        self,
        state_dir: Path,
        faults: NoFaults,
        publish: Callable[[Event], None],
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = Path(state_dir).resolve() / FILE
        self._spool = self.path.parent / "spool"
        self._faults = faults
        self._publish = publish
        self._times = Times(clock, wall)
        self._clock = clock
        self._changed = threading.Condition()
        self._posts: list[_Post] = []  # for the next transaction
        self._kept: list[_Post] = []  # the thread's: could not be written yet
        self._again = False  # what is kept is to be tried again
        self._closing = False
        self._busy_since_s: float | None = None  # when the transaction on its way began
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._db: sqlite3.Connection
        self._failing = False
        self.unwritten = 0  # records that are kept
        self.failures = 0  # transactions that failed

    # -- life --

    async def open(self) -> Remembered:
        """Everything that earlier runs have left; from now on there is another one.

        Raises InvalidInput, having changed nothing, when the file is damaged, from a newer cuzkd or in use; Exhausted.
        """
        self._loop = asyncio.get_running_loop()
        remembered: asyncio.Future[Remembered] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(remembered,), name="journal", daemon=True)
        self._thread.start()
        return await remembered

    async def close(self, clean: bool = True) -> None:
        """Write what is left and let go of the file. clean: nothing was under way that might have killed us."""
        if self._thread is None:
            return
        if clean:
            self._post(_Post(rows.closed()))
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join, CLOSE_S)
        if self._thread.is_alive() or self.unwritten:
            log.error("journal_incomplete", journal=str(self.path), unwritten=self.unwritten)
        self._thread = None

    def stuck_s(self) -> float:
        """For how long the disk has not answered; 0.0 when it is not asked."""
        since_s = self._busy_since_s
        return 0.0 if since_s is None else self._clock() - since_s

    # -- asking for leave --

    async def accept(self, job: Job, upload_ids: Sequence[str] = ()) -> None:
        """The job is on the disk when this returns, and has taken these uploads. Raises Exhausted when the disk is
        full, CuzkdError; then nothing is recorded. Once called it goes on, whoever is cancelled.
        """
        await self._ask(rows.accepted(job, upload_ids, self._times))

    async def upload(self, upload: Upload) -> None:
        """Raises as accept does."""
        await self._ask(rows.uploaded(upload, self._times))

    # -- telling what has happened --

    def begun(self, job: Job) -> None:
        self._post(_Post(rows.begun(job, self._times), patient=True))

    def attempt(self, ticket: Ticket) -> None:
        """This partition's attempt is another one now."""
        self._post(_Post(rows.attempt(ticket)))

    def proved(self, job_id: str, result: PartitionResult) -> None:
        self._post(_Post(rows.proved(job_id, result), patient=True))

    def ended(self, job: Job, tried: Heard, written: Heard) -> None:
        """The job's chosen end. tried: called when it is recorded, or could not be; written: when it is."""
        self._post(_Post(rows.ended(job, self._times), tried=tried, written=written))

    def forget(self, job_ids: Iterable[str]) -> None:
        self._post(_Post(rows.forgotten(job_ids)))

    def forget_uploads(self, upload_ids: Iterable[str]) -> None:
        self._post(_Post(rows.uploads_forgotten(upload_ids)))

    def unprovable(self, what: Unprovable) -> None:
        self._post(_Post(rows.found_unprovable(what)))

    def retry(self) -> None:
        """Try once more to write what could not be written."""
        if self.unwritten:
            with self._changed:
                self._again = True
                self._changed.notify()

    # -- on the loop --

    async def _ask(self, statements: Statements) -> None:
        leave: asyncio.Future[None] = self._loop.create_future()
        self._post(_Post(statements, leave))
        await asyncio.shield(leave)

    def _post(self, post: _Post) -> None:
        with self._changed:
            if self._thread is None or self._closing:
                raise CuzkdError("journal: is closed")
            self._posts.append(post)
            self._changed.notify()

    def _told(self, batch: Sequence[_Post], kept: int, seconds: float, error: CuzkdError | None) -> None:
        """What has become of a transaction."""
        self.unwritten = kept
        self.failures += error is not None
        self._publish(JournalWrite(len(batch), seconds, error is not None))
        news = not self._failing or any(post.leave is not None for post in batch)
        self._failing = error is not None
        if error is not None and news:
            log.error("journal_write_failed", journal=str(self.path), records=len(batch), error=str(error))
        for post in batch:
            failed = error
            if post.wrong is not None:
                log.error("journal_record_refused", journal=str(self.path), error=str(post.wrong))
                failed = CuzkdError(f"journal: cannot hold this record: {type(post.wrong).__name__}")
            if post.leave is not None and not post.leave.done():
                if failed is None:
                    post.leave.set_result(None)
                else:
                    post.leave.set_exception(failed)
                    post.leave.exception()  # the one who asked may have gone
            tried, post.tried = post.tried, _nothing
            _call(tried)
            if failed is None:
                _call(post.written)

    # -- in the thread --

    def _run(self, remembered: asyncio.Future[Remembered]) -> None:
        try:
            found = self._open()
        except BaseException as error:
            self._tell(_set_exception, remembered, error)
            return
        self._tell(_set_result, remembered, found)
        with contextlib.closing(self._db):
            while (batch := self._next()) is not None:
                if not batch:
                    continue
                self._busy_since_s = self._clock()
                failed = self._write(batch)
                seconds = self._clock() - self._busy_since_s
                self._busy_since_s = None
                if failed is not None:
                    self._kept = [post for post in batch if post.leave is None and post.wrong is None]
                self._tell(self._told, batch, len(self._kept), seconds, failed)

    def _next(self) -> list[_Post] | None:
        """What goes into the next transaction; None when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._posts or self._again or self._closing)
            self._changed.wait_for(self._urgent, PATIENCE_S)
            if self._closing and not self._posts:
                return None
            batch = [*self._kept, *self._posts]
            self._posts, self._kept, self._again = [], [], False
            return batch

    def _urgent(self) -> bool:
        return self._again or self._closing or not all(post.patient for post in self._posts)

    def _write(self, batch: Sequence[_Post]) -> CuzkdError | None:
        """One transaction. What it returns is why nothing of it is on the disk."""
        db = self._db
        try:
            self._faults.at("journal_write")
            db.execute("BEGIN IMMEDIATE")
            for post in batch:
                _apply(db, post)
            self._faults.at("journal_commit")
            db.execute("COMMIT")
        except Exception as error:
            with contextlib.suppress(sqlite3.Error):
                if db.in_transaction:
                    db.execute("ROLLBACK")
            return self._error(error)
        return None

    def _error(self, error: BaseException) -> CuzkdError:
        code = getattr(error, "sqlite_errorcode", None)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or code == sqlite3.SQLITE_FULL:
            return Exhausted(f"journal {self.path}: the disk is full; try again later")
        if isinstance(error, MemoryError):
            return Exhausted(f"journal {self.path}: out of memory; try again later")
        return CuzkdError(f"journal {self.path}: {error}")

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _open(self) -> Remembered:
        require_ours(self.path)
        make(self.path)
        self._db = db = sqlite3.connect(self.path, isolation_level=None)
        try:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise InvalidInput(f"journal {self.path}: this file system allows no write-ahead log")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA temp_store = MEMORY")  # else there are files outside our folder
            db.execute("PRAGMA journal_size_limit = 16777216")
            if version == 0:
                _create(db)
            (health,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if health != "ok":
                raise ValueError(health)
            return self._begin_run(db)
        except BaseException as error:
            db.close()
            raise self._open_error(error) from None

    def _begin_run(self, db: sqlite3.Connection) -> Remembered:
        """Read everything, and note that another run has begun: both, or neither."""
        self._faults.at("journal_write")
        db.execute("BEGIN IMMEDIATE")
        (clean,) = db.execute("SELECT clean FROM life").fetchone()
        for statement, values in rows.opened(bool(clean)):
            db.executemany(statement, values)
        remembered = rows.read(db, self._spool, self._times, bool(clean))
        self._faults.at("journal_commit")
        db.execute("COMMIT")
        return remembered

    def _open_error(self, error: BaseException) -> BaseException:
        code = getattr(error, "sqlite_errorcode", None)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return InvalidInput(f"journal {self.path}: another process uses it")
        if code == sqlite3.SQLITE_FULL or isinstance(error, OSError | MemoryError):
            return self._error(error)
        if isinstance(error, (sqlite3.DatabaseError, ValueError, TypeError, KeyError, IndexError)):
            return InvalidInput(
                f"journal {self.path}: is damaged ({error}). Nothing was changed. Restore it, or move it away "
                "together with spool/: jobs that it holds are lost then"
            )
        return error


def _create(db: sqlite3.Connection) -> None:
    """Our tables, in a database that is empty. Raises ValueError when it is not."""
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise ValueError("a database of something else")
    db.executescript(f"BEGIN; {rows.SCHEMA} PRAGMA user_version = {rows.VERSION}; COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the version is in the file itself


def _apply(db: sqlite3.Connection, post: _Post) -> None:
    """One record of a transaction. What is wrong with it alone takes the others nowhere."""
    db.execute("SAVEPOINT record")
    try:
        for statement, values in post.statements:
            db.executemany(statement, values)
    except (*WRONG, ValueError, OverflowError) as error:
        db.execute("ROLLBACK TO record")
        post.wrong = error
    db.execute("RELEASE record")


def _call(heard: Heard) -> None:
    """What one listener does wrong is not another's loss."""
    try:
        heard()
    except Exception:
        log.exception("journal_listener_failed")


def _set_result(future: asyncio.Future[Remembered], value: Remembered) -> None:
    if not future.done():
        future.set_result(value)


def _set_exception(future: asyncio.Future[Remembered], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
