// pairing.hpp - the optimal ate pairing of both curves, and products of pairings.
//
// Vercauteren, "Optimal pairings", https://eprint.iacr.org/2008/096. The value is f_{n,Q}(P)^((q^12-1)/r), n = 6x + 2 with
// two more lines (bn254) or |x| (bls12_381; the sign of x is left out, as in py_ecc, which turns the value into its inverse
// and changes no equation between pairings).
// Miller loop in affine coordinates: all pairs step together, so that each step has one inversion for all of them.
// Lines are divided by y_P, which the final exponentiation does not see: one of their three coefficients is then 1.
// Final exponentiation: easy part (q^6-1)(q^2+1), then exactly (q^4-q^2+1)/r by powers of x: Scott, Benger, Charlemagne,
// Dominguez Perez, Kachisa, "On the Final Exponentiation for Calculating Pairings on Ordinary Elliptic Curves",
// https://eprint.iacr.org/2008/490 (bn254), and (x-1)^2/3 (x+q)(x^2+q^2-1) + 1 (bls12_381).
#pragma once
#include <utility>
#include <vector>

#include "cpu/tower.hpp"
#include "curves.cuh"

template <class C>
class Pairing {
    using Fq = typename C::Fq;
    using Fq2 = typename C::Fq2;
    using P1 = Affine<Fq>;
    using P2 = Affine<Fq2>;

public:
    // prod e(p_i, q_i); a pair with an infinity counts as 1. Points must be on their curves and of order r.
    static Fq12<C> product(const P1* p, const P2* q, size_t n) {
        std::vector<Pair> pairs;
        for (size_t i = 0; i < n; ++i)
            if (!p[i].is_infinity() && !q[i].is_infinity()) pairs.emplace_back(p[i], q[i]);
        return final_exponentiation(miller_loop(pairs));
    }

private:
    struct Pair {
        Pair(const P1& p, const P2& q) : scale(p.y.inv()), tilt((p.x * scale).neg()), q(q), t(q) {}

        Fq scale, tilt;  // 1/y_P and -x_P/y_P
        P2 q, t;         // t: the running multiple of q
        // Of a step: the point that is added, the line's slope as a fraction, the product of denominators before it.
        P2 with;
        Fq2 numerator, denominator, before;
    };

    static Fq12<C> miller_loop(std::vector<Pair>& pairs) {
        Fq12<C> f = Fq12<C>::one();
        for (int i = C::Data::LOOP - 2; i >= 0; --i) {
            f = f.sqr();
            step(f, pairs, [](const Pair& s) { return s.t; });
            int digit = C::Data::loop(i);
            if (digit != 0) step(f, pairs, [digit](const Pair& s) { return s.q.neg_if(digit < 0); });
        }
        if (C::Data::BN_LINES) {
            step(f, pairs, [](const Pair& s) { return twisted_frobenius<C>(s.q); });
            step(f, pairs, [](const Pair& s) { return twisted_frobenius<C>(twisted_frobenius<C>(s.q)).neg(); });
        }
        return f;
    }

    // For every pair: f *= line through t and other(pair) at p; t += other(pair). Points of order r never meet an
    // exceptional case here: t is a small multiple of q, below r and never +-other unless it is a doubling.
    template <class Other>
    static void step(Fq12<C>& f, std::vector<Pair>& pairs, Other other) {
        Fq2 product = Fq2::one();
        for (Pair& s : pairs) {
            s.with = other(s);
            if (s.with == s.t) {
                Fq2 xx = s.t.x.sqr();
                s.numerator = xx.dbl() + xx;
                s.denominator = s.t.y.dbl();
            } else {
                s.numerator = s.with.y - s.t.y;
                s.denominator = s.with.x - s.t.x;
            }
            s.before = product;
            product = product * s.denominator;
        }
        Fq2 inverse = product.inv();  // of the denominators not yet passed
        for (size_t i = pairs.size(); i-- > 0;) {
            Pair& s = pairs[i];
            Fq2 slope = s.numerator * (inverse * s.before);
            inverse = inverse * s.denominator;
            multiply_by_line(f, slope.scale(s.tilt), (slope * s.t.x - s.t.y).scale(s.scale));
            Fq2 x = slope.sqr() - s.t.x - s.with.x;
            s.t = {x, slope * (s.t.x - x) - s.t.y};
        }
    }

    // f times the line of slope `slope` (on the twist) through t, at p, over y_P. Untwisting puts factors w^2, w^3 on x, y
    // (D), or their inverses (M, then all is multiplied by w^3, which the final exponentiation sends to 1).
    // tilt: -slope x_P/y_P; constant: (slope x_T - y_T)/y_P.
    //   D: 1 + (tilt + constant v) w          M: constant + tilt v + v w
    static void multiply_by_line(Fq12<C>& f, const Fq2& tilt, const Fq2& constant) {
        if (C::Data::D_TWIST) {
            Fq6<C> low = f.c0.by_linear(tilt, constant), high = f.c1.by_linear(tilt, constant);
            f = {f.c0 + high.by_v(), f.c1 + low};
        } else {
            Fq6<C> low = f.c0.by_linear(constant, tilt), high = f.c1.by_linear(constant, tilt);
            f = {low + f.c1.by_v().by_v(), high + f.c0.by_v()};
        }
    }

    static Fq12<C> final_exponentiation(const Fq12<C>& f) {
        Fq12<C> g = f.conj() * f.inv();             // f^(q^6 - 1)
        return hard_part(g.frobenius().frobenius() * g);  // ^(q^2 + 1)
    }

    static Fq12<C> hard_part(const Fq12<C>& m) {
        constexpr uint64_t x = C::Data::X;
        auto sqr = [](const Fq12<C>& a) { return a.cyclotomic_sqr(); };
        auto frobenius = [](const Fq12<C>& a) { return a.frobenius(); };
        if constexpr (C::Data::BN_LINES) {
            // m^(q^3 + (6 x^2 + 1) q^2 - (36 x^3 + 18 x^2 + 12 x - 1) q - (36 x^3 + 30 x^2 + 18 x + 2)), as
            // y0 y1^2 y2^6 y3^12 y4^18 y5^30 y6^36.
            Fq12<C> mx = m.cyclotomic_pow(x), mxx = mx.cyclotomic_pow(x), mxxx = mxx.cyclotomic_pow(x);
            Fq12<C> mq = frobenius(m), mqq = frobenius(mq);
            Fq12<C> y0 = mq * mqq * frobenius(mqq), y1 = m.conj(), y2 = frobenius(frobenius(mxx));
            Fq12<C> y3 = frobenius(mx).conj(), y4 = (mx * frobenius(mxx)).conj(), y5 = mxx.conj();
            Fq12<C> y6 = (mxxx * frobenius(mxxx)).conj();
            Fq12<C> a = sqr(y6) * y4 * y5;          // y4 y5 y6^2
            Fq12<C> b = y3 * y5 * a;                // y3 y4 y5^2 y6^2
            a = a * y2;                             // y2 y4 y5 y6^2
            b = sqr(sqr(b) * a);                    // y2^2 y3^4 y4^6 y5^10 y6^12
            return sqr(b * y1) * (b * y0);          // b^3 y0 y1^2
        } else {
            static_assert(C::Data::X_NEGATIVE && x % 3 == 2, "x - 1 = -(|x| + 1), a multiple of 3");
            Fq12<C> a = m.cyclotomic_pow((x + 1) / 3);
            a = a.cyclotomic_pow(x) * a;                                        // m^((x-1)^2/3)
            a = a.cyclotomic_pow(x).conj() * frobenius(a);                      // ^(x + q)
            a = a.cyclotomic_pow(x).cyclotomic_pow(x) * frobenius(frobenius(a)) * a.conj();  // ^(x^2 + q^2 - 1)
            return a * m;
        }
    }
};
