"""Memory is short: which key gives way.

Problem. A key that nobody has used for minutes may be dropped, one that is in use may not. But where one circuit's key
waits for the room that another's takes, "in use" and "of late" must not keep both waiting for each other: a partition
that has not begun uses nothing, and a key cannot be worth keeping when all else stands still for it.
Design. Keys of partitions that have begun stay, and so do keys that were used of late, for requests that can wait
because something goes on in the prover that asked. Where nothing does, the least recently used key goes at once; so may
that of partitions which have begun and wait for memory themselves, once a key waits, too: they give it back (and load
it again later) rather than hold up the one that came before them. Pure.
Life. Asked when a request has to wait, on every tick while one does, and when a prover that waits stands still.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from cuzkd.engine.fleet.books import Prover
from cuzkd.engine.job import Stage

KEY = "key"  # what a request for memory is for; all others are for vectors
Waits = Mapping[str, int]  # requests of a prover that wait for memory, by what they are for


def busy(prover: Prover, waits: Waits) -> bool:
    """Whether something goes on there that needs no memory to get further."""
    stages = {held.stage for held in prover.holds.values()}
    if stages - {Stage.OFFERED, Stage.SYNTHESISING}:
        return True
    begun = {held.ticket.circuit for held in prover.holds.values() if held.stage is Stage.SYNTHESISING}
    without = {circuit for circuit in begun if not prover.keys.has(circuit)}
    for_vectors = sum(waits.values()) - waits.get(KEY, 0)  # one request at a time, for all who want any
    if len(without) > waits.get(KEY, 0) or (begun - without and not for_vectors):
        return True
    return not waits and not prover.idle  # it is about to begin, or loads a key


def in_use(prover: Prover, waits: Waits, a_key_waits: bool) -> set[str]:
    """Circuits whose keys are to stay."""
    begun = {Stage.READY, Stage.PROVING, Stage.VERIFYING}
    if busy(prover, waits) or not a_key_waits:
        begun.add(Stage.SYNTHESISING)
    return {held.ticket.circuit for held in prover.holds.values() if held.stage in begun}


def gives_way(
    provers: Sequence[Prover], waits: Sequence[Waits], front_waits: bool, now_s: float, min_idle_s: float
) -> tuple[Prover, str] | None:
    """The key that goes now, by its prover and circuit; None when none does, or one is going already. waits: of each
    prover. front_waits: whether requests of the front's own wait.
    """
    both = list(zip(provers, waits, strict=True))
    if any(prover.keys.giving_way for prover in provers):
        return None
    still = [prover for prover, theirs in both if not busy(prover, theirs)]
    asking = [prover for prover, theirs in both if theirs]
    at_once = any(prover in still for prover in asking) or (front_waits and len(still) == len(provers))
    a_key_waits = any(KEY in theirs for theirs in waits)
    found = [
        (*idle, prover)
        for prover, theirs in both
        if (idle := prover.keys.longest_idle(in_use(prover, theirs, a_key_waits)))
    ]
    since_s, circuit, prover = min(found, key=lambda one: one[0], default=(math.inf, "", None))
    if prover is None or not (at_once or now_s - since_s >= min_idle_s):
        return None
    return prover, circuit


def may_come(provers: Collection[Prover], waits: Sequence[Waits], front_holds: bool) -> bool:
    """Whether memory can still come back: somebody works who will give it, or a key can go."""
    a_key_waits = any(KEY in theirs for theirs in waits)
    return front_holds or any(
        busy(prover, theirs)
        or prover.keys.giving_way
        or prover.keys.longest_idle(in_use(prover, theirs, a_key_waits))
        for prover, theirs in zip(provers, waits, strict=True)
    )
