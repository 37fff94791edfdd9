// gpu/quads.cuh - sums of many points by one block, short in time rather than in products.
//
// Why: where few additions are left, the time of one is the time of its 14 products one after another. They are four deep:
// four lanes, a quad, that hold one coordinate each (x, y, zz, zzz) take four products' time. Formula: curve.cuh's.
#pragma once
#include "group.cuh"

constexpr uint32_t SUM_THREADS = 64;
constexpr uint32_t ALL = 0xffffffffu;

__device__ __forceinline__ uint64_t from_lane(uint64_t word, uint32_t lane) { return __shfl_sync(ALL, word, lane); }
template <class P>
__device__ __forceinline__ Field<P> from_lane(const Field<P>& a, uint32_t lane) {
    Field<P> r;
    UNROLL for (int i = 0; i < P::N; ++i) r.v[i] = from_lane(a.v[i], lane);
    return r;
}
template <class B>
__device__ __forceinline__ Quadratic<B> from_lane(const Quadratic<B>& a, uint32_t lane) {
    return {from_lane(a.c0, lane), from_lane(a.c1, lane)};
}

// The quad's points a + b, a coordinate a lane. All lanes of the warp take part.
__device__ inline Group::F quad_add(const Group::F& a, const Group::F& b) {
    using F = Group::F;
    const uint32_t lane = threadIdx.x & 31, c = lane & 3, x = lane & ~3u, y = x + 1, zz = x + 2;
    F v = a * from_lane(b, lane ^ 2);        // U1 = X1 ZZ2, S1 = Y1 ZZZ2, U2 = X2 ZZ1, S2 = Y2 ZZZ1
    F w = from_lane(v, lane ^ 2) - v;        // P = U2 - U1, R = S2 - S1, and in the others their negatives
    uint32_t no_difference = __ballot_sync(ALL, w.is_zero()), a_zero = __ballot_sync(ALL, a.is_zero());
    uint32_t b_zero = __ballot_sync(ALL, b.is_zero());
    F s = (c < 2 ? w : a) * (c < 2 ? w : b);  // PP, R^2, ZZ1 ZZ2, ZZZ1 ZZZ2
    F u1 = from_lane(v, x), s1 = from_lane(v, y), pp = from_lane(s, x);
    F t = (c == 0 ? w : c == 1 ? u1 : s) * pp;  // PPP = P PP, Q = U1 PP, ZZ3 = ZZ1 ZZ2 PP
    F ppp = from_lane(t, x), q = from_lane(t, y), x3 = from_lane(s, y) - ppp - q.dbl();  // X3 = R^2 - PPP - 2 Q
    F o = (c == 0 ? s1 : c == 1 ? w : s) * (c == 1 ? q - x3 : ppp);  // S1 PPP, R (Q - X3), -, ZZZ3 = ZZZ1 ZZZ2 PPP
    F y3 = from_lane(o, y) - from_lane(o, x);                        // Y3 = R (Q - X3) - S1 PPP
    F sum = c == 0 ? x3 : c == 1 ? y3 : c == 2 ? t : o;

    bool a_infinite = a_zero >> zz & 1, b_infinite = b_zero >> zz & 1;
    bool same_x = !a_infinite && !b_infinite && (no_difference >> x & 1), equal = same_x && (no_difference >> y & 1);
    if (__any_sync(ALL, equal)) {
        Sum whole{from_lane(a, x), from_lane(a, y), from_lane(a, zz), from_lane(a, zz + 1)};
        if (equal) {
            Sum twice = whole.dbl();
            return c == 0 ? twice.x : c == 1 ? twice.y : c == 2 ? twice.zz : twice.zzz;
        }
    }
    return b_infinite ? a : a_infinite ? b : same_x ? F::zero() : sum;
}

// s[0] = the sum of get(0), ..., get(count - 1), points of either kind. All SUM_THREADS threads of the block take part;
// s has room for one point of each.
template <class Get>
__device__ __forceinline__ void block_sum(Sum* s, uint32_t count, Get get) {
    using F = Group::F;
    const uint32_t t = threadIdx.x, c = t & 3;
    Sum mine = Sum::infinity();
#pragma unroll 1
    for (uint32_t i = t; i < count; i += SUM_THREADS) mine = mine.add(get(i));
    s[t] = mine;
    __syncthreads();
    uint32_t half = SUM_THREADS / 2;
    while (half >= count && half > 0) half /= 2;
#pragma unroll 1
    for (; half > 0; half /= 2) {
        for (uint32_t base = 0; base < half; base += SUM_THREADS / 4) {
            uint32_t i = base + t / 4;
            F* to = reinterpret_cast<F*>(s + i) + c;
            const F* other = reinterpret_cast<const F*>(s + half + i) + c;
            bool busy = i < half;
            F sum = quad_add(busy ? *to : F::zero(), busy ? *other : F::zero());
            if (busy) *to = sum;
        }
        __syncthreads();
    }
}
