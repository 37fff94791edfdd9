// gpu/ntt.cu - transforms of 2^log_n values of Fr in a few passes over device memory, and the steps between them.
//
// The two networks of ntt.cuh: `down` takes values to n times their coefficients (natural to bit-reversed), `up` takes
// coefficients to values (bit-reversed to natural). A pass does `layers` layers of a network at once on tiles of up to
// 1024 elements in shared memory: 2^layers rows, `stride` elements apart, by 2^log_cols neighbouring columns, so that
// device memory is read in runs. Layer `first` has half-length n / 2^(first + 1).
// Several transforms of one size lie one after another (grid.y).
#include "module.cuh"
#include "ntt.cuh"

constexpr int TILE = 1024;

struct Tile {
    Fr* at;           // element (row 0, column 0)
    uint64_t stride;  // between rows
    uint64_t block;   // index of the tile's block in layer `first`: its twiddle index
    int layers, log_cols;

    __device__ Tile(Fr* values, int log_n, int first, int layers_, int log_cols_) : layers(layers_), log_cols(log_cols_) {
        int log_stride = log_n - first - layers;
        stride = uint64_t(1) << log_stride;
        uint64_t groups = stride >> log_cols;  // tiles side by side in one block
        block = blockIdx.x / groups;
        at = values + (static_cast<uint64_t>(blockIdx.y) << log_n) + (block << (log_n - first)) +
             ((blockIdx.x % groups) << log_cols);
    }
    __device__ Fr* global(int e) const {
        return at + (e >> log_cols) * stride + (e & ((1 << log_cols) - 1));
    }
    __device__ int size() const { return 1 << (layers + log_cols); }

    __device__ void load(Fr* s) const {
        for (int e = threadIdx.x; e < size(); e += blockDim.x) s[e] = *global(e);
        __syncthreads();
    }
    __device__ void store(const Fr* s) const {
        for (int e = threadIdx.x; e < size(); e += blockDim.x) *global(e) = s[e];
    }
    // Elements of item e of a layer (or of a pair of layers) whose parts lie 2^log_part rows apart: e counts the
    // columns fastest, then the rows of one part, then the blocks; `parts` is 2 or 4.
    __device__ Fr* first_of(Fr* s, int e, int log_part, int parts, int* local_block) const {
        int row = e >> log_cols;
        *local_block = row >> log_part;
        row = (*local_block << log_part) * parts + (row & ((1 << log_part) - 1));
        return s + (row << log_cols) + (e & ((1 << log_cols) - 1));
    }
};

__device__ void down_tile(const Tile& tile, Fr* s, const Fr* t) {
    int q = 0;
    for (; q + 1 < tile.layers; q += 2) {
        int log_part = tile.layers - 2 - q, step = 1 << (log_part + tile.log_cols);
        for (int e = threadIdx.x; e < tile.size() / 4; e += blockDim.x) {
            int b;
            Fr* x = tile.first_of(s, e, log_part, 4, &b);
            uint64_t k = (tile.block << q) + b;
            Fr x0 = x[0], x1 = x[step], x2 = x[2 * step], x3 = x[3 * step];
            radix4_down(x0, x1, x2, x3, t[k], t[2 * k], t[2 * k + 1]);
            x[0] = x0, x[step] = x1, x[2 * step] = x2, x[3 * step] = x3;
        }
        __syncthreads();
    }
    if (q < tile.layers) {
        int step = 1 << tile.log_cols;
        for (int e = threadIdx.x; e < tile.size() / 2; e += blockDim.x) {
            int b;
            Fr* x = tile.first_of(s, e, 0, 2, &b);
            Fr x0 = x[0], x1 = x[step];
            butterfly_down(x0, x1, t[(tile.block << q) + b]);
            x[0] = x0, x[step] = x1;
        }
        __syncthreads();
    }
}

__device__ void up_tile(const Tile& tile, Fr* s, const Fr* t) {
    int q = tile.layers;
    if (q & 1) {
        --q;
        int step = 1 << tile.log_cols;
        for (int e = threadIdx.x; e < tile.size() / 2; e += blockDim.x) {
            int b;
            Fr* x = tile.first_of(s, e, 0, 2, &b);
            Fr x0 = x[0], x1 = x[step];
            butterfly_up(x0, x1, t[(tile.block << q) + b]);
            x[0] = x0, x[step] = x1;
        }
        __syncthreads();
    }
    for (q -= 2; q >= 0; q -= 2) {
        int log_part = tile.layers - 2 - q, step = 1 << (log_part + tile.log_cols);
        for (int e = threadIdx.x; e < tile.size() / 4; e += blockDim.x) {
            int b;
            Fr* x = tile.first_of(s, e, log_part, 4, &b);
            uint64_t k = (tile.block << q) + b;
            Fr x0 = x[0], x1 = x[step], x2 = x[2 * step], x3 = x[3 * step];
            radix4_up(x0, x1, x2, x3, t[k], t[2 * k], t[2 * k + 1]);
            x[0] = x0, x[step] = x1, x[2 * step] = x2, x[3 * step] = x3;
        }
        __syncthreads();
    }
}

// One pass in place. t: the down (up) table of ntt.cuh for n or more. Grid: (n / tile size, transforms); 256 threads.
KERNEL __launch_bounds__(256) ntt_down(Fr* values, const Fr* t, int log_n, int first, int layers, int log_cols) {
    __shared__ Fr s[TILE];
    Tile tile(values, log_n, first, layers, log_cols);
    tile.load(s);
    down_tile(tile, s, t);
    tile.store(s);
}
KERNEL __launch_bounds__(256) ntt_up(Fr* values, const Fr* t, int log_n, int first, int layers, int log_cols) {
    __shared__ Fr s[TILE];
    Tile tile(values, log_n, first, layers, log_cols);
    tile.load(s);
    up_tile(tile, s, t);
    tile.store(s);
}

// Powers in two levels: base^e = low[e mod 2^split] high[e >> split] (a constant factor may lie in high).
__device__ Fr power(const Fr* low, const Fr* high, int split, uint64_t e) {
    return low[e & ((uint64_t(1) << split) - 1)] * high[e >> split];
}

// out[k] = base^rev(k), k < 2^bits, rev over `bits` bits: a twiddle table.
KERNEL twiddles(Fr* out, const Fr* low, const Fr* high, int split, int bits) {
    uint64_t k = thread_index();
    if (k < uint64_t(1) << bits) out[k] = power(low, high, split, reverse_bits(k, bits));
}

// In place, values in bit-reversed order: the one of index i is multiplied by base^i (and the factor in high).
KERNEL scale_reversed(Fr* values, const Fr* low, const Fr* high, int split, int log_n) {
    uint64_t k = thread_index();
    if (k >= uint64_t(1) << log_n) return;
    Fr* v = values + (static_cast<uint64_t>(blockIdx.y) << log_n) + k;
    *v = *v * power(low, high, split, reverse_bits(k, log_n));
}

// out[k] = in[rev(k)] base^i, where i is the index of the coefficient: k where the output is in natural order (inverse
// transforms), else rev(k). CANONICAL where the factor in `high` is.
KERNEL reorder(const Fr* in, Fr* out, const Fr* low, const Fr* high, int split, int log_n, int natural_out) {
    uint64_t k = thread_index();
    if (k >= uint64_t(1) << log_n) return;
    uint64_t from = reverse_bits(k, log_n);
    out[k] = in[from] * power(low, high, split, natural_out ? k : from);
}

// c = a b, row by row.
KERNEL pointwise(const Fr* a, const Fr* b, Fr* c, uint64_t n) {
    uint64_t i = thread_index();
    if (i < n) c[i] = a[i] * b[i];
}

// a := a b - c, CANONICAL: on the odd coset, the scalars of the H sum by the circom reduction.
KERNEL quotient(Fr* a, const Fr* b, const Fr* c, uint64_t n) {
    uint64_t i = thread_index();
    if (i < n) a[i] = (a[i] * b[i] - c[i]).to_canonical();
}

// c := a b - c: the same, Montgomery, on its way to coefficients.
KERNEL numerator(const Fr* a, const Fr* b, Fr* c, uint64_t n) {
    uint64_t i = thread_index();
    if (i < n) c[i] = a[i] * b[i] - c[i];
}
