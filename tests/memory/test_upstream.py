"""Slabs: real pages, chunked registration, and clean undoing when a step fails."""

from pathlib import Path

import pytest

from cuzkd.errors import DeviceFault, Exhausted
from cuzkd.memory.upstream import PAGE_BYTES, FailingUpstream, PagesUpstream, RegisteringUpstream


class Driver:
    """Books of a driver that registers ranges of at most `largest` bytes, `room` bytes in all."""

    def __init__(self, largest=1 << 62, room=1 << 62, undoes=True):
        self.largest, self.room, self.undoes = largest, room, undoes
        self.ranges = {}

    def register(self, address, nbytes):
        if nbytes > self.largest or nbytes + sum(self.ranges.values()) > self.room:
            raise Exhausted("code 2")
        self.ranges[address] = nbytes

    def unregister(self, address):
        del self.ranges[address]
        if not self.undoes:
            raise DeviceFault("code 1")


def test_pages_are_writable_zero_and_whole():
    for threads in (1, 3):
        slab = PagesUpstream(threads).make(10 * PAGE_BYTES + 1)
        assert slab.nbytes == len(slab.view) == 11 * PAGE_BYTES and slab.address % PAGE_BYTES == 0
        assert not any(slab.view)
        slab.view[-1] = 7
        slab.close()
        slab.close()


def flags(address):
    """What the kernel says of the mapping that holds this address."""
    begin = end = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
        elif first == "VmFlags:" and begin <= address < end:
            return line.split()[1:]
    raise AssertionError(f"no mapping at {address:x}")


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="a kernel without huge pages on demand"
)
@pytest.mark.parametrize(("huge", "asked"), [(True, "hg"), (False, "nh")])
def test_huge_pages_are_asked_for_or_refused(huge, asked):
    slab = PagesUpstream(huge=huge).make(1 << 22)
    assert asked in flags(slab.address)
    slab.close()


def test_more_than_the_machine_can_map():
    with pytest.raises(Exhausted, match=str(1 << 62)):
        PagesUpstream().make(1 << 62)


def test_registration_is_chunked_and_undone():
    driver = Driver(largest=4 * PAGE_BYTES)
    upstream = RegisteringUpstream(
        PagesUpstream(), driver.register, driver.unregister, chunk_bytes=4 * PAGE_BYTES
    )
    slab = upstream.make(10 * PAGE_BYTES)
    assert list(driver.ranges.values()) == [4 * PAGE_BYTES, 4 * PAGE_BYTES, 2 * PAGE_BYTES]
    assert min(driver.ranges) == slab.address
    slab.close()
    assert not driver.ranges


def test_a_refused_registration_leaves_nothing():
    driver = Driver(room=8 * PAGE_BYTES)
    upstream = RegisteringUpstream(
        PagesUpstream(), driver.register, driver.unregister, chunk_bytes=4 * PAGE_BYTES
    )
    with pytest.raises(Exhausted, match=r"at offset 32768 of a slab of 40960 bytes: code 2"):
        upstream.make(10 * PAGE_BYTES)
    assert not driver.ranges


def test_a_refused_undoing_is_told_and_the_rest_is_undone():
    driver = Driver(undoes=False)
    upstream = RegisteringUpstream(
        PagesUpstream(), driver.register, driver.unregister, chunk_bytes=PAGE_BYTES
    )
    slab = upstream.make(3 * PAGE_BYTES)
    with pytest.raises(DeviceFault, match="code 1"):
        slab.close()
    assert not driver.ranges
    slab.close()


def test_failing_upstream_fails_after_the_good_ones():
    upstream = FailingUpstream(PagesUpstream(), good=1)
    upstream.make(1).close()
    with pytest.raises(Exhausted, match="out of memory"):
        upstream.make(1)
