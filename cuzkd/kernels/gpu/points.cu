// gpu/points.cu - point operations element by element: what the laws compare with the reference.
#include "group.cuh"

// op: index into POINT_OPS of backend/cuda_ops.py (add, double, neg). Affine in and out, n points; q for add alone.
KERNEL point_op(int op, const Point* p, const Point* q, Point* out, uint64_t n) {
    uint64_t i = thread_index();
    if (i >= n) return;
    Point a = p[i];
    if (op == 2) {
        out[i] = a.neg();
        return;
    }
    Sum s = Sum::from_affine(a);
    s = op == 0 ? s.add(q[i]) : s.dbl();
    out[i] = s.to_affine();
}

// out[i] = scalars[i] points[i]; scalars CANONICAL, four words each.
KERNEL scalar_mul(const Point* points, const uint64_t* scalars, Point* out, uint64_t n) {
    uint64_t i = thread_index();
    if (i >= n) return;
    uint64_t k[4];
    for (int w = 0; w < 4; ++w) k[w] = scalars[4 * i + w];
    Point p = points[i];
    out[i] = Sum::mul(p, k, 4).to_affine();
}
