// tower.hpp - Fq12 over Fq2, for pairings: Fq6 = Fq2[v]/(v^3 - xi), Fq12 = Fq6[w]/(w^2 - v), xi = XI0 + u.
//
// An element of Fq12 is sum a_k w^k, k < 6, a_k in Fq2 (w^6 = xi): even k lie in c0, odd k in c1.
// Devegili, O hEigeartaigh, Scott, Dahab, "Multiplication and Squaring on Pairing-Friendly Fields",
// https://eprint.iacr.org/2006/471.
#pragma once
#include "curves.cuh"

template <class C>
struct Fq6 {
    using Fq2 = typename C::Fq2;
    Fq2 a, b, c;  // a + b v + c v^2

    static Fq6 zero() { return {Fq2::zero(), Fq2::zero(), Fq2::zero()}; }
    static Fq6 one() { return {Fq2::one(), Fq2::zero(), Fq2::zero()}; }

    // xi t = (XI0 + u)(t0 + t1 u), by additions.
    static Fq2 by_xi(const Fq2& t) {
        Fq2 r = t;
        if (C::Data::XI0 == 9) r = t.dbl().dbl().dbl() + t;
        static_assert(C::Data::XI0 == 9 || C::Data::XI0 == 1, "xi is 9 + u or 1 + u");
        return {r.c0 - t.c1, r.c1 + t.c0};
    }
    Fq6 by_v() const { return {by_xi(c), a, b}; }

    bool operator==(const Fq6& o) const { return a == o.a && b == o.b && c == o.c; }
    Fq6 operator+(const Fq6& o) const { return {a + o.a, b + o.b, c + o.c}; }
    Fq6 operator-(const Fq6& o) const { return {a - o.a, b - o.b, c - o.c}; }
    Fq6 neg() const { return {a.neg(), b.neg(), c.neg()}; }

    // Karatsuba, 6 products in Fq2.
    Fq6 operator*(const Fq6& o) const {
        Fq2 aa = a * o.a, bb = b * o.b, cc = c * o.c;
        return {aa + by_xi((b + c) * (o.b + o.c) - bb - cc),
                (a + b) * (o.a + o.b) - aa - bb + by_xi(cc),
                (a + c) * (o.a + o.c) - aa - cc + bb};
    }
    // Adjoint over norm.
    Fq6 inv() const {
        Fq2 x = a.sqr() - by_xi(b * c);
        Fq2 y = by_xi(c.sqr()) - a * b;
        Fq2 z = b.sqr() - a * c;
        Fq2 n = (a * x + by_xi(c * y + b * z)).inv();
        return {x * n, y * n, z * n};
    }
};

template <class C>
struct Fq12 {
    using Fq2 = typename C::Fq2;
    Fq6<C> c0, c1;  // c0 + c1 w

    static Fq12 one() { return {Fq6<C>::one(), Fq6<C>::zero()}; }
    bool operator==(const Fq12& o) const { return c0 == o.c0 && c1 == o.c1; }

    Fq12 operator*(const Fq12& o) const {
        Fq6<C> low = c0 * o.c0, high = c1 * o.c1;
        return {low + high.by_v(), (c0 + c1) * (o.c0 + o.c1) - low - high};
    }
    // Complex squaring: 2 products in Fq6.
    Fq12 sqr() const {
        Fq6<C> m = c0 * c1;
        return {(c0 + c1) * (c0 + c1.by_v()) - m - m.by_v(), m + m};
    }
    // x -> x^(q^6); on elements of norm 1 also the inverse.
    Fq12 conj() const { return {c0, c1.neg()}; }
    Fq12 inv() const {
        Fq6<C> n = (c0 * c0 - (c1 * c1).by_v()).inv();
        return {c0 * n, (c1 * n).neg()};
    }
    // x -> x^q: (a_k w^k)^q = conj(a_k) xi^(k (q-1)/6) w^k.
    Fq12 frobenius() const {
        return {{c0.a.conj(), c0.b.conj() * gamma(2), c0.c.conj() * gamma(4)},
                {c1.a.conj() * gamma(1), c1.b.conj() * gamma(3), c1.c.conj() * gamma(5)}};
    }
    // xi^(k (q-1)/6), k = 1 .. 5
    static Fq2 gamma(int k) {
        Fq2 g;
        for (int i = 0; i < C::Fq::N; ++i) {
            g.c0.v[i] = C::Data::gamma(2 * (k - 1), i);
            g.c1.v[i] = C::Data::gamma(2 * (k - 1) + 1, i);
        }
        return g;
    }
    // a_k
    const Fq2& coefficient(int k) const {
        const Fq6<C>& half = k % 2 ? c1 : c0;
        return k < 2 ? half.a : k < 4 ? half.b : half.c;
    }
};
