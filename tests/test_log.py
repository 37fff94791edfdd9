"""Logs are JSON, and no secret passes through them."""

import io
import json
import logging
import os

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


@pytest.fixture
def pipe():
    reads, writes = os.pipe()
    ends = {reads, writes}
    lines = log.Lines(writes)

    def close(end):
        ends.discard(end)
        os.close(end)

    yield lines, reads, close
    if reads in ends:
        os.set_blocking(reads, False)
        while not lines.flush(0.05):  # the thread may be waiting for a reader
            os.read(reads, 1 << 20)
    for end in ends:
        os.close(end)


def read_lines(reads, count):
    data = b""
    while data.count(b"\n") < count:
        data += os.read(reads, 1 << 16)
    return data.decode().splitlines()


def test_lines_come_in_order(pipe):
    lines, reads, _ = pipe
    for n in range(1000):
        lines.msg(f"line {n}")
    assert read_lines(reads, 1000) == [f"line {n}" for n in range(1000)]
    assert lines.flush(10) and lines.lost == 0


def test_a_reader_that_has_gone_costs_lines_and_nothing_else(pipe):
    lines, reads, close = pipe
    close(reads)
    for _ in range(3):
        lines.info("nobody reads this")
    assert lines.flush(10) and lines.lost == 3


def _drained(lines, reads):
    """Everything that there is to read once all is written. reads: not blocking."""
    data, done = b"", False
    while True:
        try:
            data += os.read(reads, 1 << 20)
        except BlockingIOError:
            if done:
                return data
            done = lines.flush(0.01)


def test_a_reader_that_sleeps_costs_lines_beyond_a_bound_and_is_told(pipe, monkeypatch):
    monkeypatch.setattr(log, "MAX_WAITING", 50)
    lines, reads, _ = pipe
    for _ in range(300):
        lines.msg("x" * 4000)  # far more than the pipe holds
    assert lines.lost > 0
    os.set_blocking(reads, False)
    data = _drained(lines, reads)
    lines.msg("again")
    seen = (data + _drained(lines, reads)).decode().splitlines()
    told = [json.loads(line)["lines"] for line in seen if "log_lines_lost" in line]
    assert seen[-1] == "again" and sum(told) == 300 - sum("xxx" in line for line in seen)
    assert lines.lost == 0
