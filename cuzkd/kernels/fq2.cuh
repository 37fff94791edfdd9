// fq2.cuh - the quadratic extension F[u]/(u^2 + 1) of a prime field F with p = 3 mod 4 (both curves).
// In memory: c0 then c1 of c0 + c1 u. The same operations as Field, so that curve.cuh serves G1 and G2.
#pragma once
#include "field.cuh"

template <class F>
struct Quadratic {
    using Base = F;
    F c0, c1;

    HD static Quadratic zero() { return {F::zero(), F::zero()}; }
    HD static Quadratic one() { return {F::one(), F::zero()}; }
    HD bool is_zero() const { return c0.is_zero() && c1.is_zero(); }
    HD bool operator==(const Quadratic& b) const { return c0 == b.c0 && c1 == b.c1; }
    HD bool operator!=(const Quadratic& b) const { return !(*this == b); }
    HD bool is_reduced() const { return c0.is_reduced() && c1.is_reduced(); }

    HD Quadratic operator+(const Quadratic& b) const { return {c0 + b.c0, c1 + b.c1}; }
    HD Quadratic operator-(const Quadratic& b) const { return {c0 - b.c0, c1 - b.c1}; }
    HD Quadratic neg() const { return {c0.neg(), c1.neg()}; }
    HD Quadratic dbl() const { return {c0.dbl(), c1.dbl()}; }
    HD Quadratic neg_if(bool flag) const { return flag ? neg() : *this; }
    HD Quadratic conj() const { return {c0, c1.neg()}; }  // also the Frobenius map x -> x^p
    HD Quadratic scale(const F& k) const { return {c0 * k, c1 * k}; }

    // Karatsuba: 3M. (a0 + a1 u)(b0 + b1 u) = a0 b0 - a1 b1 + ((a0 + a1)(b0 + b1) - a0 b0 - a1 b1) u
    HD_CALL Quadratic operator*(const Quadratic& b) const {
        F low = c0 * b.c0, high = c1 * b.c1;
        F cross = (c0 + c1) * (b.c0 + b.c1);
        return {low - high, cross - low - high};
    }
    // Complex squaring: 2M. (a0 + a1 u)^2 = (a0 + a1)(a0 - a1) + 2 a0 a1 u
    HD_CALL Quadratic sqr() const { return {(c0 + c1) * (c0 - c1), (c0 * c1).dbl()}; }

    HD Quadratic from_canonical() const { return {c0.from_canonical(), c1.from_canonical()}; }
    HD Quadratic to_canonical() const { return {c0.to_canonical(), c1.to_canonical()}; }

    // conj / norm, one inversion in F; inv(0) = 0.
    HD_COLD Quadratic inv() const {
        F n = (c0.sqr() + c1.sqr()).inv();
        return {c0 * n, (c1 * n).neg()};
    }
};
