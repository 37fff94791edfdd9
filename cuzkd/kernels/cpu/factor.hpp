// factor.hpp - products of eight elements with numbers that are known beforehand.
//
// Problem: a transform multiplies by constants only. Montgomery's product, which knows neither operand, spends half its
// work on finding what multiple of p to take away.
// Design: a factor w is kept with its quotient by p, floor(w R / p), R = 2^(52 L) (Shoup's trick; D. Harvey, "Faster
// arithmetic for number-theoretic transforms", 2014, section 2). q = x quotient / R, rounded down and without the columns
// that hardly reach it, is floor(x w / p) or one less; x w - q p lies in [0, 2 p) then, and its low half is all of it.
// 84 multiply-adds for L = 5 in the place of 100, no chain of L reductions, and x may be anything below R: no reduction
// while a network adds and subtracts. The product has x's form: w is a plain number, no power of two comes in.
// Values here are Loose (lanes.hpp), but right modulo R only: their top limbs hold rubbish beyond 52 bits, which no
// multiply-add looks at. They say what they are while the true value is in [0, R).
#pragma once
#include "cpu/lanes.hpp"

template <class P>
struct Factor {
    static constexpr int L = Limbs52<P>::L;
    uint64_t w[L], quotient[L];  // limbs of 52 bits

    // Of a Montgomery element. w R mod p is M, known from it; Montgomery's reduction of M finds M + quotient p = w R limb by
    // limb, and leaves w.
    static Factor of(const Field<P>& value) {
        using K = Limbs52<P>;
        const Field<P> m = Lanes<P>::constant(value);
        Factor f;
        for (int i = 0; i < L; ++i) f.w[i] = Lanes<P>::limb(m, i);
        for (int i = 0; i < L; ++i) {
            uint64_t q = (f.w[0] * K::INV) & LOW52;
            unsigned __int128 carry = 0;
            for (int j = 0; j < L; ++j) {
                carry += static_cast<unsigned __int128>(q) * K::MULTIPLE.at[j][1] + f.w[j];
                if (j) f.w[j - 1] = static_cast<uint64_t>(carry) & LOW52;
                carry >>= 52;
            }
            f.w[L - 1] = static_cast<uint64_t>(carry);
            f.quotient[i] = q;
        }
        return f;
    }
};

// A factor in all lanes. Made before a loop that uses it often.
template <class P>
struct Spread {
    static constexpr int L = Limbs52<P>::L;
    V8 w[L], quotient[L];
    VEC explicit Spread(const Factor<P>& f) {
        each<L>([&](auto i) INLINED { w[i] = V8::all(f.w[i]), quotient[i] = V8::all(f.quotient[i]); });
    }
};

namespace modulo_r {

// Limbs of a number by words, and numbers made of p.
template <class P>
struct Numbers {
    using K = Limbs52<P>;
    static constexpr int L = K::L;
    struct Limbs {
        uint64_t at[L];
    };
    // k p < R
    static constexpr Limbs multiple(uint64_t k) {
        Limbs r{};
        unsigned __int128 carry = 0;
        for (int i = 0; i < L; ++i) {
            carry += static_cast<unsigned __int128>(k) * K::MULTIPLE.at[i][1];
            r.at[i] = static_cast<uint64_t>(carry) & LOW52;
            carry >>= 52;
        }
        return r;
    }
    // R - p
    static constexpr Limbs minus_p() {
        Limbs r{};
        uint64_t borrow = 0;
        for (int i = 0; i < L; ++i) {
            uint64_t limb = 0 - K::MULTIPLE.at[i][1] - borrow;
            borrow = K::MULTIPLE.at[i][1] + borrow != 0;
            r.at[i] = limb & LOW52;
        }
        return r;
    }
    // floor(2^(52 + SHIFT) 2^(52 (L - 1)) / p), below 2^52: what a top limb is multiplied with to know the multiple of p.
    // By long division, a bit at a time.
    static constexpr int SHIFT = P::BITS - 52 * (L - 1) - 1;
    static constexpr uint64_t reciprocal() {
        uint64_t rest[P::N] = {1}, quotient = 0;
        for (int bit = 0; bit < 52 * L + SHIFT; ++bit) {
            uint64_t less[P::N] = {}, borrow = 0;
            for (int i = P::N; i-- > 0;) rest[i] = rest[i] << 1 | (i ? rest[i - 1] >> 63 : 0);
            for (int i = 0; i < P::N; ++i) {
                uint64_t from = rest[i], take = P::p(i);
                less[i] = from - take - borrow;
                borrow = from < take || (from == take && borrow);
            }
            quotient = quotient << 1 | !borrow;
            if (!borrow)
                for (int i = 0; i < P::N; ++i) rest[i] = less[i];
        }
        return quotient;
    }
    static constexpr Limbs MINUS_P = minus_p();
    static constexpr uint64_t RECIPROCAL = reciprocal();
    static_assert(RECIPROCAL <= LOW52);
};

// Carries done, but limbs not cut to 52 bits: all that a multiply-add wants.
template <class P>
struct Carried {
    static constexpr int L = Limbs52<P>::L;
    V8 l[L];
    VEC explicit Carried(const Loose<P>& x) {
        l[0] = x.l[0];
        each<L - 1>([&](auto i) INLINED { l[i + 1] = x.l[i + 1] + l[i].template sar<52>(); });
    }
};

// x[m] <- x[m] f[m] for x of any size below R -> [0, 2 p); more exactly below (1 + x/R + 2^-40) p. Two products in step
// take 6 % less than one after the other (Sapphire Rapids): one fills the other's waits.
template <int M, class P>
VEC void multiply(Loose<P>* const (&x)[M], const Spread<P>* const (&f)[M]) {
    constexpr int L = Loose<P>::L;
    V8 c[M][L], q[M][L + 1], r[M][L];
    each<M>([&](auto m) INLINED {
        const Carried<P> carried(*x[m]);
        each<L>([&](auto i) INLINED { c[m][i] = carried.l[i], r[m][i] = V8::zero(); });
        each<L + 1>([&](auto i) INLINED { q[m][i] = V8::zero(); });
    });
    // Columns L - 1 .. 2 L - 1 of x quotient; what the others would have carried is below 2^-48.
    each<L>([&](auto i) INLINED {
        each<L>([&](auto j) INLINED {
            constexpr int k = i + j - L + 1;
            each<M>([&](auto m) INLINED {
                if constexpr (k >= 0) q[m][k] = mad_lo(q[m][k], c[m][i], f[m]->quotient[j]);
                if constexpr (k >= -1) q[m][k + 1] = mad_hi(q[m][k + 1], c[m][i], f[m]->quotient[j]);
            });
        });
    });
    each<L>([&](auto k) INLINED {
        each<M>([&](auto m) INLINED { q[m][k + 1] = q[m][k + 1] + q[m][k].template shr<52>(); });
    });
    // The low half of x w, then of - q p, which is q (R - p) modulo R.
    each<L>([&](auto i) INLINED {
        each<L - i>([&](auto j) INLINED {
            each<M>([&](auto m) INLINED {
                r[m][i + j] = mad_lo(r[m][i + j], c[m][i], f[m]->w[j]);
                if constexpr (i + j + 1 < L) r[m][i + j + 1] = mad_hi(r[m][i + j + 1], c[m][i], f[m]->w[j]);
            });
        });
    });
    each<L>([&](auto i) INLINED {
        each<L - i>([&](auto j) INLINED {
            const V8 minus_p = V8::all(Numbers<P>::MINUS_P.at[j]);
            each<M>([&](auto m) INLINED {
                r[m][i + j] = mad_lo(r[m][i + j], q[m][i + 1], minus_p);
                if constexpr (i + j + 1 < L) r[m][i + j + 1] = mad_hi(r[m][i + j + 1], q[m][i + 1], minus_p);
            });
        });
    });
    each<M>([&](auto m) INLINED {
        each<L>([&](auto i) INLINED { x[m]->l[i] = r[m][i]; });
    });
}

template <class P>
VEC Loose<P> times(Loose<P> x, const Spread<P>& f) {
    multiply<1, P>({&x}, {&f});
    return x;
}
// x <- x f, y <- y g
template <class P>
VEC void multiply_both(Loose<P>& x, const Spread<P>& f, Loose<P>& y, const Spread<P>& g) {
    multiply<2, P>({&x, &y}, {&f, &g});
}

template <int K, class P>
VEC Loose<P> plus_multiple(const Loose<P>& x) {
    constexpr auto kp = Numbers<P>::multiple(K);
    Loose<P> r;
    each<Loose<P>::L>([&](auto i) INLINED { r.l[i] = x.l[i] + V8::all(kp.at[i]); });
    return r;
}

// x of any size below R -> [0, (1 + 2^-40) p).
template <class P>
VEC Loose<P> reduced(const Loose<P>& loose) {
    constexpr int L = Loose<P>::L;
    using K = Numbers<P>;
    const Carried<P> x(loose);
    V8 q = mad_hi(V8::zero(), x.l[L - 1], V8::all(K::RECIPROCAL)).template shr<K::SHIFT>();
    Loose<P> r;
    each<L>([&](auto i) INLINED {
        r.l[i] = mad_lo(x.l[i] & V8::all(LOW52), q, V8::all(K::MINUS_P.at[i]));
        if constexpr (i > 0) r.l[i] = mad_hi(r.l[i], q, V8::all(K::MINUS_P.at[i - 1]));
    });
    return r;
}

// As Lanes, in whose limbs nothing is left beyond 52 bits.
template <class P>
VEC Lanes<P> settled(const Loose<P>& x) {
    Lanes<P> r = x.carried();
    r.l[Loose<P>::L - 1] = r.l[Loose<P>::L - 1] & V8::all(LOW52);
    return r;
}

// The value, of any size below R, mod p.
template <class P>
VEC Lanes<P> canonical(const Loose<P>& x) {
    return settled(reduced(x)).canonical();
}

}  // namespace modulo_r
