"""Memory of the emulated device: a pool, page-locked memory, and copies between them.

Problem: memory that is read too early, let go too soon or written beyond its end mostly still holds what was expected.
Design: device memory is host memory, and poisoned whenever it belongs to nobody. That happens in the order of the
stream that it was allocated for: when a buffer is handed out and when it comes back, with a look then at the bytes
behind its end. Free blocks stay with their stream and are handed out again as soon as one fits, as in CuPy's pool. A
copy of page-locked memory finds what is there when its turn comes, and refuses memory that was freed meanwhile; other
host memory is read at once, and waited for when it is written.
Not emulated: illegal addresses. A kernel that reads through poison may end the process.
"""

import ctypes

import numpy as np
from emulation import streams

# Words of it are below every modulus: kernels take them for numbers and go on, to a wrong result. The same in cuda.hpp.
POISON = 0x25
TOTAL_BYTES = 8 << 30
BEHIND = 64  # bytes after a buffer's end, at least
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


class OutOfMemoryError(MemoryError):
    pass


class _Pointer:
    """A block in use; it comes back with its last reference."""

    def __init__(self, pool, block, nbytes, stream):
        self._pool, self._block, self._nbytes, self._stream = pool, block, nbytes, stream
        self.ptr = block.ctypes.data

    def __del__(self):
        self._pool.take_back(self._block, self._nbytes, self._stream)


class Memory:
    """What a pool's allocator is asked for; cupy.cuda.MemoryPointer(memory, 0) is the memory itself here."""

    def __init__(self, nbytes):
        self.nbytes = nbytes


def whole(memory, offset):
    assert offset == 0, "pointers into the middle are not emulated"
    return memory


class MemoryPool:
    """Blocks are uint8 arrays. The schedule's lock is also the pool's, as memory may come back amid anything.

    allocator: told of every block that is not there yet.
    """

    def __init__(self, allocator=Memory):
        self._allocator = allocator
        self._free = []  # (stream, block)
        self._total = self._used = 0
        self._limit = TOTAL_BYTES

    def set_limit(self, *, size):
        self._limit = size

    def malloc(self, nbytes):
        if nbytes > self._limit:
            raise OutOfMemoryError(f"{nbytes} bytes of {self._limit}")
        stream = streams.current_stream()
        with streams.schedule.lock:
            fitting = [
                i for i, (s, b) in enumerate(self._free) if s is stream and b.nbytes >= nbytes + BEHIND
            ]
            if fitting:
                _, block = self._free.pop(min(fitting, key=lambda i: self._free[i][1].nbytes))
            else:
                if self._total + nbytes > self._limit:
                    self.free_all_blocks()
                if self._total + nbytes > self._limit:
                    raise OutOfMemoryError(f"{nbytes} bytes, {self._total} of {self._limit} are there")
                block = np.full(self._allocator(nbytes).nbytes + BEHIND, POISON, np.uint8)
                self._total += block.nbytes
            self._used += block.nbytes
            streams.schedule.issue(stream, lambda: block.fill(POISON))
        return _Pointer(self, block, nbytes, stream)

    def take_back(self, block, nbytes, stream):
        def poison():
            assert (block[nbytes:] == POISON).all(), f"written beyond the end of a buffer of {nbytes} bytes"
            block.fill(POISON)

        with streams.schedule.lock:
            self._used -= block.nbytes
            self._free.append((stream, block))
            streams.schedule.issue(stream, poison)

    def total_bytes(self):
        return self._total

    def used_bytes(self):
        return self._used

    def free_all_blocks(self, stream=None):
        """Those of a stream, or all. Waits for the whole device, as cudaFree does."""
        streams.schedule.advance_all()
        with streams.schedule.lock:
            kept = [(s, block) for s, block in self._free if stream not in (None, s)]
            self._total -= sum(block.nbytes for _, block in self._free)
            self._total += sum(block.nbytes for _, block in kept)
            self._free = kept


_page_locked = {}  # address: bytes


def host_register(address, nbytes, flags):
    _page_locked[address] = nbytes


def host_unregister(address):
    del _page_locked[address]


def is_page_locked(address, nbytes):
    ranges = list(_page_locked.items())
    return any(begin <= address and address + nbytes <= begin + size for begin, size in ranges)


class PinnedMemory(bytearray):
    """cupy.cuda.alloc_pinned_memory."""

    def __init__(self, nbytes):
        super().__init__(bytes([POISON]) * max(nbytes, 1))
        self.ptr = ctypes.addressof(ctypes.c_char.from_buffer(self))
        host_register(self.ptr, len(self), 0)

    def __del__(self):
        host_unregister(self.ptr)


class PinnedMemoryPool:
    """Blocks come back with the last view of what was handed out, and serve those who want as much."""

    def __init__(self, allocator=PinnedMemory):
        self._allocator = allocator
        self._free = {}  # bytes: blocks

    def malloc(self, nbytes):
        free = self._free.setdefault(nbytes, [])
        block = free.pop() if free else self._allocator(nbytes)
        view = type(
            "PinnedMemoryPointer", (ctypes.c_char * nbytes,), {"__del__": lambda view: free.append(block)}
        )
        handed = view.from_buffer(block)
        handed.ptr = block.ptr
        return handed


def memcpy_async(target, source, nbytes, kind, stream_number):
    schedule, host = streams.schedule, source if kind == HOST_TO_DEVICE else target
    stream = schedule.stream(stream_number)

    def copy():
        assert is_page_locked(host, nbytes), "page-locked memory was freed before its copy"
        ctypes.memmove(target, source, nbytes)

    if is_page_locked(host, nbytes):
        schedule.issue(stream, copy)
    elif kind == HOST_TO_DEVICE:
        read = ctypes.string_at(source, nbytes)
        schedule.issue(stream, lambda: ctypes.memmove(target, read, nbytes))
    else:
        schedule.issue(stream, lambda: ctypes.memmove(target, source, nbytes))
        schedule.advance(stream)


def memset_async(address, value, nbytes, stream_number):
    stream = streams.schedule.stream(stream_number)
    streams.schedule.issue(stream, lambda: ctypes.memset(address, value, nbytes))


def memory_info():
    """Bytes free, and in all."""
    return TOTAL_BYTES // 2, TOTAL_BYTES
