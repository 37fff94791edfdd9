// gpu/digits.cu - the scalars of a multi-scalar sum become lists of signed base indices, ordered by bucket.
//
// A counting sort of `count` windows at a time, starting at window `first`: count, scan, place; digits are computed twice
// rather than stored. Window v (from 0 within the group) and digit d give bucket `buckets` + v 2^(c-1) + |d| - 1. Scalars
// that are 0 (and digits that are 0) leave no entry; scalars 1 and -1 have no digits: their entries go to a list of their
// own, bucket `units`, with the first group (NONE: not now). An entry is a base index with the sign in its top bit. The
// order inside a bucket differs from run to run; the sum does not.
// Several sums (a batch) are counted one after another, each with buckets of its own, then scanned together and placed.
#include "module.cuh"
#include "msm.cuh"

constexpr uint32_t NONE = 0xffffffffu;
constexpr uint32_t NEGATIVE = 0x80000000u;
constexpr int SCAN_THREADS = 512, SCAN_ITEMS = 8, SCAN_BLOCK = SCAN_THREADS * SCAN_ITEMS;

// Add one to counters[bucket] for each lane of the warp and return the old value, as if in turn. Lanes that name the same
// bucket share one atomic: real scalars repeat. All 32 lanes take part; NONE adds nothing.
__device__ uint32_t claim(uint32_t* counters, uint32_t bucket) {
    uint32_t lane = threadIdx.x & 31;
    uint32_t peers = __match_any_sync(0xffffffffu, bucket);
    uint32_t leader = __ffs(peers) - 1, base = 0;
    if (lane == leader && bucket != NONE) base = atomicAdd(counters + bucket, __popc(peers));
    return __shfl_sync(0xffffffffu, base, leader) + __popc(peers & ((1u << lane) - 1));
}

// Where to emit(bucket, entry) goes, bucket NONE for nothing: called by all lanes of a warp together.
template <class Emit>
__device__ void each_entry(const Fr* scalars, uint32_t n, int c, int windows, int first, int count, uint32_t buckets,
                           uint32_t units, Emit emit) {
    uint64_t bias[4] = {0, 0, 0, 0};
    bias_windows(bias, c, windows);
    uint32_t step = gridDim.x * blockDim.x;
    for (uint64_t base = blockIdx.x * blockDim.x; base < n; base += step) {
        uint32_t i = static_cast<uint32_t>(base) + threadIdx.x;
        Folded f = fold_scalar(i < n ? scalars[i] : Fr::zero());
        ScalarClass kind = classify(f);
        if (units != NONE) {
            bool unit = kind == ScalarClass::one || kind == ScalarClass::minus_one;
            emit(unit ? units : NONE, i | (f.negative ? NEGATIVE : 0));
        }
        bool busy = kind == ScalarClass::other;
        if (!__any_sync(0xffffffffu, busy)) continue;
        uint64_t carry = 0;
        UNROLL for (int w = 0; w < 4; ++w) f.w[w] = adc(f.w[w], bias[w], carry);
        for (int v = 0; v < count; ++v) {
            int32_t digit = busy ? signed_digit(f.w, first + v, c, windows) : 0;
            bool negative = (digit < 0) != f.negative;
            uint32_t size = digit < 0 ? -digit : digit;
            uint32_t bucket = buckets + (static_cast<uint32_t>(v) << (c - 1)) + size - 1;
            emit(size ? bucket : NONE, i | (negative ? NEGATIVE : 0));
        }
    }
}

// counts[bucket] += entries; scalars CANONICAL. Blocks of a multiple of 32 threads.
KERNEL count_entries(const Fr* scalars, uint32_t n, int c, int windows, int first, int count, uint32_t buckets,
                     uint32_t units, uint32_t* counts) {
    each_entry(scalars, n, c, windows, first, count, buckets, units,
               [=](uint32_t bucket, uint32_t) { claim(counts, bucket); });
}

// cursors: where each bucket's entries begin; moved to where they end.
KERNEL place_entries(const Fr* scalars, uint32_t n, int c, int windows, int first, int count, uint32_t buckets,
                     uint32_t units, uint32_t* cursors, uint32_t* entries) {
    each_entry(scalars, n, c, windows, first, count, buckets, units, [=](uint32_t bucket, uint32_t entry) {
        uint32_t at = claim(cursors, bucket);
        if (bucket != NONE) entries[at] = entry;
    });
}

// Exclusive prefix sum of one value per thread of the block; the block's total in *total.
__device__ uint32_t block_scan(uint32_t value, uint32_t* total) {
    __shared__ uint32_t s[SCAN_THREADS];
    int t = threadIdx.x;
    s[t] = value;
    __syncthreads();
    for (int d = 1; d < SCAN_THREADS; d *= 2) {
        uint32_t other = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += other;
        __syncthreads();
    }
    uint32_t before = s[t] - value;
    *total = s[SCAN_THREADS - 1];
    __syncthreads();
    return before;
}

// Exclusive prefix sums of counts[n] in three launches of SCAN_THREADS threads: sums of blocks of SCAN_BLOCK counts...
KERNEL scan_blocks(const uint32_t* counts, uint32_t n, uint32_t* sums) {
    uint32_t at = blockIdx.x * SCAN_BLOCK + threadIdx.x * SCAN_ITEMS, own = 0, total;
    for (int k = 0; k < SCAN_ITEMS; ++k) own += at + k < n ? counts[at + k] : 0;
    block_scan(own, &total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}
// ... their own prefix sums in place, by one block ...
KERNEL scan_sums(uint32_t* sums, uint32_t blocks) {
    uint32_t before = 0, total;
    for (uint32_t at = 0; at < blocks; at += SCAN_THREADS) {
        uint32_t i = at + threadIdx.x, own = i < blocks ? sums[i] : 0;
        uint32_t mine = block_scan(own, &total);
        if (i < blocks) sums[i] = before + mine;
        before += total;
    }
}
// ... and offsets[n + 1] (the last is the total), with a copy of the first n in cursors.
KERNEL scan_apply(const uint32_t* counts, uint32_t n, const uint32_t* sums, uint32_t* offsets, uint32_t* cursors) {
    uint32_t at = blockIdx.x * SCAN_BLOCK + threadIdx.x * SCAN_ITEMS, own = 0, total;
    for (int k = 0; k < SCAN_ITEMS; ++k) own += at + k < n ? counts[at + k] : 0;
    uint32_t sum = sums[blockIdx.x] + block_scan(own, &total);
    for (int k = 0; k < SCAN_ITEMS && at + k < n; ++k) {
        offsets[at + k] = cursors[at + k] = sum;
        sum += counts[at + k];
        if (at + k == n - 1) offsets[n] = sum;
    }
}
