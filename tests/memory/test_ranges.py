"""Free and dirty ranges against a model that knows every page."""

import random
from types import SimpleNamespace

import pytest

from cuzkd.memory.ranges import CLEAN, MIXED, Arena, carve, carve_dirty, give_back
from cuzkd.memory.upstream import PAGE_BYTES

PAGES = 24


def arena():
    return Arena(SimpleNamespace(nbytes=PAGES * PAGE_BYTES), None)


def pages(taken):
    return range(taken.offset // PAGE_BYTES, (taken.offset + taken.nbytes) // PAGE_BYTES)


def books(arena):
    """(free, owner of what is dirty) by page."""
    free, dirt = [False] * PAGES, [CLEAN] * PAGES
    for offset, nbytes in arena.free.items():
        for page in range(offset // PAGE_BYTES, (offset + nbytes) // PAGE_BYTES):
            assert not free[page]
            free[page] = True
    for offset, (nbytes, owner) in arena.dirt.items():
        for page in range(offset // PAGE_BYTES, (offset + nbytes) // PAGE_BYTES):
            assert free[page] and dirt[page] == CLEAN
            dirt[page] = owner
    return free, dirt


@pytest.mark.parametrize("seed", range(20))
def test_against_every_page(seed):
    rng = random.Random(seed)
    arenas = [arena()]
    free, dirt, held = [True] * PAGES, [CLEAN] * PAGES, []
    for _ in range(400):
        what = rng.random()
        if held and what < 0.45:
            taken = held.pop(rng.randrange(len(held)))
            owner = rng.choice(["a", "b", "c", CLEAN, MIXED])
            give_back(taken, owner)
            for page in pages(taken):
                free[page], dirt[page] = True, owner
        else:
            if what < 0.75:
                wanted = rng.randint(1, 7)
                taken = carve(arenas, wanted * PAGE_BYTES - rng.randrange(PAGE_BYTES))
                runs = [len(run) for run in "".join("x "[not f] for f in free).split()]
                assert (taken is None) == (max(runs, default=0) < wanted)
                assert taken is None or taken.nbytes == wanted * PAGE_BYTES
            else:
                most = rng.randint(1, 4)
                taken = carve_dirty(arenas, most * PAGE_BYTES)
                assert (taken is None) == all(
                    owner == CLEAN for owner, f in zip(dirt, free, strict=True) if f
                )
                assert taken is None or (0 < taken.nbytes <= most * PAGE_BYTES and taken.before != CLEAN)
            if taken is not None:
                owners = {dirt[page] for page in pages(taken)} - {CLEAN}
                assert taken.before == (CLEAN if not owners else owners.pop() if len(owners) == 1 else MIXED)
                assert all(free[page] for page in pages(taken))
                held.append(taken)
                for page in pages(taken):
                    free[page], dirt[page] = False, CLEAN
        assert books(arenas[0]) == (free, dirt)
        assert arenas[0].free_bytes == sum(free) * PAGE_BYTES and arenas[0].idle == all(free)


def test_free_ranges_are_joined_whoever_had_them():
    one = arena()
    taken = [carve([one], PAGE_BYTES) for _ in range(PAGES)]
    for n, range_ in enumerate(taken):
        give_back(range_, "ab"[n % 2])
    assert one.free == {0: PAGES * PAGE_BYTES} and len(one.dirt) == PAGES
    assert carve([one], PAGES * PAGE_BYTES).before == MIXED and not one.dirt


def test_what_one_owner_leaves_is_one_range():
    one = arena()
    for range_ in random.Random(1).sample([carve([one], PAGE_BYTES) for _ in range(PAGES)], PAGES):
        give_back(range_, "a")
    assert one.dirt == {0: (PAGES * PAGE_BYTES, "a")}
