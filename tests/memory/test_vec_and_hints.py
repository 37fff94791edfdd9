"""Vectors written in place, and the hints that survive a restart."""

import numpy as np
import pytest

from cuzkd.errors import LeaseRevoked
from cuzkd.memory.budget import Budget
from cuzkd.memory.hints import CapacityHints
from cuzkd.memory.pool import PinnedPool
from cuzkd.memory.upstream import PagesUpstream
from cuzkd.memory.vec import PinnedVec


def test_blocks_lie_in_the_lease_and_end_with_it():
    pool = PinnedPool(PagesUpstream(), Budget(1 << 20))
    lease = pool.lease(10 * 32)
    vec = PinnedVec(lease, (4,), np.uint64, capacity_rows=10)
    for k in (3, 0, 7):
        block = vec.extend(k)
        assert block.shape == (k, 4)
        block[:] = vec.rows
    with pytest.raises(ValueError, match="1 rows asked after 10 of 10"):
        vec.extend(1)
    done = vec.finish()
    assert done.ctypes.data == lease.address and done.tolist() == [[3] * 4] * 3 + [[10] * 4] * 7
    with pytest.raises(LeaseRevoked):
        vec.extend(0)
    del block, done
    lease.release()
    pool.close()


def test_a_vec_must_fit_into_its_lease():
    pool = PinnedPool(PagesUpstream(), Budget(1 << 20))
    with pool.lease(10 * 32) as lease, pytest.raises(ValueError, match="352 bytes, the lease holds 320"):
        PinnedVec(lease, capacity_rows=11)
    pool.close()


def test_hints_keep_the_maximum_over_restarts(tmp_path):
    path = tmp_path / "hints.json"
    hints = CapacityHints(path)
    assert hints.get("abc") is None
    hints.learn("abc", 10)
    hints.learn("abc", 7)
    hints.learn("def", 0)
    assert (CapacityHints(path).get("abc"), CapacityHints(path).get("def")) == (10, 0)
    assert CapacityHints(path).largest() == 10
    hints.forget("abc")
    assert CapacityHints(path).get("abc") is None
    assert [file.name for file in tmp_path.iterdir()] == ["hints.json"]


def test_hints_without_a_file_or_a_disk(tmp_path):
    for hints in (CapacityHints(None), CapacityHints(tmp_path / "no" / "such" / "folder")):
        assert hints.largest() == 0
        hints.learn("abc", 3)
        assert hints.get("abc") == hints.largest() == 3


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"abc": "x", "d": -1}', "\0"])
def test_damaged_hints_are_no_error(tmp_path, text):
    path = tmp_path / "hints.json"
    path.write_text(text)
    hints = CapacityHints(path)
    assert hints.get("abc") is None
    hints.learn("abc", 1)
    assert CapacityHints(path).get("abc") == 1
