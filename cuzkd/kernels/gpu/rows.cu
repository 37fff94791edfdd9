// gpu/rows.cu - sparse rows times the witness, one thread per row.
#include "module.cuh"
#include "sparse.cuh"

// out[i] (Montgomery) = row i of the matrix . z (CANONICAL); arrays as in backend.protocol.SparseMatrix.
KERNEL sparse_rows(const uint64_t* row_ptr, const uint32_t* cols, const uint32_t* coeff, const Fr* table, const Fr* z,
                   Fr* out, uint64_t n_rows) {
    __shared__ Few<Fr> few;
    if (threadIdx.x == 0) few = Few<Fr>::make(nullptr);
    __syncthreads();
    uint64_t i = thread_index();
    if (i < n_rows) out[i] = sparse_row(row_ptr[i], row_ptr[i + 1], cols, coeff, table, z, few);
}
