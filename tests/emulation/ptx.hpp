// ptx.hpp - the functions of arch_ptx.cuh for g++, so that the rows of arch_cuda.cuh run on the host as they are.
//
// Also watched: a chain that ends without its carry being taken or known to be zero. `mul`, `madc`, `addc` and `subc` do not
// set the flag; a carry out of one of the latter is an error of the caller's, and ends the process.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define DEVICE inline __attribute__((always_inline))
#define DEVICE_HOT inline __attribute__((noinline))
#define ROW_CONSTANT inline const

namespace ptx {

inline thread_local uint64_t flag;

[[noreturn]] inline void lost_carry(const char* name) {
    fprintf(stderr, "emulated PTX: %s carries out of its word, and nothing takes it\n", name);
    abort();
}
inline uint64_t wide(uint32_t& lo, uint32_t& hi, uint32_t x, uint32_t k, uint32_t a, uint32_t b, uint64_t carry) {
    unsigned __int128 sum = static_cast<unsigned __int128>(static_cast<uint64_t>(x) * k) +
                            (a | static_cast<uint64_t>(b) << 32) + carry;
    lo = static_cast<uint32_t>(sum), hi = static_cast<uint32_t>(sum >> 32);
    return static_cast<uint64_t>(sum >> 64);
}
inline void mul(uint32_t& lo, uint32_t& hi, uint32_t x, uint32_t k) { wide(lo, hi, x, k, 0, 0, 0); }
inline void mad_cc(uint32_t& lo, uint32_t& hi, uint32_t x, uint32_t k, uint32_t a, uint32_t b) {
    flag = wide(lo, hi, x, k, a, b, 0);
}
inline void madc_cc(uint32_t& lo, uint32_t& hi, uint32_t x, uint32_t k, uint32_t a, uint32_t b) {
    flag = wide(lo, hi, x, k, a, b, flag);
}
inline void madc(uint32_t& lo, uint32_t& hi, uint32_t x, uint32_t k, uint32_t a, uint32_t b) {
    if (wide(lo, hi, x, k, a, b, flag)) lost_carry("madc");
}
inline uint64_t sum(uint32_t& r, uint32_t a, uint32_t b, uint64_t carry) {
    uint64_t s = uint64_t(a) + b + carry;
    r = static_cast<uint32_t>(s);
    return s >> 32;
}
inline uint64_t difference(uint32_t& r, uint32_t a, uint32_t b, uint64_t borrow) {
    uint64_t d = uint64_t(a) - b - borrow;
    r = static_cast<uint32_t>(d);
    return d >> 63;
}
inline void add_cc(uint32_t& r, uint32_t a, uint32_t b) { flag = sum(r, a, b, 0); }
inline void addc_cc(uint32_t& r, uint32_t a, uint32_t b) { flag = sum(r, a, b, flag); }
inline void addc(uint32_t& r, uint32_t a, uint32_t b) {
    if (sum(r, a, b, flag)) lost_carry("addc");
}
inline void sub_cc(uint32_t& r, uint32_t a, uint32_t b) { flag = difference(r, a, b, 0); }
inline void subc_cc(uint32_t& r, uint32_t a, uint32_t b) { flag = difference(r, a, b, flag); }
inline void subc(uint32_t& r, uint32_t a, uint32_t b) { difference(r, a, b, flag); }  // 0 - 0 - borrow: a mask

// a b + c towards zero, computed anew in integers: a, b, c and the result are multiples of 1, a and b no more than 2^50.
inline double fma_rz(double a, double b, double c) {
    __int128 sum = static_cast<__int128>(a) * static_cast<__int128>(b) + static_cast<__int128>(c);
    unsigned __int128 size = sum < 0 ? -static_cast<unsigned __int128>(sum) : static_cast<unsigned __int128>(sum);
    int shift = 0;
    while (size >> shift >> 53) ++shift;
    double value = std::ldexp(static_cast<double>(static_cast<uint64_t>(size >> shift)), shift);
    return sum < 0 ? -value : value;
}
inline double double_of(uint32_t high, uint32_t low) {
    uint64_t bits = static_cast<uint64_t>(high) << 32 | low;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof x);
    return bits;
}

}  // namespace ptx
