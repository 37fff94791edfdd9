"""Vectors written in place, and the hints that survive a restart."""

import numpy as np
import pytest

from cuzkd.errors import LeaseRevoked, NeverFits
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


@pytest.mark.parametrize("blocks", [(5, 5, 5), (1, 0, 1, 30, 2), (100,), (3, 1, 1, 1, 1, 1)])
def test_running_over_moves_to_larger_leases(blocks):
    """What was written goes along; one lease is held at a time but while it is copied."""
    pool = PinnedPool(PagesUpstream(), Budget(1 << 20))
    leases = [pool.lease(3 * 24)]

    def larger(nbytes):
        leases.append(pool.lease(nbytes))
        return leases[-1]

    vec = PinnedVec(leases[0], (3,), capacity_rows=3, larger=larger)
    expected, capacities = [], [3]
    for number, k in enumerate(blocks):
        vec.extend(k)[:] = number
        expected += [[number] * 3] * k
        if vec.capacity_rows != capacities[-1]:
            capacities.append(vec.capacity_rows)
            assert vec.capacity_rows == max(2 * capacities[-2], vec.rows)
            assert leases[-1].nbytes == vec.capacity_rows * 24
    assert vec.moves == len(leases) - 1 == len(capacities) - 1 > 0
    done = vec.finish()
    assert done.tolist() == expected and done.ctypes.data == leases[-1].address
    assert pool.stats().leased_bytes == 4096 * -(-leases[-1].nbytes // 4096)
    with pytest.raises(LeaseRevoked):
        leases[0].view()
    del done
    leases[-1].release()
    pool.close()


def test_a_block_kept_over_a_move_is_found():
    pool = PinnedPool(PagesUpstream(), Budget(1 << 20))
    leases = [pool.lease(32)]
    vec = PinnedVec(
        leases[0], capacity_rows=1, larger=lambda nbytes: leases.append(pool.lease(nbytes)) or leases[-1]
    )
    block = vec.extend(1)
    with pytest.raises(LeaseRevoked, match="a view of it is alive"):
        vec.extend(1)
    assert pool.stats().quarantined_bytes == 4096
    del block
    vec.finish()
    leases[-1].release()
    pool.close()


def test_no_larger_lease_leaves_all_as_it_was():
    pool = PinnedPool(PagesUpstream(), Budget(1 << 12))
    lease = pool.lease(32)
    vec = PinnedVec(lease, capacity_rows=1, larger=lambda nbytes: pool.lease(1 << 13))
    vec.extend(1)[:] = 7
    with pytest.raises(NeverFits):
        vec.extend(1)
    assert (vec.rows, vec.moves) == (1, 0)
    assert vec.finish().tolist() == [[7] * 4]
    lease.release()
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
