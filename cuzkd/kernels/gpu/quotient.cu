// gpu/quotient.cu - the steps between the transforms of a quotient, at the ends of passes that have the values at hand.
//
// Triples of vectors a, b, c of n elements, one triple after another. These passes do one tile of two or three vectors, one
// after another, because another block would overwrite what they need; where there are too few tiles for that to fill the
// device, the plain passes of ntt.cu run, and the small kernels below. `vectors` is the number of triples throughout.
// Transforms carry no 1/n: on the coset there are n A, n B, n C. What puts that right are four constants of the domain:
//   n, 1/n^2         circom   h = A B - C = (nA nB - n nC) / n^2
//   1/2n, -1/2n^3    bellman  h = (C - Q)/2, see quotient_close
// n is Montgomery, the others CANONICAL, which makes CANONICAL of the Montgomery value that they meet.
#define CUZKD_INLINE
#include "ntt.cuh"
#include "tile.cuh"

enum Constant { N, CIRCOM_SCALE, HALF, BELLMAN_SCALE };

__device__ __forceinline__ Fr* triple(Fr* values, uint32_t vectors, int log_n) {
    return values + vector_offset(vectors, 1, log_n);
}
__device__ __forceinline__ Fr circom_scalar(const Fr& a, const Fr& b, const Fr& c, const Fr* constants) {
    return Fr::mul_sub(a, b, c, load(constants + N)) * load(constants + CIRCOM_SCALE);
}
__device__ __forceinline__ Fr bellman_value(const Fr& a, const Fr& b, const Fr* constants) {
    return a * b * load(constants + BELLMAN_SCALE);
}

// c := a b, and the first pass of `down` on all three.
KERNEL __launch_bounds__(TILE_THREADS, TILE_BLOCKS) quotient_open(PASS_PARAMETERS) {
    __shared__ Shared s;
    const Tile tile = PASS_TILE;
    Fr *const a = triple(values, vectors, log_n), *const b = a + tile.n(), *const c = b + tile.n();
    ROLLED for (int v = 0; v < 3; ++v) {  // c, b, a
        Fr x[8];
        tile.load_octet(x, v == 2 ? a : b, tile.first_step());
        if (v == 0) {
            each(x, [&](Fr& value, int j) { value = value * load(a + tile.index(anew(tile.first_step()), j)); });
        }
        walk_down(tile, s, {t_down}, x);
        tile.store_octet(x, v == 0 ? c : v == 1 ? b : a, tile.last_step());
    }
}

// circom: the last pass of `up` on c, a and b, and the scalars of the H sum: a := A B - C, CANONICAL.
KERNEL __launch_bounds__(TILE_THREADS, TILE_BLOCKS) quotient_circom(PASS_PARAMETERS) {
    __shared__ Shared s;
    const Tile tile = PASS_TILE;
    Fr *const a = triple(values, vectors, log_n), *const b = a + tile.n(), *const c = b + tile.n();
    ROLLED for (int v = 0; v < 3; ++v) {  // c, a, b
        Fr x[8];
        tile.load_octet(x, v == 0 ? c : v == 1 ? a : b, tile.last_step());
        walk_up(tile, s, {t_up}, x);
        if (v == 2) {
            each(x, [&](Fr& value, int j) {
                const uint32_t i = tile.index(anew(tile.first_step()), j);  // where this thread has just put a and c
                value = circom_scalar(load(a + i), value, load(c + i), constants);
            });
        }
        tile.store_octet(x, v == 0 ? c : a, tile.first_step());
        __syncthreads();  // see walk_up
    }
}

// bellman: the last pass of `up` on a and b, and the first pass of `down` on their product: b := what that leaves of the
// values -A B / (2 n), plain and no Montgomery forms from here on.
KERNEL __launch_bounds__(TILE_THREADS, TILE_BLOCKS) quotient_bellman(PASS_PARAMETERS) {
    __shared__ Shared s;
    const Tile tile = PASS_TILE;
    Fr *const a = triple(values, vectors, log_n), *const b = a + tile.n();
    Fr x[8];
    ROLLED for (int v = 0; v < 2; ++v) {  // a, b
        tile.load_octet(x, v == 0 ? a : b, tile.last_step());
        walk_up(tile, s, {t_up}, x);
        if (v == 0) tile.store_octet(x, a, tile.first_step());
        __syncthreads();  // see walk_up
    }
    each(x, [&](Fr& value, int j) {
        value = bellman_value(load(a + tile.index(anew(tile.first_step()), j)), value, constants);
    });
    walk_down(tile, s, {t_down}, x);
    tile.store_octet(x, b, tile.last_step());
}

// bellman: the last pass of `down` on c and b, and a := the coefficients of h in natural order, CANONICAL.
// With Q = A B mod X^n + 1, which is what the coset's values know of A B: A B - C = h (X^n - 1) and h has no more than n
// coefficients, so that Q - C = -2 h. Here c becomes n C and b becomes -Q(w_2n X)/2.
KERNEL __launch_bounds__(TILE_THREADS, TILE_BLOCKS) quotient_close(PASS_PARAMETERS) {
    __shared__ Shared s;
    uint32_t number = base + blockIdx.x / vectors;
    // Neighbours write neighbours: lines are written as a whole.
    if (gridDim.x / vectors == 1u << log_n >> rows) number = reverse_bits(number, log_n - rows);
    const Tile tile(number, shift, log_n, first, rows, done, log_cols);
    const auto vector = [&](int v) { return triple(values, anew(vectors), log_n) + v * tile.n(); };  // a, b, c
    Fr x[8];
    ROLLED for (int v = 2; v > 0; --v) {
        tile.load_octet(x, vector(v), tile.first_step());
        walk_down(tile, s, {t_down}, x);
        if (v == 2) tile.store_octet(x, vector(v), tile.last_step());
    }
    each(x, [&](Fr& value, int j) {
        const uint32_t i = tile.index(tile.last_step(), anew(j));
        if (i >= tile.n()) return;
        // w_2n^-rev(i), which is -t[mirrored(i)] but for i = 0
        const uint32_t coset = tile.block_at(anew(tile.last_step())) << 3 | j;
        const Fr back = coset == 0 ? value.neg() : load(t_down + mirrored(coset)).times(value);
        store(vector(0) + reverse_bits(i, log_n), load(vector(2) + i) * load(constants + HALF) - back);
    });
}

// The steps alone, element by element; n is of one vector. Grid: (elements, triples).
__device__ __forceinline__ Fr* element(Fr* values, uint64_t n) {
    return values + blockIdx.y * 3 * n + thread_index();
}
KERNEL make_c(Fr* values, uint64_t n) {
    Fr* a = element(values, n);
    if (thread_index() < n) store(a + 2 * n, load(a) * load(a + n));
}
KERNEL circom_scalars(Fr* values, const Fr* constants, uint64_t n) {
    Fr* a = element(values, n);
    if (thread_index() < n) store(a, circom_scalar(load(a), load(a + n), load(a + 2 * n), constants));
}
KERNEL bellman_values(Fr* values, const Fr* constants, uint64_t n) {
    Fr* a = element(values, n);
    if (thread_index() < n) store(a + n, bellman_value(load(a), load(a + n), constants));
}
