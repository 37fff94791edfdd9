// arch_cuda.cuh - modular addition, subtraction and Montgomery products for NVIDIA GPUs, in 32-bit words. Included by arch.cuh.
//
// Why: the GPU multiplies 32 x 32 bits into 64 and adds with carry in one instruction (IMAD.WIDE.U32.X), but only where
// a low and a high product of the same two words follow each other into an aligned pair of registers. So a running sum
// is kept in two rows of words: products of the even words of x go to the row `even`, those of the odd words to `odd`,
// whose word j counts 2^32 times as much; every pair is aligned in its row. After a step for one word of y and one of
// the reduction, the lowest word of `even` is zero, and dividing by 2^32 just exchanges the rows' roles.
// Words and results as in field.cuh: inputs < p, results < p, the top bit of p clear.
// What it costs is the number of wide products (n = words of p): n^2 each for a product and for a reduction, n (n + 1) / 2
// for a square; tests/gpu/test_counts.py counts them in the compiled code.
#pragma once

// How long a modulus has to be, in words, for products to be made of products of half the words; or of doubles, on GPUs
// that multiply these at full rate; or so where the caller asks for it, at about every second product; and whether columns
// are then summed in doubles (arch_doubles.cuh). 99: never.
#if !defined(CUZKD_HALVES_FROM)
#define CUZKD_HALVES_FROM 99
#endif
#if !defined(CUZKD_DOUBLES_FROM)
#define CUZKD_DOUBLES_FROM (FAST_DOUBLES ? 99 : 99)
#endif
#if !defined(CUZKD_SOME_DOUBLES_FROM)
#define CUZKD_SOME_DOUBLES_FROM (FAST_DOUBLES ? 99 : 99)
#endif
#if !defined(CUZKD_DOUBLES_CHAINED)
#define CUZKD_DOUBLES_CHAINED true
#endif

// The modulus and -1/p in 32-bit words. In constant memory: as literals, words of all ones or one would be turned into
// negations and shifts, which breaks the pairs apart.
template <class P>
struct ModulusWords32 {
    uint32_t w[2 * P::N + 1];
    HD constexpr ModulusWords32() : w{} {
        for (int i = 0; i < P::N; ++i) {
            w[2 * i] = static_cast<uint32_t>(P::p(i));
            w[2 * i + 1] = static_cast<uint32_t>(P::p(i) >> 32);
        }
        w[2 * P::N] = static_cast<uint32_t>(P::inv);
    }
};
template <class P>
ROW_CONSTANT ModulusWords32<P> modulus_words32{};

// Rows of n words (n even).
template <int n>
struct Row {
    DEVICE static void split(uint32_t* r, const uint64_t* x) {
        UNROLL for (int j = 0; j < n; ++j) r[j] = static_cast<uint32_t>(x[j / 2] >> (32 * (j & 1)));
    }
    DEVICE static void unite(uint64_t* r, const uint32_t* x) {
        UNROLL for (int j = 0; j < n / 2; ++j) r[j] = x[2 * j] | static_cast<uint64_t>(x[2 * j + 1]) << 32;
    }

    // r = x[0] k, x[2] k, ...
    DEVICE static void products(uint32_t* r, const uint32_t* x, uint32_t k) {
        UNROLL for (int j = 0; j < n; j += 2) ptx::mul(r[j], r[j + 1], x[j], k);
    }
    // r = from + x[0] k, x[2] k, ... (+ carry). Of `from` (r, or a place further up in it) only `known` words are there,
    // the others are zero; leaves a carry where all are.
    template <bool takes_carry, int known = n>
    DEVICE static void add_products(uint32_t* r, const uint32_t* from, const uint32_t* x, uint32_t k) {
        UNROLL for (int j = 0; j < n; j += 2) {
            uint32_t a = j < known ? from[j] : 0, b = j + 1 < known ? from[j + 1] : 0;
            if (j == 0 && !takes_carry) {
                ptx::mad_cc(r[j], r[j + 1], x[j], k, a, b);
            } else if (j == n - 2 && known < n) {
                ptx::madc(r[j], r[j + 1], x[j], k, a, b);
            } else {
                ptx::madc_cc(r[j], r[j + 1], x[j], k, a, b);
            }
        }
    }
    // r = x + y; leaves a carry.
    DEVICE static void add(uint32_t* r, const uint32_t* x, const uint32_t* y) {
        ptx::add_cc(r[0], x[0], y[0]);
        UNROLL for (int j = 1; j < n; ++j) ptx::addc_cc(r[j], x[j], y[j]);
    }
    // r = x - y; returns 0 or, after a borrow, all ones.
    DEVICE static uint32_t sub(uint32_t* r, const uint32_t* x, const uint32_t* y) {
        ptx::sub_cc(r[0], x[0], y[0]);
        UNROLL for (int j = 1; j < n; ++j) ptx::subc_cc(r[j], x[j], y[j]);
        uint32_t borrow;
        ptx::subc(borrow, 0, 0);
        return borrow;
    }
    DEVICE static void take_carry(uint32_t& word) { ptx::addc(word, word, 0); }

    // r mod p for r < 2p.
    DEVICE static void reduce_once(uint32_t* r, const uint32_t* p) {
        uint32_t d[n];
        uint32_t borrow = sub(d, r, p);
        UNROLL for (int j = 0; j < n; ++j) r[j] = borrow ? r[j] : d[j];
    }

    // even + 2^32 odd = x k
    DEVICE static void begin(uint32_t* even, uint32_t* odd, const uint32_t* x, uint32_t k) {
        products(odd, x + 1, k);
        products(even, x, k);
    }
    // even + 2^32 odd += x k, where the sum stays below 2^(32 (n + 1)).
    DEVICE static void go_on(uint32_t* even, uint32_t* odd, const uint32_t* x, uint32_t k) {
        add_products<false>(odd, odd, x + 1, k);
        add_products<false>(even, even, x, k);
        take_carry(odd[n - 1]);
    }
    // The same at the beginning of a step but the first: word 0 of the row now called `odd` is zero, word 1 still belongs to
    // `even`.
    DEVICE static void shift_and_go_on(uint32_t* even, uint32_t* odd, const uint32_t* x, uint32_t k) {
        ptx::add_cc(even[0], even[0], odd[1]);
        add_products<true, n - 2>(odd, odd + 2, x + 1, k);
        add_products<false>(even, even, x, k);
        take_carry(odd[n - 1]);
    }
    // r = even + odd / 2^32, word 0 of odd being zero. r may be even.
    DEVICE static void join(uint32_t* r, const uint32_t* even, const uint32_t* odd) {
        Row<n - 1>::add(r, even, odd + 1);
        ptx::addc(r[n - 1], even[n - 1], 0);
    }

    // r[2n] = x y for any x, y of n words.
    DEVICE static void wide_mul(uint32_t* r, const uint32_t* x, const uint32_t* y) {
        uint32_t odd[2 * n];
        begin(r, odd, x, y[0]);
        UNROLL for (int i = 1; i < n; i += 2) {
            add_products<false>(odd + i - 1, odd + i - 1, x, y[i]);
            ptx::addc(odd[i + n - 1], 0, 0);
            if (i == 1) {  // the word below the top one is new here, later it holds a carry
                add_products<false, n - 2>(r + i + 1, r + i + 1, x + 1, y[i]);
            } else {
                add_products<false, n - 1>(r + i + 1, r + i + 1, x + 1, y[i]);
            }
            if (i == n - 1) break;
            add_products<false, n - 1>(odd + i + 1, odd + i + 1, x + 1, y[i + 1]);
            add_products<false>(r + i + 1, r + i + 1, x, y[i + 1]);
            ptx::addc(r[i + n + 1], 0, 0);
        }
        Row<2 * n - 1>::add(r + 1, r + 1, odd);
    }

    // r = |x - y|; returns 0 or, where x < y, all ones.
    DEVICE static uint32_t distance(uint32_t* r, const uint32_t* x, const uint32_t* y) {
        uint32_t borrow = sub(r, x, y);
        negate_where(r, borrow);
        return borrow;
    }
    // r = -r mod 2^(32 n) where mask is all ones.
    DEVICE static void negate_where(uint32_t* r, uint32_t mask) {
        ptx::add_cc(r[0], r[0] ^ mask, mask & 1);
        UNROLL for (int j = 1; j < n; ++j) ptx::addc_cc(r[j], r[j] ^ mask, 0);
    }
    // The same by three products of half the words: with x = x0 + B x1, y = y0 + B y1 (Karatsuba),
    // x y = x0 y0 + B (x0 y0 + x1 y1 + (x0 - x1) (y1 - y0)) + B^2 x1 y1
    DEVICE static void wide_mul_by_halves(uint32_t* r, const uint32_t* x, const uint32_t* y) {
        constexpr int h = n / 2;
        uint32_t d[h], e[h], inner[n + 1], cross[n + 1];
        uint32_t mask = Row<h>::distance(d, x, x + h) ^ Row<h>::distance(e, y + h, y);
        Row<h>::wide_mul(cross, d, e);
        Row<h>::wide_mul(r, x, y);
        Row<h>::wide_mul(r + n, x + h, y + h);
        Row<n>::add(inner, r, r + n);
        ptx::addc(inner[n], 0, 0);
        // inner + cross, or inner - cross: that is inner + ~cross + 1, with a top word of all ones
        uint32_t carry;
        ptx::add_cc(carry, mask, mask & 1);
        UNROLL for (int j = 0; j < n; ++j) ptx::addc_cc(inner[j], inner[j], cross[j] ^ mask);
        ptx::addc_cc(inner[n], inner[n], mask);
        Row<n + 1>::add(r + h, r + h, inner);
        UNROLL for (int j = h + n + 1; j < 2 * n - 1; ++j) ptx::addc_cc(r[j], r[j], 0);
        ptx::addc(r[2 * n - 1], r[2 * n - 1], 0);
    }

    // Products of word i of x with those above it, into the rows of wide_sqr. Heights as there: a row's top words are new in
    // every other step, and hold a carry of the step before in its first word.
    template <int i>
    DEVICE static void off_diagonal(uint32_t* even, uint32_t* odd, const uint32_t* x) {
        constexpr int above = n - 1 - i, to_odd = (above + 1) / 2 * 2, to_even = above / 2 * 2;
        if constexpr (i == 0) {
            Row<to_odd>::products(odd, x + 1, x[0]);
            Row<to_even>::products(even + 2, x + 2, x[0]);
        } else if constexpr (i % 2 == 1) {
            Row<to_odd>::template add_products<false>(odd + 2 * i, odd + 2 * i, x + i + 1, x[i]);
            ptx::addc(odd[2 * i + to_odd], 0, 0);
            constexpr int known = i == 1 ? to_even - 2 : to_even - 1;
            Row<to_even>::template add_products<false, known>(even + 2 * i + 2, even + 2 * i + 2, x + i + 2, x[i]);
        } else {
            Row<to_odd>::template add_products<false, to_odd - 1>(odd + 2 * i, odd + 2 * i, x + i + 1, x[i]);
            if constexpr (to_even > 0) {
                Row<to_even>::template add_products<false>(even + 2 * i + 2, even + 2 * i + 2, x + i + 2, x[i]);
                ptx::addc(even[2 * i + 2 + to_even], 0, 0);
            }
        }
        if constexpr (above > 1) off_diagonal<i + 1>(even, odd, x);
    }
    // r[2n] = x^2 for any x of n words: products of different words once, twice their sum, and the squares of words.
    DEVICE static void wide_sqr(uint32_t* r, const uint32_t* x) {
        uint32_t even[2 * n], odd[2 * n];
        off_diagonal<0>(even, odd, x);
        even[1] = odd[0];  // words 2 to 2n - 3 of even, 0 to 2n - 3 of odd are there
        Row<2 * n - 4>::add(even + 2, even + 2, odd + 1);
        ptx::addc(even[2 * n - 2], odd[2 * n - 3], 0);
        even[0] = even[2 * n - 1] = 0;
        UNROLL for (int j = 2 * n - 1; j > 0; --j) even[j] = even[j] << 1 | even[j - 1] >> 31;
        UNROLL for (int j = 0; j < n; ++j) {
            if (j == 0) {
                ptx::mad_cc(r[0], r[1], x[0], x[0], even[0], even[1]);
            } else if (j < n - 1) {
                ptx::madc_cc(r[2 * j], r[2 * j + 1], x[j], x[j], even[2 * j], even[2 * j + 1]);
            } else {
                ptx::madc(r[2 * j], r[2 * j + 1], x[j], x[j], even[2 * j], even[2 * j + 1]);
            }
        }
    }
};

#include "arch_doubles.cuh"

template <class P>
struct Machine {
    static constexpr int n = 2 * P::N;
    static constexpr bool has_add = true, has_mul = true, has_wide = true;
    static constexpr bool has_sum = P::BITS + 2 <= 32 * n;  // two products and a reduction, all at once: 3p in n words
    // p = 1 - 2^32 mod 2^64 (Fr of BLS12-381): the low words of the reduction are additions.
    static constexpr bool golden = P::p(0) == 0xffffffff00000001u;
    // Fewer wide products for more of other operations: whether that is faster, only measuring tells.
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
