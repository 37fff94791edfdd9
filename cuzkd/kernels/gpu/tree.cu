// gpu/tree.cu - the pair tree: lists of points are halved, round by round, by additions of affine neighbours that share
// their inversions.
//
// A block takes THREADS * `each` pairs at a time. Forward, each thread multiplies the denominators of its pairs (in G2 their
// norms), keeping the products before each in `scratch`; the block's products are merged into 32 values, of which one warp
// inverts one in each lane; backward, each thread peels the inverses of its denominators off its own and adds. The other
// blocks of the multiprocessor work while one inverts. Pairs of all lists are shared out evenly, whatever the lengths of the lists.
//
// Points are scattered over the device's memory, and nothing here may wait for it: while a thread works on a pair, those of
// its next one are on their way to the thread's part of shared memory, the names of the one after that to registers, and
// those of the third to the cache.
//
// Rounds (rounds.cu names the pairs of each). Round 0 reads the bases and fills `points`, a list's items one after another.
// Later rounds work in place: of a list's items those at multiples of 2^(round - 1) are left, and the pairs add the odd
// ones of these to the even ones. The sum of a whole list goes to sums[list]; lists without entries are never written: the
// caller clears them (all zero is infinity).
// Products are calls, or the loops find no room in the caches of instructions; the shortest ones, in G1 of BN254, are inlined.
#define SHORT_PASTED(curve, group) SHORT_##curve##_##group
#define SHORT_OF(curve, group) SHORT_PASTED(curve, group)
#define SHORT_Bn254_G1 1
#if SHORT_OF(CUZKD_CURVE, CUZKD_GROUP)
#define CUZKD_INLINE
#endif
#include "group.cuh"
#include "memory.cuh"
#include "names.cuh"
#include "pairs.cuh"

using F = Group::F;
using Norm = F::Norm;

constexpr uint32_t THREADS = 128, WARP = 32;
// Blocks on a multiprocessor (BLOCKS in backend/cuda_tree.py): what decides how many registers there are.
#if defined(CUZKD_RESIDENT)
constexpr int RESIDENT = CUZKD_RESIDENT;
#else
constexpr int RESIDENT = sizeof(F) == 32 ? 5 : sizeof(F) == 48 ? 4 : sizeof(F) == 64 ? 3 : 2;
#endif

// Shared memory of a block: the points of each thread's next pair, by sixteens, those of neighbours side by side; and
// between the two ways over the pairs, values to be inverted together.
union Shared {
    static constexpr uint32_t X = sizeof(F) / sizeof(FourWords), POINT = 2 * X;
    FourWords ahead[2 * POINT][THREADS];
    Norm norms[2 * THREADS - WARP];

    // Ask for the first `n` sixteens of point `which` (0 or 1) of this thread.
    __device__ __forceinline__ void expect(uint32_t which, const Point* point, uint32_t n) {
        UNROLL for (uint32_t i = 0; i < n; ++i)
            copy_ahead(&ahead[which * POINT + i][threadIdx.x], reinterpret_cast<const FourWords*>(point) + i, point != nullptr);
    }
    // What is there of it: its x, or its y.
    __device__ __forceinline__ F coordinate(uint32_t which, bool y) const {
        const uint32_t row = which * POINT + (y ? X : 0);
        return assembled<F>([=](uint32_t i) { return ahead[row + i][threadIdx.x]; });
    }
};

// 1/mine of each thread; none is zero. Neighbouring levels: products of two of the level below, at `level` on.
__device__ Norm block_inverse(Norm* s, const Norm& mine) {
    const uint32_t t = threadIdx.x;
    uint32_t level = 0, size = THREADS;
    __syncthreads();  // what else was there is read
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

// Between the two ways over its pairs, a thread keeps of each the product of the norms before its own and, in an extension,
// its own, which takes products there. By sixteens, those of neighbours side by side.
struct Kept {
    static constexpr bool OWN = sizeof(F) > sizeof(Norm);
    static constexpr uint32_t SIXTEENS = sizeof(Norm) / sizeof(FourWords);
    FourWords* at;  // of this thread's pair 0

    __device__ FourWords* place(uint32_t k, bool own) const {
        return at + (static_cast<size_t>(k) * (OWN ? 2 : 1) + own) * SIXTEENS * THREADS;
    }
    __device__ void put(uint32_t k, bool own, const Norm& value) const {
        FourWords* to = place(k, own);
        UNROLL for (uint32_t i = 0; i < SIXTEENS; ++i) to[i * THREADS] = sixteen(value, i);
    }
    __device__ Norm get(uint32_t k, bool own) const {
        const FourWords* from = place(k, own);
        return assembled<Norm>([=](uint32_t i) { return from[i * THREADS]; });
    }
};

// This thread's additions, `count` of them, with all threads of its block. pairs.names(k) are the names of the points of one,
// pairs.prepare(k) is a while before that; pairs.at(name) is where a point is, null for infinity; pairs.keep(k, q) sees the
// second point, pairs.put(target, sum) takes the sum, pairs.target(k) being known a while before.
template <class Pairs>
__device__ __forceinline__ void add_pairs(const Pairs& pairs, uint32_t count, const Kept& kept, Shared& s) {
    Norm product = Norm::one();  // of the norms of the denominators
    uint32_t first = count;  // pair that wants an inverse
    Names now{}, next{};  // of the pair whose points come, and of the next one
    if (count > 0) now = pairs.names(0), pairs.expect(s, now, Shared::X);
    if (count > 1) next = pairs.names(1);
#pragma unroll 1
    for (uint32_t k = 0; k < count; ++k) {
        if (k + 3 < count) pairs.prepare(k + 3);
        Names later{};
        if (k + 2 < count) later = pairs.names(k + 2);
        arrived();
        const F px = s.coordinate(0, false), qx = s.coordinate(1, false);
        F denominator = qx - px;
        const bool chord = surely_a_chord(px, qx);
        const Names names = now;
        now = next, next = later;
        if (k + 1 < count) pairs.expect(s, now, Shared::X);
        if (!chord) {
            if (!pairs.at(names.p) || !pairs.at(names.q)) continue;
            const Point p = pairs.load(names.p), q = pairs.load(names.q);
            const PairKind kind = pair_kind(p, q);
            if (!wants_inverse(kind)) continue;
            denominator = pair_denominator(kind, p, q);
        }
        const Norm norm = denominator.norm();
        if (first == count) {
            first = k;
            product = norm;
        } else {
            kept.put(k, false, product);
            if constexpr (Kept::OWN) kept.put(k, true, norm);
            product = product * norm;
        }
    }
    Norm inverse = block_inverse(s.norms, product);  // of the norms up to the pair at hand
    if (count > 0) now = pairs.names(count - 1), pairs.expect(s, now, Shared::POINT);
    if (count > 1) next = pairs.names(count - 2);
#pragma unroll 1
    for (uint32_t k = count; k-- > 0;) {
        if (k > 2) pairs.prepare(k - 3);
        Names later{};
        if (k > 1) later = pairs.names(k - 2);
        const uint32_t target = pairs.target(k);
        Norm own = inverse;
        if (k > first) own = kept.get(k, false);
        arrived();
        PairKind kind = PairKind::chord;
        F slope;  // at first 1 / denominator
        {
            const F px = s.coordinate(0, false), qx = s.coordinate(1, false);
            F denominator = qx - px;
            if (!surely_a_chord(px, qx)) {
                const Point p = pairs.ahead(s, 0, now.p), q = pairs.ahead(s, 1, now.q);
                kind = pair_kind(p, q);
                denominator = pair_denominator(kind, p, q);
            }
            if (k > first && wants_inverse(kind)) {
                own = inverse.times(own);
                inverse = inverse * (Kept::OWN ? kept.get(k, true) : denominator.norm());
            }
            slope = denominator.inverse_by(own);
        }
        {
            const Point p = pairs.ahead(s, 0, now.p), q = pairs.ahead(s, 1, now.q);
            pairs.keep(k, q);
            if (wants_inverse(kind)) {
                slope = pair_slope(kind, p, q, slope);
            } else {
                pairs.put(target, kind == PairKind::first ? p : kind == PairKind::second ? q : Point::infinity());
            }
        }
        const Point p = pairs.ahead(s, 0, now.p);
        const F qx = s.coordinate(1, false);
        now = next, next = later;
        if (k > 0) pairs.expect(s, now, Shared::POINT);
        if (wants_inverse(kind)) pairs.put(target, pair_sum(p, qx, slope));
    }
}

// Items of a launch, cut into tiles for its blocks: as many turns for each block as `most` items for a thread take, and
// then as few items as that allows. Calls tile(first item, count) of this thread, whose items lie THREADS apart, in all
// threads of a block together.
template <class Tile>
__device__ __forceinline__ void each_tile(uint32_t total, uint32_t most, Tile tile) {
    if (total == 0) return;
    uint32_t threads = gridDim.x * THREADS, share = (total - 1) / threads + 1;
    uint32_t turns = (share - 1) / most + 1, each = (share - 1) / turns + 1;
    for (uint64_t base = static_cast<uint64_t>(blockIdx.x) * THREADS * each; base < total; base += uint64_t(threads) * each) {
        const uint64_t first = base + threadIdx.x;
        const uint32_t left = first < total ? static_cast<uint32_t>((total - first - 1) / THREADS + 1) : 0;
        tile(static_cast<uint32_t>(first), left < each ? left : each);
    }
}

// This thread's part of scratch, which has room for `most` elements of each thread of the grid.
__device__ __forceinline__ Kept own_scratch(F* scratch, uint32_t most) {
    F* of_block = scratch + static_cast<size_t>(blockIdx.x) * most * THREADS;
    return {reinterpret_cast<FourWords*>(of_block) + threadIdx.x};
}

// What Round and Halving have in common: points of one array, by their numbers.
struct Named {
    const Point* bases;
    uint32_t skip;  // below it a number stands for infinity

    __device__ static bool negative(uint32_t name) { return (name & NEGATIVE) != 0; }
    __device__ const Point* at(uint32_t name) const {
        const uint32_t number = name & ~NEGATIVE;
        return number >= skip && number < NOTHING ? bases + (number - skip) : nullptr;
    }
    // The points of a pair, or only their x, are wanted soon.
    __device__ __forceinline__ void expect(Shared& s, const Names& names, uint32_t sixteens) const {
        s.expect(0, at(names.p), sixteens), s.expect(1, at(names.q), sixteens);
    }
    // What is there of a point that has been expected.
    __device__ __forceinline__ Point ahead(const Shared& s, uint32_t which, uint32_t name) const {
        return Point{s.coordinate(which, false), s.coordinate(which, true)}.neg_if(negative(name));
    }
    __device__ Point load(uint32_t name) const {
        const Point* point = at(name);
        return point ? ::load(point).neg_if(negative(name)) : Point::infinity();
    }
};

// One round, of which `sources` and `targets` are (names.cuh).
struct Round : Named {
    const Names* sources;
    const uint32_t* targets;
    Point *points, *sums;

    uint32_t base;  // item of pair 0

    __device__ Names names(uint32_t k) const { return sources[base + k * THREADS]; }
    __device__ void prepare(uint32_t k) const { prefetch(sources + base + k * THREADS), prefetch(targets + base + k * THREADS); }
    __device__ void keep(uint32_t, const Point&) const {}
    __device__ uint32_t target(uint32_t k) const { return targets[base + k * THREADS]; }
    __device__ void put(uint32_t target, const Point& sum) const {
        store((target & LAST ? sums : points) + (target & ~LAST), sum);
    }
};

// begins: all its rows (rounds.cu). scratch: room for `most` elements of each thread.
KERNEL __launch_bounds__(THREADS, RESIDENT)
    add_round(const Point* bases, uint32_t skip, const Names* sources, const uint32_t* targets, const uint32_t* begins,
              uint32_t n_lists, uint32_t round, uint32_t most, F* scratch, Point* points, Point* sums) {
    __shared__ Shared s;
    const Kept kept = own_scratch(scratch, most);
    const uint32_t at = pairs_before(begins, n_lists, round);
    if (round) bases = points, skip = 0;
    Round pairs{{bases, skip}, sources + at, targets + at, points, sums, 0};
    each_tile(begins[round * (n_lists + size_t(1)) + n_lists], most, [&](uint32_t first, uint32_t count) {
        pairs.base = first;
        add_pairs(pairs, count, kept, s);
    });
}

// Neighbours of every component, and a new component of the odd ones of component 0: see msm.cu.
struct Halving : Named {
    uint32_t components, pairs;  // in all, of one component
    Point* out;

    uint32_t base;

    __device__ Names names(uint32_t k) const {
        const uint32_t item = base + k * THREADS;
        return {2 * item, 2 * item + 1};
    }
    __device__ void prepare(uint32_t) const {}
    __device__ void keep(uint32_t k, const Point& q) const {
        const uint32_t item = base + k * THREADS;
        if (item < pairs) store(out + static_cast<size_t>(components) * pairs + item, q);
    }
    __device__ uint32_t target(uint32_t k) const { return base + k * THREADS; }
    __device__ void put(uint32_t target, const Point& sum) const { store(out + target, sum); }
};

// in[components][2 pairs] -> out[components + 1][pairs].
KERNEL __launch_bounds__(THREADS, RESIDENT)
    halve(const Point* in, uint32_t components, uint32_t pairs, uint32_t most, F* scratch, Point* out) {
    __shared__ Shared s;
    const Kept kept = own_scratch(scratch, most);
    Halving halving{{in, 0}, components, pairs, out, 0};
    each_tile(components * pairs, most, [&](uint32_t first, uint32_t count) {
        halving.base = first;
        add_pairs(halving, count, kept, s);
    });
}
