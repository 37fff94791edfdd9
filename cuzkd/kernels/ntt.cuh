// ntt.cuh - the number-theoretic transform: its pieces, shared by CPU and GPU. No memory, no threads here.
//
// Problem: proofs go values -> coefficients -> values on a coset; reordering between the two would cost passes.
// Design: two networks that are each other's mirror, so that nothing is ever bit-reversed:
//   down (values -> coefficients): natural order in, bit-reversed out; butterfly (x + t y, x - t y)
//   up   (coefficients -> values): bit-reversed in, natural order out; butterfly (x + y, (x - y) t)
// In both, the layer with half-length m works on blocks of 2m elements, and block k has ONE twiddle: w^rev(k), where
// rev reverses the bits of k as an index below n/2. So one table per direction in bit-reversed order, read
// contiguously, serves every layer, and a table for a larger n begins with nothing that has to change:
//   up   table: t[k] = w^rev(k)          down table: t[k] = w^-rev(k)           k < n/2, rev over log n - 1 bits
// Neither network divides by n: down gives n times the coefficients; callers fold 1/n into a later factor.
// Layers are taken in pairs (radix 4): the same products, half the passes over memory.
#pragma once
#include "arch.cuh"

// The low `bits` bits of i, reversed.
HD uint32_t reverse_bits(uint32_t i, int bits) {
    i = (i & 0x55555555u) << 1 | (i >> 1 & 0x55555555u);
    i = (i & 0x33333333u) << 2 | (i >> 2 & 0x33333333u);
    i = (i & 0x0f0f0f0fu) << 4 | (i >> 4 & 0x0f0f0f0fu);
    i = (i & 0x00ff00ffu) << 8 | (i >> 8 & 0x00ff00ffu);
    i = i << 16 | i >> 16;
    return bits ? i >> (32 - bits) : 0;
}

template <class Fr>
HD void butterfly_down(Fr& x, Fr& y, const Fr& t) {
    Fr ty = t * y;
    y = x - ty;
    x = x + ty;
}

template <class Fr>
HD void butterfly_up(Fr& x, Fr& y, const Fr& t) {
    Fr d = x - y;
    x = x + y;
    y = d * t;
}

// Two layers of down at once on a quarter each of one block k: t = t[k], u0 = t[2k], u1 = t[2k+1].
template <class Fr>
HD void radix4_down(Fr& x0, Fr& x1, Fr& x2, Fr& x3, const Fr& t, const Fr& u0, const Fr& u1) {
    butterfly_down(x0, x2, t);
    butterfly_down(x1, x3, t);
    butterfly_down(x0, x1, u0);
    butterfly_down(x2, x3, u1);
}

// Block 0 has t = u0 = 1: one product instead of four.
template <class Fr>
HD void radix4_down_first(Fr& x0, Fr& x1, Fr& x2, Fr& x3, const Fr& u1) {
    Fr a = x0 - x2, b = (x1 - x3) * u1, s = x0 + x2, d = x1 + x3;
    x0 = s + d;
    x1 = s - d;
    x2 = a + b;
    x3 = a - b;
}

// The mirror: two layers of up at once, t = t[k], u0 = t[2k], u1 = t[2k+1] of the up table.
template <class Fr>
HD void radix4_up(Fr& x0, Fr& x1, Fr& x2, Fr& x3, const Fr& t, const Fr& u0, const Fr& u1) {
    butterfly_up(x0, x1, u0);
    butterfly_up(x2, x3, u1);
    butterfly_up(x0, x2, t);
    butterfly_up(x1, x3, t);
}

template <class Fr>
HD void radix4_up_first(Fr& x0, Fr& x1, Fr& x2, Fr& x3, const Fr& u1) {
    Fr s = x0 + x1, d = x0 - x1, e = x2 + x3, f = (x2 - x3) * u1;
    x0 = s + e;
    x2 = s - e;
    x1 = d + f;
    x3 = d - f;
}
