"""Absences of the front's loop: seen, and held against nobody."""

import asyncio
import socket
import time

import pytest

from cuzkd.engine.fleet.supervisor import _within
from cuzkd.engine.scheduling.attendance import Attendance
from cuzkd.engine.settings import EngineSettings


def test_a_gap_is_an_absence_once():
    here = Attendance(1.0)
    assert [here.away_s(at_s) for at_s in (100.0, 100.5, 101.5, 103.0, 103.5)] == [0, 0, 0, 1.5, 0]


def test_absences_are_shorter_than_the_silence_that_condemns(tmp_path):
    settings = EngineSettings(tmp_path)
    assert settings.tick_s < settings.away_after_s < settings.heartbeat_s / 2


def test_what_came_while_the_loop_was_away_came_in_time():
    async def body():
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with ours, theirs:
            word = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(ours, 1))
            waiting = asyncio.ensure_future(_within(word, 0.5))
            await asyncio.sleep(0)
            theirs.send(b"x")
            time.sleep(0.6)  # nobody listens
            await waiting
            assert word.result() == b"x"

    asyncio.run(body())


def test_what_does_not_come_is_not_waited_for():
    async def body():
        never = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await _within(never, 0.02)
        assert not never.done()

    asyncio.run(body())
