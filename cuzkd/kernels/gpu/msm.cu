// gpu/msm.cu - what the pair tree leaves: lists that are still long, and the weighted sums of each window's buckets.
//
// Long lists are few points in all, and seldom there: they are cut into pieces, a block sums a piece, and where a list has
// several pieces another block sums these.
// A window's buckets: sum over b of (b + 1) B_b = S + sum over i of 2^i U_i, where S is the sum of all, and U_i of those
// whose number has bit i: sums without weights, which the host puts together. Component 0 is S, component i + 1 is U_i.
// While buckets are many, they are halved (tree.cu): component 0 keeps the sums of neighbours, all odd ones become the next
// component, and the components that are there are halved as well. The last `log_left` bits are left to blocks, one or a few
// for each component of each window.
#include "lists.cuh"
#include "quads.cuh"

constexpr uint32_t NO_LIST = 0xffffffffu;

// The lists of which `piece` or fewer of their points are left are summed, and the pieces of the others: partials[piece].
// begins: the row of pieces (rounds.cu). rounds >= 1.
KERNEL __launch_bounds__(SUM_THREADS)
    add_long(const uint32_t* offsets, const uint32_t* begins, const uint32_t* place, uint32_t n_lists, uint32_t rounds,
             uint32_t piece, const Point* points, Sum* partials, Point* sums) {
    __shared__ SumSpace space;
    uint32_t total = begins[n_lists];
    for (uint32_t p = blockIdx.x; p < total; p += gridDim.x) {
        uint32_t list = list_of(begins, n_lists, p, 0), first = (p - begins[list]) * piece;
        uint32_t left = halved(offsets[list + 1] - offsets[list], rounds) - first, log_step = rounds - 1;
        const Point* from = points + place[list] + (static_cast<size_t>(first) << log_step);
        block_sum(space, left < piece ? left : piece, [=](uint32_t i) { return from[static_cast<size_t>(i) << log_step]; });
        if (threadIdx.x == 0) {
            if (begins[list + 1] - begins[list] == 1) sums[list] = space.sums[0].to_affine(); else partials[p] = space.sums[0];
        }
        __syncthreads();
    }
}

// The sums of lists with several pieces.
KERNEL __launch_bounds__(SUM_THREADS)
    join_long(const uint32_t* begins, uint32_t n_lists, const Sum* partials, Point* sums) {
    __shared__ SumSpace space;
    uint32_t total = begins[n_lists];
    for (uint32_t p = blockIdx.x; p < total; p += gridDim.x) {
        uint32_t list = list_of(begins, n_lists, p, 0), pieces = begins[list + 1] - p;
        if (begins[list] != p || pieces == 1) continue;
        block_sum(space, pieces, [=](uint32_t i) { return partials[p + i]; });
        if (threadIdx.x == 0) sums[list] = space.sums[0].to_affine();
        __syncthreads();
    }
}

// Where entries are taken chunk by chunk: the list that goes on from before entry `begin`, if there is one, has its sum so
// far put aside, as the chunk that begins there is going to write its own. One thread.
KERNEL put_aside(const uint32_t* offsets, uint32_t n_lists, uint32_t begin, const Point* sums, Point* aside,
                 uint32_t* list_aside) {
    *list_aside = NO_LIST;
    if (begin >= offsets[n_lists]) return;
    uint32_t list = list_of(offsets, n_lists, begin, 0);
    if (offsets[list] == begin) return;
    *list_aside = list;
    *aside = sums[list];
}

// And in the end it is added. One thread: they are as few as chunks.
KERNEL add_aside(const Point* aside, const uint32_t* lists_aside, uint32_t n, Point* sums) {
    for (uint32_t i = 0; i < n;) {
        uint32_t list = lists_aside[i];
        if (list == NO_LIST) {
            ++i;
            continue;
        }
        Sum sum = Sum::from_affine(sums[list]);
        for (; i < n && lists_aside[i] == list; ++i) sum = sum.add(aside[i]);
        sums[list] = sum.to_affine();
    }
}

// Where a component of a window comes to: window w is window first + w % count of sum w / count; out[sum] holds, for each
// of its `all` windows, n components, and then its unit.
struct Places {
    uint32_t n, count, first, all;

    __device__ size_t of_sum(uint32_t sum) const { return sum * (static_cast<size_t>(all) * n + 1); }
    __device__ size_t of(uint32_t window, uint32_t component) const {
        return of_sum(window / count) + (first + window % count) * n + component;
    }
};

// in[components][windows in all][2^log_left]: see above. Each of the n = components + log_left components in the end is
// summed by 2^log_slices blocks: block (c 2^log_slices + i, w) makes slice i of component c of window w, for out where it is
// the only one, else for partials[w][c][i]. Block (n 2^log_slices, j) copies units[j]; units: null: not now.
KERNEL __launch_bounds__(SUM_THREADS)
    component_sums(const Point* in, uint32_t components, uint32_t log_left, uint32_t log_slices, uint32_t count,
                   uint32_t first, uint32_t all, const Point* units, Sum* partials, Point* out) {
    __shared__ SumSpace space;
    uint32_t component = blockIdx.x >> log_slices, slice = blockIdx.x - (component << log_slices);
    uint32_t window = blockIdx.y, windows = gridDim.y, n = components + log_left;
    Places places{n, count, first, all};
    if (component == n) {
        if (window < windows / count && threadIdx.x == 0) out[places.of_sum(window + 1) - 1] = units[window];
        return;
    }
    if (component < components) {
        uint32_t size = 1u << (log_left - log_slices);
        const Point* from = in + ((static_cast<size_t>(component) * windows + window) << log_left) + slice * size;
        block_sum(space, size, [=](uint32_t i) { return from[i]; });
    } else {
        const Point* from = in + (static_cast<size_t>(window) << log_left);
        uint32_t bit = 1u << (component - components), size = 1u << (log_left - log_slices - 1);
        block_sum(space, size, [=](uint32_t i) {
            uint32_t k = slice * size + i;
            return from[(k & ~(bit - 1)) * 2 + bit + (k & (bit - 1))];
        });
    }
    if (threadIdx.x != 0) return;
    if (log_slices == 0) {
        out[places.of(window, component)] = space.sums[0].to_affine();
    } else {
        partials[((static_cast<size_t>(window) * n + component) << log_slices) + slice] = space.sums[0];
    }
}

// The sums of slices. Grid: (n, windows in all).
KERNEL __launch_bounds__(SUM_THREADS)
    join_slices(const Sum* partials, uint32_t log_slices, uint32_t count, uint32_t first, uint32_t all, Point* out) {
    __shared__ SumSpace space;
    uint32_t component = blockIdx.x, window = blockIdx.y, n = gridDim.x;
    const Sum* from = partials + ((static_cast<size_t>(window) * n + component) << log_slices);
    block_sum(space, 1u << log_slices, [=](uint32_t i) { return from[i]; });
    if (threadIdx.x == 0) out[Places{n, count, first, all}.of(window, component)] = space.sums[0].to_affine();
}
