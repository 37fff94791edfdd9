// gpu/setup.cu - the scalars of a development key (backend/cuda_setup.py). All of them CANONICAL; arithmetic in setup.cuh.
#include "module.cuh"
#include "setup.cuh"

constexpr uint32_t WARP = 0xffffffffu;
constexpr uint32_t NOWHERE = 0xffffffffu;  // no wire has this index: n_wires < 2^32

// out[i], i < n: the values that `of` describes, its leap being the power of this grid's number of threads.
KERNEL __launch_bounds__(128) lagrange(const Lagrange<Fr>* of, uint64_t n, Fr* out) {
    uint64_t threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    if (thread_index() < n) lagrange_share(*of, thread_index(), threads, n, out);
}

// out[i], i < n: the values that `of` describes, its leap as above.
KERNEL progression(const Progression<Fr>* of, uint64_t n, Fr* out) {
    uint64_t threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    progression_share(*of, thread_index(), threads, n, out);
}

// Lanes of a warp that name the same wire leave their sum with the first of them, true there and false elsewhere. A tree
// over the lanes of each group, all groups at once (Westphal, "Voting and Shuffling to Optimize Atomic Operations"): the
// constant wire alone can hold a third of all entries. All 32 lanes take part.
__device__ bool gather_wire(uint32_t wire, uint64_t columns[COLUMNS]) {
    uint32_t lane = threadIdx.x & 31;
    uint32_t peers = __match_any_sync(WARP, wire);
    uint32_t rank = __popc(peers & ((1u << lane) - 1));
    bool first = rank == 0;
    peers &= 0xfffffffeu << lane;  // those behind this lane, as long as they hold a sum
    while (__any_sync(WARP, peers != 0)) {
        int next = __ffs(peers);  // the lane's number plus one; 0: none left
        UNROLL for (int k = 0; k < COLUMNS; ++k) {
            uint64_t other = __shfl_sync(WARP, columns[k], (next - 1) & 31);
            if (next) columns[k] += other;
        }
        peers &= ~__ballot_sync(WARP, rank & 1);  // these have been taken
        rank >>= 1;
    }
    return first;
}

// sums[COLUMNS wire ...] += coefficient * values[row] for n entries, the first of which is entry `begin` of the matrix.
// row_ptr, values: those of the n_rows rows that hold them. table as in setup.cuh. Blocks of a multiple of 32 threads.
KERNEL __launch_bounds__(256) add_terms(const uint64_t* row_ptr, uint64_t n_rows, const uint32_t* cols,
                                        const uint32_t* coeff, uint64_t begin, uint32_t n, const Fr* table,
                                        const Fr* values, uint64_t* sums) {
    uint64_t e = thread_index();
    bool busy = e < n;
    uint32_t wire = busy ? cols[e] : NOWHERE;
    Fr product = busy ? term(table, coeff[e], values[row_of(row_ptr, n_rows, begin + e)]) : Fr::zero();
    uint64_t columns[COLUMNS];
    UNROLL for (int k = 0; k < COLUMNS; ++k) columns[k] = column(product, k);
    if (gather_wire(wire, columns) && busy) {
        uint64_t* at = sums + static_cast<uint64_t>(wire) * COLUMNS;
        UNROLL for (int k = 0; k < COLUMNS; ++k) atomicAdd(at + k, columns[k]);
    }
}

// out[i] = the sum in the columns of wire i.
KERNEL settle_wires(const uint64_t* sums, uint64_t n, Fr* out) {
    uint64_t i = thread_index();
    if (i >= n) return;
    uint64_t columns[COLUMNS];
    UNROLL for (int k = 0; k < COLUMNS; ++k) columns[k] = sums[i * COLUMNS + k];
    out[i] = settle<Fr>(columns);
}

// w := beta u + alpha v + w, from wire n_ic on over delta. secrets: beta, alpha, 1/delta, Montgomery.
KERNEL mix(const Fr* u, const Fr* v, Fr* w, const Fr* secrets, uint64_t n_ic, uint64_t n) {
    uint64_t i = thread_index();
    if (i >= n) return;
    Fr sum = secrets[0] * u[i] + secrets[1] * v[i] + w[i];
    w[i] = i < n_ic ? sum : secrets[2] * sum;
}
