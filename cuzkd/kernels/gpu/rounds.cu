// gpu/rounds.cu - how many additions each list takes in each round of the pair tree (tree.cu), and where they begin.
//
// A list of L points: round 0 adds its neighbours, and a last one without a neighbour is copied: (L + 1) / 2 items. Each
// later round adds neighbours among what is left, in place, and lets a last one be. After `rounds` rounds a list that
// still has several points is long: its points are cut into pieces (msm.cu).
// Row r of `begins`, n_lists + 1 wide, holds the prefix sums of the lists' items in round r; row `rounds` those of pieces.
// Then each pair of each round is named (names.cuh), so that the tree has nothing to search for.
#include "lists.cuh"
#include "module.cuh"
#include "names.cuh"

constexpr int NAME_THREADS = 256, NAME_ITEMS = 8, NAME_TILE = NAME_THREADS * NAME_ITEMS;
// In shared memory there is a gap after the items of each thread, or these would meet in few banks.
constexpr int NAME_ROOM = NAME_TILE + NAME_THREADS;
__device__ uint32_t name_slot(uint32_t k) { return k + k / NAME_ITEMS; }

constexpr int SCAN_THREADS = 512, SCAN_ITEMS = 8, SCAN_BLOCK = SCAN_THREADS * SCAN_ITEMS;

__device__ uint32_t items_of(uint32_t length, uint32_t row, uint32_t rounds, uint32_t piece) {
    if (row == 0) return halved(length, 1);
    if (row < rounds) return halved(length, row) / 2;
    uint32_t left = halved(length, rounds);
    return left > 1 ? (left - 1) / piece + 1 : 0;
}

// out[n_lists + 1]: offsets of what the lists have among entries begin .. end, counted from begin.
KERNEL clip_offsets(const uint32_t* offsets, uint32_t n_lists, uint32_t begin, uint32_t end, uint32_t* out) {
    uint32_t i = static_cast<uint32_t>(thread_index());
    if (i > n_lists) return;
    uint32_t at = offsets[i];
    out[i] = at < begin ? 0 : (at < end ? at : end) - begin;
}

// The block's sum of one value per thread, and in `before` the sum of those of lower threads.
__device__ uint32_t block_scan(uint32_t value, uint32_t* before) {
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
    *before = s[t] - value;
    uint32_t total = s[SCAN_THREADS - 1];
    __syncthreads();
    return total;
}

__device__ uint32_t own_items(const uint32_t* offsets, uint32_t n_lists, uint32_t at, uint32_t rounds, uint32_t piece) {
    uint32_t sum = 0;
    for (int k = 0; k < SCAN_ITEMS && at + k < n_lists; ++k)
        sum += items_of(offsets[at + k + 1] - offsets[at + k], blockIdx.y, rounds, piece);
    return sum;
}

// sums[row][block]: items of each SCAN_BLOCK lists. offsets: those of the lists. Grid: (blocks, rounds + 1).
KERNEL __launch_bounds__(512) count_items(const uint32_t* offsets, uint32_t n_lists, uint32_t rounds, uint32_t piece,
                                          uint32_t* sums) {
    uint32_t at = blockIdx.x * SCAN_BLOCK + threadIdx.x * SCAN_ITEMS, before;
    uint32_t total = block_scan(own_items(offsets, n_lists, at, rounds, piece), &before);
    if (threadIdx.x == 0) sums[blockIdx.y * gridDim.x + blockIdx.x] = total;
}

// The prefix sums themselves; the same grid.
KERNEL __launch_bounds__(512) place_items(const uint32_t* offsets, uint32_t n_lists, uint32_t rounds, uint32_t piece,
                                          const uint32_t* sums, uint32_t* begins) {
    uint32_t lower = 0, before;
    for (uint32_t b = threadIdx.x; b < blockIdx.x; b += SCAN_THREADS) lower += sums[blockIdx.y * gridDim.x + b];
    uint32_t sum = block_scan(lower, &before);
    uint32_t at = blockIdx.x * SCAN_BLOCK + threadIdx.x * SCAN_ITEMS;
    block_scan(own_items(offsets, n_lists, at, rounds, piece), &before);
    uint32_t* row = begins + static_cast<uint64_t>(blockIdx.y) * (n_lists + 1);
    sum += before;
    for (int k = 0; k < SCAN_ITEMS && at + k < n_lists; ++k) {
        row[at + k] = sum;
        sum += items_of(offsets[at + k + 1] - offsets[at + k], blockIdx.y, rounds, piece);
        if (at + k == n_lists - 1) row[n_lists] = sum;
    }
}

// Of every pair of every round: its points, and where their sum goes. A list's items of round 0 are `points` from
// begins[0][list] on. Grid: (blocks, rounds).
KERNEL __launch_bounds__(256) name_pairs(const uint32_t* entries, const uint32_t* offsets, const uint32_t* begins,
                                         uint32_t n_lists, Names* sources, uint32_t* targets) {
    __shared__ Names s_sources[NAME_ROOM];
    __shared__ uint32_t s_targets[NAME_ROOM];
    const uint32_t round = blockIdx.y, t = threadIdx.x;
    const uint32_t* row = begins + round * (n_lists + static_cast<size_t>(1));
    const uint32_t total = row[n_lists], before = pairs_before(begins, n_lists, round);
    sources += before, targets += before;
    for (uint32_t base = blockIdx.x * NAME_TILE; base < total; base += gridDim.x * NAME_TILE) {
        uint32_t item = base + t * NAME_ITEMS, list = 0;
        uint32_t begin = 0, end = 0, at = 0, length = 0, place = 0;  // of the list at hand
        for (uint32_t k = t * NAME_ITEMS; k < (t + 1) * NAME_ITEMS && item < total; ++k, ++item) {
            if (item >= end) {
                list = list_of(row, n_lists, item, list);
                begin = row[list], end = row[list + 1];
                at = offsets[list], length = offsets[list + 1] - at, place = begins[list];
            }
            const uint32_t to = place + ((item - begin) << round);
            if (round) {
                s_sources[name_slot(k)] = {to, to + (1u << (round - 1))};
            } else {
                const uint32_t entry = at + 2 * (item - begin);
                s_sources[name_slot(k)] = {entries[entry], entry + 1 < at + length ? entries[entry + 1] : NOTHING};
            }
            s_targets[name_slot(k)] = length <= 2u << round ? LAST | list : to;
        }
        __syncthreads();
        for (uint32_t k = t; k < NAME_TILE && base + k < total; k += NAME_THREADS)
            sources[base + k] = s_sources[name_slot(k)], targets[base + k] = s_targets[name_slot(k)];
        __syncthreads();
    }
}
