"""The budget's discipline: order, both kinds of refusal, and no lost wake-up under many threads."""

import random
import threading
import time

import pytest

from cuzkd.errors import Cancelled, Exhausted, NeverFits
from cuzkd.memory.budget import Budget


def test_never_fits_names_both_numbers():
    with pytest.raises(NeverFits, match=r"101 bytes, .* 100 bytes"):
        Budget(100).reserve(101, "slab")


def test_exhausted_is_another_error_and_leaves_no_trace():
    budget = Budget(100)
    held = budget.reserve(60, "slab")
    with pytest.raises(Exhausted, match=r"41 bytes; 40 of 100"):
        budget.reserve(41, "key", timeout_s=0)
    assert (budget.used_bytes, budget.waiting) == (60, 0)
    held.release()
    budget.reserve(100, "key", timeout_s=0).release()
    assert (budget.used_bytes, budget.peak_bytes) == (0, 100)


def test_shrink_and_release_are_exact_and_idempotent():
    budget = Budget(100)
    with budget.reserve(80, "working set") as held:
        held.shrink(30)
        assert (held.nbytes, budget.used_bytes) == (30, 30)
        with pytest.raises(ValueError, match="30 bytes to 31"):
            held.shrink(31)
        held.release()
        held.release()
    assert (held.nbytes, budget.used_bytes) == (0, 0)


def test_first_come_first_served():
    """A small request that would fit does not overtake a large one that waits, and neither starves."""
    budget = Budget(100)
    first = budget.reserve(50, "a")
    order = []
    budget.request(60, "large", lambda got: order.append(("large", got)))
    budget.request(10, "small", lambda got: order.append(("small", got)))
    assert order == [] and budget.waiting == 2
    first.release()
    assert [name for name, _ in order] == ["large", "small"]
    assert budget.used_bytes == 70


def test_leaving_the_queue_lets_the_next_one_in():
    budget = Budget(100)
    budget.reserve(50, "a")
    got = []
    ticket = budget.request(60, "large", got.append)
    budget.request(10, "small", got.append)
    assert ticket.cancel()
    assert [one.nbytes for one in got] == [10]
    assert not ticket.cancel()


def test_a_callback_may_release():
    budget = Budget(10)
    held = budget.reserve(10, "a")
    budget.request(10, "b", lambda got: got.release())
    budget.request(10, "c", lambda got: got.release())
    held.release()
    assert budget.used_bytes == 0


@pytest.mark.parametrize("seed", range(4))
def test_sixteen_threads_and_room_for_one(seed):
    """200 reservations, each of more than half of the budget: every one ends, never two at a time."""
    budget = Budget(100)
    inside, together, done = [], [], []
    rng = random.Random(seed)
    work = [(rng.randint(51, 100), rng.random() * 2e-4) for _ in range(200)]
    lock = threading.Lock()

    def run():
        while True:
            with lock:
                if not work:
                    return
                nbytes, pause_s = work.pop()
            with budget.reserve(nbytes, "job"):
                inside.append(1)
                together.append(len(inside))
                time.sleep(pause_s)
                inside.pop()
            done.append(nbytes)

    threads = [threading.Thread(target=run) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 200 and max(together) == 1
    assert budget.used_bytes == 0 and budget.peak_bytes <= 100


def test_who_gives_up_leaves_the_line():
    budget = Budget(100)
    asked = []

    def give_up():
        asked.append(budget.waiting)
        return len(asked) == 2

    with budget.reserve(60, "a"):
        with pytest.raises(Cancelled, match="key of 50 bytes"):
            budget.reserve(50, "key", give_up=give_up)
        assert asked == [1, 1] and budget.waiting == 0 and budget.used_bytes == 60
    assert budget.used_bytes == 0


def test_a_grant_that_comes_as_it_is_given_up_is_kept():
    budget = Budget(100)
    held = budget.reserve(60, "a")

    def give_up():
        held.release()  # the very moment
        return True

    with budget.reserve(50, "key", give_up=give_up) as granted:
        assert granted.nbytes == budget.used_bytes == 50
