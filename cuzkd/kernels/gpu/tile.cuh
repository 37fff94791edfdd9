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
constexpr int TILE_THREADS = 1 << (LOG_TILE - 3), TILE_BLOCKS = 2;  // of an SM: 128 registers a thread. Of half tiles four

// The same number, but the compiler does not know: it computes anew what follows from it, where it would else keep eight
// addresses in registers through all layers.
template <class T>
__device__ __forceinline__ T anew(T q) {
    asm volatile("" : "+r"(q));
    return q;
}

// A table in the order of ntt.cuh.
struct Twiddles {
    const Factor<Fr>* at;
    __device__ __forceinline__ Fr value(uint32_t k) const { return load(&at[anew(k)].value); }
    // Here and now: the compiler would else move the load behind the products before.
    __device__ __forceinline__ Fr quotient(uint32_t k) const {
        Fr read = load(&at[anew(k)].quotient);
#if defined(__CUDA_ARCH__)
        UNROLL for (int i = 0; i < Fr::Params::N; ++i) asm volatile("" : "+l"(read.v[i]));
#endif
        return read;
    }
};

// Where the octet of a thread lies in a tile: element j at slot + (j << log_step).
struct Place {
    uint32_t slot;
    int log_step;
};

struct Tile {
    int log_n, log_stride, rows, done, log_cols;  // log_stride: between rows
    uint32_t block, at;                           // of layer `first`; of element (row 0, column 0) in its vector

    // number: of the tile in its transform. shift: see PASS_PARAMETERS.
    __device__ Tile(uint32_t number, uint32_t shift, int log_n_, int first, int rows_, int done_, int log_cols_)
        : log_n(log_n_), log_stride(log_n - first - rows_), rows(rows_), done(done_), log_cols(log_cols_) {
        const int log_groups = log_stride - log_cols;  // groups of columns side by side in a block
        block = number >> log_groups;
        at = (block << (log_n - first)) + ((number - (block << log_groups)) << log_cols);
        block += shift;
    }

    // Of this thread, in the step whose octets begin at layer q.
    __device__ Place place(int q) const {
        const int log_part = rows - 3 - q;
        const uint32_t column = threadIdx.x & ((1u << log_cols) - 1), row = threadIdx.x >> log_cols;
        const uint32_t low = row & ((1u << log_part) - 1), high = row - low;
        return {(high << 3 | low) << log_cols | column, log_part + log_cols};
    }
    // The octet's number among the blocks of layer q; nothing that leads to it is kept in registers.
    __device__ uint32_t block_at(int q) const { return (block << q) + (threadIdx.x >> log_cols >> (anew(rows) - 3 - q)); }
    // The steps with which `down` begins and ends.
    __device__ int first_step() const { return done < rows - 3 ? done : rows - 3; }
    __device__ int last_step() const { return rows - 3; }
    // A step whose octets lie in the elements of one warp, neighbours in neighbouring lanes; for at most two columns.
    __device__ int near_step() const { return rows > 8 ? rows - 8 + log_cols : 0; }

    __device__ uint32_t n() const { return 1u << log_n; }
    // In its vector, of element j of the octet in the step at layer q.
    __device__ uint32_t index(int q, int j) const {
        const Place place = this->place(q);
        const uint32_t row = place.slot >> log_cols, column = place.slot & ((1u << log_cols) - 1);
        return at + (row << log_stride) + column + (j << (place.log_step - log_cols + log_stride));
    }
    __device__ void load_octet(Fr (&x)[8], const Fr* values, int q) const {
        q = anew(q);
        UNROLL for (int j = 0; j < 8; ++j) {
            const uint32_t i = index(q, j);
            x[j] = i < n() ? load(values + i) : Fr::zero();
        }
    }
    __device__ void store_octet(const Fr (&x)[8], Fr* values, int q) const {
        q = anew(q);
        UNROLL for (int j = 0; j < 8; ++j) {
            const uint32_t i = index(q, j);
            if (i < n()) store(values + i, x[j]);
        }
    }
};

// What a block's threads exchange through: one half of each element, with a gap after every eight, so that the eight
// threads of a transaction hit all banks whether their slots follow each other or lie a power of two apart.
struct Shared {
    Sixteen at[(1 << LOG_TILE) + (1 << (LOG_TILE - 3))];
    __device__ Sixteen& operator[](uint32_t slot) { return at[slot + (slot >> 3)]; }
};

// Lanes of a warp hold neighbours, 2^8 elements, at places of no longer steps than this.
constexpr int LOG_WARP_STEP = 5;

// Each thread gives the octet at `from` and gets that at `to`. Where both are places in the warp's own elements, no thread
// waits for other warps; so those have to be through with reading these (walk_up).
__device__ __forceinline__ void exchange(Shared& s, Fr (&x)[8], const Place& from, const Place& to) {
    const bool in_warp = from.log_step <= LOG_WARP_STEP && to.log_step <= LOG_WARP_STEP && blockDim.x >= 32;
    const auto wait = [in_warp] {
        if (in_warp) {
            __syncwarp();
        } else {
            __syncthreads();
        }
    };
    UNROLL for (int half = 0; half < 4; half += 2) {
        wait();  // what was written before has been read
        UNROLL for (int j = 0; j < 8; ++j) s[from.slot + (j << from.log_step)] = {x[j].v[half], x[j].v[half + 1]};
        wait();
        UNROLL for (int j = 0; j < 8; ++j) {
            const Sixteen got = s[to.slot + (j << to.log_step)];
            x[j].v[half] = got.low, x[j].v[half + 1] = got.high;
        }
    }
}

// All layers of `down`, from x at place(first_step()) to x at place(last_step()).
__device__ __forceinline__ void walk_down(const Tile& tile, Shared& s, const Twiddles& t, Fr (&x)[8]) {
    int q = tile.first_step(), skip = tile.done - q;
    Ahead<Fr, Twiddles> twiddles(t);
    twiddles.fetch(mirrored(tile.block_at(q) << skip));
    ROLLED for (;;) {
        const int from = q, next = from + 3, skipped = skip;
        const bool last = from == tile.last_step();
        q = next < tile.last_step() ? next : tile.last_step();
        skip = last ? 0 : next - q;
        octet_down(x, twiddles, mirrored(tile.block_at(from)), skipped,
                   [&] { return mirrored(tile.block_at(anew(q)) << skip); });
        if (last) return;
        exchange(s, x, tile.place(from), tile.place(q));
    }
}

// All layers of `up`, the same way back. At its end the threads may still be reading what others hold: a barrier has to
// come before the next walk up.
__device__ __forceinline__ void walk_up(const Tile& tile, Shared& s, const Twiddles& t, Fr (&x)[8]) {
    const int layers = tile.rows - tile.done;
    int q = tile.last_step(), skip = layers < 3 ? 3 - layers : (3 - layers % 3) % 3;
    Ahead<Fr, Twiddles> twiddles(t);
    twiddles.fetch(tile.block_at(q) << 2);
    ROLLED for (;;) {
        const int from = q, skipped = skip;
        const bool last = from + skip == tile.done;
        if (!last) q += skip - 3;
        octet_up(x, twiddles, tile.block_at(from), skipped, [&] { return tile.block_at(anew(q)) << 2; });
        if (last) return;
        skip = 0;
        exchange(s, x, tile.place(from), tile.place(q));
    }
}

// What every kernel of a pass takes: the vectors; twiddles for each way (one table, or a window of it each); constants of
// the domain (quotient.cu); the first tile that it is to do, and what is added to the numbers of blocks for the look-up of
// twiddles; the shape of the pass. A grid of tiles * vectors blocks, of as many threads as a tile has octets: neighbours do
// the same tile of all vectors, with the same twiddles. Vectors lie n elements apart, but only the first `count` of every
// three are meant.
#define PASS_PARAMETERS                                                                                              \
    Fr *values, const Factor<Fr> *t_down, const Factor<Fr> *t_up, const Fr *constants, uint32_t base, uint32_t shift, \
        int log_n, int first, int rows, int done, int log_cols, uint32_t vectors, uint32_t count
#define PASS_TILE Tile(anew(base) + blockIdx.x / vectors, shift, log_n, first, rows, done, log_cols)

// Of the block's vector, in all of them.
__device__ __forceinline__ uint64_t vector_offset(uint32_t vectors, uint32_t count, int log_n) {
    const uint32_t v = blockIdx.x % vectors;
    return static_cast<uint64_t>(v / count * 3 + v % count) << log_n;
}
