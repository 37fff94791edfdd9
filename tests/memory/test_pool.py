"""What the pool promises: exact accounting, order, isolation between owners, and no growth."""

import ctypes
import itertools
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cuzkd.errors import Cancelled, Exhausted, LeaseRevoked, NeverFits, Unavailable
from cuzkd.memory import pool as memory_pool
from cuzkd.memory import wiper
from cuzkd.memory.budget import Budget
from cuzkd.memory.pool import PinnedPool
from cuzkd.memory.ranges import carve, give_back
from cuzkd.memory.upstream import PAGE_BYTES, FailingUpstream, PagesUpstream

MIB = 1 << 20


class CountingUpstream:
    name = "counting"

    def __init__(self):
        self.made = []
        self.open = 0

    def make(self, nbytes):
        slab = PagesUpstream().make(nbytes)
        self.made.append(slab.nbytes)
        self.open += slab.nbytes

        def closed():
            self.open -= slab.nbytes

        slab.on_close.append(closed)
        return slab


@pytest.fixture
def made():
    """A factory of pools, each closed at the end with nothing left of it in its budget."""
    pools = []

    def make(limit=64 * MIB, upstream=None, **options):
        budget = Budget(limit)
        pool = PinnedPool(upstream or PagesUpstream(), budget, **options)
        pools.append((pool, budget))
        return pool, budget

    yield make
    for pool, budget in pools:
        pool.close()
        assert budget.used_bytes == 0


def wait_until(fact):
    for _ in range(2000):
        if fact():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come true in ten seconds")


def resident_pages(address, nbytes):
    """How many pages of a range the operating system holds: /proc/self/pagemap, present (63) or swapped (62)."""
    with open("/proc/self/pagemap", "rb") as file:
        file.seek(address // PAGE_BYTES * 8)
        entries = np.frombuffer(file.read(nbytes // PAGE_BYTES * 8), np.uint64)
    return int(np.count_nonzero(entries >> np.uint64(62)))


@pytest.mark.parametrize(
    "nbytes", [1, PAGE_BYTES, PAGE_BYTES + 1, 3 * MIB + 12345, 5 * MIB, 7 * PAGE_BYTES - 1]
)
def test_pool_budget_and_operating_system_agree(made, nbytes):
    pool, budget = made()
    whole = -(-nbytes // PAGE_BYTES) * PAGE_BYTES
    with pool.lease(nbytes) as lease:
        assert lease.nbytes == nbytes == len(lease.view()) and lease.address % PAGE_BYTES == 0
        assert pool.stats().slab_bytes == pool.stats().leased_bytes == budget.used_bytes == whole
        assert resident_pages(lease.address, whole) == whole // PAGE_BYTES
        address = lease.address
    assert budget.used_bytes == whole  # charged for as long as the pages exist, leased or not
    assert pool.trim(1) == whole
    assert budget.used_bytes == 0
    if whole > MIB:  # the addresses of a small one may be in use again already
        assert resident_pages(address, whole) < whole // PAGE_BYTES // 2


@pytest.mark.parametrize("slab_bytes", [0, 8 * MIB, 64 * MIB, 100 * MIB, 24 * MIB])
def test_usable_bytes_are_configured_bytes(made, slab_bytes):
    """Eight leases of 8 MiB out of 64, the ninth waits; when all are back, one of 64 MiB succeeds."""
    pool, budget = made(slab_bytes=slab_bytes)
    leases = [pool.lease(8 * MIB, timeout_s=10) for _ in range(8)]
    with pytest.raises(Exhausted, match="8388608 bytes"):
        pool.lease(8 * MIB, timeout_s=0.05)
    ninth = []
    thread = threading.Thread(target=lambda: ninth.append(pool.lease(8 * MIB, timeout_s=20)))
    thread.start()
    wait_until(lambda: pool.stats().waiting == 1)
    assert not ninth
    leases.pop().release()
    thread.join()
    for lease in leases + ninth:
        lease.release()
    with pool.lease(64 * MIB, timeout_s=10):
        assert pool.stats().free_bytes == 0
    assert budget.peak_bytes <= 64 * MIB


def test_more_than_the_budget_never_fits(made):
    pool, _ = made(limit=MIB)
    with pytest.raises(NeverFits, match=r"1052672 bytes, .* 1048576 bytes"):
        pool.lease(MIB + 1)
    with pytest.raises(NeverFits):
        pool.lease_all([MIB // 2, MIB // 2, 1])
    pool.lease(MIB).release()


def test_several_ranges_together_or_none(made):
    """Two requests for 40 of 64 MiB in pieces of 20: neither takes one piece and waits for the other's."""
    pool, _ = made()
    done = []

    def run():
        for _ in range(20):
            for lease in pool.lease_all([20 * MIB, 20 * MIB], timeout_s=60):
                lease.release()
        done.append(1)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 2 and pool.stats().peak_leased_bytes <= 60 * MIB


def test_requests_are_served_in_order(made):
    pool, _ = made(limit=16 * MIB)
    held = pool.lease(10 * MIB)
    order = []

    def ask(name, nbytes):
        lease = pool.lease(nbytes)
        order.append(name)
        lease.release()

    threads = []
    for name, nbytes in (("large", 16 * MIB), ("small", MIB)):
        threads.append(threading.Thread(target=ask, args=(name, nbytes)))
        threads[-1].start()
        wait_until(lambda: pool.stats().waiting == len(threads))
    assert order == []
    held.release()
    for thread in threads:
        thread.join()
    assert order == ["large", "small"]


def test_giving_up_while_waiting(made):
    pool, _ = made(limit=MIB)
    with pool.lease(MIB), pytest.raises(Cancelled):
        pool.lease_all([MIB], give_up=lambda: True)
    assert pool.stats().waiting == 0
    pool.lease(MIB).release()


@pytest.mark.parametrize("look", ["array", "slice of an array", "slice of a view", "array of a view"])
def test_what_outlives_its_lease_never_sees_the_next_job(made, look):
    pool, _ = made(limit=2 * MIB)
    lease = pool.lease(MIB, owner="one")
    kept = {
        "array": lambda: lease.array(np.uint64, (8, 4)),
        "slice of an array": lambda: lease.array(np.uint8, MIB)[100:200],
        "slice of a view": lambda: lease.view()[100:200],
        "array of a view": lambda: np.frombuffer(lease.view(), np.uint8)[5:],
    }[look]()
    before = bytes(kept)
    with pytest.raises(LeaseRevoked, match="1048576"):
        lease.release()
    assert pool.stats().quarantined_bytes == MIB
    with pool.lease(MIB, owner="two") as other:
        other.array(np.uint8, MIB)[:] = 0xEE
        assert bytes(kept) == before
        with pytest.raises(Exhausted):
            pool.lease(MIB, timeout_s=0.05)
    del kept
    assert pool.stats().quarantined_bytes == 0
    pool.lease(2 * MIB, timeout_s=10).release()


def test_the_end_of_a_lease(made):
    pool, _ = made()
    lease = pool.lease(100)
    view = lease.view()
    generation = lease.generation
    lease.release()
    lease.release()
    with pytest.raises(ValueError, match="released"):
        view[0]
    for use in (lease.view, lambda: lease.address, lambda: lease.array(np.uint8, 1)):
        with pytest.raises(LeaseRevoked):
            use()
    with pool.lease(100) as again:
        assert again.generation != generation
        with pytest.raises(ValueError, match="104 bytes, the lease holds 100"):
            again.array(np.uint64, 13)


@pytest.mark.parametrize("wipe", [True, False])
def test_memory_is_wiped_between_owners(made, wipe):
    pool, _ = made(limit=4 * MIB, slab_bytes=4 * MIB, wipe=wipe)
    rng = random.Random(1)
    owners = ["red", "blue", "green"]
    leaks = 0
    for _ in range(200):
        owner = rng.choice(owners)
        leases = pool.lease_all([rng.randint(1, MIB) for _ in range(rng.randint(1, 3))], owner=owner)
        rng.shuffle(leases)
        for lease in leases:
            data = lease.array(np.uint8, lease.nbytes)
            leaks += bool(np.isin(data, [ord(other[0]) for other in owners if other != owner]).any())
            data[:] = ord(owner[0])
            del data
            lease.release()
    assert (leaks == 0) == wipe


def test_a_thousand_cycles_do_not_grow(made):
    """Few slabs whatever the leases: this is what keeps the number of page-locked segments small."""
    upstream = CountingUpstream()
    pool, budget = made(limit=12 * MIB, upstream=upstream, slab_bytes=4 * MIB)
    rng = random.Random(7)
    for _ in range(1000):
        for lease in pool.lease_all([rng.randint(1, MIB) for _ in range(3)]):
            lease.release()
    assert len(upstream.made) == pool.stats().slabs_made == 1
    assert upstream.open == budget.used_bytes == pool.stats().slab_bytes == pool.stats().free_bytes == 4 * MIB


def test_random_leases_keep_the_books(made):
    pool, budget = made(limit=16 * MIB, slab_bytes=3 * MIB)
    rng = random.Random(3)
    held = []
    for _ in range(500):
        if held and (rng.random() < 0.5 or len(held) > 12):
            held.pop(rng.randrange(len(held))).release()
        else:
            held.append(pool.lease(rng.randint(1, 900_000), timeout_s=30))
        spans = sorted((lease.address, lease.address + lease.nbytes) for lease in held)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        stats = pool.stats()
        assert stats.slab_bytes == stats.leased_bytes + stats.free_bytes == budget.used_bytes
    for lease in held:
        lease.release()
    assert pool.stats().leased_bytes == 0


def test_prewarm_is_not_on_the_job_path(made):
    pool, _ = made(limit=10 * MIB)
    pool.prewarm(3 * MIB, 2)
    pool.prewarm(3 * MIB, 2)  # they are on their way already
    wait_until(lambda: pool.stats().slabs == 2)
    leases = [pool.lease(3 * MIB) for _ in range(2)]
    assert pool.stats().slabs_made_on_job_path == 0
    leases.append(pool.lease(MIB))
    assert (pool.stats().slabs_made, pool.stats().slabs_made_on_job_path) == (3, 1)
    pool.prewarm(8 * MIB, 1)  # no grant now, so not made, and nobody waits for it
    for lease in leases:
        lease.release()
    assert pool.stats().slabs == 3


def test_a_prewarming_that_fails_in_whatever_way_is_given_up(made):
    class Odd(CountingUpstream):
        def make(self, nbytes):
            if nbytes == 2 * MIB:
                raise RuntimeError("no thread can be started")
            return super().make(nbytes)

    pool, budget = made(upstream=Odd())
    pool.prewarm(2 * MIB, 3)
    wait_until(lambda: not pool.stats().prewarming)
    assert (pool.stats().slabs, budget.used_bytes) == (0, 0)
    pool.lease(MIB, timeout_s=10).release()


def test_trim_leaves_what_is_leased(made):
    pool, budget = made()
    leases = [pool.lease(size * MIB) for size in (1, 2, 4)]
    leases[1].release()
    assert pool.trim(1 << 40) == 2 * MIB
    assert budget.used_bytes == 5 * MIB
    leases[0].release()
    leases[2].release()
    assert pool.trim(3 * MIB) == 4 * MIB  # one that is large enough, rather than several


def test_no_memory_is_an_answer_and_not_the_end(made):
    upstream = FailingUpstream(PagesUpstream(), good=1)
    pool, budget = made(upstream=upstream)
    pool.lease(MIB).release()
    with pytest.raises(Exhausted, match="2097152 bytes"):
        pool.lease(2 * MIB)
    assert budget.used_bytes == 0  # the idle slab was given up for a second try
    upstream.good = 1
    pool.lease(2 * MIB).release()


def test_an_idle_slab_that_is_too_small_makes_room(made):
    pool, budget = made(limit=4 * MIB)
    pool.lease(3 * MIB).release()
    with pool.lease(4 * MIB, timeout_s=10):
        assert budget.used_bytes == 4 * MIB


def test_a_budget_shared_with_others(made):
    """The pool waits for bytes which somebody else holds, and gets them when they come back."""
    pool, budget = made(limit=4 * MIB)
    key = budget.reserve(3 * MIB, "key")
    got = []
    thread = threading.Thread(target=lambda: got.append(pool.lease(2 * MIB)))
    thread.start()
    wait_until(lambda: budget.waiting == 1)
    assert not got
    key.release()
    thread.join()
    got[0].release()


def test_close_refuses_and_tells(made):
    pool, _ = made(limit=MIB)
    lease = pool.lease(MIB)
    answers = []

    def ask():
        with pytest.raises(Unavailable):
            pool.lease(MIB)
        answers.append(1)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: pool.stats().waiting == 1)
    with pytest.raises(LeaseRevoked, match="1048576 bytes"):
        pool.close()
    thread.join()
    assert answers
    lease.release()
    with pytest.raises(Unavailable):
        pool.lease(1)


def test_who_gives_up_takes_its_wish_for_memory_along(made):
    """The first wants more than can be granted for now; once it has gone, a smaller one behind it is served."""
    pool, budget = made(limit=10 * MIB)
    with budget.reserve(6 * MIB, "somebody else"):
        enough = threading.Event()
        large = _in_thread(lambda: pool.lease_all([8 * MIB], give_up=enough.is_set))
        wait_until(lambda: budget.waiting == 1)
        small = _in_thread(lambda: pool.lease_all([MIB]))
        wait_until(lambda: pool.stats().waiting == 2)
        enough.set()
        with pytest.raises(Cancelled):
            large()
        (lease,) = small()
        lease.release()


def test_the_urgent_stand_before_the_others(made):
    pool, _ = made(limit=4 * MIB, slab_bytes=4 * MIB)
    first = pool.lease(4 * MIB)
    order, threads = [], []

    def ask(name, urgent):
        for lease in pool.lease_all([4 * MIB], urgent=urgent):
            order.append(name)
            lease.release()

    for n, (name, urgent) in enumerate([("a", False), ("b", False), ("C", True), ("D", True)]):
        threads.append(threading.Thread(target=ask, args=(name, urgent)))
        threads[-1].start()
        wait_until(lambda n=n: pool.stats().waiting == n + 1)
    first.release()
    for thread in threads:
        thread.join()
    assert order == ["C", "D", "a", "b"]


def test_no_memory_for_a_slab_is_told_as_such(made):
    class Broken:
        name = "broken"

        def make(self, nbytes):
            raise MemoryError("none left")

    pool, budget = made(upstream=Broken())
    with pytest.raises(Exhausted, match="none left"):
        pool.lease(100)
    assert budget.used_bytes == 0


def _in_thread(work):
    """Start it; what is returned waits for it, and gives or raises what it gave."""
    executor = ThreadPoolExecutor(1)
    future = executor.submit(work)
    executor.shutdown(wait=False)
    return lambda: future.result(20)


def content(address, nbytes):
    return ctypes.string_at(address, nbytes)


def test_idle_memory_is_wiped_soon(made):
    pool, _ = made(slab_bytes=4 * MIB, idle_s=0.01)
    leases = pool.lease_all([MIB, 100], owner="one")
    kept = pool.lease(MIB, owner="one")
    for lease in (*leases, kept):
        lease.array(np.uint8, lease.nbytes)[:] = 0xEE
    places = [(lease.address, lease.nbytes) for lease in leases]
    for lease in leases:
        lease.release()
    wait_until(lambda: pool.stats().dirty_bytes == 0)
    assert all(content(*place) == bytes(place[1]) for place in places)
    assert content(kept.address, MIB) == b"\xee" * MIB  # of what is leased nothing is touched
    kept.release()
    wait_until(lambda: pool.stats().dirty_bytes == 0)
    assert pool.stats().slabs_made == 1
    with pool.lease(4 * MIB, owner="two") as whole:
        assert content(whole.address, 4 * MIB) == bytes(4 * MIB)


def test_what_leaves_quarantine_is_wiped_too(made):
    pool, _ = made(idle_s=0.01)
    lease = pool.lease(MIB)
    address, array = lease.address, lease.array(np.uint8, MIB)
    array[:] = 0xEE
    with pytest.raises(LeaseRevoked):
        lease.release()
    assert content(address, MIB) == b"\xee" * MIB
    del array
    wait_until(lambda: pool.stats().quarantined_bytes == pool.stats().dirty_bytes == 0)
    assert content(address, MIB) == bytes(MIB)


def test_without_wiping_nothing_is_touched(made):
    pool, _ = made(idle_s=0.0, wipe=False)
    lease = pool.lease(MIB)
    address = lease.address
    lease.array(np.uint8, MIB)[:] = 0xEE
    lease.release()
    assert pool._wiper._thread is None and content(address, MIB) == b"\xee" * MIB


class Gate:
    """ctypes.memset for the wiper, which waits at every piece until it is let through."""

    def __init__(self, monkeypatch):
        self.at, self.through = threading.Semaphore(0), threading.Semaphore(0)
        self.pieces = []
        monkeypatch.setattr(wiper.ctypes, "memset", self)

    def __call__(self, address, value, nbytes):
        if threading.current_thread().name == "pool-wiper":
            self.pieces.append(nbytes)
            self.at.release()
            assert self.through.acquire(timeout=20)
        ctypes.memmove(address, bytes([value]) * nbytes, nbytes)


def test_who_comes_meanwhile_waits_for_one_piece_and_no_slab_is_made(made, monkeypatch):
    monkeypatch.setattr(memory_pool, "PIECE_BYTES", MIB)
    gate = Gate(monkeypatch)
    pool, budget = made(slab_bytes=4 * MIB, idle_s=0.01)
    pool.lease(4 * MIB, owner="one").release()
    assert gate.at.acquire(timeout=20)
    taken = _in_thread(lambda: pool.lease(4 * MIB, owner="two"))
    wait_until(lambda: pool.stats().waiting == 1)
    assert pool.stats().free_bytes == 4 * MIB == pool.stats().dirty_bytes
    gate.through.release()
    with taken() as lease:
        assert content(lease.address, 4 * MIB) == bytes(4 * MIB)
    assert gate.pieces == [MIB] and pool.stats().slabs_made == 1 and budget.used_bytes == 4 * MIB
    gate.through.release(100)


def test_who_trims_waits_for_one_piece(made, monkeypatch):
    monkeypatch.setattr(memory_pool, "PIECE_BYTES", MIB)
    gate = Gate(monkeypatch)
    pool, budget = made(slab_bytes=4 * MIB, idle_s=0.2)
    pool.lease(4 * MIB).release()
    assert gate.at.acquire(timeout=20)
    stirred = pool._wiper._stirred_s
    trimmed = _in_thread(lambda: pool.trim(1))
    wait_until(lambda: pool._wiper._stirred_s > stirred)
    gate.through.release()
    assert trimmed() == 4 * MIB and budget.used_bytes == 0 and gate.pieces == [MIB]


def test_close_waits_for_the_piece(made, monkeypatch):
    gate = Gate(monkeypatch)
    pool, budget = made(idle_s=0.01)
    pool.lease(MIB).release()
    assert gate.at.acquire(timeout=20)
    closed = _in_thread(pool.close)
    wait_until(lambda: pool._closed)
    assert budget.used_bytes == MIB  # under the wiper nothing is unmapped
    gate.through.release()
    closed()
    assert budget.used_bytes == 0


def test_while_somebody_waits_nothing_is_wiped(made):
    pool, _ = made(limit=4 * MIB, slab_bytes=4 * MIB, idle_s=0.0)
    held = pool.lease(2 * MIB)
    waiting = _in_thread(lambda: pool.lease(4 * MIB))
    wait_until(lambda: pool.stats().waiting == 1)
    with pool._changed:
        give_back(carve(pool._arenas, MIB), "one")
        assert pool._take_dirty() is None
    held.release()
    waiting().release()
