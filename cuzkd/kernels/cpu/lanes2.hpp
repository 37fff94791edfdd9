// lanes2.hpp - eight elements of the quadratic extension F[u]/(u^2 + 1) side by side: lanes.hpp twice.
//
// The same names as there, so that points of G1 and G2 are summed by one source. Products are Karatsuba's over columns
// that are not reduced yet: three wide products and two reductions. The bounds of lanes.hpp hold for both coordinates,
// but for products: factors below A p and B p give values below (A B p/R + 2) p and (2 A B p/R + 1) p, so below 3 p while
// A B <= 40 in the fields of points (R/p is 84 at least).
#pragma once
#include "cpu/lanes.hpp"
#include "fq2.cuh"

template <class P>
struct Lanes2;

template <class P>
struct Loose2 {
    Loose<P> c0, c1;

    VEC Loose2 operator+(const Loose2& b) const { return {c0 + b.c0, c1 + b.c1}; }
    VEC Loose2 operator-(const Loose2& b) const { return {c0 - b.c0, c1 - b.c1}; }
    VEC Loose2 neg_if(Mask8 mask) const { return {c0.neg_if(mask), c1.neg_if(mask)}; }
    static VEC Loose2 load(const uint64_t* from) {
        return {Loose<P>::load(from), Loose<P>::load(from + Lanes<P>::WORDS)};
    }
    VEC void store(uint64_t* to) const {
        c0.store(to);
        c1.store(to + Lanes<P>::WORDS);
    }
    // k p in both coordinates.
    static VEC Loose2 multiple(int k) { return {Loose<P>::multiple(k), Loose<P>::multiple(k)}; }
    VEC Lanes2<P> carried() const { return {c0.carried(), c1.carried()}; }
    VEC Lanes2<P> reduced() const { return {c0.reduced(), c1.reduced()}; }
};

template <class P>
struct Lanes2 {
    using K = Limbs52<P>;
    using Element = Quadratic<Field<P>>;
    static constexpr int ROW = 2 * Lanes<P>::ROW, WORDS = 2 * Lanes<P>::WORDS;
    Lanes<P> c0, c1;

    VEC operator Loose2<P>() const { return {c0, c1}; }
    VEC Loose2<P> operator+(const Loose2<P>& b) const { return Loose2<P>(*this) + b; }
    VEC Loose2<P> operator-(const Loose2<P>& b) const { return Loose2<P>(*this) - b; }
    VEC Loose2<P> neg_if(Mask8 mask) const { return Loose2<P>(*this).neg_if(mask); }
    static VEC Loose2<P> multiple(int k) { return Loose2<P>::multiple(k); }

    static VEC Lanes2 zero() { return {Lanes<P>::zero(), Lanes<P>::zero()}; }
    static VEC Lanes2 one() { return {Lanes<P>::one(), Lanes<P>::zero()}; }
    static VEC Lanes2 from_words(const V8 words[ROW]) {
        return {Lanes<P>::from_words(words), Lanes<P>::from_words(words + ROW / 2)};
    }
    VEC void to_words(V8 words[ROW]) const {
        c0.to_words(words);
        c1.to_words(words + ROW / 2);
    }
    static VEC Lanes2 load(const uint64_t* from) {
        return {Lanes<P>::load(from), Lanes<P>::load(from + Lanes<P>::WORDS)};
    }
    VEC void store(uint64_t* to) const { Loose2<P>(*this).store(to); }
    template <int B>
    VEC Lanes2 shl() const { return {c0.template shl<B>(), c1.template shl<B>()}; }
    VEC Lanes2 canonical() const { return {c0.canonical(), c1.canonical()}; }
    VEC Mask8 is_zero() const {
        Mask8 zero = c0.is_zero();
        return zero ? zero & c1.is_zero() : 0;
    }
    friend VEC Lanes2 select(Mask8 mask, const Lanes2& a, const Lanes2& b) {
        return {select(mask, a.c0, b.c0), select(mask, a.c1, b.c1)};
    }
};

template <class P>
struct LanesOfType<Quadratic<Field<P>>> {
    using Type = Lanes2<P>;
    using LooseType = Loose2<P>;
};

// (a0 b0 - a1 b1) + ((a0 + a1)(b0 + b1) - a0 b0 - a1 b1) u; the first is kept above 0 by p.
template <class P>
VEC Loose2<P> operator*(const Lanes2<P>& a, const Lanes2<P>& b) {
    Wide<P> low = wide_mul(a.c0, b.c0), high = wide_mul(a.c1, b.c1);
    Wide<P> cross = wide_mul((a.c0 + a.c1).carried(), (b.c0 + b.c1).carried());
    return {redc(low - high) + Loose<P>::multiple(1), redc(cross - low - high)};
}

// (a0 + a1)(a0 - a1) + 2 a0 a1 u, for values below 4 p: results below 2 p.
template <class P>
VEC Loose2<P> sqr(const Lanes2<P>& a) {
    Wide<P> twice = wide_mul(a.c0, a.c1);
    return {(a.c0 + a.c1).carried() * (a.c0 - a.c1 + Loose<P>::multiple(4)).carried(), redc(twice + twice)};
}
