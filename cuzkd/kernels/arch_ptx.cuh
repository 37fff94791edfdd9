// arch_ptx.cuh - the carry chain of NVIDIA GPUs on 32-bit words, statement by statement. Included by arch.cuh.
//
// A flag of the thread carries from one statement to the next: `_cc` at the end of a name sets it, a `c` before takes it.
// The statements are volatile, which keeps them in order; nothing that the compiler puts between them touches the flag.
// A low and a high product of the same words are one statement here, and one instruction (IMAD.WIDE.U32.X) where lo and
// hi are an aligned pair of registers: the compiler sees to that as long as each word stays in one such pair.
// tests/emulation/ptx.hpp has the same functions for g++.
#pragma once

#define DEVICE __device__ __forceinline__
#if defined(CUZKD_INLINE)
#define DEVICE_HOT DEVICE
#else
#define DEVICE_HOT __device__ __noinline__
#endif
#define ROW_CONSTANT __constant__

namespace ptx {

// hi:lo = x k
DEVICE void mul(uint32_t& lo, uint32_t& hi, uint32_t x, uint32_t k) {
    asm volatile("mul.lo.u32 %0, %2, %3; mul.hi.u32 %1, %2, %3;" : "=&r"(lo), "=r"(hi) : "r"(x), "r"(k));
}
// hi:lo = b:a + x k
DEVICE void mad_cc(uint32_t& lo, uint32_t& hi, uint32_t x, uint32_t k, uint32_t a, uint32_t b) {
    asm volatile("mad.lo.cc.u32 %0, %2, %3, %4; madc.hi.cc.u32 %1, %2, %3, %5;"
                 : "=&r"(lo), "=r"(hi)
                 : "r"(x), "r"(k), "r"(a), "r"(b));
}
DEVICE void madc_cc(uint32_t& lo, uint32_t& hi, uint32_t x, uint32_t k, uint32_t a, uint32_t b) {
    asm volatile("madc.lo.cc.u32 %0, %2, %3, %4; madc.hi.cc.u32 %1, %2, %3, %5;"
                 : "=&r"(lo), "=r"(hi)
                 : "r"(x), "r"(k), "r"(a), "r"(b));
}
DEVICE void madc(uint32_t& lo, uint32_t& hi, uint32_t x, uint32_t k, uint32_t a, uint32_t b) {
    asm volatile("madc.lo.cc.u32 %0, %2, %3, %4; madc.hi.u32 %1, %2, %3, %5;"
                 : "=&r"(lo), "=r"(hi)
                 : "r"(x), "r"(k), "r"(a), "r"(b));
}
DEVICE void add_cc(uint32_t& r, uint32_t a, uint32_t b) {
    asm volatile("add.cc.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
}
DEVICE void addc_cc(uint32_t& r, uint32_t a, uint32_t b) {
    asm volatile("addc.cc.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
}
DEVICE void addc(uint32_t& r, uint32_t a, uint32_t b) {
    asm volatile("addc.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
}
DEVICE void sub_cc(uint32_t& r, uint32_t a, uint32_t b) {
    asm volatile("sub.cc.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
}
DEVICE void subc_cc(uint32_t& r, uint32_t a, uint32_t b) {
    asm volatile("subc.cc.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
}
DEVICE void subc(uint32_t& r, uint32_t a, uint32_t b) {
    asm volatile("subc.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
}

// a b + c towards zero; a double of its two halves; the bits of one.
DEVICE double fma_rz(double a, double b, double c) { return __fma_rz(a, b, c); }
DEVICE double double_of(uint32_t high, uint32_t low) {
    return __hiloint2double(static_cast<int>(high), static_cast<int>(low));
}
DEVICE uint64_t bits_of(double x) { return static_cast<uint64_t>(__double_as_longlong(x)); }

}  // namespace ptx
