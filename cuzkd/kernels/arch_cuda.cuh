// arch_cuda.cuh - modular addition, subtraction and Montgomery products for NVIDIA GPUs, in 32-bit words. Included by arch.cuh.
//
// A product is summed in the two rows of arch_rows.cuh. After a step for one word of y and one of the reduction, the lowest
// word of `even` is zero, and dividing by 2^32 just exchanges the rows' roles.
// Words and results as in field.cuh: inputs < p, results < p, the top bit of p clear.
// What it costs is the number of wide products (n = words of p): n^2 each for a product and for a reduction, n (n + 1) / 2
// for a square; tests/gpu/test_counts.py counts them in the compiled code. There are other ways to make a product.
#pragma once
#include "arch_rows.cuh"

#include "arch_doubles.cuh"

// How long a modulus has to be, in words, for products to be made of products of half the words; or of doubles, on GPUs
// that multiply these at full rate; or so where the caller asks for it, at about every second product; and whether columns
// are then summed in doubles (arch_doubles.cuh). 99: never.
#if !defined(CUZKD_HALVES_FROM)
#define CUZKD_HALVES_FROM 99
#endif
#if !defined(CUZKD_DOUBLES_FROM)
#define CUZKD_DOUBLES_FROM 99
#endif
#if !defined(CUZKD_SOME_DOUBLES_FROM)
#define CUZKD_SOME_DOUBLES_FROM 99
#endif
#if !defined(CUZKD_DOUBLES_CHAINED)
#define CUZKD_DOUBLES_CHAINED true
#endif

template <class P>
struct Machine {
    static constexpr int n = 2 * P::N;
    static constexpr bool has_add = true, has_mul = true, has_wide = true;
    static constexpr bool has_sum = P::BITS + 2 <= 32 * n;  // two products and a reduction, all at once: 3p in n words
    // p = 1 - 2^32 mod 2^64 (Fr of BLS12-381): the low words of the reduction are additions.
    static constexpr bool golden = P::p(0) == 0xffffffff00000001u;
    // Fewer wide products for more of other operations. On an H200 that is up to 5 % faster alone (12 words), and 2 to 3 %
    // slower in a sum: bench/RESULTS.md. Hence 99.
    static constexpr bool by_halves = n >= CUZKD_HALVES_FROM, by_doubles = n >= CUZKD_DOUBLES_FROM;
    static constexpr bool some_by_doubles = by_doubles || n >= CUZKD_SOME_DOUBLES_FROM;
    using D = Doubles<n, CUZKD_DOUBLES_CHAINED>;
    using R = Row<n>;
    struct Words {
        uint32_t w[n];
    };

    // even + 2^32 odd += p m, with the m that makes word 0 of the sum zero; `shifting` as in shift_and_go_on.
    template <bool shifting>
    DEVICE static void reduce(uint32_t* even, uint32_t* odd) {
        const uint32_t* p = modulus_words32<P>.w;
        constexpr int at = shifting ? 2 : 0, known = shifting ? n - 2 : n;
        if constexpr (shifting) ptx::add_cc(even[0], even[0], odd[1]);
        uint32_t m = even[0] * p[n];
        if constexpr (golden) {
            // m = -even[0]. m (2^32 - 1) is even[0] and above it m - (m != 0); m + even[0] leaves but a carry.
            uint32_t low = even[0], high = m < ~low ? m : ~low;
            if constexpr (shifting) {
                ptx::addc_cc(odd[0], odd[at], low);
            } else {
                ptx::add_cc(odd[0], odd[at], low);
            }
            ptx::addc_cc(odd[1], odd[at + 1], high);
            Row<n - 2>::template add_products<true, known - 2>(odd + 2, odd + 2 + at, p + 3, m);
            ptx::add_cc(even[0], low, m);
            ptx::addc_cc(even[1], even[1], 0);
            Row<n - 2>::template add_products<true>(even + 2, even + 2, p + 2, m);
        } else {
            R::template add_products<shifting, known>(odd, odd + at, p + 1, m);
            R::template add_products<false>(even, even, p, m);
        }
        R::take_carry(odd[n - 1]);
    }
    // One word k of a factor, times x, and z l where there are two products.
    template <bool first, bool two>
    DEVICE static void step(uint32_t* even, uint32_t* odd, const uint32_t* x, uint32_t k, const uint32_t* z, uint32_t l) {
        if constexpr (first) {
            R::begin(even, odd, x, k);
        } else {
            R::shift_and_go_on(even, odd, x, k);
        }
        if constexpr (two) R::go_on(even, odd, z, l);
        reduce<false>(even, odd);
    }
    // (x y + z w) / 2^(32 n) mod p, z and w being there where there are two products.
    template <bool two>
    DEVICE static Words products(const Words& x, const Words& y, const Words& z, const Words& w) {
        uint32_t odd[n];
        Words even;
        step<true, two>(even.w, odd, x.w, y.w[0], z.w, w.w[0]);
        step<false, two>(odd, even.w, x.w, y.w[1], z.w, w.w[1]);
        UNROLL for (int i = 2; i < n; i += 2) {
            step<false, two>(even.w, odd, x.w, y.w[i], z.w, w.w[i]);
            step<false, two>(odd, even.w, x.w, y.w[i + 1], z.w, w.w[i + 1]);
        }
        R::join(even.w, even.w, odd);
        R::reduce_once(even.w, modulus_words32<P>.w);
        return even;
    }
    // t / 2^(32 n) mod p for t[2n] < p 2^(32 n).
    DEVICE static Words redc_words(const uint32_t* t) {
        uint32_t odd[n];
        Words even;
        const uint32_t* p = modulus_words32<P>.w;
        UNROLL for (int j = 0; j < n; ++j) even.w[j] = t[j], odd[j] = 0;
        reduce<false>(even.w, odd);
        reduce<true>(odd, even.w);
        UNROLL for (int i = 2; i < n; i += 2) {
            reduce<true>(even.w, odd);
            reduce<true>(odd, even.w);
        }
        R::join(even.w, even.w, odd);
        R::add(even.w, even.w, t + n);
        R::reduce_once(even.w, p);
        return even;
    }

    DEVICE static Words product_by_words(const Words& a, const Words& b) { return products<false>(a, b, a, b); }
    DEVICE static Words product_by_halves(const Words& a, const Words& b) {
        uint32_t t[2 * n];
        R::wide_mul_by_halves(t, a.w, b.w);
        return redc_words(t);
    }
    template <bool chained>
    DEVICE static Words product_by_doubles(const Words& a, const Words& b) {
        uint32_t t[2 * n];
        Doubles<n, chained>::wide_mul(t, a.w, b.w);
        return redc_words(t);
    }
    DEVICE static void wide(uint32_t* t, const uint32_t* x, const uint32_t* y) {
        if constexpr (by_doubles) {
            D::wide_mul(t, x, y);
        } else if constexpr (by_halves) {
            R::wide_mul_by_halves(t, x, y);
        } else {
            R::wide_mul(t, x, y);
        }
    }

    DEVICE static void wide_sqr(uint32_t* t, const uint32_t* x) {
        if constexpr (by_doubles) {
            D::wide_sqr(t, x);
        } else {
            R::wide_sqr(t, x);
        }
    }

    // Where these are calls, the words travel by value, in registers.
    DEVICE_HOT static Words product(Words a, Words b) {
        if constexpr (by_doubles) {
            return product_by_doubles<CUZKD_DOUBLES_CHAINED>(a, b);
        } else if constexpr (by_halves) {
            return product_by_halves(a, b);
        } else {
            return product_by_words(a, b);
        }
    }
    DEVICE_HOT static Words aside(Words a, Words b) {
        if constexpr (some_by_doubles) {
            return product_by_doubles<CUZKD_DOUBLES_CHAINED>(a, b);
        } else {
            return product(a, b);
        }
    }
    DEVICE_HOT static Words square(Words a) {
        uint32_t t[2 * n];
        wide_sqr(t, a.w);
        return redc_words(t);
    }
    DEVICE_HOT static Words two_squares(Words a, Words b) {
        uint32_t t[2 * n], u[2 * n];
        wide_sqr(t, a.w);
        wide_sqr(u, b.w);
        Row<2 * n>::add(t, t, u);
        return redc_words(t);
    }
    DEVICE_HOT static Words two_products(Words a, Words b, Words c, Words d) {
        if constexpr (by_halves || by_doubles) {
            uint32_t t[2 * n], u[2 * n];
            wide(t, a.w, b.w);
            wide(u, c.w, d.w);
            Row<2 * n>::add(t, t, u);
            return redc_words(t);
        } else {
            return products<true>(a, b, c, d);
        }
    }

    DEVICE static Words words(const uint64_t* x) {
        Words a;
        R::split(a.w, x);
        return a;
    }
    DEVICE static void add(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        Words a = words(x), b = words(y);
        R::add(a.w, a.w, b.w);
        R::reduce_once(a.w, modulus_words32<P>.w);
        R::unite(r, a.w);
    }
    DEVICE static void sub(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        Words a = words(x), b = words(y);
        uint32_t borrow = R::sub(a.w, a.w, b.w);
        UNROLL for (int j = 0; j < n; ++j) b.w[j] = modulus_words32<P>.w[j] & borrow;
        R::add(a.w, a.w, b.w);
        R::unite(r, a.w);
    }
    DEVICE static void neg(uint64_t* r, const uint64_t* x) {
        Words a = words(x);
        uint32_t any = 0;
        UNROLL for (int j = 0; j < n; ++j) any |= a.w[j];
        R::sub(a.w, modulus_words32<P>.w, a.w);
        UNROLL for (int j = 0; j < n; ++j) a.w[j] = any ? a.w[j] : 0;
        R::unite(r, a.w);
    }
    DEVICE static void mul(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        R::unite(r, product(words(x), words(y)).w);
    }
    // The same, on the floating-point unit where some products are to be: so that both units work.
    DEVICE static void mul_aside(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        R::unite(r, aside(words(x), words(y)).w);
    }
    // Every way of a product, whichever is chosen: for measuring.
    DEVICE static void mul_by_words(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        R::unite(r, product_by_words(words(x), words(y)).w);
    }
    DEVICE static void mul_by_halves(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        R::unite(r, product_by_halves(words(x), words(y)).w);
    }
    template <bool chained>
    DEVICE static void mul_by_doubles(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        R::unite(r, product_by_doubles<chained>(words(x), words(y)).w);
    }
    DEVICE static void sqr(uint64_t* r, const uint64_t* x) { R::unite(r, square(words(x)).w); }
    DEVICE static void sum_of_squares(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        R::unite(r, two_squares(words(x), words(y)).w);
    }
    // r = a b + c d, or a b - c d: a reduction less than two products.
    DEVICE static void mul_add(uint64_t* r, const uint64_t* a, const uint64_t* b, const uint64_t* c, const uint64_t* d) {
        R::unite(r, two_products(words(a), words(b), words(c), words(d)).w);
    }
    DEVICE static void mul_sub(uint64_t* r, const uint64_t* a, const uint64_t* b, const uint64_t* c, const uint64_t* d) {
        Words z = words(c);
        R::sub(z.w, modulus_words32<P>.w, z.w);  // p - c: p itself for c = 0, which does no harm
        R::unite(r, two_products(words(a), words(b), z, words(d)).w);
    }

    // Unreduced products: r, t: 2N words. x + y as it is, below 2p.
    DEVICE static void add_lazily(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        Words a = words(x), b = words(y);
        R::add(a.w, a.w, b.w);
        R::unite(r, a.w);
    }
    template <bool may_be_aside>
    DEVICE static void wide_mul(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        uint32_t t[2 * n];
        if constexpr (may_be_aside && some_by_doubles) {
            D::wide_mul(t, words(x).w, words(y).w);
        } else {
            wide(t, words(x).w, words(y).w);
        }
        Row<2 * n>::unite(r, t);
    }
    // t - u mod p 2^(32 n), or as it is where it cannot be negative.
    template <bool may_be_negative>
    DEVICE static void wide_sub(uint64_t* r, const uint64_t* t, const uint64_t* u) {
        uint32_t a[2 * n], b[2 * n], q[n];
        Row<2 * n>::split(a, t), Row<2 * n>::split(b, u);
        uint32_t borrow = Row<2 * n>::sub(a, a, b);
        if constexpr (may_be_negative) {
            UNROLL for (int j = 0; j < n; ++j) q[j] = modulus_words32<P>.w[j] & borrow;
            R::add(a + n, a + n, q);
        }
        Row<2 * n>::unite(r, a);
    }
    DEVICE static void redc(uint64_t* r, const uint64_t* t) {
        uint32_t a[2 * n];
        Row<2 * n>::split(a, t);
        R::unite(r, redc_words(a).w);
    }
};
#include "arch_factor.cuh"
#undef DEVICE
#undef DEVICE_HOT
#undef ROW_CONSTANT
