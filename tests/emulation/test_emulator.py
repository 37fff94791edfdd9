"""The emulated device itself: orders that CUDA allows come up, and what it forbids is noticed."""

import shutil
import signal
import subprocess
import sys
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from emulation import kernels, memory, streams

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

PREFIX = 'extern "C" __global__ void '
NUMBERS = np.arange(100, dtype=np.uint64)
POISON = np.frombuffer(bytes([memory.POISON] * 8), np.uint64)[0]


@pytest.fixture(autouse=True)
def lazy():
    streams.choose("lazy")


@pytest.fixture
def stream():
    return streams.Stream(non_blocking=True)


def compiled(folder, source):
    path = folder / "kernel.so"
    path.write_bytes(kernels.compile_source(source))
    return kernels.RawModule(path=str(path)).get_function("k")


def run(kernel, threads, n=None, blocks=1):
    """The n (or `threads`) words that a kernel k(out) leaves."""
    out = np.full(n or threads, POISON)
    with streams.Stream(non_blocking=True) as stream:
        kernel((blocks,), (threads,), (np.uint64(out.ctypes.data),))
        stream.synchronize()
    return out


def recorded(stream):
    event = streams.Event()
    event.record(stream)
    return event


# -- order --


def test_lazy_work_is_done_when_somebody_waits(stream):
    done = []
    for name in "abc":
        streams.schedule.issue(stream, partial(done.append, name))
        if name == "b":
            event = recorded(stream)
    assert not done and not event.done
    event.synchronize()
    assert done == ["a", "b"] and event.done
    stream.synchronize()
    assert done == ["a", "b", "c"]


def test_a_stream_waits_for_what_an_event_was_recorded_behind_by_then(stream):
    done, other, event = [], streams.Stream(non_blocking=True), streams.Event()
    other.wait_event(event)  # never recorded: nothing to wait for
    streams.schedule.issue(stream, lambda: done.append("first"))
    event.record(stream)
    other.wait_event(event)
    streams.schedule.issue(stream, lambda: done.append("later"))
    event.record(stream)
    streams.schedule.issue(other, lambda: done.append("other"))
    other.synchronize()
    assert done == ["first", "other"]


def test_random_orders_differ_but_keep_what_streams_and_events_promise():
    orders = set()
    for seed in range(20):
        streams.choose(f"random:{seed}")
        done, one, two = [], streams.Stream(non_blocking=True), streams.Stream(non_blocking=True)
        for i in range(6):
            streams.schedule.issue(one, partial(done.append, i))
            streams.schedule.issue(two, partial(done.append, 10 + i))
            if i == 2:
                two.wait_event(recorded(one))
        streams.schedule.advance_all()
        for a, b in [*pairwise(range(6)), *pairwise(range(10, 16)), (2, 13)]:
            assert done.index(a) < done.index(b)
        orders.add(tuple(done))
    assert len(orders) > 10


# -- memory --


def test_memory_is_poison_until_it_is_written_and_once_it_is_back(stream):
    pool = memory.MemoryPool()
    with stream:
        pointer = pool.malloc(NUMBERS.nbytes)
    view = np.ndarray(NUMBERS.shape, np.uint64, pointer._piece.block)
    memory.memcpy_async(pointer.ptr, NUMBERS.ctypes.data, NUMBERS.nbytes, memory.HOST_TO_DEVICE, stream.ptr)
    assert (view == POISON).all()
    stream.synchronize()
    assert (view == NUMBERS).all()
    del pointer
    assert (view == NUMBERS).all()  # what was issued before may still read it
    with stream:
        again = pool.malloc(NUMBERS.nbytes)
    assert again.ptr == view.ctypes.data and pool.used_bytes() == pool.total_bytes()
    stream.synchronize()
    assert (view == POISON).all()
    with streams.Stream(non_blocking=True):
        assert pool.malloc(1).ptr != again.ptr


def test_a_write_beyond_the_end_is_noticed(stream):
    pool = memory.MemoryPool()
    for nbytes in (100, 90):  # the second is in the block of the first
        with stream:
            pointer = pool.malloc(nbytes)
        memory.memset_async(pointer.ptr, 1, nbytes, stream.ptr)
        del pointer
        stream.synchronize()
    with stream:
        pointer = pool.malloc(90)
    memory.memset_async(pointer.ptr, 1, 91, stream.ptr)
    del pointer
    with pytest.raises(AssertionError, match="beyond the end of a buffer of 90 bytes"):
        stream.synchronize()


def test_copies_of_page_locked_memory_look_when_their_turn_comes(stream):
    locked, plain, out = memory.PinnedMemory(1), np.zeros(1, np.uint8), np.zeros(2, np.uint8)
    for i, source in enumerate((locked.ptr, plain.ctypes.data)):
        memory.memcpy_async(out.ctypes.data + i, source, 1, memory.HOST_TO_DEVICE, stream.ptr)
    locked[0] = plain[0] = 7
    stream.synchronize()
    assert list(out) == [7, 0]
    memory.memcpy_async(out.ctypes.data, locked.ptr, 1, memory.HOST_TO_DEVICE, stream.ptr)
    del locked
    with pytest.raises(AssertionError, match="freed before its copy"):
        stream.synchronize()


# -- kernels --


def test_exchanges_of_a_warp(tmp_path):
    kernel = compiled(
        tmp_path,
        PREFIX
        + """k(uint64_t* out) {
            unsigned t = threadIdx.x, all = 0xffffffff, v = t / 32 * 100 + t * t % 5;
            uint64_t* mine = out + 5 * t;
            mine[0] = __match_any_sync(all, v);
            if (t >= 32) for (int i = 0; i < 3; ++i) v = __shfl_sync(all, v, (t + 1) & 31);
            __syncthreads();
            mine[1] = v;
            mine[2] = __ballot_sync(all, v & 1);
            mine[3] = __any_sync(all, v == 104);
            mine[4] = __shfl_sync(all, uint64_t(t) << 40, 3);
        }""",
    )
    for policy in ("lazy", *(f"random:{seed}" for seed in range(4))):
        streams.choose(policy)
        rows = run(kernel, 64, 64 * 5).reshape(64, 5).tolist()
        before = [t // 32 * 100 + t * t % 5 for t in range(64)]
        after = before[:32] + [before[32 + (t + 3) % 32] for t in range(32)]
        for t, row in enumerate(rows):
            warp = range(t // 32 * 32, t // 32 * 32 + 32)
            votes = sum((after[other] & 1) << (other % 32) for other in warp)
            assert row == [
                sum((before[other] == before[t]) << (other % 32) for other in warp),
                after[t],
                votes,
                t >= 32,
                (warp[0] + 3) << 40,
            ]


def test_a_missing_barrier_shows(tmp_path):
    """Thread t reads what thread 63 - t wrote: right in both orders with a barrier, in neither without one."""
    source = """k(uint64_t* out) {
        __shared__ uint64_t s[64];
        s[threadIdx.x] = threadIdx.x;
        BARRIER;
        out[threadIdx.x] = s[63 - threadIdx.x];
    }"""
    for barrier, right in (("__syncthreads()", 64), ("", 32)):
        (tmp_path / str(right)).mkdir()
        kernel = compiled(tmp_path / str(right), PREFIX + source.replace("BARRIER", barrier))
        orders = set()
        for seed in range(6):
            streams.choose(f"random:{seed}")
            out = run(kernel, 64)
            good = out == NUMBERS[63::-1]
            assert good.sum() == right and (out[~good] == POISON).all()
            orders.add(bytes(good))
        assert len(orders) == (1 if right == 64 else 2)


def test_shared_memory_of_a_block_is_not_that_of_the_one_before(tmp_path):
    source = "k(uint64_t* out) { __shared__ uint64_t s; if (blockIdx.x == 0) s = 1; out[blockIdx.x] = s; }"
    assert run(compiled(tmp_path, PREFIX + source), 1, 3, blocks=3).tolist() == [1, POISON, POISON]


def test_arguments_have_the_widths_of_parameters(tmp_path, stream):
    kernel = compiled(tmp_path, PREFIX + "k(const int* p, uint32_t n, uint64_t m) {}")
    with stream:
        kernel((1,), (1,), (np.uint64(0), np.uint32(1), np.uint64(2)))
        with pytest.raises(AssertionError):
            kernel((1,), (1,), (np.uint64(0), np.uint64(1), np.uint64(2)))
        with pytest.raises(AssertionError):
            kernel((1,), (1025,), (np.uint64(0), np.uint32(1), np.uint64(2)))


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from emulation import test_emulator
test_emulator.run(test_emulator.compiled(Path(sys.argv[2]), test_emulator.PREFIX + sys.argv[3]), 64)
"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if (threadIdx.x != 40) __ballot_sync(0xffffffff, 1);", "not in its exchange"),
        ("if (threadIdx.x == 40) __syncthreads(); else __any_sync(0xffffffff, 1);", "not in its exchange"),
        ("if (threadIdx.x % 2) __any_sync(~0u, 1); else __ballot_sync(~0u, 1);", "in another exchange"),
        ("__ballot_sync(0xffff, 1);", "less than a warp"),
    ],
)
def test_a_divided_warp_ends_the_process(tmp_path, body, message):
    source = f"k(uint64_t* out) {{ {body} }}"
    tests = str(kernels.HEADER.parent.parent)
    child = subprocess.run(
        [sys.executable, "-P", "-c", CHILD, tests, str(tmp_path), source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == -signal.SIGABRT and message in child.stderr, child
