"""What clients are told to expect, and how much asking costs."""

import asyncio

import pytest
from engine.front import begun, job, running
from engine.test_engine import PATIENCE_S, begins, proved, run, until

from cuzkd.engine.job import Priority, Stage
from cuzkd.engine.jobs import outlook
from cuzkd.engine.stats import PartitionFinished
from cuzkd.errors import Exhausted


def test_nothing_is_made_up_and_what_is_learned_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(outlook, "REMEMBERED_S", -1.0)  # ask anew each time

    async def body():
        async with running(tmp_path, ready_target=1) as engine:
            unknown = await engine.submit(job("hold"))
            await until(engine, begins(unknown))
            assert engine.view(unknown.job_id).expected_s is None
            assert engine.view(unknown.job_id).progress < 1
            await engine.cancel(unknown.job_id)
            done = await proved(engine, "ok")
            assert (done.progress, done.expected_s) == (1.0, None)
            half = await engine.submit(job("ok", "hold"))
            await until(engine, lambda e: isinstance(e, PartitionFinished) and e.job_id == half.job_id)
            await until(engine, begins(half))
            view = engine.view(half.job_id)
            assert 0.5 <= view.progress < 1 and 0 <= view.expected_s < 1
            assert view.stages[0] == (Stage.DONE, 1) and len(view.stages) == 2
            behind = await engine.submit(job("ok", "ok", "ok"))
            assert engine.view(behind.job_id).expected_s > view.expected_s
            other = await engine.submit(job("ok", circuit="cube"))  # behind known work, unknown itself
            assert engine.view(other.job_id).expected_s is None
            await engine.cancel(half.job_id)
            assert engine.view(half.job_id).expected_s is None

    run(body())


def test_a_full_queue_says_when_to_come_again(tmp_path):
    async def body():
        async with running(tmp_path, max_partitions=2, ready_target=1) as engine:
            await proved(engine, "ok")
            blocker = await engine.submit(job("hold", "hold"))
            await until(engine, begins(blocker))
            await engine.submit(job("ok", "ok"))
            with pytest.raises(Exhausted, match=r"try again .*in about 1 s") as caught:
                await engine.submit(job("ok"))
            assert caught.value.retry_after_s == 1.0

    run(body())


def test_hundreds_of_watchers_ask_once(tmp_path, monkeypatch):
    asked = []
    real = outlook.forecast
    monkeypatch.setattr(outlook, "forecast", lambda *given, **named: asked.append(1) or real(*given, **named))
    monkeypatch.setattr(outlook, "REMEMBERED_S", 3600.0)

    async def body():
        async with running(tmp_path) as engine:
            view = await engine.submit(job("ok", "hold"))
            for _ in range(500):
                engine.view(view.job_id)
            assert len(asked) == 1

            async def watch():
                return [seen async for seen in engine.watch(view.job_id)]

            watchers = [asyncio.create_task(watch()) for _ in range(100)]
            await until(engine, begins(view))
            await until(engine, lambda event: isinstance(event, PartitionFinished))
            await engine.cancel(view.job_id)
            seen = await asyncio.wait_for(asyncio.gather(*watchers), PATIENCE_S)
            assert all(views[-1].state.ended for views in seen) and len(asked) == 1

    run(body())


def test_the_wait_that_status_tells(tmp_path):
    async def body():
        async with running(tmp_path, ready_target=1) as engine:
            assert engine.status().expected_wait_s == 0.0  # nothing waits
            blocker = await engine.submit(job(*["hold"] * 3))
            await until(engine, begins(blocker))
            assert engine.status().expected_wait_s is None  # nobody knows how long that takes
            await engine.cancel(blocker.job_id)
            await proved(engine, "ok", priority=Priority.HIGH)
            blocker = await engine.submit(job(*["hold"] * 4))
            await until(engine, begins(blocker))
            assert engine.status().expected_wait_s > 0
            assert begun(tmp_path)

    run(body())
