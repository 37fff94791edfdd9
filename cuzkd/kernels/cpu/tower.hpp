// tower.hpp - Fq12 over Fq2, for pairings: Fq6 = Fq2[v]/(v^3 - xi), Fq12 = Fq6[w]/(w^2 - v), xi = XI0 + u.
//
// An element of Fq12 is sum a_k w^k, k < 6, a_k in Fq2 (w^6 = xi): even k lie in c0, odd k in c1.
// Devegili, O hEigeartaigh, Scott, Dahab, "Multiplication and Squaring on Pairing-Friendly Fields",
// https://eprint.iacr.org/2006/471; where x^(q^6+1) = 1 (values of pairings): Granger, Scott, "Faster Squaring in the
// Cyclotomic Subgroup of Sixth Degree Extensions", https://eprint.iacr.org/2009/565.
#pragma once
#include <utility>

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
    // This times x + y v: 5 products in Fq2.
    Fq6 by_linear(const Fq2& x, const Fq2& y) const {
        Fq2 ax = a * x, by = b * y;
        return {ax + by_xi(c * y), (a + b) * (x + y) - ax - by, by + c * x};
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
    // x -> x^(q^6); also the inverse, where x^(q^6+1) = 1.
    Fq12 conj() const { return {c0, c1.neg()}; }
    // The square, where x^(q^4-q^2+1) = 1: three squarings in Fq4 = Fq2[w^3], 9 in Fq2.
    Fq12 cyclotomic_sqr() const {
        auto [a0, a1] = fq4_sqr(c0.a, c1.b);  // of a_0 + a_3 w^3
        auto [b0, b1] = fq4_sqr(c1.a, c0.c);  // of a_1 + a_4 w^3
        auto [d0, d1] = fq4_sqr(c0.b, c1.c);  // of a_2 + a_5 w^3
        return {{thrice_less(a0, c0.a), thrice_less(b0, c0.b), thrice_less(d0, c0.c)},
                {thrice_more(Fq6<C>::by_xi(d1), c1.a), thrice_more(a1, c1.b), thrice_more(b1, c1.c)}};
    }
    // this^e, where x^(q^4-q^2+1) = 1. The digits of the non-adjacent form of e are the bits in which 3 e and e differ.
    Fq12 cyclotomic_pow(uint64_t e) const {
        unsigned __int128 triple = static_cast<unsigned __int128>(e) * 3;
        Fq12 inverse = conj(), r = one();
        for (int i = 65; i > 0; --i) {
            r = r.cyclotomic_sqr();
            bool plus = (triple >> i) & 1, minus = i < 64 && (e >> i) & 1;
            if (plus != minus) r = r * (plus ? *this : inverse);
        }
        return r;
    }
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

private:
    // (x + y s)^2, s^2 = xi
    static std::pair<Fq2, Fq2> fq4_sqr(const Fq2& x, const Fq2& y) {
        Fq2 xx = x.sqr(), yy = y.sqr();
        return {xx + Fq6<C>::by_xi(yy), (x + y).sqr() - xx - yy};
    }
    static Fq2 thrice_less(const Fq2& t, const Fq2& z) { return (t - z).dbl() + t; }  // 3 t - 2 z
    static Fq2 thrice_more(const Fq2& t, const Fq2& z) { return (t + z).dbl() + t; }  // 3 t + 2 z
};

// The q-power Frobenius carried to the twist: (conj x gamma_2, conj y gamma_3), or by the inverses (M-type).
template <class C>
Affine<typename C::Fq2> twisted_frobenius(const Affine<typename C::Fq2>& p) {
    auto x = Fq12<C>::gamma(2), y = Fq12<C>::gamma(3);
    if (!C::Data::D_TWIST) x = x.inv(), y = y.inv();
    return {p.x.conj() * x, p.y.conj() * y};
}
