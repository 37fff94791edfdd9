// gpu/digits.cu - the scalars of multi-scalar sums become lists of signed base indices, ordered by bucket.
//
// First, once for all sums over the same scalars, each scalar goes to the list of its class: full, small (below 2^64, up
// to the sign) or unit (1 and -1); zeros are forgotten. A sum whose bases are only those of some scalars has lists
// filtered by a bitmap (`filter_classes`).
// Then, for some windows at a time, a counting sort in two levels. A bin is 2^low neighbouring buckets of one list. Blocks
// count the entries of their shares by bin, bins get their places (`scan_bins`), and blocks put the entries there, in runs
// (`count_bins`, `fill_bins`). A block orders a bin in shared memory and writes it in one piece (`fill_buckets`). One that
// is too large for that, and may hold everything, is cut into chunks, which count their entries by bucket before
// (`count_buckets`).
// A block that counts adds its counts to the totals and keeps what it found there: the place of its own entries among all
// of the bin or bucket. So what fills needs no atomics outside of its block. The order inside a bucket differs from run to
// run; the sum does not.
// An entry is a base index with the sign in its top bit. Several sums (a batch) lie side by side: blockIdx.y is the sum.
#include "chunks.cuh"
#include "memory.cuh"
#include "module.cuh"
#include "msm.cuh"
#include "ranks.cuh"
#include "scan.cuh"

constexpr uint32_t NONE = 0xffffffffu;
constexpr uint32_t NEGATIVE = 0x80000000u;
constexpr int ITEMS = 8, TILE = THREADS * ITEMS;  // scalars that a block has in hand
// In cuda_lists.py as well.
constexpr int FILL_ITEMS = 8;        // digits, for each thread
constexpr int MOST_BINS = 1024;      // of one list
constexpr int MOST_COUNTED = 12000;  // bins of all lists that a sum has at a time
constexpr int MOST_BUCKETS = 8192;   // of one bin

enum Kind : uint32_t { FULL = 0, SMALL = 1, UNIT = 2, NO_KIND = 3 };

// The scalars of one sum by class; counts start at zero. Behind it are two arrays: `others` holds the full ones' entries
// from the front, the small ones' from the back, `units` those of 1 and -1. The index in an entry is that of the scalar;
// in `units` that of the base.
struct Classes {
    const Fr* scalars;
    uint32_t count[3], unused;
};

// -- classes --

// Each thread has ITEMS entries and their kinds; entries go behind those that others have put into the lists of n places.
__device__ void append(const uint32_t* entries, const uint32_t* kinds, uint32_t n, Classes* classes, uint32_t* others,
                       uint32_t* units) {
    __shared__ uint32_t counts[3], begins[3];
    uint32_t below = (1u << (threadIdx.x & 31)) - 1, at[3] = {0, 0, 0};
    __syncthreads();
    if (threadIdx.x < 3) counts[threadIdx.x] = 0;
    __syncthreads();
    UNROLL for (int k = 0; k < ITEMS; ++k) {
        UNROLL for (uint32_t kind = 0; kind < 3; ++kind) at[kind] += __popc(__ballot_sync(ALL_LANES, kinds[k] == kind));
    }
    UNROLL for (uint32_t kind = 0; kind < 3; ++kind) {
        uint32_t begin = below == 0 ? atomicAdd(counts + kind, at[kind]) : 0;
        at[kind] = __shfl_sync(ALL_LANES, begin, 0);
    }
    __syncthreads();
    if (threadIdx.x < 3) begins[threadIdx.x] = atomicAdd(classes->count + threadIdx.x, counts[threadIdx.x]);
    __syncthreads();
    UNROLL for (int k = 0; k < ITEMS; ++k) {
        UNROLL for (uint32_t kind = 0; kind < 3; ++kind) {
            uint32_t peers = __ballot_sync(ALL_LANES, kinds[k] == kind);
            uint32_t place = begins[kind] + at[kind] + __popc(peers & below);
            at[kind] += __popc(peers);
            if (kinds[k] != kind) continue;
            uint32_t* list = kind == UNIT ? units : others;
            list[kind == SMALL ? n - 1 - place : place] = entries[k];
        }
    }
}

// Item k of this thread, in a tile that begins at `tile`: the 32 lanes of a warp have neighbours.
__device__ uint64_t item_of(uint64_t tile, int k) {
    return tile + (threadIdx.x >> 5) * (32 * ITEMS) + k * 32 + (threadIdx.x & 31);
}

// Of n CANONICAL scalars of one sum, a tile for each block.
KERNEL __launch_bounds__(512) classify_scalars(const Fr* scalars, uint32_t n, Classes* classes, uint32_t* others,
                                               uint32_t* units) {
    uint64_t tile = static_cast<uint64_t>(blockIdx.x) * TILE;
    constexpr int AHEAD = 2;  // scalars on their way to a thread at once
    uint32_t entries[ITEMS], kinds[ITEMS];
    UNROLL for (int first = 0; first < ITEMS; first += AHEAD) {
        Fr values[AHEAD];
        UNROLL for (int j = 0; j < AHEAD; ++j) {
            uint64_t i = item_of(tile, first + j);
            values[j] = i < n ? load(scalars + i) : Fr::zero();
        }
        UNROLL for (int j = 0; j < AHEAD; ++j) {
            Folded f = fold_scalar(values[j]);
            ScalarClass found = classify(f);
            kinds[first + j] = found == ScalarClass::zero    ? NO_KIND
                               : found != ScalarClass::other ? UNIT
                               : is_small(f)                 ? SMALL
                                                             : FULL;
            entries[first + j] = static_cast<uint32_t>(item_of(tile, first + j)) | (f.negative ? NEGATIVE : 0);
        }
    }
    append(entries, kinds, n, classes, others, units);
    if (blockIdx.x == 0 && threadIdx.x == 0) classes->scalars = scalars;
}

// From classes over n scalars, those of the scalars that have a base; m: how many bases there are.
KERNEL __launch_bounds__(512) filter_classes(const Classes* from, const uint32_t* others, const uint32_t* units, uint32_t n,
                                             const Rank* ranks, uint32_t m, Classes* to, uint32_t* others_out,
                                             uint32_t* units_out) {
    const Classes source = from[blockIdx.y];
    to += blockIdx.y;
    others += static_cast<uint64_t>(n) * blockIdx.y;
    units += static_cast<uint64_t>(n) * blockIdx.y;
    const uint32_t busy = source.count[FULL] + source.count[SMALL], all = busy + source.count[UNIT];
    for (uint64_t tile = static_cast<uint64_t>(blockIdx.x) * TILE; tile < all; tile += gridDim.x * TILE) {
        uint32_t entries[ITEMS], kinds[ITEMS];
        UNROLL for (int k = 0; k < ITEMS; ++k) {
            uint32_t i = static_cast<uint32_t>(item_of(tile, k));
            kinds[k] = i < source.count[FULL] ? FULL : i < busy ? SMALL : i < all ? UNIT : NO_KIND;
            if (kinds[k] == NO_KIND) continue;
            uint32_t entry = kinds[k] == FULL    ? others[i]
                             : kinds[k] == SMALL ? others[n - 1 - (i - source.count[FULL])]
                                                 : units[i - busy];
            uint32_t base = base_of(ranks, entry & ~NEGATIVE);
            entries[k] = kinds[k] == UNIT ? base | (entry & NEGATIVE) : entry;
            if (base == NO_BASE) kinds[k] = NO_KIND;
        }
        append(entries, kinds, m, to, others_out + static_cast<uint64_t>(m) * blockIdx.y,
               units_out + static_cast<uint64_t>(m) * blockIdx.y);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) to->scalars = source.scalars;
}

// -- digits --

// How scalars become entries of lists: `windows` windows of c bits, of which every `sets`-th comes into one list (tables
// of multiples; without them each window has a list of its own, sets = windows). Lists first .. first + count are made
// now. Their bins are 2^low buckets each.
struct Cut {
    int c, windows, sets, first, count, low;

    __device__ int log_bins() const { return c - 1 - low; }
    __device__ int bins() const { return 1 << log_bins(); }
    __device__ int copies() const { return (windows + sets - 1) / sets; }
    __device__ int window(int list, int copy) const { return copy * sets + first + list; }  // or behind the last one
};

// A digit's bucket in its list, with the sign of the digit in the top bit; NONE for 0.
__device__ uint32_t bucket_of(const uint64_t w[4], int window, const Cut& cut) {
    // The window is the same for all threads: words are chosen, as registers have no addresses.
    int at = cut.c * window, word = at >> 6;
    uint64_t low = word < 2 ? (word == 0 ? w[0] : w[1]) : (word == 2 ? w[2] : w[3]);
    uint64_t high = word < 2 ? (word == 0 ? w[1] : w[2]) : (word == 2 ? w[3] : 0);
    int32_t digit = digit_of_words(low, high, at & 63, cut.c, window + 1 == cut.windows);
    if (digit == 0) return NONE;
    return digit < 0 ? static_cast<uint32_t>(-digit - 1) | NEGATIVE : static_cast<uint32_t>(digit - 1);
}

// The entry of a sum's busy scalar number i: the full ones come first, then the small ones.
__device__ uint32_t busy_entry(const Classes& of, const uint32_t* others, uint32_t n, uint32_t i) {
    return i < of.count[FULL] ? others[i] : others[n - 1 - (i - of.count[FULL])];
}

// How many of its busy scalars may have a digit other than 0 in a window.
__device__ uint32_t busy_in(const Classes& of, const Cut& cut, int window) {
    return of.count[FULL] + (window < small_windows(cut.c) ? of.count[SMALL] : 0);
}

// The part of a sum's busy scalars that a block counts, and puts into bins later, in the same order.
struct Share {
    uint32_t begin, end;
};
__device__ Share share_of(uint32_t items, uint32_t block, uint32_t blocks) {
    const uint32_t each = ((items + blocks - 1) / blocks + 31) & ~31u, begin = block * each;
    return {begin < items ? begin : items, begin + each < items ? begin + each : items};
}

// totals: entries in each bin of all lists of all sums, from zero. rows: for each block its place among those of a bin.
// digits: buckets of all busy scalars (at most `busy`), a plane for each window; those of one list lie together.
// While a thread cuts one scalar, the next is on its way, and the number of the one behind that.
KERNEL __launch_bounds__(512) count_bins(const Classes* classes, const uint32_t* others, uint32_t n, int c, int windows,
                                         int sets, int first, int count, int low, uint32_t busy, uint32_t* totals,
                                         uint32_t* rows, uint32_t* digits) {
    __shared__ uint32_t seen[MOST_COUNTED];
    __shared__ uint64_t bias[4];
    const Cut cut{c, windows, sets, first, count, low};
    const Classes of = classes[blockIdx.y];
    const uint32_t counted = count << cut.log_bins();
    if (threadIdx.x < 4) bias[threadIdx.x] = bias_word(threadIdx.x, c, windows);
    for (uint32_t b = threadIdx.x; b < counted; b += THREADS) seen[b] = 0;
    __syncthreads();
    others += static_cast<uint64_t>(n) * blockIdx.y;
    digits += static_cast<uint64_t>(busy) * blockIdx.y * count * cut.copies();
    const Share share = share_of(busy_in(of, cut, first), blockIdx.x, gridDim.x);  // no other window has more
    auto entry_at = [&](uint32_t i) { return i < share.end ? busy_entry(of, others, n, i) : 0; };
    uint32_t i = share.begin + threadIdx.x, entry = entry_at(i), next = entry_at(i + THREADS);
    Fr s = i < share.end ? load(of.scalars + (entry & ~NEGATIVE)) : Fr::zero();
    for (; i < share.end; i += THREADS) {
        const Fr coming = load(of.scalars + (next & ~NEGATIVE));  // behind the last: the first of all
        const uint32_t later = entry_at(i + 2 * THREADS);
        if (entry & NEGATIVE) s = opposite(s);
        uint64_t w[4], carry = 0;
        UNROLL for (int j = 0; j < 4; ++j) w[j] = adc(s.v[j], bias[j], carry);
        uint32_t *plane = digits, *bins = seen;
        for (int list = 0; list < count; ++list, bins += cut.bins()) {
            for (int copy = 0; copy < cut.copies(); ++copy, plane += busy) {
                int window = cut.window(list, copy);
                if (window >= windows || i >= busy_in(of, cut, window)) continue;
                uint32_t bucket = bucket_of(w, window, cut);
                plane[i] = bucket;
                if (bucket != NONE) atomicAdd(bins + ((bucket & ~NEGATIVE) >> low), 1u);
            }
        }
        s = coming, entry = next, next = later;
    }
    __syncthreads();
    rows += (static_cast<uint64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * counted;
    totals += static_cast<uint64_t>(blockIdx.y) * counted;
    for (uint32_t b = threadIdx.x; b < counted; b += THREADS) rows[b] = seen[b] ? atomicAdd(totals + b, seen[b]) : 0;
}

// starts[n + 1]: where the entries of each bin begin. chunks[n + 1]: its first chunk, of chunk_size entries; each bin has
// one at least. tail: where the units of each of `batch` sums begin, behind all bins, and the end; only the end where their
// turn is not now. One block.
KERNEL __launch_bounds__(512) scan_bins(const uint32_t* totals, uint32_t n, uint32_t chunk_size, const Classes* classes,
                                        uint32_t batch, uint32_t* starts, uint32_t* chunks, uint32_t* tail) {
    constexpr uint32_t EACH = 4;
    __shared__ uint64_t sums[MOST_WARPS];
    uint64_t before = 0;  // entries, and chunks in the upper half
    for (uint32_t tile = 0; tile < n; tile += THREADS * EACH) {
        uint32_t begin = tile + threadIdx.x * EACH;
        uint64_t values[EACH], own = 0, total;
        UNROLL for (uint32_t k = 0; k < EACH; ++k) {
            uint32_t entries = begin + k < n ? totals[begin + k] : 0;
            uint32_t parts = begin + k < n ? (entries == 0 ? 1 : (entries - 1) / chunk_size + 1) : 0;
            own += values[k] = entries | static_cast<uint64_t>(parts) << 32;
        }
        uint64_t mine = before + block_scan(own, sums, &total);
        UNROLL for (uint32_t k = 0; k < EACH; ++k) {
            if (begin + k < n) {
                starts[begin + k] = static_cast<uint32_t>(mine);
                chunks[begin + k] = static_cast<uint32_t>(mine >> 32);
            }
            mine += values[k];
        }
        before += total;
    }
    if (threadIdx.x == 0) {
        uint32_t end = starts[n] = static_cast<uint32_t>(before);
        chunks[n] = static_cast<uint32_t>(before >> 32);
        for (uint32_t j = 0; j < batch; ++j) {
            tail[j] = end;
            end += classes[j].count[UNIT];
        }
        tail[batch] = end;
    }
}

// entries and keys (the low bits of buckets), bin by bin, from digits. stride: between copies of the bases. blockIdx.x is
// the list, over all sums: blocks that need the same scalars' entries run at the same time. blockIdx.y is the share, of as
// many as there were in count_bins. A tile is ordered in shared memory, so that each bin gets a run of it, and the next
// tile is on its way while one is written.
KERNEL __launch_bounds__(1024) fill_bins(const Classes* classes, const uint32_t* others, uint32_t n, const Rank* ranks, int c,
                                         int windows, int sets, int first, int count, int low, uint32_t busy,
                                         uint32_t stride, const uint32_t* digits, const uint32_t* starts,
                                         const uint32_t* rows, uint32_t* entries, Key* keys) {
    SHARED_WORDS(space);
    const uint32_t sum = blockIdx.x / count, list = blockIdx.x % count, tile_size = blockDim.x * FILL_ITEMS;
    uint32_t* places = space;                                            // of the next entry of a bin, among all
    uint32_t *counts = places + MOST_BINS, *shifts = counts + MOST_BINS;  // of this tile: entries before a bin; way to places
    uint32_t *sorted = shifts + MOST_BINS, *sorted_buckets = sorted + tile_size;
    const Cut cut{c, windows, sets, first, count, low};
    const uint32_t n_bins = cut.bins();
    const Classes of = classes[sum];
    others += static_cast<uint64_t>(n) * sum;
    digits += static_cast<uint64_t>(busy) * blockIdx.x * cut.copies();
    starts += static_cast<uint64_t>(blockIdx.x) << cut.log_bins();
    rows += ((static_cast<uint64_t>(sum) * gridDim.y + blockIdx.y) * count + list) << cut.log_bins();
    const Share share = share_of(busy_in(of, cut, first), blockIdx.y, gridDim.y);
    for (uint32_t b = threadIdx.x; b < n_bins; b += blockDim.x) places[b] = starts[b] + rows[b];
    uint32_t multiples = 0;  // where this copy's bases begin
    for (int window = cut.window(list, 0); window < windows; window += sets, multiples += stride, digits += busy) {
        const uint32_t items = busy_in(of, cut, window), end = items < share.end ? items : share.end;
        uint32_t buckets[FILL_ITEMS], bases[FILL_ITEMS], ranked[FILL_ITEMS];
        auto fetch = [&](uint32_t tile) {
            UNROLL for (int k = 0; k < FILL_ITEMS; ++k) {
                uint32_t i = tile + k * blockDim.x + threadIdx.x;
                buckets[k] = i < end ? digits[i] : NONE;
                bases[k] = i < end ? busy_entry(of, others, n, i) : 0;
            }
        };
        fetch(share.begin);
        for (uint32_t tile = share.begin; tile < end; tile += tile_size) {
            for (uint32_t b = threadIdx.x; b < n_bins; b += blockDim.x) counts[b] = 0;
            __syncthreads();
            UNROLL for (int k = 0; k < FILL_ITEMS; ++k)
                if (buckets[k] != NONE) ranked[k] = atomicAdd(counts + ((buckets[k] & ~NEGATIVE) >> low), 1u);
            __syncthreads();
            for (uint32_t b = threadIdx.x; b < n_bins; b += blockDim.x) {
                shifts[b] = places[b];
                places[b] += counts[b];
            }
            const uint32_t total = scan_shared(counts, n_bins);
            __syncthreads();
            for (uint32_t b = threadIdx.x; b < n_bins; b += blockDim.x) shifts[b] -= counts[b];
            UNROLL for (int k = 0; k < FILL_ITEMS; ++k) {
                if (buckets[k] == NONE) continue;
                uint32_t bucket = buckets[k] & ~NEGATIVE, place = counts[bucket >> low] + ranked[k];
                uint32_t base = base_of(ranks, bases[k] & ~NEGATIVE) + multiples;
                sorted[place] = base | ((bases[k] ^ buckets[k]) & NEGATIVE);
                sorted_buckets[place] = bucket;
            }
            __syncthreads();
            fetch(tile + tile_size);
            UNROLL for (int k = 0; k < FILL_ITEMS; ++k) {
                uint32_t i = k * blockDim.x + threadIdx.x;
                if (i >= total) continue;
                uint32_t bucket = sorted_buckets[i], out = shifts[bucket >> low] + i;
                entries[out] = sorted[i];
                keys[out] = static_cast<Key>(bucket & ((1u << low) - 1));
            }
            __syncthreads();
        }
    }
}

// -- buckets --

// Of bins with several chunks. totals: entries of each bucket, from zero; rows: for each chunk its place among those of a
// bucket. One chunk per block, as many blocks as there may be chunks.
KERNEL __launch_bounds__(1024) count_buckets(const Key* keys, const uint32_t* starts, const uint32_t* chunks,
                                             uint32_t n_bins, uint32_t chunk_size, int low, uint32_t* totals,
                                             uint32_t* rows) {
    __shared__ uint32_t seen[MOST_BUCKETS];
    if (blockIdx.x >= chunks[n_bins]) return;
    const Chunk chunk = chunk_of(blockIdx.x, starts, chunks, n_bins, chunk_size);
    if (chunk.alone) return;
    for (uint32_t b = threadIdx.x; b < 1u << low; b += blockDim.x) seen[b] = 0;
    __syncthreads();
    count_keys(keys, chunk, seen);
    __syncthreads();
    totals += static_cast<uint64_t>(chunk.bin) << low;
    rows += static_cast<uint64_t>(blockIdx.x) << low;
    for (uint32_t b = threadIdx.x; b < 1u << low; b += blockDim.x) rows[b] = seen[b] ? atomicAdd(totals + b, seen[b]) : 0;
}

// out: entries bucket by bucket; offsets: where those of each begin. A chunk is ordered in shared memory. With the grid of
// count_buckets; rows: what that left, used up.
KERNEL __launch_bounds__(1024) fill_buckets(const uint32_t* entries, const Key* keys, const uint32_t* starts,
                                            const uint32_t* chunks, uint32_t n_bins, uint32_t chunk_size, int low,
                                            const uint32_t* totals, uint32_t* rows, uint32_t* offsets, uint32_t* out) {
    SHARED_WORDS(space);
    if (blockIdx.x >= chunks[n_bins]) return;
    const Chunk chunk = chunk_of(blockIdx.x, starts, chunks, n_bins, chunk_size);
    const uint32_t n = 1u << low, before = chunk.begin % 4;
    uint32_t *ends = space, *sorted = space + (n < 4 ? 4 : n);
    offsets += static_cast<uint64_t>(chunk.bin) << low;
    rows += static_cast<uint64_t>(blockIdx.x) << low;
    if (!chunk.alone) {  // places, from what all chunks have counted
        totals += static_cast<uint64_t>(chunk.bin) << low;
        for (uint32_t b = threadIdx.x; b < n; b += blockDim.x) sorted[b] = totals[b];
        __syncthreads();
        scan_shared(sorted, n);
        __syncthreads();
        for (uint32_t b = threadIdx.x; b < n; b += blockDim.x) {
            const uint32_t begin = starts[chunk.bin] + sorted[b];
            if (chunk.leads) offsets[b] = begin;
            rows[b] += begin;
        }
    }
    for (uint32_t b = threadIdx.x; b < n; b += blockDim.x) ends[b] = 0;
    for (uint32_t i = threadIdx.x * PACKED; i < chunk.size; i += blockDim.x * PACKED) prefetch(entries + chunk.begin + i);
    __syncthreads();
    count_keys(keys, chunk, ends);
    __syncthreads();
    scan_shared(ends, n);
    __syncthreads();
    if (chunk.alone)
        for (uint32_t b = threadIdx.x; b < n; b += blockDim.x) offsets[b] = chunk.begin + ends[b];
    __syncthreads();
    each_entry<2>(
        keys, entries, chunk, [&](uint32_t key) { return before + atomicAdd(ends + key, 1u); },
        [&](uint32_t place, uint32_t entry) { sorted[place] = entry; });
    __syncthreads();
    if (chunk.alone) {
        write_bin(sorted, before, chunk, out);
    } else {
        write_runs(sorted + before, ends, n, rows, out);
    }
}

// The units of each sum, behind all others; tail: scan_bins.
KERNEL __launch_bounds__(512) place_units(const Classes* classes, const uint32_t* units, uint32_t n, const uint32_t* tail,
                                          uint32_t* out) {
    const uint32_t count = classes[blockIdx.y].count[UNIT], begin = tail[blockIdx.y];
    units += static_cast<uint64_t>(n) * blockIdx.y;
    for (uint64_t i = thread_index(); i < count; i += gridDim.x * THREADS) out[begin + i] = units[i];
}
