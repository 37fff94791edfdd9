// gpu/multiples.cu - many multiples of one point, from a table in device memory (backend/cuda_setup.py).
#include "group.cuh"
#include "setup.cuh"

// out[i] = scalars[i] times the point, affine, i < n; table and scalars as in setup.cuh.
KERNEL __launch_bounds__(128) multiples(const Point* table, int bits, const uint64_t* scalars, uint64_t n, Point* out) {
    uint64_t threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    if (thread_index() < n) multiples_share(table, bits, scalars, thread_index(), threads, n, out);
}
