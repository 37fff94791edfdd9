// fq2.cuh - the quadratic extension F[u]/(u^2 + 1) of a prime field F with p = 3 mod 4 (both curves).
// In memory: c0 then c1 of c0 + c1 u. The same operations as Field, so that curve.cuh serves G1 and G2.
#pragma once
#include "field.cuh"

template <class F>
struct Quadratic {
    using Base = F;
    using Norm = F;
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

    HD Quadratic operator*(const Quadratic& b) const { return product(*this, b); }
    HD Quadratic times(const Quadratic& b) const { return *this * b; }
    HD Quadratic sqr() const { return square(*this); }
    // a b + c d and a b - c d
    HD static Quadratic mul_add(const Quadratic& a, const Quadratic& b, const Quadratic& c, const Quadratic& d) {
        return a * b + c * d;
    }
    HD static Quadratic mul_sub(const Quadratic& a, const Quadratic& b, const Quadratic& c, const Quadratic& d) {
        return a * b - c * d;
    }

    HD Quadratic from_canonical() const { return {c0.from_canonical(), c1.from_canonical()}; }
    HD Quadratic to_canonical() const { return {c0.to_canonical(), c1.to_canonical()}; }

    // Karatsuba: 3M. (a0 + a1 u)(b0 + b1 u) = a0 b0 - a1 b1 + ((a0 + a1)(b0 + b1) - a0 b0 - a1 b1) u
    // With unreduced products, three of them and two reductions.
    HD_CALL static Quadratic product(Operand<Quadratic> a, Operand<Quadratic> b) {
        using M = Machine<typename F::Params>;
        if constexpr (M::has_wide) {
            uint64_t low[2 * F::N], high[2 * F::N], cross[2 * F::N];
            Quadratic r;
            M::add_lazily(r.c0.v, a.c0.v, a.c1.v);
            M::add_lazily(r.c1.v, b.c0.v, b.c1.v);
            M::template wide_mul<false>(cross, r.c0.v, r.c1.v);
            M::template wide_mul<true>(low, a.c0.v, b.c0.v);
            M::template wide_sub<false>(cross, cross, low);
            M::template wide_mul<true>(high, a.c1.v, b.c1.v);
            M::template wide_sub<false>(cross, cross, high);
            M::template wide_sub<true>(low, low, high);
            M::redc(r.c0.v, low);
            M::redc(r.c1.v, cross);
            return r;
        } else {
            F low = a.c0 * b.c0, high = a.c1 * b.c1;
            F cross = (a.c0 + a.c1) * (b.c0 + b.c1);
            return {low - high, cross - low - high};
        }
    }
    // Complex squaring: 2M. (a0 + a1 u)^2 = (a0 + a1)(a0 - a1) + 2 a0 a1 u
    HD_CALL static Quadratic square(Operand<Quadratic> a) {
        return {(a.c0 + a.c1) * (a.c0 - a.c1), a.c0.times(a.c1).dbl()};
    }

    // 1/this = conj / norm, one inversion in F; inv(0) = 0.
    HD F norm() const { return norm_of(*this); }
    HD Quadratic inverse_by(const F& inverse_of_norm) const { return scaled_conj(*this, inverse_of_norm); }
    HD_COLD Quadratic inv() const { return inverse_by(norm().inv()); }

    HD_CALL static F norm_of(Operand<Quadratic> a) { return F::sum_of_squares(a.c0, a.c1); }
    HD_CALL static Quadratic scaled_conj(Operand<Quadratic> a, Operand<F> k) { return {a.c0 * k, a.c1.times(k).neg()}; }
};
