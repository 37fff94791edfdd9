"""Permits: never more out than the limit, first come first served, none lost to cancellation, nobody holds all."""

import asyncio
import random

import pytest

from cuzkd.errors import Exhausted, NeverFits, Unavailable
from cuzkd.memory.budget import Budget
from cuzkd.service.permits import Patience, Permits, hold, release_current


def now_or_not(budget):
    def reserve(nbytes):
        try:
            return budget.reserve(nbytes, "a request", timeout_s=0)
        except (Exhausted, NeverFits):
            return None

    return reserve


def taking(permits, peer=""):
    """A task that takes a permit and gives it; the permit stays until it is released."""
    manager = permits.take(peer)
    task = asyncio.create_task(manager.__aenter__())
    task.manager = manager  # lest it be collected, and its permit with it
    return task


@pytest.mark.parametrize("seed", range(4))
def test_the_limit_holds_under_random_load(seed):
    async def run():
        rng = random.Random(seed)
        budget = Budget(rng.choice([0, 10, 25, 1000]))
        permits, peak, served = Permits(10, 70, now_or_not(budget)), 0, 0

        async def client(peer, pause):
            nonlocal peak, served
            async with permits.take(peer) as permit:
                peak = max(peak, permits.used_bytes)
                assert permits.used_bytes - budget.used_bytes <= 10
                served += 1
                await asyncio.sleep(pause)
                if rng.random() < 0.7:
                    permit.arrived(rng.choice([0, 3, 10, 60]))
                    assert budget.used_bytes >= permits.used_bytes - 10
                    await asyncio.sleep(pause)
                if rng.random() < 0.5:
                    permit.release()

        tasks = [
            asyncio.create_task(client(rng.choice(["", "a", "b"]), rng.random() / 500)) for _ in range(200)
        ]
        for task in rng.sample(tasks, 60):
            asyncio.get_running_loop().call_later(rng.random() / 20, task.cancel)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends)
        assert 0 < peak <= 140 and served >= 140
        assert permits.used_bytes == budget.used_bytes == permits.waiting == 0
        assert not permits._by_peer

    asyncio.run(run())


def test_first_come_first_served():
    async def run():
        permits, order = Permits(10, 10), []

        async def client(name):
            async with permits.take():
                order.append(name)
                await asyncio.sleep(0)

        async with permits.take():
            tasks = []
            for name in "abc":
                tasks.append(asyncio.create_task(client(name)))
                await asyncio.sleep(0)
            assert permits.waiting == 3
        await asyncio.gather(*tasks)
        assert order == ["a", "b", "c"]

    asyncio.run(run())


def test_a_cancelled_waiter_lets_those_behind_it_through():
    async def run():
        permits = Permits(10, 10)

        async def client(name):
            async with permits.take():
                return name

        async with permits.take() as held:
            first, second = asyncio.create_task(client(1)), asyncio.create_task(client(2))
            await asyncio.sleep(0)
            first.cancel()
            held.release()
            assert await asyncio.wait_for(second, 5) == 2
            with pytest.raises(asyncio.CancelledError):
                await first

    asyncio.run(run())


def test_cancelled_in_the_moment_of_the_grant():
    async def run():
        permits = Permits(10, 10)

        async def client():
            async with permits.take():
                raise AssertionError("it was cancelled")

        async with permits.take() as held:
            task = asyncio.create_task(client())
            await asyncio.sleep(0)
            held.release()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert permits.used_bytes == permits.waiting == 0

    asyncio.run(run())


def test_one_peer_leaves_half_to_others():
    async def run():
        permits = Permits(10, 40)
        async with permits.take("a"), permits.take("a"):
            greedy = taking(permits, "a")
            await asyncio.sleep(0)
            assert permits.waiting == 1 and not greedy.done()
            async with permits.take("b"), permits.take(""), asyncio.timeout(5):
                assert permits.used_bytes == 40
            assert not greedy.done()
        assert (await asyncio.wait_for(greedy, 5)).peer == "a"

    asyncio.run(run())


def test_without_memory_there_is_one_at_a_time():
    """And it does not wait in the budget's line, where it would hold up what must end first."""

    async def run():
        budget = Budget(15)
        permits = Permits(10, 40, now_or_not(budget))
        async with permits.take(), permits.take():
            assert (permits.used_bytes, budget.used_bytes) == (20, 10)
            third = taking(permits)
            await asyncio.sleep(0)
            assert permits.waiting == 1 and budget.waiting == 0
        permit = await asyncio.wait_for(third, 5)
        assert budget.used_bytes <= 10
        permit.release()
        assert budget.used_bytes == permits.used_bytes == 0

    asyncio.run(run())


def test_a_message_that_is_here_makes_room_for_the_next():
    async def run():
        budget = Budget(100)
        permits = Permits(10, 20, now_or_not(budget))
        async with permits.take("a") as first, permits.take("b") as second:
            third = taking(permits, "a")
            await asyncio.sleep(0)
            assert not third.done()
            first.arrived(4)
            assert (permits.used_bytes, budget.used_bytes) == (24, 24), "what has come is reserved, too"
            await asyncio.wait_for(third, 5)
            second.arrived(16)  # larger than any may be: the frame around it is not counted
            assert permits.used_bytes == 4 + 10 + 10 and permits.waiting == 0
            another = taking(permits)
            await asyncio.sleep(0)
            third.result().arrived(7)  # there is no room for it beside the others: it keeps its place
            assert permits.used_bytes == 4 + 10 + 20 and another.done()
            third.result().release()
            another.result().release()
        assert permits.used_bytes == budget.used_bytes == 0

    asyncio.run(run())


def test_a_message_for_which_there_is_no_memory_keeps_its_place():
    async def run():
        budget = Budget(3)
        permits = Permits(10, 40, now_or_not(budget))
        async with permits.take() as first:
            second = taking(permits)
            first.arrived(4)
            await asyncio.sleep(0)
            assert permits.used_bytes == 10 and not second.done()
            first.release()
            (await asyncio.wait_for(second, 5)).arrived(3)
            assert permits.used_bytes == budget.used_bytes == 3
            second.result().release()
        assert permits.used_bytes == budget.used_bytes == 0

    asyncio.run(run())


def test_a_slow_sender_is_cut_off_only_when_others_wait():
    async def run():
        permits = Permits(10, 10, patience=Patience(alone_s=60.0, wanted_s=0.0))
        arrived = asyncio.get_running_loop().create_future()
        async with permits.take() as permit:
            reading = asyncio.create_task(permit.reading(arrived))
            await asyncio.sleep(0.05)
            assert not reading.done(), "alone it has time"
            arrived.set_result("message")
            assert await reading == "message"
            other = taking(permits)
            await asyncio.sleep(0)
            never = asyncio.get_running_loop().create_future()
            with pytest.raises(Unavailable, match="too slowly while others waited"):
                await permit.reading(never)
        assert await asyncio.wait_for(other, 5)

    asyncio.run(run())


def test_waiting_makes_a_sender_hurry_that_reads_already():
    async def run():
        permits = Permits(10, 10, patience=Patience(alone_s=60.0, wanted_s=0.0))
        async with permits.take() as permit:
            reading = asyncio.create_task(permit.reading(asyncio.get_running_loop().create_future()))
            await asyncio.sleep(0)
            other = taking(permits)
            with pytest.raises(Unavailable, match="others waited"):
                await asyncio.wait_for(reading, 5)
        assert await asyncio.wait_for(other, 5)

    asyncio.run(run())


def test_nobody_has_for_ever():
    async def run():
        permits = Permits(10, 10, patience=Patience(alone_s=0.0))
        async with permits.take() as permit:
            with pytest.raises(Unavailable, match="did not arrive within 0 s"):
                await permit.reading(asyncio.get_running_loop().create_future())

    asyncio.run(run())


def test_a_handler_can_give_it_back_early_and_once():
    async def run():
        release_current()
        permits = Permits(10, 10)
        async with permits.take() as permit:
            hold(permit)
            release_current()
            release_current()
            assert permits.used_bytes == 0
        assert permits.used_bytes == 0

    asyncio.run(run())
