// gpu/tile.cuh - the part of a transform that one block holds in registers, and how it walks through its layers.
//
// A pass does some layers of a network (ntt.cuh) at once. Its tiles are 2^rows rows, `stride` elements apart, by 2^log_cols
// neighbouring columns, so that device memory is read in runs; eight elements a thread. Three layers at a time are done on
// octets in registers (octet.cuh); between two such steps the block's threads exchange elements through shared memory.
// Layer q of a tile joins rows that differ in bit rows - 1 - q. The first `done` layers of a tile are not in its pass: the
// last pass works on neighbours, and its tiles hold several blocks (or it has fewer than eight elements, and there are no
// such layers). So a tile always looks like one block of layer `first`, which is where its pass would begin with done = 0.
// Where twiddles come from: backend/cuda_twiddles.py.
#pragma once
#include "memory.cuh"
#include "module.cuh"
#include "octet.cuh"

constexpr int LOG_TILE = 11;  // elements at most; an eighth as many threads. Half an element each are exchanged at a time
constexpr int TILE_THREADS = 1 << (LOG_TILE - 3), TILE_BLOCKS = 2;  // of an SM: 128 registers a thread

// A table in the order of ntt.cuh.
struct Twiddles {
    const Fr* at;
    __device__ __forceinline__ Fr operator[](uint32_t k) const { return load(at + k); }
};

// Where the octet of a thread lies in a tile: element j at slot + (j << log_step). block: its number in the octet's first
// layer.
struct Place {
    uint32_t slot, block;
    int log_step;
};

struct Tile {
    int rows, done, log_cols;
    uint32_t block;          // of layer `first`
    uint32_t n, at, stride;  // at: of element (row 0, column 0) in its vector; stride: between rows

    // number: of the tile in its transform. shift: see PASS_PARAMETERS.
    __device__ Tile(uint32_t number, uint32_t shift, int log_n, int first, int rows_, int done_, int log_cols_)
        : rows(rows_), done(done_), log_cols(log_cols_) {
        const int log_stride = log_n - first - rows, log_groups = log_stride - log_cols;
        block = number >> log_groups;  // groups of columns side by side in a block
        n = 1u << log_n;
        stride = 1u << log_stride;
        at = (block << (log_n - first)) + ((number - (block << log_groups)) << log_cols);
        block += shift;
    }

    // Of this thread in the step whose octets begin at layer q.
    __device__ Place place(int q) const {
        const int log_part = rows - 3 - q;
        const uint32_t column = threadIdx.x & ((1u << log_cols) - 1), rest = threadIdx.x >> log_cols;
        const uint32_t low = rest & ((1u << log_part) - 1), high = rest >> log_part;
        return {((high << (log_part + 3)) + low) << log_cols | column, (block << q) + high, log_part + log_cols};
    }
    // The steps with which `down` begins and ends.
    __device__ int first_step() const { return done < rows - 3 ? done : rows - 3; }
    __device__ int last_step() const { return rows - 3; }

    // Index of the octet's element j in its vector.
    __device__ uint32_t index(const Place& place, int j) const {
        const uint32_t slot = place.slot + (j << place.log_step);
        return at + (slot >> log_cols) * stride + (slot & ((1u << log_cols) - 1));
    }
    __device__ void load_octet(Fr (&x)[8], const Fr* values, const Place& place) const {
        UNROLL for (int j = 0; j < 8; ++j) {
            const uint32_t i = index(place, j);
            x[j] = i < n ? load(values + i) : Fr::zero();
        }
    }
    __device__ void store_octet(const Fr (&x)[8], Fr* values, const Place& place) const {
        UNROLL for (int j = 0; j < 8; ++j) {
            const uint32_t i = index(place, j);
            if (i < n) store(values + i, x[j]);
        }
    }
};

// What a block's threads exchange through: one half of each element, with a gap after every eight, so that the eight
// threads of a transaction hit all banks whether their slots follow each other or lie a power of two apart.
struct Shared {
    Sixteen at[(1 << LOG_TILE) + (1 << (LOG_TILE - 3))];
    __device__ Sixteen& operator[](uint32_t slot) { return at[slot + (slot >> 3)]; }
};

// Each thread gives the octet at `from` and gets that at `to`.
__device__ __forceinline__ void exchange(Shared& s, Fr (&x)[8], const Place& from, const Place& to) {
    UNROLL for (int half = 0; half < 4; half += 2) {
        __syncthreads();  // what was written before has been read
        UNROLL for (int j = 0; j < 8; ++j) s[from.slot + (j << from.log_step)] = {x[j].v[half], x[j].v[half + 1]};
        __syncthreads();
        UNROLL for (int j = 0; j < 8; ++j) {
            const Sixteen got = s[to.slot + (j << to.log_step)];
            x[j].v[half] = got.low, x[j].v[half + 1] = got.high;
        }
    }
}

// All layers of `down`, from x at place(first_step()) to x at place(last_step()), which is returned.
__device__ __forceinline__ Place walk_down(const Tile& tile, Shared& s, const Twiddles& t, Fr (&x)[8]) {
    int q = tile.first_step(), skip = tile.done - q;
    Place place = tile.place(q);
#pragma unroll 1
    for (;;) {
        octet_down(x, t, place.block, skip);
        if (q == tile.last_step()) return place;
        const int next = q + 3;
        q = next < tile.last_step() ? next : tile.last_step();
        skip = next - q;
        const Place to = tile.place(q);
        exchange(s, x, place, to);
        place = to;
    }
}

// All layers of `up`, the same way back.
__device__ __forceinline__ Place walk_up(const Tile& tile, Shared& s, const Twiddles& t, Fr (&x)[8]) {
    const int layers = tile.rows - tile.done;
    int q = tile.last_step(), skip = layers < 3 ? 3 - layers : (3 - layers % 3) % 3;
    Place place = tile.place(q);
#pragma unroll 1
    for (;;) {
        octet_up(x, t, place.block, skip);
        if (q + skip == tile.done) return place;
        q += skip - 3;
        skip = 0;
        const Place to = tile.place(q);
        exchange(s, x, place, to);
        place = to;
    }
}

// What every kernel of a pass takes: the vectors; twiddles for each way (one table, or a window of it each); constants of
// the domain (quotient.cu); the first tile that it is to do, and what is added to the numbers of blocks for the look-up of
// twiddles; the shape of the pass. A grid of tiles * vectors blocks, of as many threads as a tile has octets: neighbours do
// the same tile of all vectors, with the same twiddles. Vectors lie n elements apart, but only the first `count` of every
// three are meant.
#define PASS_PARAMETERS                                                                                              \
    Fr *values, const Fr *t_down, const Fr *t_up, const Fr *constants, uint32_t base, uint32_t shift, int log_n,     \
        int first, int rows, int done, int log_cols, uint32_t vectors, uint32_t count
#define PASS_TILE Tile(base + blockIdx.x / vectors, shift, log_n, first, rows, done, log_cols)

// Of the block's vector, in all of them.
__device__ __forceinline__ uint64_t vector_offset(uint32_t vectors, uint32_t count, int log_n) {
    const uint32_t v = blockIdx.x % vectors;
    return static_cast<uint64_t>(v / count * 3 + v % count) << log_n;
}
