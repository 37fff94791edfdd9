"""Byte permits: never more out than the limit, first come first served, none lost to cancellation."""

import asyncio
import random

import pytest

from cuzkd.service.permits import BytePermits, hold, release_current


def test_the_limit_holds_under_random_load():
    async def run():
        permits, peak = BytePermits(100), 0
        rng = random.Random(5)

        async def client(n_bytes, pause):
            nonlocal peak
            async with permits.take(n_bytes):
                peak = max(peak, permits.used_bytes)
                await asyncio.sleep(pause)

        tasks = [asyncio.create_task(client(rng.randint(1, 60), rng.random() / 500)) for _ in range(200)]
        for task in rng.sample(tasks, 60):
            asyncio.get_running_loop().call_later(rng.random() / 20, task.cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert 0 < peak <= 100 and permits.used_bytes == 0
        async with permits.take(100):
            pass

    asyncio.run(run())


def test_first_come_first_served():
    async def run():
        permits, order = BytePermits(10), []

        async def client(name, n_bytes):
            async with permits.take(n_bytes):
                order.append(name)
                await asyncio.sleep(0)

        async with permits.take(10):
            tasks = []
            for name, n_bytes in (("large", 10), ("small", 1), ("other", 2)):
                tasks.append(asyncio.create_task(client(name, n_bytes)))
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert order == ["large", "small", "other"]

    asyncio.run(run())


def test_a_cancelled_waiter_lets_those_behind_it_through():
    async def run():
        permits = BytePermits(10)

        async def client(n_bytes):
            async with permits.take(n_bytes):
                return n_bytes

        async with permits.take(6):
            large, small = asyncio.create_task(client(10)), asyncio.create_task(client(4))
            await asyncio.sleep(0)
            large.cancel()
            assert await asyncio.wait_for(small, 5) == 4
            with pytest.raises(asyncio.CancelledError):
                await large

    asyncio.run(run())


def test_more_than_the_limit_takes_all_of_it():
    async def run():
        permits = BytePermits(10)
        async with permits.take(50):
            assert permits.used_bytes == 10

    asyncio.run(run())


def test_a_handler_can_give_it_back_early_and_once():
    async def run():
        release_current()
        permits = BytePermits(10)
        async with permits.take(7) as permit:
            hold(permit)
            release_current()
            release_current()
            assert permits.used_bytes == 0
        assert permits.used_bytes == 0

    asyncio.run(run())
