// curve.cuh - points of y^2 = x^3 + b over F (a prime field or its quadratic extension).
//
// Affine<F>: what keys hold; infinity is all zero (x = y = 0 is on neither curve, b != 0).
// Xyzz<F>: x = X/ZZ, y = Y/ZZZ with ZZ^3 = ZZZ^2; infinity is ZZ = 0. Accumulates without inversion.
// Formulas: https://hyperelliptic.org/EFD/g1p/auto-shortw-xyzz.html (a = 0), cost beside each. Every exceptional case
// (infinity, equal, opposite) is right, not merely unlikely.
#pragma once
#include "arch.cuh"

template <class F>
struct Affine {
    F x, y;

    HD static Affine infinity() { return {F::zero(), F::zero()}; }
    HD bool is_infinity() const { return x.is_zero() && y.is_zero(); }
    HD Affine neg() const { return {x, y.neg()}; }
    HD Affine neg_if(bool flag) const { return {x, y.neg_if(flag)}; }
    HD bool operator==(const Affine& q) const { return x == q.x && y == q.y; }
    HD_CALL bool is_on(const F& b) const { return is_infinity() || y.sqr() == x.sqr() * x + b; }
};

template <class F>
struct Xyzz {
    F x, y, zz, zzz;

    HD static Xyzz infinity() { return {F::zero(), F::zero(), F::zero(), F::zero()}; }
    HD static Xyzz from_affine(const Affine<F>& p) {
        return p.is_infinity() ? infinity() : Xyzz{p.x, p.y, F::one(), F::one()};
    }
    HD bool is_infinity() const { return zz.is_zero(); }
    HD Xyzz neg() const { return {x, y.neg(), zz, zzz}; }

    // 2 p of an affine point: mdbl-2008-s-1, 4M + 3S.
    HD_COLD static Xyzz dbl_affine(const Affine<F>& p) {
        F u = p.y.dbl();                 // U = 2 Y1
        F v = u.sqr();                   // V = U^2
        F w = u * v;                     // W = U V
        F s = p.x * v;                   // S = X1 V
        F xx = p.x.sqr();
        F m = xx.dbl() + xx;             // M = 3 X1^2
        Xyzz r;
        r.x = m.sqr() - s.dbl();         // X3 = M^2 - 2 S
        r.y = F::mul_sub(m, s - r.x, w, p.y);  // Y3 = M (S - X3) - W Y1
        r.zz = v;                        // y = 0 gives V = 0: infinity, as it must be
        r.zzz = w;
        return r;
    }

    // 2 this: dbl-2008-s-1, 6M + 4S with a = 0 one squaring and one product fewer. Infinity stays infinity.
    HD_HOT Xyzz dbl() const {
        F u = y.dbl();                   // U = 2 Y1
        F v = u.sqr();                   // V = U^2
        F w = u * v;                     // W = U V
        F s = x * v;                     // S = X1 V
        F xx = x.sqr();
        F m = xx.dbl() + xx;             // M = 3 X1^2
        Xyzz r;
        r.x = m.sqr() - s.dbl();         // X3 = M^2 - 2 S
        r.y = F::mul_sub(m, s - r.x, w, y);  // Y3 = M (S - X3) - W Y1
        r.zz = v * zz;                   // ZZ3 = V ZZ1
        r.zzz = w * zzz;                 // ZZZ3 = W ZZZ1
        return r;
    }

    // this + q, q affine: madd-2008-s, 8M + 2S.
    HD_HOT Xyzz add(const Affine<F>& q) const {
        if (q.is_infinity()) return *this;
        if (is_infinity()) return from_affine(q);
        F p = q.x * zz - x;              // P = X2 ZZ1 - X1
        F r = q.y * zzz - y;             // R = Y2 ZZZ1 - Y1
        if (p.is_zero()) return r.is_zero() ? dbl_affine(q) : infinity();
        F pp = p.sqr();                  // PP = P^2
        F ppp = p * pp;                  // PPP = P PP
        F qq = x * pp;                   // Q = X1 PP
        Xyzz o;
        o.x = r.sqr() - ppp - qq.dbl();      // X3 = R^2 - PPP - 2 Q
        o.y = F::mul_sub(r, qq - o.x, y, ppp);  // Y3 = R (Q - X3) - Y1 PPP
        o.zz = zz * pp;                      // ZZ3 = ZZ1 PP
        o.zzz = zzz * ppp;                   // ZZZ3 = ZZZ1 PPP
        return o;
    }

    // this + q: add-2008-s, 12M + 2S.
    HD_HOT Xyzz add(const Xyzz& q) const {
        if (q.is_infinity()) return *this;
        if (is_infinity()) return q;
        F u1 = x * q.zz, s1 = y * q.zzz;     // U1 = X1 ZZ2, S1 = Y1 ZZZ2
        F p = q.x * zz - u1;                 // P = X2 ZZ1 - U1
        F r = q.y * zzz - s1;                // R = Y2 ZZZ1 - S1
        if (p.is_zero()) return r.is_zero() ? dbl() : infinity();
        F pp = p.sqr();                      // PP = P^2
        F ppp = p * pp;                      // PPP = P PP
        F qq = u1 * pp;                      // Q = U1 PP
        Xyzz o;
        o.x = r.sqr() - ppp - qq.dbl();      // X3 = R^2 - PPP - 2 Q
        o.y = F::mul_sub(r, qq - o.x, s1, ppp);  // Y3 = R (Q - X3) - S1 PPP
        o.zz = zz * q.zz * pp;               // ZZ3 = ZZ1 ZZ2 PP
        o.zzz = zzz * q.zzz * ppp;           // ZZZ3 = ZZZ1 ZZZ2 PPP
        return o;
    }

    // One inversion in F: 1/ZZZ, then 1/ZZ = (ZZ / ZZZ)^2 because ZZ^3 = ZZZ^2.
    HD_COLD Affine<F> to_affine() const {
        if (is_infinity()) return Affine<F>::infinity();
        F i3 = zzz.inv();
        F i1 = zz * i3;                      // 1/Z
        return {x * i1.sqr(), y * i3};
    }

    // k this; k: n plain little-endian words. Double and add from the top bit.
    HD_COLD static Xyzz mul(const Affine<F>& p, const uint64_t* k, int n) {
        Xyzz r = infinity();
        for (int i = 64 * n - 1; i >= 0; --i) {
            r = r.dbl();
            if ((k[i / 64] >> (i % 64)) & 1) r = r.add(p);
        }
        return r;
    }
};
