// gpu/tree.cu - the pair tree: lists of points are halved, round by round, by additions of affine neighbours that share
// their inversions.
//
// A block takes THREADS * `each` pairs at a time. Forward, each thread multiplies the denominators of its pairs (in G2 their
// norms), keeping the products before each in `scratch`; the block's products are merged into 32 values, of which one warp
// inverts one in each lane; backward, each thread peels the inverses of its denominators off its own and adds. The other
// blocks of the multiprocessor work while one inverts. Pairs of all lists are shared out evenly, whatever the lengths of the lists.
//
// Rounds (rounds.cu says how many pairs of which list). Round 0 reads the bases that entries name and fills `points`, a
// list's items from place[list] on. Later rounds work in place: of a list's items those at multiples of 2^(round - 1) are
// left, and the pairs add the odd ones of these to the even ones. The sum of a whole list goes to sums[list]; lists
// without entries are never written: the caller clears them (all zero is infinity).
#define CUZKD_INLINE
#include "group.cuh"
#include "lists.cuh"
#include "memory.cuh"
#include "pairs.cuh"

using F = Group::F;
using Norm = F::Norm;

constexpr uint32_t NEGATIVE = 0x80000000u;
constexpr uint32_t NO_ENTRY = 0x7fffffffu;  // the number of no base
constexpr uint32_t THREADS = 128, WARP = 32;
// Blocks on a multiprocessor (BLOCKS in backend/cuda_tree.py): what decides how many registers there are.
#if defined(CUZKD_RESIDENT)
constexpr int RESIDENT = CUZKD_RESIDENT;
#else
constexpr int RESIDENT = sizeof(F) == 32 ? 5 : sizeof(F) == 48 ? 4 : 2;
#endif

// 1/mine of each thread; none is zero. Neighbouring levels: products of two of the level below, at `level` on.
__device__ Norm block_inverse(const Norm& mine) {
    __shared__ Norm s[2 * THREADS - WARP];
    const uint32_t t = threadIdx.x;
    uint32_t level = 0, size = THREADS;
    s[t] = mine;
    __syncthreads();
    for (; size > WARP; level += size, size /= 2) {
        uint32_t half = size / 2;
        if (t < half) s[level + size + t] = s[level + t] * s[level + half + t];
        __syncthreads();
    }
    // Warp number i of a block runs on the same quarter of the multiprocessor in all blocks: spread this over them.
    uint32_t inverter = blockIdx.x * (THREADS / WARP) / gridDim.x;
    if (t / WARP == inverter) s[level + t % WARP] = s[level + t % WARP].inv();
    __syncthreads();
    Norm inverse;
    while (size < THREADS) {
        size *= 2, level -= size;
        if (t < size) inverse = s[level + size + t % (size / 2)] * s[level + (t ^ (size / 2))];
        __syncthreads();
        if (t < size) s[level + t] = inverse;
        __syncthreads();
    }
    return inverse;
}

// A point in memory, or its negative.
struct Signed {
    const Point* at;  // null: infinity
    bool negative;

    __device__ void expect() const {
        if (at) prefetch(at);
    }
    __device__ F x() const { return at ? load(&at->x) : F::zero(); }
    __device__ Point point() const { return at ? load(at).neg_if(negative) : Point::infinity(); }
};

// A place for one pair between the two passes over it: the product of the norms before its own and, in an extension, its
// own, which takes products there.
struct Kept {
    static constexpr bool OWN = sizeof(F) > sizeof(Norm);
    Norm* at;

    __device__ explicit Kept(F* place) : at(reinterpret_cast<Norm*>(place)) {}
    __device__ void keep(const Norm& before, const Norm& own) const {
        store(at, before);
        if constexpr (OWN) store(at + 1, own);
    }
    __device__ Norm before() const { return load(at); }
    __device__ Norm own() const { return load(at + 1); }
};

// This thread's additions, `count` of them, with all threads of its block. pairs.seek(k) finds the operands p and q of one,
// pairs.put(sum) takes their sum; pairs.expect(k) says that k is the next. before[k THREADS], k < count: this thread's.
template <class Pairs>
__device__ __forceinline__ void add_pairs(Pairs& pairs, uint32_t count, F* before) {
    Norm product = Norm::one();  // of the norms of the denominators
    uint32_t first = count;  // pair that wants an inverse
#pragma unroll 1
    for (uint32_t k = 0; k < count; ++k) {
        pairs.seek(k);
        if (k + 1 < count) pairs.expect(k + 1);
        F px = pairs.p.x(), qx = pairs.q.x(), denominator = qx - px;
        if (!surely_a_chord(px, qx)) {
            Point p = pairs.p.point(), q = pairs.q.point();
            PairKind kind = pair_kind(p, q);
            if (!wants_inverse(kind)) continue;
            denominator = pair_denominator(kind, p, q);
        }
        const Norm norm = denominator.norm();
        if (first == count) {
            first = k;
            product = norm;
        } else {
            Kept(before + static_cast<size_t>(k) * THREADS).keep(product, norm);
            product = product * norm;
        }
    }
    Norm inverse = block_inverse(product);  // of the norms up to the pair at hand
#pragma unroll 1
    for (uint32_t k = count; k-- > 0;) {
        pairs.seek(k);
        if (k) pairs.expect(k - 1);
        Point p = pairs.p.point(), q = pairs.q.point(), sum = Point::infinity();
        PairKind kind = pair_kind(p, q);
        if (wants_inverse(kind)) {
            Norm own = inverse;
            if (k > first) {
                const Kept kept(before + static_cast<size_t>(k) * THREADS);
                own = inverse.times(kept.before());
                inverse = inverse * (Kept::OWN ? kept.own() : pair_denominator(kind, p, q).norm());
            }
            sum = pair_sum(kind, p, q, pair_denominator(kind, p, q).inverse_by(own));
        } else if (kind != PairKind::infinity) {
            sum = kind == PairKind::first ? p : q;
        }
        pairs.put(sum);
    }
}

// Items of a launch, cut into tiles for its blocks: as many turns for each block as `most` items for a thread take, and
// then as few items as that allows. Calls tile(first item, count) of this thread, in all threads of a block together.
template <class Tile>
__device__ __forceinline__ void each_tile(uint32_t total, uint32_t most, Tile tile) {
    if (total == 0) return;
    uint32_t threads = gridDim.x * THREADS, share = (total - 1) / threads + 1;
    uint32_t turns = (share - 1) / most + 1, each = (share - 1) / turns + 1;
    for (uint64_t base = static_cast<uint64_t>(blockIdx.x) * THREADS * each; base < total; base += uint64_t(threads) * each) {
        uint64_t first = base + threadIdx.x * each;
        uint32_t left = first < total ? static_cast<uint32_t>(total - first) : 0;
        tile(static_cast<uint32_t>(first), left < each ? left : each);
    }
}

// This thread's part of scratch, which has room for `most` elements of each thread of the grid.
__device__ __forceinline__ F* own_scratch(F* scratch, uint32_t most) {
    return scratch + static_cast<size_t>(blockIdx.x) * most * THREADS + threadIdx.x;
}

// One round over lists of which offsets, begins and place speak; see above. An entry is the number of a base, with the
// sign in its top bit: it stands for bases[number - skip], and for nothing where the number is below skip.
struct Round {
    const Point* bases;
    uint32_t skip;
    const uint32_t *entries, *offsets, *begins, *place;
    uint32_t n_lists, round;
    Point *points, *sums;

    uint32_t base;                        // item of pair 0
    uint32_t list = 0, begin = 0, end = 0;  // the list at hand, its items of this round,
    uint32_t at = 0, length = 0;          // its first entry, its length
    Signed p, q;
    Point* target;

    __device__ Signed named(uint32_t entry) const {
        uint32_t number = entry & ~NEGATIVE;
        return {number >= skip && number < NO_ENTRY ? bases + (number - skip) : nullptr, (entry & NEGATIVE) != 0};
    }
    __device__ void seek(uint32_t k) {
        uint32_t item = base + k;
        if (item < begin || item >= end) {
            list = list_of(begins, n_lists, item, list);
            begin = begins[list], end = begins[list + 1];
            at = offsets[list], length = offsets[list + 1] - at;
        }
        item -= begin;
        Point* first = points + place[list] + (static_cast<size_t>(item) << round);
        target = length <= 2u << round ? sums + list : first;
        if (round) {
            p = {first, false};
            q = {first + (size_t(1) << (round - 1)), false};
        } else {
            uint32_t entry = at + 2 * item;
            p = named(entries[entry]);
            q = named(entry + 1 < at + length ? entries[entry + 1] : NO_ENTRY);
        }
    }
    // Only where it is in the list at hand, or it would take as long to find as it saves.
    __device__ void expect(uint32_t k) const {
        uint32_t item = base + k - begin;
        if (base + k < begin || item >= end - begin) return;
        if (round) {
            const Point* first = points + place[list] + (static_cast<size_t>(item) << round);
            prefetch(first), prefetch(first + (size_t(1) << (round - 1)));
        } else {
            uint32_t entry = at + 2 * item;
            named(entries[entry]).expect();
            if (entry + 1 < at + length) named(entries[entry + 1]).expect();
        }
    }
    __device__ void put(const Point& sum) { store(target, sum); }
};

// begins: the row of this round. scratch: room for `most` elements of each thread.
KERNEL __launch_bounds__(THREADS, RESIDENT)
    add_round(const Point* bases, uint32_t skip, const uint32_t* entries, const uint32_t* offsets, const uint32_t* begins,
              const uint32_t* place, uint32_t n_lists, uint32_t round, uint32_t most, F* scratch, Point* points,
              Point* sums) {
    F* before = own_scratch(scratch, most);
    Round pairs{bases, skip, entries, offsets, begins, place, n_lists, round, points, sums, 0};
    each_tile(begins[n_lists], most, [&](uint32_t first, uint32_t count) {
        pairs.base = first;
        add_pairs(pairs, count, before);
    });
}

// Neighbours of every component, and a new component of the odd ones of component 0: see msm.cu.
struct Halving {
    const Point* in;
    uint32_t components, pairs;  // in all, of one component
    Point* out;

    uint32_t base;
    uint32_t component = 0, i = 0;
    Signed p, q;

    __device__ void seek(uint32_t k) {
        uint32_t item = base + k;
        component = item / pairs, i = item % pairs;
        const Point* first = in + 2 * static_cast<size_t>(item);
        p = {first, false}, q = {first + 1, false};
    }
    __device__ void expect(uint32_t k) const { prefetch(in + 2 * (static_cast<size_t>(base) + k)); }
    __device__ void put(const Point& sum) {
        store(out + static_cast<size_t>(component) * pairs + i, sum);
        if (component == 0) store(out + static_cast<size_t>(components) * pairs + i, q.point());
    }
};

// in[components][2 pairs] -> out[components + 1][pairs].
KERNEL __launch_bounds__(THREADS, RESIDENT)
    halve(const Point* in, uint32_t components, uint32_t pairs, uint32_t most, F* scratch, Point* out) {
    F* before = own_scratch(scratch, most);
    Halving halving{in, components, pairs, out, 0};
    each_tile(components * pairs, most, [&](uint32_t first, uint32_t count) {
        halving.base = first;
        add_pairs(halving, count, before);
    });
}
