// pairs.cuh - the sum of two affine points, but for the inversion: that is shared with other pairs.
//
// Why: with its inversion shared, an addition of affine points takes 5M + 1S and a share of a product; in XYZZ it takes
// 8M + 2S or 12M + 2S. Formulas: https://hyperelliptic.org/EFD/g1p/auto-shortw.html. Every exceptional pair is right (an
// infinity, equal points, opposite ones), and none of them ever offers a zero for inversion.
#pragma once
#include "curve.cuh"

// How the sum of p and q is found. Only the first two want an inverse.
enum class PairKind : uint32_t { chord, tangent, first, second, infinity };

HD bool wants_inverse(PairKind kind) { return kind == PairKind::chord || kind == PairKind::tangent; }

template <class F>
HD PairKind pair_kind(const Affine<F>& p, const Affine<F>& q) {
    if (p.is_infinity()) return PairKind::second;
    if (q.is_infinity()) return PairKind::first;
    if (p.x != q.x) return PairKind::chord;
    return p.y == q.y && !p.y.is_zero() ? PairKind::tangent : PairKind::infinity;
}
// Is it a chord, as far as the x tell? Where they do not, the whole points have to be looked at.
template <class F>
HD bool surely_a_chord(const F& px, const F& qx) {
    return px != qx && !px.is_zero() && !qx.is_zero();
}

// What is to be inverted: x2 - x1 of a chord, 2 y of a tangent.
template <class F>
HD F pair_denominator(PairKind kind, const Affine<F>& p, const Affine<F>& q) {
    return kind == PairKind::tangent ? p.y.dbl() : q.x - p.x;
}

// The slope of the chord or tangent: (y2 - y1) / (x2 - x1), or 3 x^2 / 2 y. inverse: of the denominator.
template <class F>
HD F pair_slope(PairKind kind, const Affine<F>& p, const Affine<F>& q, const F& inverse) {
    F numerator = q.y - p.y;
    if (kind == PairKind::tangent) {
        F xx = p.x.sqr();
        numerator = xx.dbl() + xx;
    }
    return numerator.times(inverse);
}
// p + q, given that. Of q, x is enough.
template <class F>
HD Affine<F> pair_sum(const Affine<F>& p, const F& qx, const F& slope) {
    Affine<F> r;
    r.x = slope.sqr() - p.x - qx;         // x3 = m^2 - x1 - x2
    r.y = slope.times(p.x - r.x) - p.y;   // y3 = m (x1 - x3) - y1
    return r;
}
