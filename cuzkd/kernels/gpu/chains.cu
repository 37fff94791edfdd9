// gpu/chains.cu - products one after another in registers: what the multiply pipe gives where nothing else is done.
//
// Measured beside the kernels of a proof, which spend most of their time on such products, and to choose how they are
// made (CUZKD_HALVES_FROM and the others there, in arch_cuda.cuh).
#define CUZKD_INLINE
#include "module.cuh"

using F = Curve::CUZKD_FIELD;

// v[i] := step applied `rounds` times to it, with v[i + threads of the grid]. Loads and stores vanish in many rounds.
template <class Step>
__device__ __forceinline__ void chain(F* v, uint32_t rounds, Step step) {
    v += thread_index();
    F x = *v, y = v[static_cast<uint64_t>(gridDim.x) * blockDim.x];
#pragma unroll 1
    for (uint32_t r = 0; r < rounds; ++r) x = step(x, y);
    *v = x;
}

// A product in one of the ways that arch_cuda.cuh has; elsewhere just a product.
enum class Way { words, halves, summed_doubles, chained_doubles };
template <Way way, class P>
__device__ __forceinline__ Field<P> product(const Field<P>& x, const Field<P>& y) {
    using M = Machine<P>;
    Field<P> r;
    if constexpr (!M::has_wide) {
        r = x * y;
    } else if constexpr (way == Way::words) {
        M::mul_by_words(r.v, x.v, y.v);
    } else if constexpr (way == Way::halves) {
        M::mul_by_halves(r.v, x.v, y.v);
    } else {
        M::template mul_by_doubles<way == Way::chained_doubles>(r.v, x.v, y.v);
    }
    return r;
}

KERNEL __launch_bounds__(128) by_words(F* v, uint32_t rounds) {
    chain(v, rounds, [](const F& x, const F& y) { return product<Way::words>(x, y); });
}
KERNEL __launch_bounds__(128) by_halves(F* v, uint32_t rounds) {
    chain(v, rounds, [](const F& x, const F& y) { return product<Way::halves>(x, y); });
}
KERNEL __launch_bounds__(128) by_summed_doubles(F* v, uint32_t rounds) {
    chain(v, rounds, [](const F& x, const F& y) { return product<Way::summed_doubles>(x, y); });
}
KERNEL __launch_bounds__(128) by_chained_doubles(F* v, uint32_t rounds) {
    chain(v, rounds, [](const F& x, const F& y) { return product<Way::chained_doubles>(x, y); });
}
KERNEL __launch_bounds__(128) squares(F* v, uint32_t rounds) {
    chain(v, rounds, [](const F& x, const F&) { return x.sqr(); });
}
KERNEL __launch_bounds__(128) inverses(F* v, uint32_t rounds) {
    chain(v, rounds, [](const F& x, const F& y) { return x.inv() + y; });
}
