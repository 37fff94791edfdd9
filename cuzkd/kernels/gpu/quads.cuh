// gpu/quads.cuh - sums of many points by one block, short in time rather than in products.
//
// Why: where few additions are left, the time of one is the time of its 14 products one after another. They are four deep:
// four lanes, a quad, that hold one coordinate each (x, y, zz, zzz) take four products' time. Formula: curve.cuh's.
#pragma once
#include "group.cuh"

constexpr uint32_t SUM_THREADS = 64;
constexpr uint32_t ALL = 0xffffffffu;

// Shared memory of a block that sums: a point of each thread, and for each quad two times what its lanes show each other.
struct SumSpace {
    Sum sums[SUM_THREADS];
    Group::F shown[SUM_THREADS / 4][2][4];
};

// Coordinate threadIdx.x % 4 of a + b, or anything where this quad is not busy. All lanes of the warp take part; those of a
// quad have the same points.
__device__ inline Group::F quad_add(Group::F shown[2][4], const Sum& a, const Sum& b, bool busy) {
    using F = Group::F;
    const uint32_t c = threadIdx.x & 3, quad = threadIdx.x & 28;  // the number of its first lane
    // A lane writes to one half while others may still read the other: one wait for each exchange is enough.
    F* const here = shown[0];
    F* const there = shown[1];
    const F mine = reinterpret_cast<const F*>(&a)[c];
    F v = mine * reinterpret_cast<const F*>(&b)[c ^ 2];  // U1 = X1 ZZ2, S1 = Y1 ZZZ2, U2 = ZZ1 X2, S2 = ZZZ1 Y2
    here[c] = v;
    __syncwarp();
    const F u1 = here[0], s1 = here[1], w = here[c ^ 2] - v;  // P = U2 - U1, R = S2 - S1, and their negatives
    uint32_t same = __ballot_sync(ALL, w.is_zero()) >> quad;
    F s = (c < 2 ? w : mine) * (c < 2 ? w : reinterpret_cast<const F*>(&b)[c]);  // PP, R^2, ZZ1 ZZ2, ZZZ1 ZZZ2
    there[c] = s;
    __syncwarp();
    const F rr = there[1];
    F t = (c == 0 ? w : c == 1 ? u1 : s) * there[0];  // PPP = P PP, Q = U1 PP, ZZ3 = ZZ1 ZZ2 PP
    here[c] = t;
    __syncwarp();
    const F ppp = here[0], q = here[1], x3 = rr - ppp - q.dbl();     // X3 = R^2 - PPP - 2 Q
    F o = (c == 0 ? s1 : c == 1 ? w : s) * (c == 1 ? q - x3 : ppp);  // S1 PPP, R (Q - X3), -, ZZZ3 = ZZZ1 ZZZ2 PPP
    there[c] = o;
    __syncwarp();
    F sum = c == 0 ? x3 : c == 1 ? there[1] - there[0] : c == 2 ? t : o;  // Y3 = R (Q - X3) - S1 PPP
    if (!busy) return sum;
    if (a.is_infinity()) return reinterpret_cast<const F*>(&b)[c];
    if (b.is_infinity()) return mine;
    if ((same & 1) == 0) return sum;
    if ((same & 2) == 0) return F::zero();
    Sum twice = a.dbl();
    return c == 0 ? twice.x : c == 1 ? twice.y : c == 2 ? twice.zz : twice.zzz;
}

// space.sums[0] = the sum of get(0), ..., get(count - 1), points of either kind. All SUM_THREADS threads of the block take
// part.
template <class Get>
__device__ __forceinline__ void block_sum(SumSpace& space, uint32_t count, Get get) {
    using F = Group::F;
    const uint32_t t = threadIdx.x;
    Sum mine = Sum::infinity();
#pragma unroll 1
    for (uint32_t i = t; i < count; i += SUM_THREADS) mine = mine.add(get(i));
    space.sums[t] = mine;
    __syncthreads();
    uint32_t half = SUM_THREADS / 2;
    while (half >= count && half > 0) half /= 2;
#pragma unroll 1
    for (; half > 0; half /= 2) {
        for (uint32_t base = 0; base < half; base += SUM_THREADS / 4) {
            uint32_t i = base + t / 4;
            bool busy = i < half;
            if (!__any_sync(ALL, busy)) break;
            Sum* to = space.sums + (busy ? i : half);  // quads without a pair look at what nobody changes meanwhile
            F sum = quad_add(space.shown[t / 4], *to, space.sums[half + (busy ? i : 0)], busy);
            __syncwarp();
            if (busy) reinterpret_cast<F*>(to)[t & 3] = sum;
        }
        __syncthreads();
    }
}
