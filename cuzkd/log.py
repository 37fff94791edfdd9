"""Structured logs: one JSON object a line, on standard error.

Problem: operators filter logs by program, and a proving daemon handles secrets that must be in none of them.
Design: structlog, one chain of processors for our own events and for those of libraries (they come through
`logging`). The last processor before printing is a net: bytes never appear, only their length; names that can
only mean a secret are blanked. Exceptions are logged as type and places, without their text: the text of a
stray exception may quote input.
Life of data: an event dictionary is made, filtered, printed, forgotten.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from cuzkd.errors import InvalidInput

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
SECRET_NAMES = frozenset({"witness", "token", "authorization", "blinding", "r", "s", "z", "vanilla_proof"})

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


def configure(level: str = "info", stream: TextIO | None = None) -> None:
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
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stderr),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _FromLogging)]:
        root.removeHandler(handler)
    root.addHandler(_FromLogging())
    root.setLevel(max(LEVELS[level], logging.WARNING))
