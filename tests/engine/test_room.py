"""Which key gives way, where two provers share memory: records in, a choice out."""

from types import SimpleNamespace

from cuzkd.engine.fleet.keys import Keys
from cuzkd.engine.fleet.room import busy, gives_way, in_use, may_come
from cuzkd.engine.job import Stage
from cuzkd.engine.wire import prover_pb2 as wire

NOTHING, A_KEY, VECTORS = {}, {"key": 1}, {"slab": 1}


def prover(*held, keys=(), used_s=None):
    """held: (circuit, stage)."""
    known = Keys(lambda message: None)
    for circuit in keys:
        known.heard(wire.CircuitState(circuit=circuit, loaded=True, digest="d", bytes=1))
    known.used_s |= used_s or {}
    holds = {
        str(n): SimpleNamespace(ticket=SimpleNamespace(circuit=circuit), stage=stage)
        for n, (circuit, stage) in enumerate(held)
    }
    return SimpleNamespace(holds=holds, keys=known, idle=not holds and not known.awaited)


def choice(*both, front_waits=False, now_s=100.0, min_idle_s=300.0):
    provers, waits = zip(*both, strict=True)
    found = gives_way(provers, waits, front_waits, now_s, min_idle_s)
    return found and (provers.index(found[0]), found[1])


def test_what_is_busy():
    assert not busy(prover(), NOTHING)
    assert busy(prover(("a", Stage.OFFERED)), NOTHING)  # it is about to begin
    assert busy(prover(("a", Stage.SYNTHESISING)), NOTHING)  # its key is being read
    assert not busy(prover(("a", Stage.SYNTHESISING), ("a", Stage.SYNTHESISING)), A_KEY)
    assert busy(prover(("a", Stage.SYNTHESISING), ("b", Stage.SYNTHESISING)), A_KEY)
    assert busy(prover(("a", Stage.SYNTHESISING), keys="a"), A_KEY)  # a preload waits
    assert not busy(prover(("a", Stage.SYNTHESISING), ("a", Stage.OFFERED), keys="a"), VECTORS)
    for stage in (Stage.READY, Stage.PROVING, Stage.VERIFYING):
        assert busy(prover(("a", stage), keys="a"), A_KEY | VECTORS)


def test_a_key_in_the_other_prover_gives_way_at_once_if_nobody_uses_it():
    asks = prover(("b", Stage.SYNTHESISING))
    works = prover(("a", Stage.PROVING), keys="ac")
    assert choice((asks, A_KEY), (works, NOTHING)) == (1, "c")
    works = prover(("a", Stage.PROVING), keys="a")
    assert choice((asks, A_KEY), (works, NOTHING)) is None
    assert may_come([asks, works], [A_KEY, NOTHING], False)  # once that one is done


def test_two_that_wait_for_each_other():
    """One has its key and waits for vectors behind the other's key."""
    asks = prover(("b", Stage.SYNTHESISING))
    stuck = prover(("a", Stage.SYNTHESISING), keys="a")
    assert in_use(stuck, VECTORS, a_key_waits=True) == set()
    assert choice((asks, A_KEY), (stuck, VECTORS)) == (1, "a")
    assert choice((prover(), NOTHING), (stuck, VECTORS)) is None  # it would only load it again
    assert not may_come([prover(), stuck], [NOTHING, VECTORS], False)


def test_who_can_wait_spares_what_was_used_of_late():
    asks = prover(("b", Stage.SYNTHESISING), ("a", Stage.PROVING), keys="acd", used_s={"c": 50.0, "d": 60.0})
    assert choice((asks, A_KEY)) is None
    assert choice((asks, A_KEY), min_idle_s=50.0) == (0, "c")
    asks.keys.make_way("c")
    assert choice((asks, A_KEY), min_idle_s=0.0) is None  # one after the other
    asks.keys.heard(wire.CircuitState(circuit="c", was_loaded=True))
    assert choice((asks, A_KEY), min_idle_s=0.0) == (0, "d")


def test_the_front_spares_them_while_anybody_works():
    idle, works = prover(keys="a", used_s={"a": 90.0}), prover(("b", Stage.PROVING), keys="b")
    assert choice((idle, NOTHING), (works, NOTHING), front_waits=True) is None
    assert choice((idle, NOTHING), (prover(), NOTHING), front_waits=True) == (0, "a")
