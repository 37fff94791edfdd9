// field.cuh - arithmetic mod P::p in Montgomery form, R = 2^(64 N). Knows no curve and no device.
//
// P gives, all derived from the modulus by emit_constants: N (limbs), BITS (of p), inv (-p^-1 mod 2^64), and by limb
// p(i), one(i) = R mod p, r2(i) = R^2 mod p. Needs the top bit of p clear, so that 2p < 2^(64 N).
// Every value is fully reduced (< p) before and after every operation: equal values have equal limbs.
#pragma once
#include "arch.cuh"
#include "inverse.cuh"

template <class P>
struct Field {
    static constexpr int N = P::N;
    using Params = P;
    uint64_t v[N];  // little-endian limbs

    HD static Field zero() {
        Field r;
        UNROLL for (int i = 0; i < N; ++i) r.v[i] = 0;
        return r;
    }
    HD static Field one() {
        Field r;
        UNROLL for (int i = 0; i < N; ++i) r.v[i] = P::one(i);
        return r;
    }

    HD bool is_zero() const {
        uint64_t any = 0;
        UNROLL for (int i = 0; i < N; ++i) any |= v[i];
        return any == 0;
    }
    HD bool operator==(const Field& b) const {
        uint64_t any = 0;
        UNROLL for (int i = 0; i < N; ++i) any |= v[i] ^ b.v[i];
        return any == 0;
    }
    HD bool operator!=(const Field& b) const { return !(*this == b); }

    // Is this bit pattern, read as a plain integer, below p?
    HD bool is_reduced() const {
        uint64_t borrow = 0;
        UNROLL for (int i = 0; i < N; ++i) sbb(v[i], P::p(i), borrow);
        return borrow != 0;
    }

    HD Field operator+(const Field& b) const {
        Field r;
        if constexpr (Machine<P>::has_add) {
            Machine<P>::add(r.v, v, b.v);
        } else {
            uint64_t carry = 0;
            UNROLL for (int i = 0; i < N; ++i) r.v[i] = adc(v[i], b.v[i], carry);
            r.reduce_once();
        }
        return r;
    }
    HD Field operator-(const Field& b) const {
        Field r;
        if constexpr (Machine<P>::has_add) {
            Machine<P>::sub(r.v, v, b.v);
        } else {
            uint64_t borrow = 0, carry = 0;
            UNROLL for (int i = 0; i < N; ++i) r.v[i] = sbb(v[i], b.v[i], borrow);
            uint64_t mask = 0 - borrow;
            UNROLL for (int i = 0; i < N; ++i) r.v[i] = adc(r.v[i], P::p(i) & mask, carry);
        }
        return r;
    }
    HD Field neg() const {
        Field r;
        uint64_t borrow = 0, mask = is_zero() ? 0 : ~uint64_t(0);
        UNROLL for (int i = 0; i < N; ++i) r.v[i] = sbb(P::p(i), v[i], borrow) & mask;
        return r;
    }
    HD Field dbl() const { return *this + *this; }
    // This where mask is all ones, zero where it is 0.
    HD Field masked(uint64_t mask) const {
        Field r;
        UNROLL for (int i = 0; i < N; ++i) r.v[i] = v[i] & mask;
        return r;
    }
    HD Field neg_if(bool flag) const { return flag ? neg() : *this; }

    // Montgomery product a b / R. CIOS (Koc, Acar, Kaliski, "Analyzing and Comparing Montgomery Multiplication
    // Algorithms", 1996) in the form that keeps no carry word: with the top bit of p clear, the two high words of a
    // round sum without overflow.
    HD_THIN Field operator*(const Field& b) const {
        Field r;
        if constexpr (Machine<P>::has_mul) {
            Machine<P>::mul(r.v, v, b.v);
            return r;
        }
        uint64_t t[N];
        UNROLL for (int i = 0; i < N; ++i) t[i] = 0;
        UNROLL for (int i = 0; i < N; ++i) {
            uint64_t hi_ab = 0, hi_mp = 0;
            uint64_t low = mac(t[0], v[0], b.v[i], hi_ab);
            uint64_t m = low * P::inv;
            mac(low, m, P::p(0), hi_mp);
            UNROLL for (int j = 1; j < N; ++j) {
                uint64_t word = mac(t[j], v[j], b.v[i], hi_ab);
                t[j - 1] = mac(word, m, P::p(j), hi_mp);
            }
            t[N - 1] = hi_ab + hi_mp;
        }
        UNROLL for (int i = 0; i < N; ++i) r.v[i] = t[i];
        r.reduce_once();
        return r;
    }
    HD Field sqr() const { return *this * *this; }

    // Plain integer < p -> Montgomery form.
    HD Field from_canonical() const {
        Field r2;
        UNROLL for (int i = 0; i < N; ++i) r2.v[i] = P::r2(i);
        return *this * r2;
    }
    // Montgomery form -> plain integer < p.
    HD Field to_canonical() const {
        Field plain_one = zero();
        plain_one.v[0] = 1;
        return *this * plain_one;
    }

    // this^e; e: n plain little-endian words. Left to right, four bits at a time.
    HD_COLD Field pow(const uint64_t* e, int n) const {
        Field table[16];
        table[0] = one();
        for (int i = 1; i < 16; ++i) table[i] = table[i - 1] * *this;
        Field r = one();
        for (int i = 16 * n - 1; i >= 0; --i) {
            for (int k = 0; k < 4; ++k) r = r.sqr();
            r = r * table[(e[i / 16] >> (4 * (i % 16))) & 15];
        }
        return r;
    }
    // 1/this; inv(0) = 0. The value is x R, and the inverse wanted R/x = R^2 / (x R).
    HD Field inv() const {
        Field r, r2;
        UNROLL for (int i = 0; i < N; ++i) r2.v[i] = P::r2(i);
        divide<P>(r.v, r2.v, v);
        return r;
    }

    // value < 2p -> value mod p, without a branch.
    HD void reduce_once() {
        uint64_t d[N], borrow = 0;
        UNROLL for (int i = 0; i < N; ++i) d[i] = sbb(v[i], P::p(i), borrow);
        uint64_t keep = 0 - borrow;  // all ones when v < p
        UNROLL for (int i = 0; i < N; ++i) v[i] = (v[i] & keep) | (d[i] & ~keep);
    }
};
