// factors.cpp - products with known factors (factor.cuh) on the host, for test_factors.py: n items in each function.
#include "curves.cuh"
#include "factor.cuh"

using F = CUZKD_CURVE::CUZKD_FIELD;
#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void make(const F* montgomery, Factor<F>* out, size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = Factor<F>::of(montgomery[i]);
}
EXPORT void times(const Factor<F>* factors, const F* x, F* out, size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = factors[i].times(x[i]);
}
#if defined(CUZKD_EMULATE_PTX)
// What is taken for x w / p.
EXPORT void quotients(const Factor<F>* factors, const F* x, F* out, size_t n) {
    using Rows = FactorRows<F::Params>;
    for (size_t i = 0; i < n; ++i) {
        uint32_t a[Rows::n], w[Rows::n], q[Rows::n];
        Rows::R::split(a, x[i].v), Rows::R::split(w, factors[i].quotient.v);
        Rows::high(q, a, w);
        Rows::R::unite(out[i].v, q);
    }
}
#endif
