// arch_factor.cuh - the products of factor.cuh for NVIDIA GPUs, in 32-bit words. Included by arch_cuda.cuh; rows as there.
//
// Half products: of the quotient's, the pairs of words i + j < n - 2 are left out. They are less than (n - 2) 2^(32 (n - 1))
// together, n 2^-32 of the unit in which the quotient counts, so x w - q p stays below (1 + p/R + n 2^-32) p < 2p as it was
// (factor.cuh): the quotient is one less than the whole product's at most where that has nearly gone up to the next.
// Of the rest the low n words count: the pairs i + j < n - 1, and a product of one word where i + j = n - 1.
// 36 + 7 wide products for the quotient and twice 28 for the rest at eight words; p = 1 - 2^32 mod 2^64 saves 13 of these.
#pragma once

// -p mod 2^(32 n), in constant memory for the reason that the modulus is.
template <class P>
struct ComplementWords32 {
    uint32_t w[2 * P::N];
    HD constexpr ComplementWords32() : w{} {
        uint64_t carry = 1;
        for (int i = 0; i < P::N; ++i) {
            const uint64_t word = ~P::p(i) + carry;
            carry = carry && word == 0;
            w[2 * i] = static_cast<uint32_t>(word);
            w[2 * i + 1] = static_cast<uint32_t>(word >> 32);
        }
    }
};
template <class P>
ROW_CONSTANT ComplementWords32<P> complement_words32{};

template <class P>
struct FactorRows {
    static constexpr int n = 2 * P::N;
    using R = Row<n>;
    static constexpr bool golden = Machine<P>::golden;

    // r = x w mod p
    DEVICE static void times(uint64_t* r, const uint64_t* x, const uint64_t* value, const uint64_t* quotient) {
        uint32_t a[n], w[n], q[n];
        R::split(a, x), R::split(w, quotient);
        high(q, a, w);
        R::split(w, value);
        low(a, a, w, q);
        R::reduce_once(a, modulus_words32<P>.w);
        R::unite(r, a);
    }

    // q = x w / 2^(32 n), or one less.
    DEVICE static void high(uint32_t* q, const uint32_t* x, const uint32_t* w) {
        uint32_t even[n + 2], odd[n + 1];  // word 0 counts 2^(32 (n - 2)), and 2^(32 (n - 1))
        int known_even = 0, known_odd = 0;
        UNROLL for (int j = 0; j < n; ++j) {
            const int to_even = j < n - 1 ? n - 2 - j : 1, to_odd = n - 1 - j;  // the lowest words of x
            add_chain(even, (to_even + j - (n - 2)) / 2, x + to_even, (n + 1 - to_even) / 2, w[j], known_even);
            add_chain(odd, 0, x + to_odd, (n + 1 - to_odd) / 2, w[j], known_odd);
        }
        uint32_t below;
        ptx::add_cc(below, even[1], odd[0]);
        UNROLL for (int i = 0; i < n - 1; ++i) ptx::addc_cc(q[i], even[i + 2], odd[i + 1]);
        ptx::addc(q[n - 1], even[n + 1], odd[n]);
    }
    // sum += x[0] w, x[2] w, ... (`pairs` of them) from pair `first` on. Of sum the first `known` words are there; the words
    // behind them are zero, and so few that only the last pair has some. If it has none, the carry becomes the next word.
    DEVICE static void add_chain(uint32_t* sum, int first, const uint32_t* x, int pairs, uint32_t w, int& known) {
        const int end = 2 * (first + pairs);
        UNROLL for (int p = 0; p < n / 2; ++p) {
            if (p >= pairs) continue;
            const int at = 2 * (first + p);
            const uint32_t a = at < known ? sum[at] : 0, b = at + 1 < known ? sum[at + 1] : 0;
            if (at >= known && p == 0) {
                ptx::mul(sum[at], sum[at + 1], x[2 * p], w);
            } else if (p == 0) {
                ptx::mad_cc(sum[at], sum[at + 1], x[2 * p], w, a, b);
            } else if (at + 1 >= known) {
                ptx::madc(sum[at], sum[at + 1], x[2 * p], w, a, b);
            } else {
                ptx::madc_cc(sum[at], sum[at + 1], x[2 * p], w, a, b);
            }
        }
        if (known >= end) ptx::addc(sum[end], 0, 0);
        known = known >= end ? end + 1 : end;
    }

    // r = x w - q p mod 2^(32 n). r may be x.
    DEVICE static void low(uint32_t* r, const uint32_t* x, const uint32_t* w, const uint32_t* q) {
        uint32_t even[n], odd[n - 1];  // word 0 of odd counts 2^32
        add_row<0, true>(even, odd, x, w);
        add_rows<1>(even, odd, x, w);
        add_rows<golden ? 2 : 0>(even, odd, q, complement_words32<P>.w);
        if constexpr (golden) {  // the low words of -p are 2^32 - 1
            Row<n - 1>::add(odd, odd, q);
            ptx::sub_cc(even[0], even[0], q[0]);
            UNROLL for (int i = 1; i < n; ++i) ptx::subc_cc(even[i], even[i], q[i]);
        }
        r[0] = even[0];
        Row<n - 1>::add(r + 1, even + 1, odd);
    }
    template <int j>
    DEVICE static void add_rows(uint32_t* even, uint32_t* odd, const uint32_t* x, const uint32_t* w) {
        if constexpr (j < n) {
            add_row<j, false>(even, odd, x, w);
            add_rows<j + 1>(even, odd, x, w);
        }
    }
    // even + 2^32 odd += 2^(32 j) x w[j], or where `first` it is that.
    template <int j, bool first>
    DEVICE static void add_row(uint32_t* even, uint32_t* odd, const uint32_t* x, const uint32_t* w) {
        constexpr int to_even = j % 2, to_odd = 1 - to_even;  // the lowest words of x
        UNROLL for (int i = to_even; i + j < n; i += 2) {
            add_pair<first>(even + i + j, x[i], w[j], i != to_even);
        }
        UNROLL for (int i = to_odd; i + j < n; i += 2) {
            uint32_t* at = odd + i + j - 1;
            if (i + j < n - 1) {
                add_pair<first>(at, x[i], w[j], i != to_odd);
            } else if (first) {
                *at = x[i] * w[j];
            } else if (i == to_odd) {
                *at += x[i] * w[j];
            } else {
                ptx::addc_cc(*at, *at, x[i] * w[j]);
            }
        }
    }
    template <bool first>
    DEVICE static void add_pair(uint32_t* at, uint32_t x, uint32_t w, bool takes_carry) {
        if (first) {
            ptx::mul(at[0], at[1], x, w);
        } else if (takes_carry) {
            ptx::madc_cc(at[0], at[1], x, w, at[0], at[1]);
        } else {
            ptx::mad_cc(at[0], at[1], x, w, at[0], at[1]);
        }
    }
};
