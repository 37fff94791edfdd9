// gpu/tables.cu - multiples of many points by one power of two, for tables of bases (backend/cuda_tables.py).
#include "group.cuh"
#include "setup.cuh"

// out[i] = 2^times points[i], affine, i < n. POINTS_SHARE points a thread.
KERNEL __launch_bounds__(128) doubled(const Point* points, uint64_t n, int times, Point* out) {
    uint64_t threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    if (thread_index() < n) doubled_share(points, times, thread_index(), threads, n, out);
}
