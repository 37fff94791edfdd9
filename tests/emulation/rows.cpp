// rows.cpp - the field of the GPU (arch_cuda.cuh, fields above it) on the host, for test_rows.py.
//
// Each function works on n items; words of an item lie together. Raw words in and out: no form is implied.
#include <utility>

#include "curves.cuh"

using Curve = CUZKD_CURVE;
#define EXPORT extern "C" __attribute__((visibility("default")))

enum { ADD, SUB, MUL, TIMES, SQR, MUL_ADD, MUL_SUB, NEG, TO_CANONICAL, INV };

template <class F>
void field_op(int op, const F* a, const F* b, const F* c, const F* d, F* out, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        switch (op) {
            case ADD: out[i] = a[i] + b[i]; break;
            case SUB: out[i] = a[i] - b[i]; break;
            case MUL: out[i] = a[i] * b[i]; break;
            case TIMES: out[i] = a[i].times(b[i]); break;
            case SQR: out[i] = a[i].sqr(); break;
            case MUL_ADD: out[i] = F::mul_add(a[i], b[i], c[i], d[i]); break;
            case MUL_SUB: out[i] = F::mul_sub(a[i], b[i], c[i], d[i]); break;
            case NEG: out[i] = a[i].neg(); break;
            case TO_CANONICAL: out[i] = a[i].to_canonical(); break;
            default: out[i] = a[i].inv();
        }
    }
}
EXPORT void op_fr(int op, const Curve::Fr* a, const Curve::Fr* b, const Curve::Fr* c, const Curve::Fr* d, Curve::Fr* out,
                  size_t n) {
    field_op(op, a, b, c, d, out, n);
}
EXPORT void op_fq(int op, const Curve::Fq* a, const Curve::Fq* b, const Curve::Fq* c, const Curve::Fq* d, Curve::Fq* out,
                  size_t n) {
    field_op(op, a, b, c, d, out, n);
}
EXPORT void op_fq2(int op, const Curve::Fq2* a, const Curve::Fq2* b, const Curve::Fq2* c, const Curve::Fq2* d,
                   Curve::Fq2* out, size_t n) {
    field_op(op, a, b, c, d, out, n);
}

// out[2N] = a b, of any words; squares where b is null.
template <class P>
void wide(const uint64_t* a, const uint64_t* b, uint64_t* out, size_t items) {
    constexpr int N = P::N, n = 2 * N;
    for (size_t i = 0; i < items; ++i) {
        if (b) {
            Machine<P>::template wide_mul<false>(out + 2 * N * i, a + N * i, b + N * i);
        } else if constexpr (Machine<P>::by_doubles) {
            uint32_t x[n], t[2 * n];
            Row<n>::split(x, a + N * i);
            Machine<P>::D::wide_sqr(t, x);
            Row<2 * n>::unite(out + 2 * N * i, t);
        } else {
            uint32_t x[n], t[2 * n];
            Row<n>::split(x, a + N * i);
            Row<n>::wide_sqr(t, x);
            Row<2 * n>::unite(out + 2 * N * i, t);
        }
    }
}
EXPORT void wide_fr(const uint64_t* a, const uint64_t* b, uint64_t* out, size_t n) {
    wide<Curve::Fr::Params>(a, b, out, n);
}
EXPORT void wide_fq(const uint64_t* a, const uint64_t* b, uint64_t* out, size_t n) {
    wide<Curve::Fq::Params>(a, b, out, n);
}

// out[N] = a[2N] / R mod p.
template <class P>
void redc(const uint64_t* a, uint64_t* out, size_t n) {
    for (size_t i = 0; i < n; ++i) Machine<P>::redc(out + P::N * i, a + 2 * P::N * i);
}
EXPORT void redc_fr(const uint64_t* a, uint64_t* out, size_t n) { redc<Curve::Fr::Params>(a, out, n); }
EXPORT void redc_fq(const uint64_t* a, uint64_t* out, size_t n) { redc<Curve::Fq::Params>(a, out, n); }
