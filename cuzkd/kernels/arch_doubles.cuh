// arch_doubles.cuh - products of 12 words on the floating-point unit of GPUs that do 64 bits at full rate. Included by arch_cuda.cuh.
//
// Why: such a GPU (sm_80, sm_90) has, beside the multiplier of 32-bit words, a unit that multiplies 53 bits in half the
// time, and otherwise stands idle. So it makes the product, and the words' multiplier reduces it; different warps, or
// different products of one, keep both at work.
// How (Emmart, Zheng, Weems, "Faster Modular Exponentiation Using Double Precision Floating Point Arithmetic on the GPU",
// ARITH 2018): limbs of 48 bits, as doubles, a b < 2^98. Rounded towards zero, 2^100 + a b keeps what is above 2^48,
//   high = 2^100 + 2^48 floor(a b / 2^48), whose bits are those of 2^100 plus floor(a b / 2^48);
//   low  = 2^52 + a b mod 2^48 = a b + ((2^100 + 2^52) - high) without any rounding, its bits those of 2^52 plus a b mod 2^48.
// The bits are summed as integers, column by column. 2^100 and 2^52 are zero in the lowest 52 bits, where the true sum of
// a column, less than 16 2^48, has room: the rest is cut off in the end.
#pragma once

// Numbers of n words, n a multiple of 3: two limbs to three words.
template <int n>
struct Doubles {
    static constexpr int L = 2 * n / 3;

    DEVICE static void split(double* d, const uint32_t* w) {
        UNROLL for (int m = 0; m < n / 3; ++m) {
            uint32_t middle = w[3 * m + 1], top = w[3 * m + 2];
            d[2 * m] = limb(middle & 0xffff, w[3 * m]);
            d[2 * m + 1] = limb(top >> 16, top << 16 | middle >> 16);
        }
    }
    DEVICE static double limb(uint32_t high, uint32_t low) {
        return ptx::double_of(high | 0x43300000u, low) - 0x1p52;  // the bits of 2^52 + limb, less 2^52
    }
    DEVICE static void add_product(uint64_t* column, double a, double b) {
        double high = ptx::fma_rz(a, b, 0x1p100), low = ptx::fma_rz(a, b, 0x1.000000000001p100 - high);
        column[0] += ptx::bits_of(low);
        column[1] += ptx::bits_of(high);
    }
    // r[2n] = the sum of column[k] 2^(48 k), k < 2L, of which only the lowest 52 bits count.
    DEVICE static void unite(uint32_t* r, const uint64_t* column) {
        uint32_t even[2 * n], odd[2 * n];
        UNROLL for (int m = 0; m < L; ++m) {
            uint64_t e = column[2 * m], o = column[2 * m + 1], before = m ? column[2 * m - 1] : 0;
            even[3 * m] = static_cast<uint32_t>(e);
            even[3 * m + 1] = static_cast<uint32_t>(e >> 32) & 0xfffff;
            even[3 * m + 2] = 0;
            odd[3 * m] = static_cast<uint32_t>(before >> 48) & 0xf;
            odd[3 * m + 1] = static_cast<uint32_t>(o) << 16;
            odd[3 * m + 2] = static_cast<uint32_t>(o >> 16);
        }
        ptx::add_cc(r[0], even[0], odd[0]);
        UNROLL for (int j = 1; j < 2 * n; ++j) ptx::addc_cc(r[j], even[j], odd[j]);
    }

    // r[2n] = x y
    DEVICE static void wide_mul(uint32_t* r, const uint32_t* x, const uint32_t* y) {
        double a[L], b[L];
        split(a, x), split(b, y);
        uint64_t column[2 * L] = {};
        UNROLL for (int k = 0; k < 2 * L - 1; ++k) {
            UNROLL for (int i = 0; i < L; ++i) {
                if (k - i >= 0 && k - i < L) add_product(column + k, a[i], b[k - i]);
            }
        }
        unite(r, column);
    }
    // r[2n] = x^2: products of different limbs once, one of them doubled.
    DEVICE static void wide_sqr(uint32_t* r, const uint32_t* x) {
        double a[L], twice[L];
        split(a, x);
        UNROLL for (int i = 0; i < L; ++i) twice[i] = a[i] + a[i];
        uint64_t column[2 * L] = {};
        UNROLL for (int k = 0; k < 2 * L - 1; ++k) {
            UNROLL for (int i = 0; i < L; ++i) {
                if (k - i >= i && k - i < L) add_product(column + k, k == 2 * i ? a[i] : twice[i], a[k - i]);
            }
        }
        unite(r, column);
    }
};
