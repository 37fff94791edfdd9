// domain_lanes.hpp - the tables of transform_lanes.hpp: all of about sqrt n numbers, made once per (field, root family,
// log n) and kept.
#pragma once
#include <memory>
#include <vector>

#include "cpu/domain.hpp"
#include "cpu/network_lanes.hpp"

// first ratio^i for i < n.
template <class Fr>
std::vector<Fr> geometric(Fr first, const Fr& ratio, size_t n) {
    std::vector<Fr> t(n);
    for (Fr& x : t) x = first, first = first * ratio;
    return t;
}

// The ratios of twists, for Lanes' products.
template <class P>
std::vector<Field<P>> twist_ratios(const Field<P>& first, const Field<P>& ratio, size_t n) {
    return geometric(Lanes<P>::constant(first), ratio, n);
}

// scale root^rev(i), i < 2^bits, as factors.
template <class P>
std::vector<Factor<P>> factors(const Field<P>& root, int bits, const Field<P>& scale) {
    std::vector<Factor<P>> t;
    for (const Field<P>& x : Domain<Field<P>>::powers(root, bits, scale)) t.push_back(Factor<P>::of(x));
    return t;
}

// x^(2^k)
template <class Fr>
Fr squared(Fr x, int k) {
    for (; k > 0; --k) x = x.sqr();
    return x;
}

template <class P>
struct LaneDomain {
    using Fr = Field<P>;
    static constexpr int MIN_LOG = 6, MAX_LOG = 28;  // eight rows and columns at least; 14 layers at most

    const int log_n, log_rows = log_n / 2, log_columns = log_n - log_rows;
    const size_t rows = size_t(1) << log_rows, columns = size_t(1) << log_columns;
    const Fr w, inverse_w;
    std::vector<Factor<P>> by_w, by_inverse_w;  // columns/2 each: powers of w^rows, of its inverse, bit-reversed

    LaneDomain(uint64_t nqr, int log_n)
        : log_n(log_n), w(root_of_unity<Fr>(nqr, log_n)), inverse_w(w.inv()),
          by_w(factors<P>(squared(w, log_rows), log_columns - 1, Fr::one())),
          by_inverse_w(factors<P>(squared(inverse_w, log_rows), log_columns - 1, Fr::one())) {}

    LaneNetwork<P> network() const { return {by_inverse_w.data(), by_w.data()}; }

    static std::shared_ptr<const LaneDomain> get(uint64_t nqr, int log_n) { return kept<LaneDomain>(nqr, log_n); }
};

// What the quotient wants beside the domain: coefficient m, at frequency q in place rev(j) of a row, m = j rows + q, is to be
// multiplied with g^m for g = w_2n: g^q goes into the twist, which has q as its exponent, (g^rows)^j into a factor.
// Factors also divide by n and bring to the form that is wanted next: with s = 2^-126 in front of a and b, and 2^-252
// in front of c, the lanes' products make (s 2^256 a) (s 2^256 b) / R plain, and so is s' c once a b / R is c.
template <class P>
struct LaneCoset {
    using Fr = Field<P>;
    std::shared_ptr<const LaneDomain<P>> domain;
    std::vector<Fr> there, up, back;                // ratios of twists: columns, rows, columns
    std::vector<Factor<P>> of_ab, of_c, of_back;    // columns each, bit-reversed

    LaneCoset(uint64_t nqr, int log_n) : domain(LaneDomain<P>::get(nqr, log_n)) {
        static_assert(Limbs52<P>::L == 5 && P::N == 4, "the powers of two below");
        const auto& d = *domain;
        const Fr g = root_of_unity<Fr>(nqr, log_n + 1), inverse_g = g.inv(), n = small<Fr>(uint64_t(1) << log_n);
        const Fr half = small<Fr>(2).inv(), over_n = n.inv();
        uint64_t e = 126;
        const Fr s = half.pow(&e, 1);
        there = twist_ratios<P>(g, d.inverse_w, d.columns);
        up = twist_ratios<P>(Fr::one(), d.w, d.rows);
        back = twist_ratios<P>(inverse_g, d.inverse_w, d.columns);
        of_ab = factors<P>(squared(g, d.log_rows), d.log_columns, s * over_n);
        of_c = factors<P>(squared(g, d.log_rows), d.log_columns, s.sqr() * over_n);
        of_back = factors<P>(squared(inverse_g, d.log_rows), d.log_columns, n.dbl().neg().inv());
    }

    static std::shared_ptr<const LaneCoset> get(uint64_t nqr, int log_n) { return kept<LaneCoset>(nqr, log_n); }
};
