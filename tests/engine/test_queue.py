"""Order, bounds, and removal out of the middle, against a sorted list as the oracle."""

import random
from collections import Counter

import pytest

from cuzkd.engine.job import Priority, Ticket
from cuzkd.engine.scheduling.queue import GROUPED, PartitionQueue, place
from cuzkd.errors import Exhausted, NeverFits


def ticket(sequence, priority=Priority.NORMAL, attempt=1, circuit="c", digest="d"):
    return Ticket(f"j/{sequence}", "j", 0, circuit, digest, "/x", priority, sequence, attempt)


def sequences(tickets):
    return [t.sequence for t in tickets]


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
    assert sequences(queue) == [3, 5, 2, 4, 1]
    assert len(queue) == 5
    assert queue.position(ticket(4)) == 3
    assert queue.depths() == {Priority.CRITICAL: 1, Priority.HIGH: 1, Priority.NORMAL: 2, Priority.LOW: 1}


def test_all_of_a_job_or_nothing():
    queue = PartitionQueue(3)
    queue.push([ticket(1), ticket(2)])
    with pytest.raises(Exhausted, match="2 of at most 3"):
        queue.push([ticket(3), ticket(4)])
    assert sequences(queue) == [1, 2]
    queue.push([ticket(3)])
    with pytest.raises(Exhausted):
        queue.require_room(1)


def test_what_an_empty_queue_has_no_room_for_is_not_told_to_try_again():
    queue = PartitionQueue(3)
    queue.require_room(3)
    with pytest.raises(NeverFits, match="4 partitions in one job, at most 3"):
        queue.require_room(4)
    with pytest.raises(Exhausted, match="2 of at most 3"):
        queue.require_room(2, arriving=2)


def test_what_comes_back_takes_its_old_place_and_is_never_refused():
    queue = PartitionQueue(2)
    queue.push([ticket(1), ticket(2)])
    assert queue.remove(ticket(1))
    queue.push([ticket(3)])
    queue.put_back([ticket(1, attempt=2)])
    assert sequences(queue) == [1, 2, 3] and queue.candidates((), 1)[0].attempt == 2


def test_candidates_are_the_best_and_the_best_of_circuits():
    queue = PartitionQueue(100)
    queue.push([ticket(n, circuit="ab"[n > 4]) for n in range(9)])
    queue.push([ticket(n, Priority.LOW, circuit="abc"[n % 3]) for n in range(9, 18)])
    assert sequences(queue.candidates((), 2)) == [0, 1, 9, 12]  # the head's circuit, too, may be gone on with
    assert sequences(queue.candidates(["b"], 2)) == [0, 1, 5, 6, 9, 10, 12, 13]
    assert sequences(queue.candidates(["nobody's"], 0)) == []
    assert len(queue.candidates("abc", 99)) == len(queue) == 18
    queue.push([ticket(50, Priority.HIGH, circuit="c"), ticket(51, Priority.CRITICAL, circuit="b")])
    queue.push([ticket(52, Priority.HIGH, circuit="c")])
    assert sequences(queue.candidates((), 1)) == [51, 5, 10]  # HIGH is not gone on with out of turn
    assert sequences(queue.candidates((), 2)) == [51, 50, 5, 6, 10, 11, 13, 14]


def test_suspects_do_not_hide_those_behind_them():
    queue = PartitionQueue(100)
    queue.push([ticket(n, attempt=2) for n in range(5)])
    queue.push([ticket(5), ticket(6), ticket(7)])
    assert sequences(queue.candidates((), 2)) == [0, 1, 2, 3, 4, 5, 6]


def test_what_goes_ahead_is_counted_by_digest():
    queue = PartitionQueue(100)
    queue.push([ticket(1), ticket(2, circuit="e", digest="e"), ticket(3), ticket(4, digest="newer")])
    queue.push([ticket(5, Priority.HIGH), ticket(6, Priority.LOW, circuit="e", digest="e")])
    assert queue.ahead(Priority.NORMAL, 3) == {"d": 2, "e": 1}
    assert queue.ahead(Priority.NORMAL) == {"d": 3, "e": 1, "newer": 1}
    assert queue.ahead(Priority.LOW) == {"d": 3, "e": 2, "newer": 1}
    assert queue.ahead(Priority.HIGH, 5) == {}


def test_against_a_sorted_list():
    source = random.Random(3)
    queue, oracle = PartitionQueue(1000), []
    for sequence in source.sample(range(9999), 600):
        circuit = source.choice("abc")
        new = ticket(
            sequence, source.choice(list(Priority)), source.choice((1, 1, 1, 2)), circuit, circuit.upper()
        )
        queue.push([new])
        oracle.append(new)
        if source.random() < 0.6:
            gone = oracle.pop(source.randrange(len(oracle)))
            assert queue.remove(gone) and not queue.remove(gone)
    oracle.sort(key=place)
    assert list(queue) == oracle and len(queue) == len(oracle)
    assert [queue.position(t) for t in oracle] == list(range(len(oracle)))
    assert queue.depths() == {p: sum(t.priority is p for t in oracle) for p in Priority}
    for at, one in enumerate(oracle):
        assert queue.ahead(one.priority, one.sequence) == Counter(t.circuit_digest for t in oracle[:at])
    for count in (0, 1, 3, 10):
        wanted = {t.sequence for t in first(oracle, count)}
        for priority in GROUPED:
            for circuit in {t.circuit for t in first(oracle, count)} | {"a"}:
                line = [t for t in oracle if (t.priority, t.circuit) == (priority, circuit)]
                wanted |= {t.sequence for t in first(line, count)}
        assert queue.candidates("a", count) == [t for t in oracle if t.sequence in wanted]
    for one in oracle:
        assert queue.remove(one)
    assert not list(queue) and queue.candidates("abc", 9) == [] and queue.ahead(Priority.LOW) == {}


def first(line, count):
    """Up to and with the count-th first attempt, and the suspects that follow it."""
    kept = []
    for one in line:
        if one.attempt == 1 and sum(t.attempt == 1 for t in kept) == count:
            break
        kept.append(one)
    return kept
