// arch_cuda.cuh - modular addition, subtraction and Montgomery product for NVIDIA GPUs, in PTX. Included by arch.cuh.
//
// Why: the GPU multiplies 32 x 32 bits into 64 and adds with carry in one instruction (IMAD.WIDE.U32.X), but only where
// a low and a high product of the same two words follow each other into an aligned pair of registers. So a running sum
// is kept in two rows of words: products of the even words of x go to the row `even`, those of the odd words to `odd`,
// whose word j counts 2^32 times as much; every pair is aligned in its row. After a step for one word of y and one of
// the reduction, the lowest word of `even` is zero, and dividing by 2^32 just exchanges the rows' roles.
// Words and results as in field.cuh: inputs < p, results < p, the top bit of p clear.
// The statements below hand the carry flag from one to the next: they are volatile, which keeps them in order.
#pragma once

// The modulus and -1/p in 32-bit words. In constant memory: as literals, words of all ones or one would be turned into
// negations and shifts, which breaks the pairs apart.
template <class P>
struct ModulusPairs {
    uint32_t w[2 * P::N + 1];
    HD constexpr ModulusPairs() : w{} {
        for (int i = 0; i < P::N; ++i) {
            w[2 * i] = static_cast<uint32_t>(P::p(i));
            w[2 * i + 1] = static_cast<uint32_t>(P::p(i) >> 32);
        }
        w[2 * P::N] = static_cast<uint32_t>(P::inv);
    }
};
template <class P>
__constant__ ModulusPairs<P> modulus_pairs{};

#define CARRY_ASM asm volatile
#define DEVICE __device__ __forceinline__

// Rows of n words (n even).
template <int n>
struct Row {
    // r = x[0] k, x[2] k, ...
    DEVICE static void products(uint32_t* r, const uint32_t* x, uint32_t k) {
        UNROLL for (int j = 0; j < n; j += 2) {
            CARRY_ASM("mul.lo.u32 %0, %2, %3; mul.hi.u32 %1, %2, %3;" : "=&r"(r[j]), "=r"(r[j + 1]) : "r"(x[j]), "r"(k));
        }
    }
    // r += x[0] k, x[2] k, ...; leaves a carry.
    DEVICE static void add_products(uint32_t* r, const uint32_t* x, uint32_t k) {
        CARRY_ASM("mad.lo.cc.u32 %0, %2, %3, %0; madc.hi.cc.u32 %1, %2, %3, %1;"
                  : "+&r"(r[0]), "+r"(r[1])
                  : "r"(x[0]), "r"(k));
        UNROLL for (int j = 2; j < n; j += 2) {
            CARRY_ASM("madc.lo.cc.u32 %0, %2, %3, %0; madc.hi.cc.u32 %1, %2, %3, %1;"
                      : "+&r"(r[j]), "+r"(r[j + 1])
                      : "r"(x[j]), "r"(k));
        }
    }
    // r = r / 2^64 + (x[0] k, x[2] k, ...) + carry: takes a carry, leaves none.
    DEVICE static void shift_add_products(uint32_t* r, const uint32_t* x, uint32_t k) {
        UNROLL for (int j = 0; j < n - 2; j += 2) {
            CARRY_ASM("madc.lo.cc.u32 %0, %2, %3, %4; madc.hi.cc.u32 %1, %2, %3, %5;"
                      : "=&r"(r[j]), "=r"(r[j + 1])
                      : "r"(x[j]), "r"(k), "r"(r[j + 2]), "r"(r[j + 3]));
        }
        CARRY_ASM("madc.lo.cc.u32 %0, %2, %3, 0; madc.hi.u32 %1, %2, %3, 0;"
                  : "=&r"(r[n - 2]), "=r"(r[n - 1])
                  : "r"(x[n - 2]), "r"(k));
    }
    // r += x, word by word; leaves a carry.
    DEVICE static void add(uint32_t* r, const uint32_t* x) {
        CARRY_ASM("add.cc.u32 %0, %0, %1;" : "+r"(r[0]) : "r"(x[0]));
        UNROLL for (int j = 1; j < n; ++j) CARRY_ASM("addc.cc.u32 %0, %0, %1;" : "+r"(r[j]) : "r"(x[j]));
    }
    // r -= x; returns 0 or, after a borrow, all ones.
    DEVICE static uint32_t sub(uint32_t* r, const uint32_t* x) {
        CARRY_ASM("sub.cc.u32 %0, %0, %1;" : "+r"(r[0]) : "r"(x[0]));
        UNROLL for (int j = 1; j < n; ++j) CARRY_ASM("subc.cc.u32 %0, %0, %1;" : "+r"(r[j]) : "r"(x[j]));
        uint32_t borrow;
        CARRY_ASM("subc.u32 %0, 0, 0;" : "=r"(borrow));
        return borrow;
    }
    DEVICE static void take_carry(uint32_t& word) { CARRY_ASM("addc.u32 %0, %0, 0;" : "+r"(word)); }

    // r mod p for r < 2p.
    DEVICE static void reduce_once(uint32_t* r, const uint32_t* p) {
        uint32_t d[n];
        UNROLL for (int j = 0; j < n; ++j) d[j] = r[j];
        uint32_t borrow = sub(d, p);
        UNROLL for (int j = 0; j < n; ++j) r[j] = borrow ? r[j] : d[j];
    }
    DEVICE static void split(uint32_t* r, const uint64_t* x) {
        UNROLL for (int j = 0; j < n; ++j) r[j] = static_cast<uint32_t>(x[j / 2] >> (32 * (j & 1)));
    }
    DEVICE static void unite(uint64_t* r, const uint32_t* x) {
        UNROLL for (int j = 0; j < n / 2; ++j) r[j] = x[2 * j] | static_cast<uint64_t>(x[2 * j + 1]) << 32;
    }

    // sum = (even + 2^32 odd + x k + p m) / 2^32 with the m that makes it whole; the result's rows are (odd, even).
    // Before, but for the first step, word 1 of the row now called `odd` (word 0 is zero) still belongs to `even`.
    DEVICE static void step(uint32_t* even, uint32_t* odd, const uint32_t* x, uint32_t k, const uint32_t* p, bool first) {
        if (first) {
            products(odd, x + 1, k);
            products(even, x, k);
        } else {
            CARRY_ASM("add.cc.u32 %0, %0, %1;" : "+r"(even[0]) : "r"(odd[1]));
            shift_add_products(odd, x + 1, k);
            add_products(even, x, k);
            take_carry(odd[n - 1]);
        }
        uint32_t m = even[0] * p[n];
        add_products(odd, p + 1, m);
        add_products(even, p, m);
        take_carry(odd[n - 1]);
    }
};

template <class P>
struct Machine {
    static constexpr bool has_add = true, has_mul = true;
    static constexpr int n = 2 * P::N;

    DEVICE static void add(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        uint32_t a[n], b[n];
        Row<n>::split(a, x), Row<n>::split(b, y);
        Row<n>::add(a, b);
        Row<n>::reduce_once(a, modulus_pairs<P>.w);
        Row<n>::unite(r, a);
    }
    DEVICE static void sub(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        uint32_t a[n], b[n];
        Row<n>::split(a, x), Row<n>::split(b, y);
        uint32_t borrow = Row<n>::sub(a, b);
        UNROLL for (int j = 0; j < n; ++j) b[j] = modulus_pairs<P>.w[j] & borrow;
        Row<n>::add(a, b);
        Row<n>::unite(r, a);
    }
    struct Words {
        uint32_t w[n];
    };
    // A call, by value: the words travel in registers. Inlined, the products of a point addition compile for minutes.
    __device__ __noinline__ static Words product(Words a, Words b) {
        uint32_t odd[n];
        Words even;
        const uint32_t* p = modulus_pairs<P>.w;
        UNROLL for (int i = 0; i < n; i += 2) {
            Row<n>::step(even.w, odd, a.w, b.w[i], p, i == 0);
            Row<n>::step(odd, even.w, a.w, b.w[i + 1], p, false);
        }
        // What is left: even + odd / 2^32, word 0 of odd being zero.
        Row<n - 1>::add(even.w, odd + 1);
        Row<n>::take_carry(even.w[n - 1]);
        Row<n>::reduce_once(even.w, p);
        return even;
    }
    DEVICE static void mul(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        Words a, b;
        Row<n>::split(a.w, x), Row<n>::split(b.w, y);
        Row<n>::unite(r, product(a, b).w);
    }
};
#undef CARRY_ASM
#undef DEVICE
