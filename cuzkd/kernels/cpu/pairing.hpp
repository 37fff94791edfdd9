// pairing.hpp - the optimal ate pairing of both curves, and products of pairings.
//
// Vercauteren, "Optimal pairings", https://eprint.iacr.org/2008/096. The value is f_{n,Q}(P)^((q^12-1)/r), n = 6x + 2 with
// two more lines (bn254) or |x| (bls12_381; the sign of x is left out, as in py_ecc, which turns the value into its inverse
// and changes no equation between pairings).
// Miller loop in affine coordinates: all pairs step together, so that each step has one inversion for all of them.
// Final exponentiation: easy part (q^6-1)(q^2+1), then the hard part (q^4-q^2+1)/r exactly, written in base q: four
// Frobenius images raised to numbers below q, together (Straus). No curve-specific chain, no cofactor.
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
            if (!p[i].is_infinity() && !q[i].is_infinity()) pairs.push_back({p[i], q[i], q[i]});
        return final_exponentiation(miller_loop(pairs));
    }

private:
    struct Pair {
        P1 p;
        P2 q, t;  // t: the running multiple of q
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
            step(f, pairs, [](const Pair& s) { return twisted_frobenius(s.q); });
            step(f, pairs, [](const Pair& s) { return twisted_frobenius(twisted_frobenius(s.q)).neg(); });
        }
        return f;
    }

    // The q-power Frobenius carried to the twist (D-type): (conj x gamma_2, conj y gamma_3).
    static P2 twisted_frobenius(const P2& q) {
        return {q.x.conj() * Fq12<C>::gamma(2), q.y.conj() * Fq12<C>::gamma(3)};
    }

    // For every pair: f *= line through t and other(pair) at p; t += other(pair). Points of order r never meet an
    // exceptional case here: t is a small multiple of q, below r and never +-other unless it is a doubling.
    template <class Other>
    static void step(Fq12<C>& f, std::vector<Pair>& pairs, Other other) {
        size_t n = pairs.size();
        std::vector<P2> with(n);
        std::vector<Fq2> numerator(n), denominator(n), prefix(n);
        Fq2 product = Fq2::one();
        for (size_t i = 0; i < n; ++i) {
            const P2& t = pairs[i].t;
            with[i] = other(pairs[i]);
            if (with[i] == t) {
                Fq2 xx = t.x.sqr();
                numerator[i] = xx.dbl() + xx;
                denominator[i] = t.y.dbl();
            } else {
                numerator[i] = with[i].y - t.y;
                denominator[i] = with[i].x - t.x;
            }
            prefix[i] = product;
            product = product * denominator[i];
        }
        Fq2 inverse = product.inv();
        for (size_t i = n; i-- > 0;) {
            Pair& s = pairs[i];
            Fq2 slope = numerator[i] * (inverse * prefix[i]);
            inverse = inverse * denominator[i];
            f = f * line(slope, s.t, s.p);
            Fq2 x = slope.sqr() - s.t.x - with[i].x;
            s.t = {x, slope * (s.t.x - x) - s.t.y};
        }
    }

    // The line of slope `slope` (on the twist) through t, at p. Untwisting puts factors w^2, w^3 on x, y (D), or their
    // inverses (M, then all is multiplied by w^3, which the final exponentiation sends to 1).
    //   D: y_P - slope x_P w + (slope x_T - y_T) w^3          M: (slope x_T - y_T) - slope x_P w^2 + y_P w^3
    static Fq12<C> line(const Fq2& slope, const P2& t, const P1& p) {
        Fq2 constant = slope * t.x - t.y, y_p = {p.y, Fq::zero()}, zero = Fq2::zero();
        Fq2 tilt = slope.scale(p.x).neg();
        if (C::Data::D_TWIST) return {{y_p, zero, zero}, {tilt, constant, zero}};
        return {{constant, tilt, zero}, {zero, y_p, zero}};
    }

    static Fq12<C> final_exponentiation(const Fq12<C>& f) {
        Fq12<C> g = f.conj() * f.inv();             // f^(q^6 - 1)
        g = g.frobenius().frobenius() * g;          // ^(q^2 + 1)
        Fq12<C> product[16];                        // product of the images whose bit is set
        product[0] = Fq12<C>::one();
        Fq12<C> image = g;
        for (int j = 0; j < 4; ++j, image = image.frobenius())
            for (int m = 0; m < 1 << j; ++m) product[(1 << j) + m] = product[m] * image;
        Fq12<C> r = Fq12<C>::one();
        for (int bit = 64 * Fq::N - 1; bit >= 0; --bit) {
            r = r.sqr();
            int mask = 0;
            for (int j = 0; j < 4; ++j) mask |= static_cast<int>((C::Data::hard(j, bit / 64) >> (bit % 64)) & 1) << j;
            if (mask) r = r * product[mask];
        }
        return r;
    }
};
