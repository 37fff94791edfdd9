// arch.cuh - the machine: integer types, function qualifiers, and the carry chain on 64-bit words.
//
// Problem: one source goes through g++ (CPU backend) and through NVRTC (GPU backend), which has no host headers.
// Design: this is the only kernel file that may test the compiler or the target. Everything above it is plain C++17.
#pragma once

#if defined(__CUDACC_RTC__)  // NVRTC has no standard headers at all
using uint8_t = unsigned char;
using int8_t = signed char;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
using size_t = decltype(sizeof(0));
#else
#include <cstddef>
#include <cstdint>
#endif

// HD: small function of both sides, inlined. HD_CALL: where a product is one block of assembly, inlined; else, and on the
// GPU, a call: one kernel with every product of a G2 addition inlined compiles for minutes. HD_THIN: the same, but inlined
// on the GPU, because it only covers what is a call there already. HD_COLD: a call on both sides (rare paths, long code).
#if defined(__CUDACC__)
#define HD __host__ __device__ __forceinline__
#define HD_CALL __host__ __device__ __noinline__
#define HD_THIN __host__ __device__ __forceinline__
#define HD_COLD __host__ __device__ __noinline__
#define UNROLL _Pragma("unroll")
#else
#define HD inline __attribute__((always_inline))
#if defined(__BMI2__) && defined(__ADX__)
#define HD_CALL inline
#else
#define HD_CALL __attribute__((noinline))
#endif
#define HD_THIN HD_CALL
#define HD_COLD __attribute__((noinline))
#define UNROLL _Pragma("GCC unroll 16")
#endif

// a + b*c + carry -> low word; the high word is left in carry. Never overflows 128 bits.
HD uint64_t mac(uint64_t a, uint64_t b, uint64_t c, uint64_t& carry) {
#if defined(__CUDA_ARCH__)
    uint64_t lo, hi;
    asm("mad.lo.cc.u64 %0, %2, %3, %4;\n\t"
        "madc.hi.u64 %1, %2, %3, 0;\n\t"
        "add.cc.u64 %0, %0, %5;\n\t"
        "addc.u64 %1, %1, 0;"
        : "=&l"(lo), "=&l"(hi)
        : "l"(b), "l"(c), "l"(a), "l"(carry));
    carry = hi;
    return lo;
#else
    unsigned __int128 t = static_cast<unsigned __int128>(b) * c + a + carry;
    carry = static_cast<uint64_t>(t >> 64);
    return static_cast<uint64_t>(t);
#endif
}

// a + b + carry (0 or 1) -> word; the carry out (0 or 1) is left in carry.
HD uint64_t adc(uint64_t a, uint64_t b, uint64_t& carry) {
#if defined(__CUDA_ARCH__)
    uint64_t sum = a + b, c1 = sum < a;
    uint64_t out = sum + carry;
    carry = c1 | (out < sum);
    return out;
#else
    unsigned long long sum, out;
    uint64_t c1 = __builtin_uaddll_overflow(a, b, &sum);
    uint64_t c2 = __builtin_uaddll_overflow(sum, carry, &out);
    carry = c1 | c2;
    return out;
#endif
}

// a - b - borrow (0 or 1) -> word; the borrow out (0 or 1) is left in borrow.
HD uint64_t sbb(uint64_t a, uint64_t b, uint64_t& borrow) {
#if defined(__CUDA_ARCH__)
    uint64_t diff = a - b, b1 = a < b;
    uint64_t out = diff - borrow;
    borrow = b1 | (diff < borrow);
    return out;
#else
    unsigned long long diff, out;
    uint64_t b1 = __builtin_usubll_overflow(a, b, &diff);
    uint64_t b2 = __builtin_usubll_overflow(diff, borrow, &out);
    borrow = b1 | b2;
    return out;
#endif
}

// For inverse.cuh: words of BITS bits and a sign, and what holds sums of three products of two, a + b c; how many bits it
// takes at once. On a GPU a product of signed words is one instruction, of which compilers make two where they know a sign.
template <int BITS>
struct SignedWord;
template <>
struct SignedWord<30> {
    using Int = int32_t;
    using Word = uint32_t;
    using Wide = int64_t;
    HD static Wide mac(Wide a, Int b, Int c) {
#if defined(__CUDA_ARCH__)
        asm("mad.wide.s32 %0, %1, %2, %0;" : "+l"(a) : "r"(b), "r"(c));
        return a;
#else
        return a + static_cast<Wide>(b) * c;
#endif
    }
};
#if !defined(__CUDACC__)
template <>
struct SignedWord<62> {
    using Int = int64_t;
    using Word = uint64_t;
    using Wide = __int128;
    HD static Wide mac(Wide a, Int b, Int c) { return a + static_cast<Wide>(b) * c; }
};
#endif
#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(__CUDACC__)
constexpr int DIVSTEPS = 62;
#else
constexpr int DIVSTEPS = 30;
#endif

// Of x, which is not 0.
HD int trailing_zeros(uint32_t x) {
#if defined(__CUDA_ARCH__)
    return __clz(__brev(x));
#else
    return __builtin_ctz(x);
#endif
}
HD int trailing_zeros(uint64_t x) {
#if defined(__CUDA_ARCH__)
    return __clzll(__brevll(x));
#else
    return __builtin_ctzll(x);
#endif
}

// Machine<P>: what this machine does faster than the portable loops of field.cuh. Words below the modulus in and out.
#if defined(__x86_64__) && !defined(__CUDACC__)
#include "arch_x86.cuh"
template <class P>
struct Machine {
    static constexpr bool has_add = true, has_mul = CUZKD_HAS_MULX;
    HD static void add(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        ModularAdd<P::N>::add(r, x, y, modulus_words<P>.w);
    }
    HD static void sub(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        ModularAdd<P::N>::sub(r, x, y, modulus_words<P>.w);
    }
    HD static void mul(uint64_t* r, const uint64_t* x, const uint64_t* y) {
        MontgomeryMul<P::N>::mul(r, x, y, modulus_words<P>.w);
    }
};
#elif defined(__CUDA_ARCH__)
#include "arch_cuda.cuh"
#else
template <class P>
struct Machine {
    static constexpr bool has_add = false, has_mul = false;
};
#endif
