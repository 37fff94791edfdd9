"""Turns: never more than there are, none lost, and no circuit waits for another's queue."""

import asyncio
import functools
import random
from collections import Counter

import pytest

from cuzkd.engine.payloads.turns import Turns


def on_a_loop(test):
    @functools.wraps(test)
    def run(*arguments, **named):
        asyncio.run(test(*arguments, **named))

    return run


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


class Takers:
    """Who got a turn, in order."""

    def __init__(self, n):
        self.turns = Turns(n)
        self.got = []

    def take(self, *circuits):
        async def one(circuit):
            await self.turns.take(circuit)
            self.got.append(circuit)

        return [asyncio.ensure_future(one(circuit)) for circuit in circuits]


@pytest.mark.parametrize(("n", "share"), [(1, 1), (2, 1), (3, 2), (8, 7)])
@on_a_loop
async def test_a_circuit_leaves_one_to_others(n, share):
    takers = Takers(n)
    takers.take(*["a"] * 10)
    await settle()
    assert takers.got == ["a"] * share and takers.turns.waiting("a") == 10 - share
    assert takers.turns.share == share and takers.turns.is_free("b") == (n > 1)
    takers.take("b")
    await settle()
    assert takers.got[share:] == (["b"] if n > 1 else [])


@on_a_loop
async def test_turns_go_round_the_circuits_that_wait():
    takers = Takers(1)
    takers.take("a", "a", "a", "a", "b", "b", "c")
    await settle()
    for _ in range(6):
        takers.turns.give_back(takers.got[-1])
        await settle()
    assert takers.got == ["a", "a", "b", "c", "a", "b", "a"]


@on_a_loop
async def test_who_leaves_takes_nothing_along():
    takers = Takers(1)
    first, second, third = takers.take("a", "a", "b")
    await settle()
    second.cancel()
    await settle()
    assert takers.turns.waiting("a") == 0
    takers.turns.give_back("a")
    third.cancel()  # its turn has come, and it has not noticed
    await settle()
    assert first.done() and takers.got == ["a"] and takers.turns.is_free("b")


@pytest.mark.parametrize("seed", range(10))
@on_a_loop
async def test_none_is_lost(seed):
    draw = random.Random(seed)
    n = draw.randint(1, 4)
    turns, running, most = Turns(n), Counter(), []

    async def one(circuit):
        await turns.take(circuit)
        running[circuit] += 1
        most.append((running.total(), max(running.values())))
        try:
            for _ in range(draw.randrange(4)):
                await asyncio.sleep(0)
        finally:
            running[circuit] -= 1
            turns.give_back(circuit)

    tasks = [asyncio.ensure_future(one(draw.choice("abc"))) for _ in range(60)]
    for task in draw.sample(tasks, 20):
        for _ in range(draw.randrange(3)):
            await asyncio.sleep(0)
        task.cancel()
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert all(total <= n and one <= turns.share for total, one in most) and len(most) >= 40
    assert all(task.cancelled() or task.exception() is None for task in tasks)
    assert all(turns.is_free(circuit) and not turns.waiting(circuit) for circuit in "abc")
