// inverse.cuh - inversion mod an odd prime by the binary GCD on approximations, 31 steps at a time.
//
// Pornin, "Optimized Binary GCD for Modular Inversion", https://eprint.iacr.org/2020/972, algorithm 2. The steps look
// only at the low 31 and the high 33 bits of a and b; their effect is a 2x2 matrix of small numbers, which is then
// applied to a, b (exactly, over 2^31) and to u, v (mod p, Montgomery over 2^31). a = u y and b = v y mod p hold all
// along, so that at the end b = 1 and v = 1/y. About a fifth of the time of Fermat's y^(p-2).
#pragma once
#include "arch.cuh"

// t = a f + b g, two's complement in N + 1 words; |f|, |g| <= 2^31.
template <int N>
HD void linear_combination(uint64_t t[N + 1], const uint64_t a[N], int64_t f, const uint64_t b[N], int64_t g) {
    uint64_t sign_f = f < 0 ? ~uint64_t(0) : 0, sign_g = g < 0 ? ~uint64_t(0) : 0;
    uint64_t abs_f = (static_cast<uint64_t>(f) ^ sign_f) - sign_f, abs_g = (static_cast<uint64_t>(g) ^ sign_g) - sign_g;
    uint64_t neg_a = sign_f & 1, neg_b = sign_g & 1, carry_a = 0, carry_b = 0;
    UNROLL for (int i = 0; i < N; ++i) {
        uint64_t x = adc(a[i] ^ sign_f, 0, neg_a), y = adc(b[i] ^ sign_g, 0, neg_b);
        t[i] = mac(mac(0, x, abs_f, carry_a), y, abs_g, carry_b);
    }
    t[N] = (sign_f + neg_a) * abs_f + carry_a + (sign_g + neg_b) * abs_g + carry_b;
}

template <int N>
HD void negate_words(uint64_t a[N], bool flag) {
    uint64_t mask = flag ? ~uint64_t(0) : 0, carry = mask & 1;
    UNROLL for (int i = 0; i < N; ++i) a[i] = adc(a[i] ^ mask, 0, carry);
}

// a = |t / 2^31|; true when t was negative.
template <int N>
HD bool shift_31(uint64_t a[N], const uint64_t t[N + 1]) {
    UNROLL for (int i = 0; i < N; ++i) a[i] = (t[i] >> 31) | (t[i + 1] << 33);
    bool negative = t[N] >> 63;
    negate_words<N>(a, negative);
    return negative;
}

// u = t / 2^31 mod p, for |t| <= 2^31 p.
template <class P>
HD void reduce_31(uint64_t u[P::N], uint64_t t[P::N + 1]) {
    constexpr int N = P::N;
    uint64_t k = (t[0] * P::inv) & 0x7fffffffu, high = 0;
    UNROLL for (int i = 0; i < N; ++i) t[i] = mac(t[i], k, P::p(i), high);
    uint64_t carry = 0;
    // t in N words and a signed top word, plus k p: between -p and 2p once it is shifted.
    t[N] = adc(t[N], high, carry);
    UNROLL for (int i = 0; i < N; ++i) u[i] = (t[i] >> 31) | (t[i + 1] << 33);
    uint64_t add = (t[N] >> 63) ? ~uint64_t(0) : 0, d[N], borrow = 0;
    carry = 0;
    UNROLL for (int i = 0; i < N; ++i) u[i] = adc(u[i], P::p(i) & add, carry);
    UNROLL for (int i = 0; i < N; ++i) d[i] = sbb(u[i], P::p(i), borrow);
    UNROLL for (int i = 0; i < N; ++i) u[i] = borrow ? u[i] : d[i];
}

HD int bit_length(uint64_t x) {
    int n = 0;
    for (int s = 32; s > 0; s >>= 1)
        if (x >> s) x >>= s, n += s;
    return n + (x != 0);
}

// r = 1/y mod p as plain integers (y < p); r = 0 for y = 0.
template <class P>
HD_COLD void binary_gcd_inverse(uint64_t r[P::N], const uint64_t y[P::N]) {
    constexpr int N = P::N, ROUNDS = (2 * P::BITS - 1 + 30) / 31;
    constexpr uint64_t BIAS = 0x7fffffff7fffffffu;
    uint64_t a[N], b[N], u[N], v[N], t[N + 1], w[N + 1];
    for (int i = 0; i < N; ++i) a[i] = y[i], b[i] = P::p(i), u[i] = i == 0, v[i] = 0;
    for (int round = 0; round < ROUNDS; ++round) {
        // Approximations: the low 31 bits and the 33 bits from the highest of either down.
        int top = N - 1;
        while (top > 0 && (a[top] | b[top]) == 0) --top;
        uint64_t low_a = a[0], low_b = b[0];
        int length = bit_length(a[top] | b[top]);
        if (top > 0) {
            uint64_t high_a = a[top] << (64 - length), high_b = b[top] << (64 - length);
            if (length < 64) high_a |= a[top - 1] >> length, high_b |= b[top - 1] >> length;
            low_a = (a[0] & 0x7fffffffu) | (high_a >> 31 << 31);
            low_b = (b[0] & 0x7fffffffu) | (high_b >> 31 << 31);
        }
        // Two numbers of a matrix row in one word: f + g 2^32.
        uint64_t row0 = 1, row1 = uint64_t(1) << 32;
        for (int step = 0; step < 31; ++step) {
            uint64_t odd = 0 - (low_a & 1), swap = (low_a < low_b ? ~uint64_t(0) : 0) & odd;
            uint64_t x = (low_a ^ low_b) & swap, z = (row0 ^ row1) & swap;
            low_a ^= x, low_b ^= x, row0 ^= z, row1 ^= z;
            low_a = (low_a - (low_b & odd)) >> 1;
            row0 -= row1 & odd;
            row1 += row1;
        }
        row0 += BIAS, row1 += BIAS;
        int64_t f0 = static_cast<int64_t>(row0 & 0xffffffffu) - 0x7fffffff;
        int64_t g0 = static_cast<int64_t>(row0 >> 32) - 0x7fffffff;
        int64_t f1 = static_cast<int64_t>(row1 & 0xffffffffu) - 0x7fffffff;
        int64_t g1 = static_cast<int64_t>(row1 >> 32) - 0x7fffffff;
        linear_combination<N>(t, a, f0, b, g0);
        linear_combination<N>(w, a, f1, b, g1);
        if (shift_31<N>(a, t)) f0 = -f0, g0 = -g0;
        if (shift_31<N>(b, w)) f1 = -f1, g1 = -g1;
        linear_combination<N>(t, u, f0, v, g0);
        linear_combination<N>(w, u, f1, v, g1);
        reduce_31<P>(u, t);
        reduce_31<P>(v, w);
    }
    for (int i = 0; i < N; ++i) r[i] = v[i];
}
