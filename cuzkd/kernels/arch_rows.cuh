// arch_rows.cuh - sums, differences and products of rows of 32-bit words on NVIDIA GPUs. Included by arch_cuda.cuh.
//
// Why: the GPU multiplies 32 x 32 bits into 64 and adds with carry in one instruction (IMAD.WIDE.U32.X), but only where
// a low and a high product of the same two words follow each other into an aligned pair of registers. So a running sum
// is kept in two rows of words: products of the even words of x go to the row `even`, those of the odd words to `odd`,
// whose word j counts 2^32 times as much; every pair is aligned in its row.
#pragma once

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
