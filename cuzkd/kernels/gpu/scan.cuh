// gpu/scan.cuh - prefix sums over a block, of THREADS threads where nothing else is said.
#pragma once
#include "arch.cuh"

constexpr uint32_t ALL_LANES = 0xffffffffu;
constexpr int THREADS = 512, MOST_WARPS = 32;

// Exclusive prefix sum of one value per thread of the block; the block's total in *total. sums: MOST_WARPS,
// in shared memory.
template <class T>
__device__ T block_scan(T value, T* sums, T* total) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    T sum = value;
    for (int d = 1; d < 32; d *= 2) {
        T other = __shfl_up_sync(ALL_LANES, sum, d);
        if (lane >= d) sum += other;
    }
    __syncthreads();  // of a scan before this one, all have read `sums`
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    T before = 0, all = 0;
    for (int i = 0; i < static_cast<int>(blockDim.x >> 5); ++i) {
        if (i < warp) before += sums[i];
        all += sums[i];
    }
    *total = all;
    return before + sum - value;
}

// Exclusive prefix sums of n counts in shared memory, in place; returns their total. Callers synchronise before and after,
// but what reads the counts before the call needs no barrier: there is one in it before anything is written.
__device__ uint32_t scan_shared(uint32_t* counts, int n) {
    __shared__ uint32_t sums[MOST_WARPS];
    int threads = blockDim.x, each = (n + threads - 1) / threads, begin = threadIdx.x * each, end = begin + each < n ? begin + each : n;
    uint32_t own = 0, total;
    for (int i = begin; i < end; ++i) own += counts[i];
    uint32_t before = block_scan(own, sums, &total);
    for (int i = begin; i < end; ++i) {
        uint32_t count = counts[i];
        counts[i] = before;
        before += count;
    }
    return total;
}
