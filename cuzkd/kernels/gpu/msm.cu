// gpu/msm.cu - sums of points listed by bucket, and the weighted sum of the buckets (Pippenger's method).
//
// Input: entries ordered by bucket (digits.cu) and offsets[n_buckets + 1]. Real scalars are skewed: one bucket can hold
// most entries, so threads share out *entries*, not buckets. Of T threads each takes the same number of neighbouring
// entries and sums run after run of one bucket. A run that is the whole bucket goes to the bucket. What a thread has of
// a bucket that began before it is its head, of one that goes on after it (and began with it) its tail.
// Then heads of neighbouring threads in one bucket are summed by a tree of fan-out 8 (`gather_heads`), and each bucket
// that spans threads takes its tail and the few tree nodes that cover its heads (`join`).
// Buckets without entries are never written: the caller clears them (all zero is infinity).
#include "group.cuh"

constexpr uint32_t NONE = 0xffffffffu;
constexpr uint32_t NEGATIVE = 0x80000000u;
constexpr int LOG_FAN = 3;

// Entries per thread, so that `threads` of them cover all.
__device__ uint32_t share(uint32_t total, uint32_t threads) { return total / threads + (total % threads != 0); }

// The bucket that holds entry `at`, which is < offsets[n_buckets]; it is not below `from`.
__device__ uint32_t bucket_of(const uint32_t* offsets, uint32_t n_buckets, uint32_t at, uint32_t from) {
    if (at < offsets[from + 1]) return from;
    if (at < offsets[from + 2]) return from + 1;
    uint32_t low = from + 2, high = n_buckets;  // offsets[low] <= at < offsets[high]
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (offsets[mid] <= at) low = mid; else high = mid;
    }
    return low;
}

// Entry e stands for +-bases[index - skip]; entries with index < skip count for nothing (public wires in the L sum).
// heads, tails: one per thread, head_keys: the bucket of a head, or NONE. 128 threads per block.
KERNEL __launch_bounds__(128) accumulate(const Point* bases, const uint32_t* entries, const uint32_t* offsets,
                                         uint32_t n_buckets, uint32_t skip, uint32_t threads, Sum* buckets, Sum* heads,
                                         uint32_t* head_keys, Sum* tails) {
    uint32_t t = static_cast<uint32_t>(thread_index());
    if (t >= threads) return;
    head_keys[t] = NONE;
    uint32_t total = offsets[n_buckets], each = share(total, threads);
    uint64_t start = static_cast<uint64_t>(t) * each;
    if (start >= total) return;
    uint32_t at = static_cast<uint32_t>(start), end = total - at < each ? total : at + each;
    uint32_t bucket = bucket_of(offsets, n_buckets, at, 0);
    bool began_here = offsets[bucket] == at;
    uint32_t bucket_end = offsets[bucket + 1];
    Sum sum = Sum::infinity();
    while (true) {
        uint32_t entry = entries[at], index = entry & ~NEGATIVE;
        if (index >= skip) sum = sum.add(bases[index - skip].neg_if(entry & NEGATIVE));
        ++at;
        if (at < bucket_end && at < end) continue;
        if (!began_here) {
            heads[t] = sum;
            head_keys[t] = bucket;
        } else if (at < bucket_end) {
            tails[t] = sum;
        } else {
            buckets[bucket] = sum;
        }
        if (at == end) return;
        bucket = bucket_of(offsets, n_buckets, at, bucket);
        bucket_end = offsets[bucket + 1];
        began_here = true;
        sum = Sum::infinity();
    }
}

// One level of the tree: node j of the next level is the sum of 8 nodes if they are of one bucket, else it has no key.
KERNEL gather_heads(const Sum* nodes, const uint32_t* keys, uint32_t n_out, Sum* out, uint32_t* out_keys) {
    uint32_t j = static_cast<uint32_t>(thread_index());
    if (j >= n_out) return;
    const uint32_t first = j << LOG_FAN, last = first + (1 << LOG_FAN) - 1;
    uint32_t key = keys[first];
    // Keys of threads in turn never fall; those without a head lie between buckets or behind the end.
    for (uint32_t i = first; i <= last; ++i)
        if (keys[i] != key) key = NONE;
    out_keys[j] = key;
    if (key == NONE) return;
    Sum sum = nodes[first];
    for (uint32_t i = first + 1; i <= last; ++i) sum = sum.add(nodes[i]);
    out[j] = sum;
}

// Buckets that more than one thread took part in. nodes: the levels of the tree one after another, heads first; a level
// of m nodes is followed by one of m / 8.
KERNEL join(const uint32_t* offsets, uint32_t n_buckets, uint32_t threads, const Sum* nodes, const Sum* tails,
            Sum* buckets) {
    uint32_t bucket = static_cast<uint32_t>(thread_index());
    if (bucket >= n_buckets) return;
    uint32_t begin = offsets[bucket], end = offsets[bucket + 1];
    if (begin == end) return;
    uint32_t each = share(offsets[n_buckets], threads);
    uint32_t t = begin / each, last = (end - 1) / each;
    if (t == last) return;
    Sum sum = tails[t];  // the first thread may also begin with this bucket: a tail all the same
    for (++t; t <= last;) {
        const Sum* level = nodes;
        uint32_t m = threads, shift = 0;
        while ((t & ((1u << (shift + LOG_FAN)) - 1)) == 0 && t + (1u << (shift + LOG_FAN)) - 1 <= last &&
               (t >> (shift + LOG_FAN)) < m >> LOG_FAN) {
            level += m;
            m >>= LOG_FAN;
            shift += LOG_FAN;
        }
        sum = sum.add(level[t >> shift]);
        t += 1u << shift;
    }
    buckets[bucket] = sum;
}

// Weighted sums of neighbouring items, the weight of item j of its block being j 2^log_weight:
//   plain_out = sum plain_j,  weighted_out = sum weighted_j + 2^log_weight sum j plain_j     (j < 2^log_fan)
// Applied until one item is left per window, from the buckets (weighted null, log_weight 0) upwards: each level's blocks
// hold 2^log_fan times as many buckets. 64 threads per block.
KERNEL __launch_bounds__(64) merge(const Sum* plain, const Sum* weighted, uint32_t n_out, int log_fan, int log_weight,
                                   Sum* plain_out, Sum* weighted_out) {
    uint32_t i = static_cast<uint32_t>(thread_index());
    if (i >= n_out) return;
    uint64_t first = static_cast<uint64_t>(i) << log_fan;
    Sum run = Sum::infinity(), sum = Sum::infinity();
    for (int j = (1 << log_fan) - 1; j >= 0; --j) {
        sum = sum.add(run);
        run = run.add(plain[first + j]);
    }
    for (int k = 0; k < log_weight; ++k) sum = sum.dbl();
    if (weighted)
        for (int j = 0; j < 1 << log_fan; ++j) sum = sum.add(weighted[first + j]);
    plain_out[i] = run;
    weighted_out[i] = sum;
}

// Item j count + v of plain and weighted is window first + v of sum j. Its point, affine, is the sum over the window's
// buckets b of (b + 1) bucket_b; each sum's points lie together in out, those of its `windows` windows and then units[j].
// units: null where these are not there.
KERNEL window_sums(const Sum* plain, const Sum* weighted, const Sum* units, uint32_t batch, uint32_t count,
                   uint32_t first, uint32_t windows, Point* out) {
    uint32_t i = static_cast<uint32_t>(thread_index()), items = batch * count;
    if (i < items) {
        out[i / count * (windows + 1) + first + i % count] = weighted[i].add(plain[i]).to_affine();
    } else if (units && i < items + batch) {
        uint32_t j = i - items;
        out[j * (windows + 1) + windows] = units[j].to_affine();
    }
}
