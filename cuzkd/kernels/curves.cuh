// curves.cuh - the two curves: generated numbers put together with the types. Algorithms above know only C and G.
#pragma once
#include "constants.cuh"
#include "curve.cuh"
#include "field.cuh"
#include "fq2.cuh"

template <class D>
struct PairingCurve {
    using Data = D;
    using Fr = Field<typename D::FrParams>;
    using Fq = Field<typename D::FqParams>;
    using Fq2 = Quadratic<Fq>;
};
using Bn254 = PairingCurve<Bn254Data>;
using Bls12_381 = PairingCurve<Bls12381Data>;

// A group of points: F its coordinates, b of y^2 = x^3 + b, the generator.
template <class C>
struct G1 {
    using Curve = C;
    using F = typename C::Fq;
    using Fr = typename C::Fr;
    HD static F b() {
        F r;
        for (int i = 0; i < F::N; ++i) r.v[i] = C::Data::b(i);
        return r;
    }
    HD static Affine<F> generator() {
        Affine<F> g;
        for (int i = 0; i < F::N; ++i) g.x.v[i] = C::Data::g1(0, i), g.y.v[i] = C::Data::g1(1, i);
        return g;
    }
};

template <class C>
struct G2 {
    using Curve = C;
    using F = typename C::Fq2;
    using Fr = typename C::Fr;
    HD static F b() {
        F r;
        for (int i = 0; i < C::Fq::N; ++i) r.c0.v[i] = C::Data::b2(0, i), r.c1.v[i] = C::Data::b2(1, i);
        return r;
    }
    HD static Affine<F> generator() {
        Affine<F> g;
        for (int i = 0; i < C::Fq::N; ++i) {
            g.x.c0.v[i] = C::Data::g2(0, i), g.x.c1.v[i] = C::Data::g2(1, i);
            g.y.c0.v[i] = C::Data::g2(2, i), g.y.c1.v[i] = C::Data::g2(3, i);
        }
        return g;
    }
};
