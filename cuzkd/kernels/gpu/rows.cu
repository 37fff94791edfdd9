// gpu/rows.cu - sparse rows times the witness: a thread for each short row, a warp for each long one.
//
// Rows of real circuits are short, but for some hundreds of entries here and there, and one of these would keep the warp of
// its neighbours waiting. Neighbouring rows lie side by side, so a warp reads its short rows' entries from few lines.
#include "memory.cuh"
#include "module.cuh"
#include "packed_rows.cuh"

constexpr uint32_t WARP = 0xffffffffu;
constexpr uint32_t FAR = 0xffffu;  // the end of a row that is not measured from its group's start
constexpr int THREADS = 128, WARPS = THREADS / 32;

// planes[i / 32]: the bits of z[i], CANONICAL, i < n. Blocks of a multiple of 32 threads.
KERNEL bit_planes(const Fr* z, uint64_t n, BitPlanes* planes) {
    uint64_t i = thread_index();
    Fr value = i < n ? load(z + i) : Fr::zero();
    uint64_t high = 0;
    UNROLL for (int k = 1; k < Fr::N; ++k) high |= value.v[k];
    bool one = high == 0 && value.v[0] == 1, other = (high | value.v[0]) != 0 && !one;
    uint32_t ones = __ballot_sync(WARP, one), others = __ballot_sync(WARP, other);
    if ((threadIdx.x & 31) == 0 && i < n) planes[i >> 5] = {ones, others};
}

template <class T>
__device__ T from_lane(T x, uint32_t lane) {
    return __shfl_sync(WARP, x, lane);
}
__device__ Fr from_lane(const Fr& x, uint32_t lane) {
    Fr out;
    UNROLL for (int k = 0; k < Fr::N; ++k) out.v[k] = __shfl_sync(WARP, x.v[k], lane);
    return out;
}

// The sum over the lanes of a warp, right in lane 0.
__device__ RowSum<Fr> gather(RowSum<Fr> own) {
    uint32_t lane = threadIdx.x & 31;
    for (uint32_t step = 16; step; step /= 2) {
        uint32_t from = (lane + step) & 31;
        own.add({from_lane(own.small, from), from_lane(own.plain, from), from_lane(own.sum, from)});
    }
    return own;
}

// out[i] (Montgomery) = row i . z, i < n_rows; z (CANONICAL) with its planes. Entries of row i are those from where row
// i - 1 ends, counted from starts[i / 32], to ends[i], if it is short: at most `longest` of them, and ends[i] is not FAR.
// Row long_rows[k], k < n_long, has entries long_begins[k] .. long_ends[k]; these are all other rows, and no short one.
// Blocks of THREADS, first those of the long rows: (n_long + WARPS - 1) / WARPS of them.
KERNEL __launch_bounds__(128) sparse_rows(const uint32_t* words, const void* classes, int class_bytes, const Fr* table,
                                          const Fr* lookup, const uint64_t* starts, const unsigned short* ends,
                                          uint64_t n_rows, uint32_t longest, const uint32_t* long_rows,
                                          const uint64_t* long_begins, const uint64_t* long_ends, uint32_t n_long,
                                          const BitPlanes* planes, const Fr* z, Fr* out) {
    const Entries<Fr> entries{words, classes, class_bytes, table, lookup};
    const uint32_t lane = threadIdx.x & 31, long_blocks = (n_long + WARPS - 1) / WARPS;
    RowSum<Fr> sum = RowSum<Fr>::zero();
    if (blockIdx.x < long_blocks) {
        uint32_t k = blockIdx.x * WARPS + threadIdx.x / 32;
        if (k >= n_long) return;
        for (uint64_t e = long_begins[k] + lane; e < long_ends[k]; e += 32) sum.add(entries, e, planes, z);
        sum = gather(sum);
        if (lane == 0) store(out + long_rows[k], sum.value(lookup));
        return;
    }
    uint64_t i = static_cast<uint64_t>(blockIdx.x - long_blocks) * THREADS + threadIdx.x;
    if (i >= n_rows) return;
    uint32_t end = ends[i], begin = lane ? ends[i - 1] : 0;
    if (end == FAR || end - begin > longest) return;
    const uint64_t start = starts[i >> 5];
    for (uint32_t e = begin; e < end; ++e) sum.add(entries, start + e, planes, z);
    store(out + i, sum.value(lookup));
}
