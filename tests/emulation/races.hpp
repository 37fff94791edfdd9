// races.hpp - in the place of cuda.hpp: the threads of a block as threads of the host, for ThreadSanitizer to watch.
//
// Problem: a barrier that is missing shows only where threads run at the same time, and then not every time.
// Design: ThreadSanitizer knows which accesses are ordered, whatever happened to happen, so it needs to be told no more
// and no less than CUDA promises: __syncthreads orders all memory of the block, __syncwarp that of the warp, and exchanges
// between lanes order nothing but what they carry. Those are made of relaxed atomics, and wait in a way that it does not
// see. Blocks run one after another, and each is through before the next begins: races between blocks are not found.
// The process has to have loaded ThreadSanitizer before all else (test_races.py). As cuda.hpp else, and as little of CUDA.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>
#undef __x86_64__

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("shared_memory")))

struct Dim3 {
    unsigned x, y, z;
};
static thread_local Dim3 threadIdx;
static Dim3 blockIdx, blockDim, gridDim;

namespace emulation {

constexpr unsigned WARP = 32, WHOLE = 0xffffffff;
constexpr int POISON = 0x25;  // the one of memory.py

// Of a block's threads that have not ended.
class Barrier {
public:
    explicit Barrier(unsigned threads) : living(threads) {}
    void wait() {
        std::unique_lock<std::mutex> lock(mutex);
        const unsigned mine = round;
        ++arrived;
        go_on_if_all();
        all.wait(lock, [&] { return round != mine; });
    }
    void leave() {
        std::unique_lock<std::mutex> lock(mutex);
        --living;
        go_on_if_all();
    }

private:
    std::mutex mutex;
    std::condition_variable all;
    unsigned living, arrived = 0, round = 0;

    void go_on_if_all() {
        if (arrived == 0 || arrived < living) return;
        arrived = 0;
        ++round;
        all.notify_all();
    }
};

struct Warp {
    std::atomic<uint64_t> offered[2][WARP];  // to exchanges, by turns
    std::atomic<unsigned> arrived{0}, round{0}, order{0};

    void meet(bool ordered) {
        const unsigned mine = round.load(std::memory_order_relaxed);
        if (ordered) order.fetch_add(1, std::memory_order_acq_rel);
        if (arrived.fetch_add(1, std::memory_order_relaxed) == WARP - 1) {
            arrived.store(0, std::memory_order_relaxed);
            round.store(mine + 1, std::memory_order_relaxed);
            syscall(SYS_futex, &round, FUTEX_WAKE_PRIVATE, WARP, nullptr, nullptr, 0);
        }
        while (round.load(std::memory_order_relaxed) == mine)
            syscall(SYS_futex, &round, FUTEX_WAIT_PRIVATE, mine, nullptr, nullptr, 0);
        if (ordered) order.fetch_add(1, std::memory_order_acq_rel);
    }
};

static Barrier* barrier;
static Warp* warps;
static thread_local unsigned exchanges;

extern char shared_begin[] __asm__("__start_shared_memory") __attribute__((weak, visibility("hidden")));
extern char shared_end[] __asm__("__stop_shared_memory") __attribute__((weak, visibility("hidden")));

// What each lane of this warp offers, by lane.
struct Offers {
    const Warp* warp;
    unsigned turn;
    uint64_t operator[](unsigned lane) const { return warp->offered[turn][lane % WARP].load(std::memory_order_relaxed); }
};
inline Offers exchange(uint32_t mask, uint64_t value, bool ordered = false) {
    if (mask != WHOLE || blockDim.x % WARP) {
        fprintf(stderr, "emulated device: exchanges of less than a warp are not emulated\n");
        abort();
    }
    Warp& warp = warps[threadIdx.x / WARP];
    const unsigned turn = exchanges++ & 1;
    warp.offered[turn][threadIdx.x % WARP].store(value, std::memory_order_relaxed);
    warp.meet(ordered);
    return {&warp, turn};
}

template <class... A, size_t... i>
std::tuple<A...> unpack(void* const* at, std::index_sequence<i...>) {
    return {*static_cast<A*>(at[i])...};
}
template <class... A>
void launch(void (*function)(A...), void* const* at, const unsigned* grid, unsigned block, int backwards) {
    const std::tuple<A...> values = unpack<A...>(at, std::index_sequence_for<A...>{});
    gridDim = {grid[0], grid[1], 1}, blockDim = {block, 1, 1};
    const unsigned blocks = grid[0] * grid[1];
    std::vector<Warp> of_block((block + WARP - 1) / WARP);
    warps = of_block.data();
    Barrier between(block);
    auto run = [&](unsigned t) {
        threadIdx = {t, 0, 0};
        for (unsigned i = 0; i < blocks; ++i) {
            if (t == 0) {
                const unsigned b = backwards ? blocks - 1 - i : i;
                blockIdx = {b % grid[0], b / grid[0], 0};
                if (shared_begin) memset(shared_begin, POISON, shared_end - shared_begin);
                barrier = new Barrier(block);
            }
            between.wait();
            exchanges = 0;
            std::apply(function, values);
            barrier->leave();
            between.wait();
            if (t == 0) delete barrier;
        }
    };
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < block; ++t) threads.emplace_back(run, t);
    for (std::thread& thread : threads) thread.join();
}
// Bytes of each argument, then 0.
template <class... A>
const int* sizes(void (*)(A...)) {
    static const int found[] = {sizeof(A)..., 0};
    return found;
}

}  // namespace emulation

// What the host finds of a kernel.
#define EMULATED extern "C" __attribute__((visibility("default")))
#define EMULATE(kernel)                                                                                             \
    EMULATED void launch_##kernel(void* const* at, const unsigned* grid, unsigned block, int order) {               \
        emulation::launch(kernel, at, grid, block, order);                                                          \
    }                                                                                                               \
    EMULATED const int* sizes_##kernel() { return emulation::sizes(kernel); }

inline void __syncthreads() { emulation::barrier->wait(); }
inline void __syncwarp(uint32_t mask = emulation::WHOLE) { emulation::exchange(mask, 0, true); }
template <class T>
T __shfl_sync(uint32_t mask, T value, int lane) {
    return static_cast<T>(emulation::exchange(mask, value)[lane]);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, unsigned distance) {
    unsigned lane = threadIdx.x % emulation::WARP;
    return static_cast<T>(emulation::exchange(mask, value)[lane < distance ? lane : lane - distance]);
}
template <class T>
uint32_t __match_any_sync(uint32_t mask, T value) {
    emulation::Offers offers = emulation::exchange(mask, value);
    uint32_t peers = 0;
    for (int i = 0; i < 32; ++i) peers |= static_cast<uint32_t>(static_cast<T>(offers[i]) == value) << i;
    return peers;
}
inline uint32_t __ballot_sync(uint32_t mask, int vote) {
    emulation::Offers offers = emulation::exchange(mask, vote != 0);
    uint32_t votes = 0;
    for (int i = 0; i < 32; ++i) votes |= static_cast<uint32_t>(offers[i]) << i;
    return votes;
}
inline int __any_sync(uint32_t mask, int vote) { return __ballot_sync(mask, vote) != 0; }
template <class T, class V>
T atomicAdd(T* at, V value) {
    return __atomic_fetch_add(at, static_cast<T>(value), __ATOMIC_RELAXED);
}
inline int __popc(uint32_t word) { return __builtin_popcount(word); }
inline int __ffs(int word) { return __builtin_ffs(word); }
