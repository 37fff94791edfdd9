// factor.cuh - products with factors that are known long ahead, such as twiddles.
//
// Problem: a transform is nothing but products, half of whose cost is the reduction.
// Design: (V. Shoup, as in his NTL.) Beside the factor w its quotient w' = floor(w R / p) is kept, R = 2^(64 N). Then
// q = floor(x w' / R) is what x w / p is as a whole number, or less by one: r = x w - q p lies in [0, 2p), and only its low
// half has to be computed, mod R. That is three halves of products in all, where a Montgomery product is two whole ones;
// the quotient need not even be exact (arch_factor.cuh). w is a plain number: a product has the form that x has.
// For all x < p: 0 <= x w / p - x w' / R < x / R < 1/2.
#pragma once
#include "field.cuh"

template <class P>
struct FactorRows;  // where Machine<P>::has_wide

template <class Fr>
struct Factor {
    using P = typename Fr::Params;
    static constexpr int N = P::N;
    Fr value, quotient;  // plain numbers; the second may be above p

    // Of a factor in Montgomery form, w R mod p. Its reduction adds the multiple of p that makes it divisible by R, and that
    // is w' p: w R = w' p + (w R mod p).
    HD static Factor of(const Fr& montgomery) {
        Factor f;
        uint64_t t[N];
        UNROLL for (int i = 0; i < N; ++i) t[i] = montgomery.v[i];
        UNROLL for (int i = 0; i < N; ++i) {
            const uint64_t m = f.quotient.v[i] = t[0] * P::inv;
            uint64_t carry = 0;
            mac(t[0], m, P::p(0), carry);
            UNROLL for (int j = 1; j < N; ++j) t[j - 1] = mac(t[j], m, P::p(j), carry);
            t[N - 1] = carry;
        }
        UNROLL for (int i = 0; i < N; ++i) f.value.v[i] = t[i];
        return f;
    }

    // x w mod p; x < p.
    HD Fr times(const Fr& x) const {
        Fr r;
        if constexpr (Machine<P>::has_wide) {
            FactorRows<P>::times(r.v, x.v, value.v, quotient.v);
        } else {
            uint64_t t[2 * N], borrow = 0;
            UNROLL for (int i = 0; i < N; ++i) t[i] = 0;
            UNROLL for (int i = 0; i < N; ++i) {
                t[N + i] = 0;
                UNROLL for (int j = 0; j < N; ++j) t[i + j] = mac(t[i + j], x.v[i], quotient.v[j], t[N + i]);
            }
            uint64_t xw[N], qp[N];
            low_half(xw, x.v, [&](int j) { return value.v[j]; });
            low_half(qp, t + N, [](int j) { return P::p(j); });
            UNROLL for (int i = 0; i < N; ++i) r.v[i] = sbb(xw[i], qp[i], borrow);
            r.reduce_once();
        }
        return r;
    }

private:
    // r = a b mod R
    template <class B>
    HD static void low_half(uint64_t* r, const uint64_t* a, const B& b) {
        UNROLL for (int i = 0; i < N; ++i) r[i] = 0;
        UNROLL for (int i = 0; i < N; ++i) {
            uint64_t carry = 0;
            UNROLL for (int j = 0; i + j < N; ++j) r[i + j] = mac(r[i + j], a[i], b(j), carry);
        }
    }
};
