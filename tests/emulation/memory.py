"""Memory of the emulated device: a pool, page-locked memory, and copies between them.

Problem: memory that is read too early, let go too soon or written beyond its end mostly still holds what was expected.
Design: device memory is host memory, and poisoned whenever it belongs to nobody. That happens in the order of the
stream that it was allocated for: when a buffer is handed out and when it comes back, with a look then at the bytes
behind its end. Free blocks stay with their stream, and the best of them is handed out again, split and joined as in
CuPy's pool. A copy of page-locked memory finds what is there when its turn comes, and refuses memory that was freed
meanwhile; other host memory is read at once, and waited for when it is written.
Not emulated: illegal addresses. A kernel that reads through poison may end the process.
"""

import ctypes

import numpy as np
from emulation import streams

# Words of it are below every modulus: kernels take them for numbers and go on, to a wrong result. The same in cuda.hpp.
POISON = 0x25
TOTAL_BYTES = 8 << 30
BEHIND = 64  # bytes after a buffer's end, at least
UNIT = 512  # bytes that a buffer takes a multiple of
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


class OutOfMemoryError(MemoryError):
    pass


class _Pointer:
    """A range in use; it comes back with its last reference."""

    def __init__(self, pool, piece, nbytes):
        self._pool, self._piece, self._nbytes = pool, piece, nbytes
        self.ptr = piece.bytes.ctypes.data

    def __del__(self):
        self._pool.take_back(self._piece, self._nbytes)


class Memory:
    """What a pool's allocator is asked for; cupy.cuda.MemoryPointer(memory, 0) is the memory itself here."""

    def __init__(self, nbytes):
        self.nbytes = nbytes


def whole(memory, offset):
    assert offset == 0, "pointers into the middle are not emulated"
    return memory


class _Piece:
    """Part of a block, from byte `begin` on. stream: the one that the block was made for."""

    def __init__(self, stream, block, begin, end):
        self.stream, self.block, self.begin, self.end = stream, block, begin, end
        self.bytes = block[begin:end]
        self.nbytes = end - begin

    @property
    def is_whole(self):
        return self.nbytes == self.block.nbytes


class MemoryPool:
    """Blocks are uint8 arrays. The schedule's lock is also the pool's, as memory may come back amid anything.

    allocator: told of every block that is not there yet.
    """

    def __init__(self, allocator=Memory):
        self._allocator = allocator
        self._free = []
        self._total = self._used = 0
        self._limit = 0  # none

    def set_limit(self, *, size):
        self._limit = size

    def malloc(self, nbytes):
        stream, wanted = streams.current_stream(), -(-(nbytes + BEHIND) // UNIT) * UNIT
        with streams.schedule.lock:
            piece = self._best(stream, wanted)
            if piece is None:
                piece = _Piece(stream, self._block(wanted), 0, wanted)
            elif piece.nbytes > wanted:
                self._free.append(_Piece(stream, piece.block, piece.begin + wanted, piece.end))
                piece = _Piece(stream, piece.block, piece.begin, piece.begin + wanted)
            self._used += piece.nbytes
            streams.schedule.issue(stream, lambda: piece.bytes.fill(POISON))
        return _Pointer(self, piece, nbytes)

    def _best(self, stream, wanted):
        """The smallest free piece that has so many bytes, taken."""
        fitting = [piece for piece in self._free if piece.stream is stream and piece.nbytes >= wanted]
        if not fitting:
            return None
        best = min(fitting, key=lambda piece: piece.nbytes)
        self._free.remove(best)
        return best

    def _block(self, nbytes):
        if 0 < self._limit < self._total + nbytes:  # refused as things are: CuPy gives up nothing for it
            raise OutOfMemoryError(f"{nbytes} bytes, {self._total} of a limit of {self._limit} are there")
        if self._total + nbytes > TOTAL_BYTES:
            self.free_all_blocks()
        if self._total + nbytes > TOTAL_BYTES:
            raise OutOfMemoryError(f"{nbytes} bytes, {self._total} of {TOTAL_BYTES} are there")
        self._total += nbytes
        return np.full(self._allocator(nbytes).nbytes, POISON, np.uint8)

    def take_back(self, piece, nbytes):
        def poison():
            assert (piece.bytes[nbytes:] == POISON).all(), (
                f"written beyond the end of a buffer of {nbytes} bytes"
            )
            piece.bytes.fill(POISON)

        with streams.schedule.lock:
            self._used -= piece.nbytes
            begin, end = piece.begin, piece.end
            for other in [
                p for p in self._free if p.block is piece.block and (p.end == begin or p.begin == end)
            ]:
                self._free.remove(other)
                begin, end = min(begin, other.begin), max(end, other.end)
            self._free.append(_Piece(piece.stream, piece.block, begin, end))
            streams.schedule.issue(piece.stream, poison)

    def total_bytes(self):
        return self._total

    def used_bytes(self):
        return self._used

    def free_all_blocks(self, stream=None):
        """Those of a stream, or all. Waits for the whole device, as cudaFree does."""
        streams.schedule.advance_all()
        with streams.schedule.lock:
            gone = [piece for piece in self._free if piece.is_whole and stream in (None, piece.stream)]
            self._free = [piece for piece in self._free if piece not in gone]
            self._total -= sum(piece.nbytes for piece in gone)


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
