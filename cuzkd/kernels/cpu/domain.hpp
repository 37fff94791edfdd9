// domain.hpp - the tables of one power-of-two domain, made once per (field, root family, log n) and kept.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "cpu/pool.hpp"
#include "field.cuh"
#include "ntt.cuh"

// The field element of a small plain integer.
template <class Fr>
Fr small(uint64_t k) {
    Fr r = Fr::zero();
    r.v[0] = k;
    return r.from_canonical();
}

// w of order 2^log_n: nqr^((r - 1)/2^log_n), nqr a quadratic non-residue (the root family).
template <class Fr>
Fr root_of_unity(uint64_t nqr, int log_n) {
    if (log_n > Fr::Params::TWO_ADICITY)
        throw std::invalid_argument("domain: no root of unity of order 2^" + std::to_string(log_n));
    uint64_t e[Fr::N];
    for (int i = 0; i < Fr::N; ++i) e[i] = Fr::Params::p(i);
    e[0] -= 1;
    for (int k = 0; k < log_n; ++k)
        for (int i = 0; i < Fr::N; ++i) e[i] = (e[i] >> 1) | (i + 1 < Fr::N ? e[i + 1] << 63 : 0);
    Fr w = small<Fr>(nqr).pow(e, Fr::N);
    Fr half = w;
    for (int k = 1; k < log_n; ++k) half = half.sqr();
    if (log_n > 0 && half != Fr::one().neg())
        throw std::invalid_argument("domain: root family " + std::to_string(nqr) + " is not a quadratic non-residue");
    return w;
}

// The one T of these arguments in this process, made when it is first wanted.
template <class T, class... Arguments>
std::shared_ptr<const T> kept(Arguments... arguments) {
    static std::mutex mutex;
    static auto* made = new std::map<std::tuple<Arguments...>, std::shared_ptr<const T>>();
    std::lock_guard<std::mutex> lock(mutex);
    auto& slot = (*made)[{arguments...}];
    if (!slot) slot = std::make_shared<const T>(arguments...);
    return slot;
}

// All tables lie in bit-reversed order (see ntt.cuh), Montgomery form.
template <class Fr>
struct Domain {
    int log_n;
    std::vector<Fr> up, down;  // n/2 each (1 for n = 1): powers of w, of 1/w

    Domain(uint64_t nqr, int log_n) : log_n(log_n) {
        Fr w = root_of_unity<Fr>(nqr, log_n);
        up = powers(w, log_n - 1, Fr::one());
        down = powers(w.inv(), log_n - 1, Fr::one());
    }

    static std::shared_ptr<const Domain> get(uint64_t nqr, int log_n) { return kept<Domain>(nqr, log_n); }

    // scale * w^rev(k) for k < 2^bits, rev over `bits` bits.
    static std::vector<Fr> powers(const Fr& w, int bits, const Fr& scale) {
        bits = bits < 0 ? 0 : bits;
        std::vector<Fr> step(bits);  // step[j] multiplies when bit j of the index is set: w^(2^(bits - 1 - j))
        Fr s = w;
        for (int j = bits; j-- > 0; s = s.sqr()) step[j] = s;
        std::vector<Fr> t(size_t(1) << bits);
        t[0] = scale;
        for (int j = 0; j < bits; ++j) {
            size_t half = size_t(1) << j;
            parallel_ranges(half, 2048, [&](size_t begin, size_t end) {
                for (size_t k = begin; k < end; ++k) t[half + k] = t[k] * step[j];
            });
        }
        return t;
    }
};

// The way between coefficients and values on the odd coset w_2n <w>, for coefficients in bit-reversed order:
//   there  w_2n^rev(i) / n, Montgomery
//   back   w_2n^-rev(i) / n over Z = X^n - 1, which is -2 on all of the coset. CANONICAL, which makes CANONICAL of
//          whatever Montgomery value it meets
enum class Way { there, back };

template <class Fr>
struct OddCoset {
    std::shared_ptr<const Domain<Fr>> domain;
    std::vector<Fr> factor;  // n

    OddCoset(uint64_t nqr, int log_n, Way way) : domain(Domain<Fr>::get(nqr, log_n)) {
        Fr root = root_of_unity<Fr>(nqr, log_n + 1), n = small<Fr>(uint64_t(1) << log_n);
        factor = way == Way::there ? Domain<Fr>::powers(root, log_n, n.inv())
                                   : Domain<Fr>::powers(root.inv(), log_n, n.dbl().neg().inv().to_canonical());
    }

    static std::shared_ptr<const OddCoset> get(uint64_t nqr, int log_n, Way way) { return kept<OddCoset>(nqr, log_n, way); }
};
