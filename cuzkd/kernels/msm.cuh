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

// r - s of a CANONICAL s > 0 (the limbs of Fr here are a plain integer < r).
template <class Fr>
HD Fr opposite(const Fr& s) {
    Fr m;
    uint64_t borrow = 0;
    UNROLL for (int i = 0; i < Fr::N; ++i) m.v[i] = sbb(Fr::Params::p(i), s.v[i], borrow);
    return m;
}

// s: CANONICAL.
template <class Fr>
HD Folded fold_scalar(const Fr& s) {
    Fr m = opposite(s);
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

// Below 2^64, up to the sign.
HD bool is_small(const Folded& f) { return (f.w[1] | f.w[2] | f.w[3]) == 0; }

// Windows of c bits (4 <= c <= 24) that hold |s| < 2^(scalar_bits - 1) with signed digits.
HD int window_count(int scalar_bits, int c) { return (scalar_bits + c - 1) / c; }

// Word i of the recoding constant of `windows` windows of c bits.
HD uint64_t bias_word(int i, int c, int windows) {
    uint64_t word = 0;
    for (int window = 0; window + 1 < windows; ++window) {
        int bit = c * window + c - 1;
        if (bit >> 6 == i) word |= uint64_t(1) << (bit & 63);
    }
    return word;
}

// w += that constant. Stays below 2^256.
HD void bias_windows(uint64_t w[4], int c, int windows) {
    uint64_t k[4] = {0, 0, 0, 0};  // in one go over the windows: the CPU does this for each scalar
    for (int i = 0; i + 1 < windows; ++i) {
        int bit = c * i + c - 1;
        k[bit >> 6] |= uint64_t(1) << (bit & 63);
    }
    uint64_t carry = 0;
    UNROLL for (int i = 0; i < 4; ++i) w[i] = adc(w[i], k[i], carry);
}

// The signed digit whose c bits begin at bit `shift` of the word `low`, `high` being the one above it; top: of the last
// window. For a caller that chooses words in a way of its own.
HD int32_t digit_of_words(uint64_t low, uint64_t high, int shift, int c, bool top) {
    uint64_t bits = low >> shift;
    if (shift + c > 64) bits |= high << (64 - shift);
    bits &= (uint64_t(1) << c) - 1;
    return static_cast<int32_t>(bits) - (top ? 0 : int32_t(1) << (c - 1));
}

// Signed digit of window i of a biased scalar: in [-2^(c-1), 2^(c-1)]. |s| = sum digit_i 2^(c i).
HD int32_t signed_digit(const uint64_t w[4], int i, int c, int windows) {
    int at = c * i, word = at >> 6;
    return digit_of_words(w[word], word < 3 ? w[word + 1] : 0, at & 63, c, i + 1 == windows);
}

// A folded scalar below 2^64 has digits in the first of its windows alone: in so many that they hold 66 bits. With 65
// the last digit could be 2^(c-1), which is one more than there is, and the next one 1.
HD int small_windows(int c) { return (66 + c - 1) / c; }
