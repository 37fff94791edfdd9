// gpu/density.cu - which scalars of a query have a point, and the points of those alone.
//
// In a key as it is read, wires that do not occur in a matrix have the point at infinity (all words zero). Points are
// looked at as words of 64 bits, `words` to a point: neither curve nor group matter. Rank: ranks.cuh.
#include "module.cuh"
#include "ranks.cuh"

// Of n points: bits says which are finite, in this array or, with `also`, in one before it. One warp for 32 points.
KERNEL __launch_bounds__(512) find_finite(const uint64_t* points, uint32_t n, uint32_t words, int also, Rank* ranks) {
    uint64_t i = thread_index();
    bool finite = false;
    if (i < n)
        for (uint32_t k = 0; k < words && !finite; ++k) finite = points[i * words + k] != 0;
    uint32_t bits = __ballot_sync(0xffffffffu, finite);
    if ((threadIdx.x & 31) != 0 || i >= n) return;
    Rank& rank = ranks[i >> 5];
    rank.bits = also ? rank.bits | bits : bits;
}

// How many are finite before each 32 of them, and in *total in all. One block: it is done once for a key.
KERNEL __launch_bounds__(512) count_before(Rank* ranks, uint32_t n_ranks, uint64_t* total) {
    __shared__ uint32_t sums[512];
    const uint32_t each = (n_ranks + 511) / 512, begin = threadIdx.x * each;
    const uint32_t end = begin + each < n_ranks ? begin + each : n_ranks;
    uint32_t own = 0;
    for (uint32_t i = begin; i < end; ++i) own += __popc(ranks[i].bits);
    sums[threadIdx.x] = own;
    __syncthreads();
    uint32_t before = 0;
    for (uint32_t t = 0; t < threadIdx.x; ++t) before += sums[t];
    if (threadIdx.x == 511) *total = before + own;
    for (uint32_t i = begin; i < end; ++i) {
        ranks[i].before = before;
        before += __popc(ranks[i].bits);
    }
}

// out: the points that have a bit, one after another.
KERNEL __launch_bounds__(512) gather_points(const uint64_t* points, uint32_t n, uint32_t words, const Rank* ranks,
                                            uint64_t* out) {
    const uint64_t all = static_cast<uint64_t>(n) * words, step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t at = thread_index(); at < all; at += step) {
        uint32_t place = base_of(ranks, static_cast<uint32_t>(at / words));
        if (place != NO_BASE) out[static_cast<uint64_t>(place) * words + at % words] = points[at];
    }
}
