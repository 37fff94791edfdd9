"""Structured logs: one JSON object a line, on standard error.

Problem: operators filter logs by program, and a proving daemon handles secrets that must be in none of them.
Design: structlog, one chain of processors for our own events and for those of libraries (they come through
`logging`). The last processor before printing is a net: bytes never appear, only their length; names that can
only mean a secret are blanked. Exceptions are logged as type and places, without their text: the text of a
stray exception may quote input. A daemon's lines are written by a thread of their own (`Lines`): a full disk, a pipe
that nobody reads or whose reader has gone costs lines, which are counted, and neither stops nor fails whoever logs.
Life of data: an event dictionary is made, filtered, made a line, written or lost, forgotten.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from cuzkd.errors import InvalidInput

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
SECRET_NAMES = frozenset({"witness", "token", "authorization", "blinding", "r", "s", "z", "vanilla_proof"})

MAX_WAITING = 10_000  # lines; then the newest are lost

Event = MutableMapping[str, Any]


def places(error: BaseException) -> str:
    """Where an exception came from, innermost last, without its text: "daemon.py:41 run > x.py:12 y"."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    return " > ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames)


def _exception(logger: Any, method: str, event: Event) -> Event:
    """exc_info becomes the exception's type and places."""
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    error = info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event["exception"] = type(error).__name__
        event["places"] = places(error)
    return event


def _no_secrets(logger: Any, method: str, event: Event) -> Event:
    for name, value in event.items():
        if name in SECRET_NAMES:
            event[name] = "(withheld)"
        elif isinstance(value, bytes | bytearray | memoryview):
            event[name] = f"({len(value)} bytes)"
    return event


class _FromLogging(logging.Handler):
    """Hands records of libraries that use `logging` to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        fields = {"exc_info": record.exc_info} if record.exc_info else {}
        structlog.get_logger().log(record.levelno, record.getMessage(), logger=record.name, **fields)


class Lines:
    """Where lines go: a file descriptor, by way of a thread that alone waits for it. Also a logger for structlog."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._waiting: deque[str] = deque()
        self._writing = False
        self._torn = ""  # what ends a line that was not written to its end
        self.lost = 0  # lines that were not written, since the last one that was
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def __call__(self, *names: str) -> Lines:
        """As structlog's logger factory."""
        return self

    def msg(self, line: str) -> None:
        with self._changed:
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append(line)
            else:
                self.lost += 1
            self._changed.notify_all()

    debug = info = warning = error = critical = exception = log = fatal = failure = err = warn = msg

    def flush(self, timeout_s: float) -> bool:
        """Wait until all lines are written or lost. False: not in this time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._writing, timeout_s)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                line, self._writing, lost = self._waiting.popleft(), True, self.lost
            if lost:
                words = {"lines": lost, "event": "log_lines_lost", "level": "error", "timestamp": _now()}
                line = f"{json.dumps(words)}\n{line}"
            written = self._write(f"{self._torn}{line}\n".encode(errors="backslashreplace"))
            with self._changed:
                self.lost = self.lost - lost if written else self.lost + 1
                self._writing = False
                self._changed.notify_all()

    def _write(self, data: bytes) -> bool:
        try:
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                    self._torn = "\n" if data else ""
                except BlockingIOError:  # somebody made it so
                    time.sleep(0.01)
        except OSError:
            return False
        return True


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def of_a_daemon(level: str) -> Lines | None:
    """configure(), with lines by way of a thread where standard error is a file of the system: it is returned, to be
    flushed at the end.
    """
    try:
        lines = Lines(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # of a test, or of nobody
        configure(level)
        return None
    configure(level, lines)
    return lines


def configure(level: str = "info", stream: TextIO | Lines | None = None) -> None:
    """Set up logging for this process. level: a key of LEVELS. stream: standard error by default."""
    if level not in LEVELS:
        raise InvalidInput(f"log level {level!r}: expected one of {', '.join(LEVELS)}")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _exception,
            _no_secrets,
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=stream
        if isinstance(stream, Lines)
        else structlog.PrintLoggerFactory(stream or sys.stderr),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _FromLogging)]:
        root.removeHandler(handler)
    root.addHandler(_FromLogging())
    root.setLevel(max(LEVELS[level], logging.WARNING))
