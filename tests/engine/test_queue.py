"""Order, bounds, and removal out of the middle, against a sorted list as the oracle."""

import random

import pytest

from cuzkd.engine.job import Priority, Ticket
from cuzkd.engine.queue import PartitionQueue
from cuzkd.errors import Exhausted


def ticket(sequence, priority=Priority.NORMAL, attempt=1):
    return Ticket(f"j/{sequence}", "j", 0, "c", "d", "/x", priority, sequence, attempt)


def order(queue):
    return [t.sequence for t in queue]


def test_priority_then_arrival():
    queue = PartitionQueue(10)
    queue.push(
        [
            ticket(1, Priority.LOW),
            ticket(2),
            ticket(3, Priority.CRITICAL),
            ticket(4),
            ticket(5, Priority.HIGH),
        ]
    )
    assert order(queue) == [3, 5, 2, 4, 1]
    assert len(queue) == 5
    assert queue.position(ticket(4)) == 3
    assert queue.depths() == {Priority.CRITICAL: 1, Priority.HIGH: 1, Priority.NORMAL: 2, Priority.LOW: 1}


def test_all_of_a_job_or_nothing():
    queue = PartitionQueue(3)
    queue.push([ticket(1), ticket(2)])
    with pytest.raises(Exhausted, match="2 of at most 3"):
        queue.push([ticket(3), ticket(4)])
    assert order(queue) == [1, 2]
    queue.push([ticket(3)])
    with pytest.raises(Exhausted):
        queue.require_room(1)


def test_what_comes_back_takes_its_old_place_and_is_never_refused():
    queue = PartitionQueue(2)
    queue.push([ticket(1), ticket(2)])
    assert queue.remove(ticket(1))
    queue.push([ticket(3)])
    queue.put_back([ticket(1, attempt=2)])
    assert order(queue) == [1, 2, 3] and queue.candidates((), 1)[0].attempt == 2


def test_against_a_sorted_list():
    random.seed(3)
    queue, oracle = PartitionQueue(1000), []
    for sequence in range(300):
        new = ticket(sequence, random.choice(list(Priority)))
        queue.push([new])
        oracle.append(new)
        if random.random() < 0.4:
            gone = random.choice(oracle)
            oracle.remove(gone)
            assert queue.remove(gone) and not queue.remove(gone)
    oracle.sort(key=lambda t: (-t.priority, t.sequence))
    assert list(queue) == oracle
    assert [queue.position(t) for t in oracle] == list(range(len(oracle)))
