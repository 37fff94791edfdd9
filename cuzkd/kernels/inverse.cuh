// inverse.cuh - quotients mod an odd prime by divsteps: B of them at a time, 62 on a processor, 30 on a GPU.
//
// Bernstein, Yang, "Fast constant-time gcd computation and modular inversion", https://eprint.iacr.org/2019/266, in
// variable time as libsecp256k1 does it (its doc/safegcd_implementation.md). A divstep takes (f, g), f odd, to one of
// (f, g/2), (f, (g + f)/2), (g, (g - f)/2): which one is said by the lowest bit of g and by a counter, eta. So B steps need
// only the lowest B bits of f and g, and their effect is a 2x2 matrix of small numbers over 2^B. It is then applied to
// f, g (exactly) and to d, e (mod p). With f = p, g = y, d = 0, e = x at first, d y = f x and e y = g x mod p all along,
// and in the end g = 0, f = +-1, d = +-x/y.
// Long numbers are limbs of B bits; the highest one carries the sign. How many steps there are depends on y.
#pragma once
#include "arch.cuh"

// What B divsteps do: 2^B (f', g') = (u f + v g, q f + r g); |u| + |v| <= 2^B, |q| + |r| <= 2^B.
template <int B>
struct Divsteps {
    using Int = typename SignedWord<B>::Int;
    using Word = typename SignedWord<B>::Word;
    using Wide = typename SignedWord<B>::Wide;
    Int u, v, q, r;

    // sum + u x + v y, sum + q x + r y
    HD Wide upper(Wide sum, Int x, Int y) const { return SignedWord<B>::mac(SignedWord<B>::mac(sum, u, x), v, y); }
    HD Wide lower(Wide sum, Int x, Int y) const { return SignedWord<B>::mac(SignedWord<B>::mac(sum, q, x), r, y); }

    // Of the lowest bits of f and g. A run of even g is one shift; then up to six steps add a multiple of f that makes so
    // many bits of g zero, as long as no step among them would exchange f and g.
    HD static Divsteps of(Int& eta, Word f, Word g) {
        Word u = 1, v = 0, q = 0, r = 1;
        for (int left = B;;) {
            int zeros = trailing_zeros(g | (~Word(0) << left));
            g >>= zeros, u <<= zeros, v <<= zeros;
            eta -= zeros, left -= zeros;
            if (left == 0) break;
            if (eta < 0) {
                Word old_f = f, old_u = u, old_v = v;
                eta = -eta;
                f = g, u = q, v = r;
                g = 0 - old_f, q = 0 - old_u, r = 0 - old_v;
            }
            int steps = static_cast<int>(eta) + 1 < left ? static_cast<int>(eta) + 1 : left;
            Word mask = ((Word(1) << steps) - 1) & 63;
            Word w = f * g * (f * f - 2) & mask;  // -g/f mod 2^steps: f (f^2 - 2) = -1/f mod 64
            g += f * w, q += u * w, r += v * w;
        }
        return {static_cast<Int>(u), static_cast<Int>(v), static_cast<Int>(q), static_cast<Int>(r)};
    }
};

// A number between -2p and p, or what divsteps make of p and one such.
template <class P, int B>
struct SignedLimbs {
    using Int = typename SignedWord<B>::Int;
    using Word = typename SignedWord<B>::Word;
    static constexpr int N = P::N, L = (P::BITS + 2 + B - 1) / B;
    static constexpr Int MASK = static_cast<Int>((Word(1) << B) - 1);
    Int v[L];

    template <class Words>
    HD static SignedLimbs of(Words word) {  // word(i) of a plain integer, i < N
        SignedLimbs r;
        UNROLL for (int i = 0; i < L; ++i) {
            int at = i * B / 64, shift = i * B % 64;
            uint64_t bits = at < N ? word(at) >> shift : 0;
            if (shift + B > 64 && at + 1 < N) bits |= word(at + 1) << (64 - shift);
            r.v[i] = static_cast<Int>(bits) & MASK;
        }
        return r;
    }
    HD static SignedLimbs modulus() {
        return of([](int i) { return P::p(i); });
    }
    HD void to_words(uint64_t w[N]) const {  // not negative
        UNROLL for (int i = 0; i < N; ++i) w[i] = 0;
        UNROLL for (int i = 0; i < L; ++i) {
            int at = i * B / 64, shift = i * B % 64;
            if (at < N) w[at] |= static_cast<uint64_t>(v[i]) << shift;
            if (shift + B > 64 && at + 1 < N) w[at + 1] |= static_cast<uint64_t>(v[i]) >> (64 - shift);
        }
    }
    HD bool is_zero() const {
        Int any = 0;
        UNROLL for (int i = 0; i < L; ++i) any |= v[i];
        return any == 0;
    }
    HD Int sign() const { return v[L - 1] >> (8 * sizeof(Int) - 1); }  // 0, or all ones

    // Limbs that went a little beyond B bits.
    HD void carry() {
        UNROLL for (int i = 0; i < L - 1; ++i) {
            v[i + 1] += v[i] >> B;
            v[i] &= MASK;
        }
    }
    // This, or its negative where `flip` is all ones; mod p.
    HD void settle(Int flip) {
        const SignedLimbs p = modulus();
        Int add = sign();
        UNROLL for (int i = 0; i < L; ++i) v[i] = ((v[i] + (p.v[i] & add)) ^ flip) - flip;
        carry();
        add = sign();
        UNROLL for (int i = 0; i < L; ++i) v[i] += p.v[i] & add;
        carry();
    }
};

// f, g: the matrix over 2^B.
template <class P, int B>
HD void apply_exactly(const Divsteps<B>& t, SignedLimbs<P, B>& f, SignedLimbs<P, B>& g) {
    using S = SignedLimbs<P, B>;
    using Wide = typename Divsteps<B>::Wide;
    Wide a = t.upper(0, f.v[0], g.v[0]), b = t.lower(0, f.v[0], g.v[0]);
    UNROLL for (int i = 1; i < S::L; ++i) {
        a = t.upper(a >> B, f.v[i], g.v[i]);
        b = t.lower(b >> B, f.v[i], g.v[i]);
        f.v[i - 1] = static_cast<typename S::Int>(a) & S::MASK;
        g.v[i - 1] = static_cast<typename S::Int>(b) & S::MASK;
    }
    f.v[S::L - 1] = static_cast<typename S::Int>(a >> B);
    g.v[S::L - 1] = static_cast<typename S::Int>(b >> B);
}

// d, e: the matrix over 2^B mod p, from (-2p, p) to (-2p, p). Multiples of p make the low B bits zero; p is added to what
// is negative beforehand, or the range would grow.
template <class P, int B>
HD void apply_mod_p(const Divsteps<B>& t, SignedLimbs<P, B>& d, SignedLimbs<P, B>& e) {
    using S = SignedLimbs<P, B>;
    using Int = typename S::Int;
    using Word = typename S::Word;
    using Wide = typename Divsteps<B>::Wide;
    const S p = S::modulus();
    constexpr Word over_p = 0 - static_cast<Word>(P::inv);  // 1/p mod 2^B and beyond
    Int m = (t.u & d.sign()) + (t.v & e.sign()), n = (t.q & d.sign()) + (t.r & e.sign());
    Wide a = t.upper(0, d.v[0], e.v[0]), b = t.lower(0, d.v[0], e.v[0]);
    m -= static_cast<Int>(over_p * static_cast<Word>(a) + static_cast<Word>(m)) & S::MASK;
    n -= static_cast<Int>(over_p * static_cast<Word>(b) + static_cast<Word>(n)) & S::MASK;
    a = SignedWord<B>::mac(a, p.v[0], m), b = SignedWord<B>::mac(b, p.v[0], n);
    UNROLL for (int i = 1; i < S::L; ++i) {
        a = SignedWord<B>::mac(t.upper(a >> B, d.v[i], e.v[i]), p.v[i], m);
        b = SignedWord<B>::mac(t.lower(b >> B, d.v[i], e.v[i]), p.v[i], n);
        d.v[i - 1] = static_cast<Int>(a) & S::MASK;
        e.v[i - 1] = static_cast<Int>(b) & S::MASK;
    }
    d.v[S::L - 1] = static_cast<Int>(a >> B);
    e.v[S::L - 1] = static_cast<Int>(b >> B);
}

// quotient = x/y mod p, plain integers below p in and out; 0 for y = 0.
template <class P, int B = DIVSTEPS>
HD_COLD void divide(uint64_t quotient[P::N], const uint64_t x[P::N], const uint64_t y[P::N]) {
    using S = SignedLimbs<P, B>;
    S f = S::modulus(), g = S::of([y](int i) { return y[i]; }), d, e = S::of([x](int i) { return x[i]; });
    UNROLL for (int i = 0; i < S::L; ++i) d.v[i] = 0;
    typename S::Int eta = -1;
    while (!g.is_zero()) {
        auto t = Divsteps<B>::of(eta, static_cast<typename S::Word>(f.v[0]), static_cast<typename S::Word>(g.v[0]));
        apply_mod_p<P, B>(t, d, e);
        apply_exactly<P, B>(t, f, g);
    }
    d.settle(f.sign());
    d.to_words(quotient);
}
