// msm.cuh - scalars of a multi-scalar sum, shared by CPU and GPU: classes, folding, signed digits.
//
// Real witnesses are mostly 0 and 1: those never reach a bucket. The others are folded, s > r/2 becomes r - s with the
// opposite sign, so that |s| < 2^(BITS - 1), and small negative values become short. Digits are signed, so that a window
// of c bits needs only 2^(c-1) buckets.
// Stateless recoding: add once the constant that has 2^(c-1) in every window but the top one; then digit i is the plain
// window i minus 2^(c-1). No carry runs from window to window, any window can be read first.
// Speed depends on the values. That is accepted: the prover owns its witness, and nobody else measures it.
#pragma once
#include "field.cuh"

enum class ScalarClass : uint8_t { zero = 0, one = 1, minus_one = 2, other = 3 };

// A scalar s = (negative ? -1 : 1) * w mod r, w <= (r - 1)/2 as plain little-endian words.
struct Folded {
    uint64_t w[4];
    bool negative;
};

// s: CANONICAL (the limbs of Fr here are a plain integer < r).
template <class Fr>
HD Folded fold_scalar(const Fr& s) {
    Fr m = s.neg();  // r - s, also of plain integers
    uint64_t borrow = 0;
    UNROLL for (int i = 0; i < Fr::N; ++i) sbb(m.v[i], s.v[i], borrow);
    Folded f;
    f.negative = borrow != 0;  // r - s < s
    UNROLL for (int i = 0; i < Fr::N; ++i) f.w[i] = f.negative ? m.v[i] : s.v[i];
    return f;
}

HD ScalarClass classify(const Folded& f) {
    if ((f.w[1] | f.w[2] | f.w[3]) != 0 || f.w[0] > 1) return ScalarClass::other;
    if (f.w[0] == 0) return ScalarClass::zero;
    return f.negative ? ScalarClass::minus_one : ScalarClass::one;
}

// Windows of c bits (4 <= c <= 24) that hold |s| < 2^(scalar_bits - 1) with signed digits.
HD int window_count(int scalar_bits, int c) { return (scalar_bits + c - 1) / c; }

// w += the recoding constant of `windows` windows of c bits. Stays below 2^256.
HD void bias_windows(uint64_t w[4], int c, int windows) {
    uint64_t k[4] = {0, 0, 0, 0};
    for (int i = 0; i + 1 < windows; ++i) {
        int bit = c * i + c - 1;
        k[bit >> 6] |= uint64_t(1) << (bit & 63);
    }
    uint64_t carry = 0;
    UNROLL for (int i = 0; i < 4; ++i) w[i] = adc(w[i], k[i], carry);
}

// Signed digit of window i of a biased scalar: in [-2^(c-1), 2^(c-1)]. |s| = sum digit_i 2^(c i).
HD int32_t signed_digit(const uint64_t w[4], int i, int c, int windows) {
    int at = c * i, word = at >> 6, shift = at & 63;
    uint64_t bits = w[word] >> shift;
    if (shift + c > 64 && word < 3) bits |= w[word + 1] << (64 - shift);
    bits &= (uint64_t(1) << c) - 1;
    return static_cast<int32_t>(bits) - (i + 1 < windows ? int32_t(1) << (c - 1) : 0);
}
