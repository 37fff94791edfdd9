// cuda.hpp - what kernels need of CUDA C++ that C++ does not have, for g++: a GPU that is one thread of the host.
//
// Blocks run one after another, and so do the threads of a block, each until it comes to a barrier or to an exchange
// between the lanes of its warp. There it stops, on a stack of its own, until those have come that it waits for. A launch
// goes from the first block and thread to the last or the other way round: threads that rely on each other without a
// barrier are likely to fail in one of the two. Shared memory is poisoned before each block.
// The process ends with a message when lanes of a warp do not take part in an exchange of the others, or come to another.
//
// Not emulated: time, caches and memory that is seen late; anything at the same time, so that atomics are plain; exchanges
// of less than a warp; built-ins that no kernel uses so far, which do not compile. Nor the PTX of arch_cuda.cuh, but on
// request (ptx.hpp): arch.cuh sees neither a GPU nor an x86-64 here, and so field.cuh takes its portable loops.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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
static Dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

constexpr unsigned WARP = 32, WHOLE = 0xffffffff, MOST_THREADS = 1024;
constexpr size_t STACK_BYTES = 256 << 10;
constexpr int POISON = 0x25;  // the one of memory.py

enum class State { running, at_barrier, in_exchange, ended };
struct Stack {
    bool begun;
    ucontext_t begin;
    jmp_buf place;
};
struct Thread {
    State state;
    Stack* stopped;  // where it goes on
    const char* exchange;
    uint64_t offered[2];  // to exchanges, by turns: a lane may come to the next one while others still read this one
    unsigned exchanges;
};
static Thread threads[MOST_THREADS];
static unsigned started, living;  // of the block's threads
static bool backwards;            // from the last to the first

static Stack scheduler{true}, *current;
static std::vector<Stack*> idle;  // those that no thread is on
static void (*body)(const void*);
static const void* arguments;

[[noreturn]] static void fail(const char* what, unsigned thread) {
    fprintf(stderr, "emulated device: thread %u of block (%u, %u): %s\n", thread, blockIdx.x, blockIdx.y, what);
    abort();
}

// As swapcontext does, but without its system calls, which would take longer than the kernels.
static void change(Stack* from, Stack* to) {
    if (_setjmp(from->place)) return;
    current = to;
    if (to->begun) _longjmp(to->place, 1);
    to->begun = true;
    setcontext(&to->begin);
}

// The life of a stack: threads that have not begun, one after another, for as long as none stops on it.
static void run_threads() {
    for (;;) {
        while (started < blockDim.x) {
            threadIdx.x = backwards ? blockDim.x - 1 - started : started;
            ++started;
            Thread& thread = threads[threadIdx.x];
            thread = {};
            body(arguments);
            threads[threadIdx.x].state = State::ended;
            --living;
        }
        idle.push_back(current);
        change(current, &scheduler);
    }
}

static Stack* a_stack() {
    if (idle.empty()) {
        Stack* made = new Stack{};
        getcontext(&made->begin);
        made->begin.uc_stack.ss_sp = malloc(STACK_BYTES);
        made->begin.uc_stack.ss_size = STACK_BYTES;
        makecontext(&made->begin, run_threads, 0);
        return made;
    }
    Stack* stack = idle.back();
    idle.pop_back();
    return stack;
}

static void stop(State why) {
    unsigned t = threadIdx.x;
    threads[t].state = why;
    threads[t].stopped = current;
    change(current, &scheduler);
    threadIdx.x = t;
}

// Every living thread has stopped. Warps go on whose lanes are all in an exchange; else all threads, from the barrier.
static void release() {
    bool exchanged = false;
    for (unsigned first = 0; first + WARP <= blockDim.x; first += WARP) {
        unsigned lanes = 0;
        for (unsigned t = first; t < first + WARP; ++t) lanes += threads[t].state == State::in_exchange;
        if (lanes < WARP) continue;
        for (unsigned t = first; t < first + WARP; ++t) {
            if (strcmp(threads[t].exchange, threads[first].exchange)) fail("its warp is in another exchange", t);
            threads[t].state = State::running;
        }
        exchanged = true;
    }
    for (unsigned t = 0; t < blockDim.x && !exchanged; ++t) {
        if (threads[t].state == State::in_exchange) fail("its warp is not in its exchange", t);
        if (threads[t].state == State::at_barrier) threads[t].state = State::running;
    }
}

extern char shared_begin[] __asm__("__start_shared_memory") __attribute__((weak, visibility("hidden")));
extern char shared_end[] __asm__("__stop_shared_memory") __attribute__((weak, visibility("hidden")));

static void run_block() {
    if (shared_begin) memset(shared_begin, POISON, shared_end - shared_begin);
    started = 0, living = blockDim.x;
    while (started < blockDim.x) change(&scheduler, a_stack());
    while (living) {
        release();
        for (unsigned i = 0; i < blockDim.x; ++i) {
            Thread& thread = threads[backwards ? blockDim.x - 1 - i : i];
            if (thread.state == State::running) change(&scheduler, thread.stopped);
        }
    }
}

// What each lane of this warp offers, by lane.
struct Offers {
    const Thread* warp;
    unsigned turn;
    uint64_t operator[](unsigned lane) const { return warp[lane % WARP].offered[turn]; }
};
inline Offers exchange(const char* name, uint32_t mask, uint64_t value) {
    unsigned t = threadIdx.x;
    if (mask != WHOLE) fail("exchanges of less than a warp are not emulated", t);
    unsigned turn = threads[t].exchanges++ & 1;
    threads[t].offered[turn] = value;
    threads[t].exchange = name;
    stop(State::in_exchange);
    return {threads + t / WARP * WARP, turn};
}

template <class... A>
struct Kernel {
    void (*function)(A...);
    std::tuple<A...> values;
    static void run(const void* self) {
        auto* call = static_cast<const Kernel*>(self);
        std::apply(call->function, call->values);
    }
};
template <class... A, size_t... i>
std::tuple<A...> unpack(void* const* at, std::index_sequence<i...>) {
    return {*static_cast<A*>(at[i])...};
}
template <class... A>
void launch(void (*function)(A...), void* const* at, const unsigned* grid, unsigned block, int order) {
    Kernel<A...> call{function, unpack<A...>(at, std::index_sequence_for<A...>{})};
    body = Kernel<A...>::run, arguments = &call;
    gridDim = {grid[0], grid[1], 1}, blockDim = {block, 1, 1}, backwards = order;
    unsigned blocks = grid[0] * grid[1];
    for (unsigned i = 0; i < blocks; ++i) {
        unsigned b = backwards ? blocks - 1 - i : i;
        blockIdx = {b % grid[0], b / grid[0], 0};
        run_block();
    }
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

inline void __syncthreads() { emulation::stop(emulation::State::at_barrier); }
inline void __syncwarp(uint32_t mask = emulation::WHOLE) { emulation::exchange("syncwarp", mask, 0); }
template <class T>
T __shfl_sync(uint32_t mask, T value, int lane) {
    return static_cast<T>(emulation::exchange("shfl", mask, value)[lane]);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, unsigned distance) {
    unsigned lane = threadIdx.x % emulation::WARP;
    return static_cast<T>(emulation::exchange("shfl_up", mask, value)[lane < distance ? lane : lane - distance]);
}
template <class T>
uint32_t __match_any_sync(uint32_t mask, T value) {
    emulation::Offers offers = emulation::exchange("match_any", mask, value);
    uint32_t peers = 0;
    for (int i = 0; i < 32; ++i) peers |= static_cast<uint32_t>(static_cast<T>(offers[i]) == value) << i;
    return peers;
}
inline uint32_t __ballot_sync(uint32_t mask, int vote) {
    emulation::Offers offers = emulation::exchange("ballot", mask, vote != 0);
    uint32_t votes = 0;
    for (int i = 0; i < 32; ++i) votes |= static_cast<uint32_t>(offers[i]) << i;
    return votes;
}
inline int __any_sync(uint32_t mask, int vote) {
    emulation::Offers offers = emulation::exchange("any", mask, vote != 0);
    int any = 0;
    for (int i = 0; i < 32; ++i) any |= offers[i] != 0;
    return any;
}
template <class T, class V>
T atomicAdd(T* at, V value) {
    T before = *at;
    *at = before + static_cast<T>(value);
    return before;
}
inline int __popc(uint32_t word) { return __builtin_popcount(word); }
inline int __ffs(int word) { return __builtin_ffs(word); }
