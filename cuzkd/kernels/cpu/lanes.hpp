// lanes.hpp - eight elements of a prime field side by side, in limbs of 52 bits.
//
// Problem: a Montgomery product is a hundred small products whose carries wait for each other; eight elements in step
// hide the waiting and use instructions that do eight at a time.
// Design: structure of arrays: limb i of all eight lanes is one V8. Three types say what is left to do:
//   Wide    columns of a product, before reduction
//   Loose   limbs as signed numbers below 2^59 in size, carries not done: sums and differences are limb by limb
//   Lanes   a Loose whose carries are done: limbs in [0, 2^52), value >= 0. Only these can be multiplied
// Values are not kept below p. What each operation takes and gives is said in multiples of p; callers add `multiple(k)`
// before they subtract, so that no value becomes negative, and call reduced() before it grows past 8 p.
// Forms: elements in memory are as everywhere, x 2^(64 N) mod p in N words. A product here divides by R = 2^(52 L), which
// is 2^E more. So a factor that is constant is kept as x R (`constant`), and products by it are right as they are; in
// general products a factor is shifted by E bits before: a.shl<E>() * b. Code that sees R alone (ratios, inverses in
// between) needs neither.
//            N  L   E   R/p at least
//   BN254    4  5   4   84
//   BLS Fr   4  5   4   35
//   BLS Fq   6  8  32   2^35
// A product of values below A p and B p is below (A B p/R + 1) p: below 2 p while A B <= 35.
#pragma once
#include "cpu/vec8.hpp"
#include "field.cuh"

// The numbers of a field in limbs of 52 bits; what is there 8-fold can be looked up lane by lane.
template <class P>
struct Limbs52 {
    static constexpr int N = P::N, L = (P::BITS + 5 + 51) / 52, E = 52 * L - 64 * N;
    static constexpr uint64_t INV = P::inv & LOW52;  // -1/p mod 2^52

    struct Table {
        uint64_t at[L][8];
    };
    // Limb i of k p.
    static constexpr Table make() {
        Table t{};
        for (int k = 0; k < 8; ++k) {
            uint64_t carry = 0;
            for (int i = 0; i < L; ++i) {
                int word = 52 * i / 64, shift = 52 * i % 64;
                uint64_t limb = word < N ? P::p(word) >> shift : 0;
                if (shift > 12 && word + 1 < N) limb |= P::p(word + 1) << (64 - shift);
                carry += (limb & LOW52) * static_cast<uint64_t>(k);
                t.at[i][k] = carry & LOW52;
                carry >>= 52;
            }
        }
        return t;
    }
    static constexpr Table MULTIPLE = make();

    // To divide by p: DROP bits of a top limb are dropped, and the high part of the product with QUOTIENT is the quotient
    // rounded down, or one less when the value is just above a multiple.
    static constexpr int TOP_BITS = P::BITS - 52 * (L - 1), DROP = TOP_BITS > 26 ? TOP_BITS - 26 : 0;
    static constexpr uint64_t QUOTIENT =
        static_cast<uint64_t>((static_cast<unsigned __int128>(1) << (52 + DROP)) / (MULTIPLE.at[L - 1][1] + 1));
    // Carries into the top limb that are not done yet are smaller.
    static constexpr uint64_t SLACK = 1 << 8;
};

template <class P>
struct Loose;
template <class P>
struct Lanes;

// The lanes of an element type: LanesOf<Field<P>> is Lanes<P>; lanes2.hpp adds the quadratic extension.
template <class F>
struct LanesOfType;
template <class P>
struct LanesOfType<Field<P>> {
    using Type = Lanes<P>;
    using LooseType = Loose<P>;
};
template <class F>
using LanesOf = typename LanesOfType<F>::Type;
template <class F>
using LooseOf = typename LanesOfType<F>::LooseType;

template <class P>
struct Loose {
    using K = Limbs52<P>;
    static constexpr int L = K::L;
    V8 l[L];

    VEC Loose operator+(const Loose& b) const {
        Loose r;
        each<L>([&](auto i) INLINED { r.l[i] = l[i] + b.l[i]; });
        return r;
    }
    VEC Loose operator-(const Loose& b) const {
        Loose r;
        each<L>([&](auto i) INLINED { r.l[i] = l[i] - b.l[i]; });
        return r;
    }
    // p less the value in the lanes of the mask.
    VEC Loose neg_if(Mask8 mask) const {
        Loose r;
        each<L>([&](auto i) INLINED { r.l[i] = minus_where(mask, V8::all(K::MULTIPLE.at[i][1]), l[i]); });
        return r;
    }
    // As limbs, in 8 L words.
    static VEC Loose load(const uint64_t* from) {
        Loose r;
        each<L>([&](auto i) INLINED { r.l[i] = V8::load(from + 8 * i); });
        return r;
    }
    VEC void store(uint64_t* to) const {
        each<L>([&](auto i) INLINED { l[i].store(to + 8 * i); });
    }
    // k p, 0 <= k < 8.
    static VEC Loose multiple(int k) {
        Loose r;
        each<L>([&](auto i) INLINED { r.l[i] = V8::all(K::MULTIPLE.at[i][k]); });
        return r;
    }
    // The value, which is in [0, R).
    VEC Lanes<P> carried() const {
        Lanes<P> r;
        V8 sum = l[0];
        each<L - 1>([&](auto i) INLINED {
            r.l[i] = sum & V8::all(LOW52);
            sum = l[i + 1] + sum.template sar<52>();
        });
        r.l[L - 1] = sum;
        return r;
    }
    // The value, which is in [0, 8 p), less a multiple of p: in [0, 1.01 p).
    VEC Lanes<P> reduced() const {
        V8 top = (l[L - 1] - V8::all(K::SLACK)).at_least_0();
        V8 quotient = mad_hi(V8::zero(), top.template shr<K::DROP>(), V8::all(K::QUOTIENT));
        Loose r;
        each<L>([&](auto i) INLINED { r.l[i] = l[i] - look_up(quotient, V8::load(K::MULTIPLE.at[i])); });
        return r.carried();
    }
};

template <class P>
struct Lanes : Loose<P> {
    using K = Limbs52<P>;
    using Element = Field<P>;
    static constexpr int L = K::L, N = K::N;
    static constexpr int ROW = N;        // words of an element in memory
    static constexpr int WORDS = 8 * L;  // of memory that load() and store() want
    using Loose<P>::l;

    static VEC Lanes zero() { return same(Element::zero()); }
    // R mod p: 1 for products here.
    static VEC Lanes one() { return same(constant(Element::one())); }

    // Eight elements; reads and writes whole rows of N words.
    static VEC Lanes gather_from(const uint64_t* const rows[8]) {
        V8 words[N];
        gather<N>(rows, words);
        return from_words(words);
    }
    static VEC Lanes gather_from(const Element* first) {
        const uint64_t* rows[8];
        for (int k = 0; k < 8; ++k) rows[k] = first[k].v;
        return gather_from(rows);
    }
    // The value must be canonical() for other code to read it.
    VEC void scatter_to(uint64_t* const rows[8]) const {
        V8 words[N];
        to_words(words);
        scatter<N>(words, rows);
    }
    VEC void scatter_to(Element* first) const {
        uint64_t* rows[8];
        for (int k = 0; k < 8; ++k) rows[k] = first[k].v;
        scatter_to(rows);
    }
    // What store() wrote.
    static VEC Lanes load(const uint64_t* from) {
        Lanes r;
        static_cast<Loose<P>&>(r) = Loose<P>::load(from);
        return r;
    }

    // One element in all lanes.
    static VEC Lanes same(const Element& x) {
        Lanes r;
        each<L>([&](auto i) INLINED { r.l[i] = V8::all(limb(x, i)); });
        return r;
    }
    // A Montgomery element x 2^(64 N) as x R, still below p: the form of factors that are constant.
    static Element constant(Element x) {
        for (int i = 0; i < K::E; ++i) x = x.dbl();
        return x;
    }
    // Limb i of an element.
    static VEC uint64_t limb(const Element& x, int i) {
        int word = 52 * i / 64, shift = 52 * i % 64;
        uint64_t r = word < N ? x.v[word] >> shift : 0;
        if (shift > 12 && word + 1 < N) r |= x.v[word + 1] << (64 - shift);
        return r & LOW52;
    }

    static VEC Lanes from_words(const V8 words[N]) {
        Lanes r;
        each<L>([&](auto i) INLINED {
            constexpr int word = 52 * i / 64, shift = 52 * i % 64;
            if constexpr (word >= N) {
                r.l[i] = V8::zero();
            } else if constexpr (shift > 12 && word + 1 < N) {
                r.l[i] = (words[word].template shr<shift>() | words[word + 1].template shl<64 - shift>()) & V8::all(LOW52);
            } else {
                r.l[i] = words[word].template shr<shift>() & V8::all(LOW52);
            }
        });
        return r;
    }
    // For values below 2^(64 N).
    VEC void to_words(V8 words[N]) const {
        each<N>([&](auto w) INLINED {
            constexpr int first = 64 * w / 52, shift = 64 * w % 52;  // 52 - shift bits of limb `first`, then the next
            V8 word = this->l[first].template shr<shift>();
            if constexpr (first + 1 < L) word = word | this->l[first + 1].template shl<52 - shift>();
            if constexpr (104 - shift < 64 && first + 2 < L) word = word | this->l[first + 2].template shl<104 - shift>();
            words[w] = word;
        });
    }

    // 2^B times the value, which must stay below R.
    template <int B>
    VEC Lanes shl() const {
        Lanes r;
        r.l[0] = l[0].template shl<B>() & V8::all(LOW52);
        each<L - 1>([&](auto i) INLINED {
            V8 limb = this->l[i + 1].template shl<B>() | this->l[i].template shr<52 - B>();
            if constexpr (i + 1 == L - 1) r.l[i + 1] = limb;
            else r.l[i + 1] = limb & V8::all(LOW52);
        });
        return r;
    }

    // The value, which is below 2 p, mod p.
    VEC Lanes canonical() const {
        Lanes less = (*this - Loose<P>::multiple(1)).carried();
        return select(less.l[L - 1].negative(), *this, less);
    }
    // Lanes whose value, below 8 p, is a multiple of p. A look at the lowest limbs mostly is enough.
    VEC Mask8 is_zero() const {
        return may_be_zero() ? is_zero_exactly() : 0;
    }

    friend VEC Lanes select(Mask8 mask, const Lanes& a, const Lanes& b) {
        Lanes r;
        each<L>([&](auto i) INLINED { r.l[i] = select(mask, a.l[i], b.l[i]); });
        return r;
    }

private:
    // j p has the low limb -j/INV mod 2^52.
    VEC Mask8 may_be_zero() const {
        return (mad_lo(V8::all(7), l[0], V8::all(K::INV)) & V8::all(LOW52)) < V8::all(8);
    }
    __attribute__((noinline)) Mask8 is_zero_exactly() const {
        Lanes rest = Loose<P>(*this).reduced().canonical();
        V8 any = rest.l[0];
        each<L - 1>([&](auto i) INLINED { any = any | rest.l[i + 1]; });
        return any == V8::zero();
    }
};

template <class P>
struct Wide {
    static constexpr int L = Limbs52<P>::L;
    V8 c[2 * L];

    VEC Wide operator+(const Wide& b) const {
        Wide r;
        each<2 * L>([&](auto i) INLINED { r.c[i] = c[i] + b.c[i]; });
        return r;
    }
    VEC Wide operator-(const Wide& b) const {
        Wide r;
        each<2 * L>([&](auto i) INLINED { r.c[i] = c[i] - b.c[i]; });
        return r;
    }
};

template <class P>
VEC Wide<P> wide_mul(const Lanes<P>& a, const Lanes<P>& b) {
    constexpr int L = Lanes<P>::L;
    Wide<P> w;
    each<2 * L>([&](auto i) INLINED { w.c[i] = V8::zero(); });
    each<L>([&](auto j) INLINED {
        each<L>([&](auto i) INLINED { w.c[i + j] = mad_lo(w.c[i + j], a.l[i], b.l[j]); });
        each<L>([&](auto i) INLINED { w.c[i + j + 1] = mad_hi(w.c[i + j + 1], a.l[i], b.l[j]); });
    });
    return w;
}

// Products of different limbs once, doubled, then those of equal ones.
template <class P>
VEC Wide<P> wide_sqr(const Lanes<P>& a) {
    constexpr int L = Lanes<P>::L;
    Wide<P> w;
    each<2 * L>([&](auto i) INLINED { w.c[i] = V8::zero(); });
    each<L>([&](auto j) INLINED {
        each<L - 1 - j>([&](auto k) INLINED {
            int i = j + 1 + k;
            w.c[i + j] = mad_lo(w.c[i + j], a.l[i], a.l[j]);
            w.c[i + j + 1] = mad_hi(w.c[i + j + 1], a.l[i], a.l[j]);
        });
    });
    each<2 * L>([&](auto i) INLINED { w.c[i] = w.c[i] + w.c[i]; });
    each<L>([&](auto i) INLINED {
        w.c[2 * i] = mad_lo(w.c[2 * i], a.l[i], a.l[i]);
        w.c[2 * i + 1] = mad_hi(w.c[2 * i + 1], a.l[i], a.l[i]);
    });
    return w;
}

// w/R mod p: above (w/R) and below (w/R) + p. Of differences, too, which may be negative: then more than -p when w > -p R.
template <class P>
VEC Loose<P> redc(Wide<P> w) {
    constexpr int L = Lanes<P>::L;
    using K = Limbs52<P>;
    each<L>([&](auto i) INLINED {
        V8 m = mad_lo(V8::zero(), w.c[i], V8::all(K::INV));
        // The column becomes 0 mod 2^52 by a number below 2^52: what it carries is its quotient, rounded up.
        w.c[i + 1] = mad_hi(w.c[i + 1] + (w.c[i] + V8::all(LOW52)).template sar<52>(), m, V8::all(K::MULTIPLE.at[0][1]));
        each<L - 1>([&](auto j) INLINED {
            w.c[i + j + 1] = mad_lo(w.c[i + j + 1], m, V8::all(K::MULTIPLE.at[j + 1][1]));
            w.c[i + j + 2] = mad_hi(w.c[i + j + 2], m, V8::all(K::MULTIPLE.at[j + 1][1]));
        });
    });
    Loose<P> r;
    each<L>([&](auto i) INLINED { r.l[i] = w.c[L + i]; });
    return r;
}

template <class P>
VEC Loose<P> operator*(const Lanes<P>& a, const Lanes<P>& b) {
    return redc(wide_mul(a, b));
}
template <class P>
VEC Loose<P> sqr(const Lanes<P>& a) {
    return redc(wide_sqr(a));
}
