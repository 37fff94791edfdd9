// arch_doubles.cuh - long products on the floating-point unit of GPUs that do 64 bits at full rate. Included by arch_cuda.cuh.
//
// Why: such a GPU (sm_80, sm_90) has, beside the multiplier of 32-bit words, a unit that multiplies 53 bits in half the
// time, and otherwise stands idle. So it makes the product, and the words' multiplier reduces it; different warps, or
// different products of one, keep both at work.
// How (Emmart, Zheng, Weems, "Faster Modular Exponentiation Using Double Precision Floating Point Arithmetic on the GPU",
// ARITH 2018): limbs of 48 bits, as doubles; a b < 2^98. Rounded towards zero, 2^100 + a b keeps what is above 2^48:
//   high = 2^100 + 2^48 floor(a b / 2^48)     its bits are those of 2^100 plus floor(a b / 2^48)
//   low  = a b - (high - 2^100)               a b mod 2^48, without any rounding
// Neither 2^100 nor 2^52 has a bit among the lowest 52 of a double, where the sum of a column, below 16 2^48, has room:
// they are cut off in the end.
#pragma once

// The columns of a product: add(k, a, b) for each a b 2^(48 k), then bits(k), of which the lowest 52 count.
// Summed as integers: three operations on doubles and two on words.
template <int COLUMNS>
struct SummedColumns {
    uint64_t sum[COLUMNS + 1] = {};

    DEVICE void add(int k, double a, double b) {
        double high = ptx::fma_rz(a, b, 0x1p100);
        sum[k] += ptx::bits_of(ptx::fma_rz(a, b, (0x1p100 + 0x1p52) - high));  // 2^52 + low
        sum[k + 1] += ptx::bits_of(high);
    }
    DEVICE uint64_t bits(int k) const { return sum[k]; }
};
// Summed as doubles, high halves by the product itself: four operations on doubles.
template <int COLUMNS>
struct ChainedColumns {
    double low[COLUMNS], high[COLUMNS];

    DEVICE ChainedColumns() {
        UNROLL for (int k = 0; k < COLUMNS; ++k) low[k] = 0x1p52, high[k] = 0x1p100;
    }
    DEVICE void add(int k, double a, double b) {
        double sum = ptx::fma_rz(a, b, high[k]);
        low[k] += ptx::fma_rz(a, b, high[k] - sum);
        high[k] = sum;
    }
    DEVICE uint64_t bits(int k) const {
        return (k < COLUMNS ? ptx::bits_of(low[k]) : 0) + (k > 0 ? ptx::bits_of(high[k - 1]) : 0);
    }
};

template <bool first, class A, class B>
struct Either {
    using Type = A;
};
template <class A, class B>
struct Either<false, A, B> {
    using Type = B;
};

// Products of numbers of n words. Two limbs have the bits of three words.
template <int n, bool chained>
struct Doubles {
    static constexpr int L = (n + 2) / 3 * 2, COLUMNS = 2 * L - 1;
    using Columns = typename Either<chained, ChainedColumns<COLUMNS>, SummedColumns<COLUMNS>>::Type;

    DEVICE static void split(double* d, const uint32_t* w) {
        UNROLL for (int m = 0; m < L / 2; ++m) {
            uint32_t low = w[3 * m], middle = w[3 * m + 1], top = 3 * m + 2 < n ? w[3 * m + 2] : 0;
            d[2 * m] = limb(middle & 0xffff, low);
            d[2 * m + 1] = limb(top >> 16, top << 16 | middle >> 16);
        }
    }
    DEVICE static double limb(uint32_t high, uint32_t low) {
        return ptx::double_of(high | 0x43300000u, low) - 0x1p52;  // the bits of 2^52 + limb, less 2^52
    }
    // r[2n] = the sum of all columns. Even ones begin with a word, odd ones in the middle of the next.
    DEVICE static void unite(uint32_t* r, const Columns& columns) {
        uint32_t even[3 * L], odd[3 * L];
        uint64_t before = 0;
        UNROLL for (int m = 0; m < L; ++m) {
            uint64_t e = columns.bits(2 * m), o = columns.bits(2 * m + 1);
            even[3 * m] = static_cast<uint32_t>(e);
            even[3 * m + 1] = static_cast<uint32_t>(e >> 32) & 0xfffff;
            even[3 * m + 2] = 0;
            odd[3 * m] = static_cast<uint32_t>(before >> 48) & 0xf;
            odd[3 * m + 1] = static_cast<uint32_t>(o) << 16;
            odd[3 * m + 2] = static_cast<uint32_t>(o >> 16);
            before = o;
        }
        ptx::add_cc(r[0], even[0], odd[0]);
        UNROLL for (int j = 1; j < 2 * n; ++j) ptx::addc_cc(r[j], even[j], odd[j]);
    }

    // r[2n] = x y
    DEVICE static void wide_mul(uint32_t* r, const uint32_t* x, const uint32_t* y) {
        double a[L], b[L];
        split(a, x), split(b, y);
        Columns columns;
        UNROLL for (int k = 0; k < COLUMNS; ++k) {
            UNROLL for (int i = 0; i < L; ++i) {
                if (k - i >= 0 && k - i < L) columns.add(k, a[i], b[k - i]);
            }
        }
        unite(r, columns);
    }
    // r[2n] = x^2: products of different limbs once, one of the two doubled.
    DEVICE static void wide_sqr(uint32_t* r, const uint32_t* x) {
        double a[L], twice[L];
        split(a, x);
        UNROLL for (int i = 0; i < L; ++i) twice[i] = a[i] + a[i];
        Columns columns;
        UNROLL for (int k = 0; k < COLUMNS; ++k) {
            UNROLL for (int i = 0; i < L; ++i) {
                if (k - i >= i && k - i < L) columns.add(k, k == 2 * i ? a[i] : twice[i], a[k - i]);
            }
        }
        unite(r, columns);
    }
};
