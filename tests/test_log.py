"""Logs are JSON, and no secret passes through them."""

import io
import json
import logging

import pytest
import structlog

from cuzkd import log
from cuzkd.errors import InvalidInput

MARKER = "21888242871839275222"


@pytest.fixture
def lines():
    stream = io.StringIO()
    log.configure("info", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    structlog.reset_defaults()
    root = logging.getLogger()
    for handler in [h for h in root.handlers if type(h).__module__ == "cuzkd.log"]:
        root.removeHandler(handler)
    root.setLevel(logging.WARNING)


def test_one_object_a_line(lines):
    structlog.get_logger().info("job_done", job_id="x", seconds=1.5)
    structlog.get_logger().debug("quiet")
    (event,) = lines()
    assert event["event"] == "job_done" and event["level"] == "info" and event["seconds"] == 1.5
    assert event["timestamp"].endswith("Z")


def test_bytes_and_secret_names_are_withheld(lines):
    structlog.get_logger().info("oops", witness=MARKER, payload=MARKER.encode(), token=MARKER, r=int(MARKER))
    (event,) = lines()
    assert MARKER not in json.dumps(event) and "bytes" in event["payload"]


def test_an_exception_shows_places_and_not_its_text(lines):
    try:
        int(MARKER + "x")
    except ValueError:
        structlog.get_logger().exception("broken")
    (event,) = lines()
    assert event["exception"] == "ValueError" and "test_log.py" in event["places"]
    assert MARKER not in json.dumps(event)


def test_events_of_libraries_come_out_alike(lines):
    logging.getLogger("grpc").warning("port %d", 7)
    (event,) = lines()
    assert event["event"] == "port 7" and event["logger"] == "grpc" and event["level"] == "warning"


def test_unknown_level():
    with pytest.raises(InvalidInput, match="expected one of"):
        log.configure("loud")
