"""Contents without a proof: which errors count, and how many are kept."""

import pytest

from cuzkd.engine.jobs import unprovable
from cuzkd.engine.jobs.unprovable import UnprovableContents
from cuzkd.engine.journal.rows import Unprovable
from cuzkd.errors import InvalidWitness, UnsatisfiedWitness


def test_only_what_the_same_bytes_meet_with_again():
    known = UnprovableContents()
    for code in ("internal", "device_fault", "exhausted", "invalid_key", "malformed_file"):
        assert known.learn(b"c", code, "why") is None
    known.require_provable([b"c"])
    assert known.learn(b"c", "unsatisfied_witness", "row 7") == Unprovable(
        b"c", "unsatisfied_witness", "row 7"
    )
    assert known.learn(b"c", "unsatisfied_witness", "row 7") is None  # once is enough
    known.restore([Unprovable(b"d", "invalid_witness", "too short")])
    with pytest.raises(UnsatisfiedWitness, match="partition 1: row 7"):
        known.require_provable([b"a", b"c", b"d"])
    with pytest.raises(InvalidWitness, match="partition 0: too short"):
        known.require_provable([b"d"])


def test_the_oldest_go(monkeypatch):
    monkeypatch.setattr(unprovable, "MAX_UNPROVABLE", 3)
    known = UnprovableContents()
    for n in range(5):
        known.learn(bytes([n]), "invalid_witness", "why")
    known.require_provable([b"\0", b"\1"])
    for n in range(2, 5):
        with pytest.raises(InvalidWitness):
            known.require_provable([bytes([n])])
