// gpu/fields.cu - field operations element by element: what the laws compare with the reference.
#include "module.cuh"

using F = Curve::CUZKD_FIELD;

// op: index into FIELD_OPS of backend/cuda_ops.py. a, b, out: n elements; b is read by the first three alone.
KERNEL field_op(int op, const F* a, const F* b, F* out, uint64_t n) {
    uint64_t i = thread_index();
    if (i >= n) return;
    F x = a[i];
    switch (op) {
        case 0: x = x + b[i]; break;
        case 1: x = x - b[i]; break;
        case 2: x = x * b[i]; break;
        case 3: x = x.sqr(); break;
        case 4: x = x.neg(); break;
        case 5: x = x.inv(); break;
        case 6: x = x.from_canonical(); break;
        default: x = x.to_canonical(); break;
    }
    out[i] = x;
}
