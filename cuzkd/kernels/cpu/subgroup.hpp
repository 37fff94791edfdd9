// subgroup.hpp - which points belong to the group that proofs live in: on the curve, and of order r.
//
// Problem: a product with r takes a hundred microseconds and more, and a key has millions of points.
// Design, few points: an endomorphism takes the points of order r to known multiples, and only them. On the twists
// Frobenius psi does so with t - 1 (6 x^2 on bn254, x on bls12_381): as psi^2 - t psi + q = 0, psi p = (t - 1) p means
// (q + 1 - t) p = 0, and gcd(q + 1 - t, order of the twist) = r. On bls12_381 in G1 it is (x, y) -> (beta x, y) = phi
// with -x^2: as phi^2 + phi + 1 = 0, phi p = -x^2 p means (x^4 - x^2 + 1) p = r p = 0. Bowe, "Faster Subgroup Checks for
// BLS12-381", https://eprint.iacr.org/2019/814; Scott, https://eprint.iacr.org/2021/1130.
// Many: points are thrown into random buckets, and the buckets' sums are looked at instead. A sum of points of order
// r is of order r, so a bad sum proves a bad point. The other way round: modulo the r-subgroup, the bucket sums are all
// zero only if each stranger p meets the negative of the rest of its bucket. Fix where the other points go: at most one
// bucket's rest is then -p, and all other rests zero, so at most 1 of BUCKETS places for p hides it - whatever orders
// there are, small ones too, and whoever chose the points, who does not know the places. ROUNDS independent throws all
// miss with probability at most BUCKETS^-ROUNDS = 2^-64.
// Life: 64 random bits of the operating system for each point, a byte a round; each thread adds its points to sums of its
// own by the batched affine adder, ROUNDS additions a point; threads' sums are added, 2048 sums are looked at.
#pragma once
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "cpu/batch.hpp"
#include "cpu/tower.hpp"
#include "cpu/vectors.hpp"

inline void draw(uint64_t* words, size_t n) {
    char* at = reinterpret_cast<char*>(words);
    for (size_t left = n * sizeof *words; left > 0;) {
        ssize_t got = getrandom(at, left, 0);
        if (got < 0 && errno != EINTR) throw std::runtime_error(std::string("getrandom: ") + std::strerror(errno));
        if (got > 0) at += got, left -= got;
    }
}

template <class G>
class SubgroupCheck {
    using F = typename G::F;
    using Point = Affine<F>;

public:
    explicit SubgroupCheck(const Point* points) : points_(points) {}

    // The first of the first n points, all of them on the curve, that is not of order r; or NONE. A bad one is looked for
    // by halves: about as much work again as finding that there is one.
    size_t first_stranger(size_t n) const {
        if (std::is_same_v<G, G1<Bn254>>) return NONE;  // this curve has r points
        if (n > FEW && all_belong(0, n)) return NONE;
        size_t begin = 0, end = n;
        while (end - begin > FEW) {
            size_t middle = begin + (end - begin) / 2;
            (all_belong(begin, middle) ? begin : end) = middle;
        }
        return first_where(begin, end, 4, [&](size_t i) { return !belongs(points_[i]); });
    }

private:
    static constexpr size_t BUCKETS = 256, ROUNDS = 8, N_SUMS = ROUNDS * BUCKETS;
    static constexpr size_t FEW = 4096;  // points that are looked at one by one: in buckets they would take longer
    // That a thread sorts and adds at a time.
    static constexpr size_t CHUNK = BatchAdder<F>::CAPACITY - BUCKETS;

    static bool belongs(const Point& p) {
        using C = typename G::Curve;
        constexpr unsigned __int128 x = C::Data::X;
        constexpr bool in_g1 = std::is_same_v<G, G1<C>>;
        constexpr unsigned __int128 factor = in_g1 ? x * x : C::Data::BN_LINES ? 6 * x * x : x;
        const uint64_t words[2] = {static_cast<uint64_t>(factor), static_cast<uint64_t>(factor >> 64)};
        Xyzz<F> multiple = Xyzz<F>::mul(p, words, words[1] ? 2 : 1);
        Point image;
        if constexpr (in_g1) {
            auto gamma = Fq12<C>::gamma(2);
            image = {p.x * (gamma.c0.sqr() + gamma.c1.sqr()), p.y};  // beta = N(gamma_2), a cube root of 1
        } else {
            image = twisted_frobenius<C>(p);
        }
        bool opposite = in_g1 || C::Data::X_NEGATIVE;
        return multiple.add(image.neg_if(!opposite)).is_infinity();
    }

    // Are all of [begin, end) of order r? yes is wrong with probability at most 2^-64, no never.
    bool all_belong(size_t begin, size_t end) const {
        size_t shares = std::min<size_t>(Pool::instance().width(), (end - begin) / FEW + 1);
        std::vector<Point> sums(shares * N_SUMS, Point::infinity());
        Pool::instance().run(shares, [&](size_t k) {
            size_t n = end - begin;
            throw_in(begin + n * k / shares, begin + n * (k + 1) / shares, &sums[k * N_SUMS]);
        });
        return first_where(0, N_SUMS, 4, [&](size_t i) {
            Xyzz<F> sum = Xyzz<F>::infinity();
            for (size_t k = 0; k < shares; ++k) sum = sum.add(sums[k * N_SUMS + i]);
            Point total;
            to_affine(&sum, &total, 1);
            return !belongs(total);
        }) == NONE;
    }

    // Adds points [begin, end) to `sums`: those of round k lie at k BUCKETS.
    void throw_in(size_t begin, size_t end, Point* sums) const {
        BatchAdder<F>& adder = BatchAdder<F>::local();
        std::vector<uint64_t> places(CHUNK);
        std::vector<uint32_t> order(CHUNK);
        for (size_t from = begin; from < end; from += CHUNK) {
            size_t n = std::min(CHUNK, end - from);
            draw(places.data(), n);
            for (size_t round = 0; round < ROUNDS; ++round) {
                auto place = [&](size_t i) { return places[i] >> (8 * round) & (BUCKETS - 1); };
                std::array<uint32_t, BUCKETS + 1> first{};  // of each bucket's points in `order`
                for (size_t i = 0; i < n; ++i) ++first[place(i) + 1];
                for (size_t b = 0; b < BUCKETS; ++b) first[b + 1] += first[b];
                auto next = first;
                for (size_t i = 0; i < n; ++i) order[next[place(i)]++] = static_cast<uint32_t>(i);
                Point* into = sums + round * BUCKETS;
                for (uint32_t b = 0; b < BUCKETS; ++b) {
                    adder.open(b);
                    adder.push(into[b], into);
                    for (size_t i = first[b]; i < first[b + 1]; ++i) adder.push(points_[from + order[i]], into);
                }
                adder.reduce(into);
            }
        }
    }

    const Point* points_;
};

// First point that has a coordinate >= q, is not on the curve, or (when asked) is not of order r; or NONE.
template <class G>
size_t check_points(const Affine<typename G::F>* points, size_t n, bool subgroup) {
    const typename G::F b = G::b();
    size_t off = first_where(0, n, 1024, [&](size_t i) {
        return !points[i].x.is_reduced() || !points[i].y.is_reduced() || !points[i].is_on(b);
    });
    if (!subgroup) return off;
    return std::min(off, SubgroupCheck<G>(points).first_stranger(std::min(off, n)));
}
