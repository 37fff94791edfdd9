// sums_lanes.hpp - many sums of affine points at once: eight side by side in vectors, thousands by one inversion.
//
// Problem: adding affine points costs 5M + 1S and an inversion. Vectors make the products cheap; then what remains, fetching
// points and turning them into lanes, must be cheap, too.
// Design: a lane walks down one list of points; its sum stays where it is, so every point is fetched and turned once. In a
// round all lanes take one point each and share one inversion (Montgomery's trick down each lane, then over the lanes):
//   forward   the next points, denominators d, products of all d before
//   invert    one scalar inversion
//   backward  1/d, slope m, x3 = m^2 - x1 - x2, y3 = m (x1 - x3) - y1
// Formulas: https://hyperelliptic.org/EFD/g1p/auto-shortw.html. Exceptional lanes (an infinity, equal, opposite) are found by
// masks and never put a zero into a product.
// Powers of two: coordinates are x 2^(64 N), products here divide by R = 2^(64 N + E). Ratios are exact whatever the form, so
// the slope can be had in any; it is wanted as m 2^(64 N + E/2), whose square is in the form of coordinates. One factor of
// the shared inverse sees to that. Where the slope meets a coordinate it is shifted by E/2 more.
// Bounds: sums are below 1.01 p, products below 3 p; a difference gets 2 p, three of them 5 p. The largest product is that of
// the shifted slope, 12 p, and a difference, 3.02 p, on BN254.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "cpu/cancel.hpp"
#include "cpu/lanes2.hpp"
#include "cpu/scalars.hpp"
#include "curve.cuh"

// What one lane does: the sum of the points of `length` entries, at least one, into *target.
template <class F>
struct Walk {
    const Entry* entries;
    uint32_t length;
    Affine<F>* target;
};

template <class F>
class LaneSums {
    using X = LanesOf<F>;
    using Point = Affine<F>;
    static constexpr int E = X::K::E, ROW = X::ROW;

public:
    // What all lanes keep fills half of a second-level cache of 1 MiB; the rest is for points and entries on their way.
    static constexpr size_t LANES = (size_t(512) << 10) / (5 * X::WORDS) / 8 * 8;

    LaneSums() : groups_(LANES / 8), flags_(LANES / 8), steps_(STRIDE * AT_ONCE) {}

    // Up to LANES walks, the longest first. Entries mean points[index].
    void run(const Point* points, const Walk<F>* walks, size_t n) {
        points_ = points;
        size_t busy = n;
        for (uint32_t step = 0;; ++step) {
            while (busy > 0 && walks[busy - 1].length <= step) --busy;
            if (busy == 0) break;
            if (step % AT_ONCE == 0) turn(walks, busy, step);
            const Entry* entries = &steps_[step % AT_ONCE * STRIDE];
            if (step == 0) {
                begin(entries, busy);
                continue;
            }
            check_cancelled();
            X products[CHAINS];
            forward(entries, busy, products);
            invert(products);
            backward(busy, products);
        }
        end(walks, n);
    }

private:
    static constexpr size_t CHAINS = 4;  // running products, of every fourth group; groups that are worked on together
    static constexpr size_t AHEAD = 4;   // groups whose points are on their way
    // Entries are turned, too, so that a step reads them one after the other: a cache line of each walk at a time. The
    // stride keeps the steps' places apart in the first-level cache.
    static constexpr size_t AT_ONCE = 16, STRIDE = LANES + 16;

    // Eight lanes: sum, d and y of the next point, product of the d before.
    struct alignas(64) Group {
        uint64_t x[X::WORDS], y[X::WORDS], d[X::WORDS], next_y[X::WORDS], before[X::WORDS];
    };
    struct Flags {
        Mask8 infinite;  // the sum is
        Mask8 keep;      // in this round the sum stays as it is
        Mask8 twice;     // in this round it is doubled
    };
    struct Next {
        const uint64_t* rows[8];
        Mask8 negative, idle;
    };

    static const uint64_t* words(const Point* p) { return reinterpret_cast<const uint64_t*>(p); }
    static uint64_t* words(Point* p) { return reinterpret_cast<uint64_t*>(p); }

    void turn(const Walk<F>* walks, size_t busy, uint32_t step) {
        for (size_t i = 0; i < busy; ++i) {
            const Entry* from = walks[i].entries + step;
            size_t n = std::min<size_t>(AT_ONCE, walks[i].length - step);
            for (size_t k = 0; k < n; ++k) steps_[k * STRIDE + i] = from[k];
        }
    }

    // The eight points that group g takes next, asked for from memory.
    Next next(const Entry* entries, size_t g, size_t busy) const {
        static const Point none = Point::infinity();
        Next r{{}, 0, 0};
        for (size_t k = 0; k < 8; ++k) {
            Entry entry = entries[8 * g + k];
            bool here = 8 * g + k < busy;
            r.rows[k] = here ? words(points_ + (entry >> 1)) : words(&none);
            r.negative = static_cast<Mask8>(r.negative | (entry & 1) << k);
            __builtin_prefetch(r.rows[k]);
            __builtin_prefetch(r.rows[k] + 2 * ROW - 1);
        }
        if (8 * g + 8 > busy) r.idle = static_cast<Mask8>(0xff << (busy - 8 * g));
        return r;
    }

    // body(g, next) for every group of the busy lanes, points ahead of it.
    template <class Body>
    void each_group(const Entry* entries, size_t busy, Body body) const {
        size_t groups = (busy + 7) / 8;
        Next ring[AHEAD];
        for (size_t g = 0; g < AHEAD && g < groups; ++g) ring[g] = next(entries, g, busy);
        for (size_t g = 0; g < groups; ++g) {
            body(g, ring[g % AHEAD]);
            if (g + AHEAD < groups) ring[g % AHEAD] = next(entries, g + AHEAD, busy);
        }
    }

    // x and y of eight points; lanes where they are infinity.
    static VEC Mask8 fetch(const Next& next, X& x, LooseOf<F>& y) {
        V8 row[2 * ROW];
        gather<2 * ROW>(next.rows, row);
        V8 any = row[0];
        each<ROW - 1>([&](auto i) INLINED { any = any | row[i + 1]; });
        Mask8 infinite = any == V8::zero();
        if (infinite) {
            each<ROW>([&](auto i) INLINED { any = any | row[ROW + i]; });
            infinite = any == V8::zero();
        }
        x = X::from_words(row);
        y = X::from_words(row + ROW).neg_if(next.negative);
        return infinite;
    }

    void begin(const Entry* entries, size_t n) {
        each_group(entries, n, [&](size_t g, const Next& next) INLINED {
            X x;
            LooseOf<F> y;
            flags_[g] = {fetch(next, x, y), 0, 0};
            x.store(groups_[g].x);
            y.carried().store(groups_[g].y);
        });
    }

    void forward(const Entry* entries, size_t busy, X products[CHAINS]) {
        for (size_t c = 0; c < CHAINS; ++c) products[c] = X::one();
        each_group(entries, busy, [&](size_t g, const Next& next) INLINED {
            Group& group = groups_[g];
            Flags& flags = flags_[g];
            X x;
            LooseOf<F> y;
            Mask8 idle = fetch(next, x, y) | next.idle;
            X d = (x - X::load(group.x) + X::multiple(2)).carried();
            flags.keep = flags.twice = 0;
            Mask8 same = d.is_zero();
            if (idle | flags.infinite | same) d = exceptional(group, flags, idle, same, x, y.carried(), d);
            y.store(group.next_y);
            d.store(group.d);
            X& product = products[g % CHAINS];
            product.store(group.before);
            product = (product * d).carried();
        });
    }

    // Lanes that do not simply add get a denominator that is not zero, and their flags. Where a sum begins it is taken over.
    static __attribute__((noinline)) X exceptional(Group& group, Flags& flags, Mask8 idle, Mask8 same, const X& x, const X& y,
                                                   const X& d) {
        X y1 = X::load(group.y);
        Mask8 take = flags.infinite & ~idle;
        same &= ~idle & ~flags.infinite;
        flags.twice = same ? same & (y - y1 + X::multiple(2)).carried().is_zero() & ~y1.is_zero() : 0;
        Mask8 cancel = same & ~flags.twice;
        flags.keep = idle | take | cancel;
        flags.infinite = (flags.infinite & ~take) | cancel;
        select(take, x, X::load(group.x)).store(group.x);
        select(take, y, y1).store(group.y);
        return select(flags.keep, X::one(), select(flags.twice, (y1 + y1).carried(), d));
    }

    // Products of all d, chain by chain and lane by lane -> their inverses, times 2^(-E/2).
    static void invert(X chains[CHAINS]) {
        X before[CHAINS], all = chains[0];
        for (size_t c = 1; c < CHAINS; ++c) before[c] = all, all = (all * chains[c]).carried();
        F lane[8], lane_before[8];
        to_elements(LooseOf<F>(all).reduced().canonical(), lane);
        F product = lane[0];
        for (int k = 1; k < 8; ++k) lane_before[k] = product, product = product * lane[k];
        // The lanes are x R, not x 2^(64 N), and so are to be their inverses: hence R^2/2^(128 N) = 2^(2 E).
        static const F scale = power_of_two(2 * E - E / 2);
        F inverse = product.inv() * scale;
        for (int k = 7; k > 0; --k) {
            F here = inverse * lane_before[k];
            inverse = inverse * lane[k];
            lane[k] = here;
        }
        lane[0] = inverse;
        all = from_elements(lane);
        for (size_t c = CHAINS - 1; c > 0; --c) {
            X here = (all * before[c]).carried();
            all = (all * chains[c]).carried();
            chains[c] = here;
        }
        chains[0] = all;
    }

    // A product waits long for its own carries: groups go through each step together, so that others fill the time.
    void backward(size_t busy, X inverses[CHAINS]) {
        X inverse[CHAINS], slope[CHAINS], x3[CHAINS];
        for (size_t groups = (busy + 7) / 8, first; groups > 0; groups = first) {
            first = (groups - 1) / CHAINS * CHAINS;
            Group* group = &groups_[first];
            const Flags* flags = &flags_[first];
            const size_t n = groups - first;
            for (size_t c = 0; c < n; ++c) {
                inverse[c] = (inverses[c] * X::load(group[c].before)).carried();
                inverses[c] = (inverses[c] * X::load(group[c].d)).carried();
            }
            for (size_t c = 0; c < n; ++c) {
                X rise = (LooseOf<F>::load(group[c].next_y) - X::load(group[c].y) + X::multiple(2)).carried();
                if (flags[c].twice) tangents(flags[c].twice, group[c], rise);
                slope[c] = (rise * inverse[c]).carried();
            }
            for (size_t c = 0; c < n; ++c) {
                X x = X::load(group[c].x);
                x3[c] = (sqr(slope[c]) - x - x - X::load(group[c].d) + X::multiple(5)).reduced();
            }
            for (size_t c = 0; c < n; ++c) {
                X x = X::load(group[c].x), y = X::load(group[c].y), run = (x - x3[c] + X::multiple(2)).carried();
                X y3 = (slope[c].template shl<E / 2>() * run - y + X::multiple(2)).reduced();
                if (Mask8 keep = flags[c].keep) x3[c] = select(keep, x, x3[c]), y3 = select(keep, y, y3);
                x3[c].store(group[c].x);
                y3.store(group[c].y);
            }
        }
    }

    // Lanes that double: the slope's numerator is 3 x^2, and in place of d = x2 - x1 + 2 p comes 2 p, as x2 = x1.
    static __attribute__((noinline)) void tangents(Mask8 twice, Group& group, X& rise) {
        X x = X::load(group.x), xx = (x.template shl<E>() * x).carried();
        rise = select(twice, (xx + xx + xx).carried(), rise);
        select(twice, (X::zero() + X::multiple(2)).carried(), X::load(group.d)).store(group.d);
    }

    void end(const Walk<F>* walks, size_t n) {
        for (size_t g = 0; 8 * g < n; ++g) {
            Point none;
            uint64_t* rows[8];
            for (size_t k = 0; k < 8; ++k) rows[k] = words(8 * g + k < n ? walks[8 * g + k].target : &none);
            V8 row[2 * ROW];
            X::load(groups_[g].x).canonical().to_words(row);
            X::load(groups_[g].y).canonical().to_words(row + ROW);
            scatter<2 * ROW>(row, rows);
            for (int k = 0; k < 8; ++k)
                if (flags_[g].infinite >> k & 1) *reinterpret_cast<Point*>(rows[k]) = Point::infinity();
        }
    }

    static void to_elements(const X& x, F lane[8]) {
        V8 row[ROW];
        uint64_t* rows[8];
        for (int k = 0; k < 8; ++k) rows[k] = reinterpret_cast<uint64_t*>(lane + k);
        x.to_words(row);
        scatter<ROW>(row, rows);
    }
    static X from_elements(const F lane[8]) {
        V8 row[ROW];
        const uint64_t* rows[8];
        for (int k = 0; k < 8; ++k) rows[k] = reinterpret_cast<const uint64_t*>(lane + k);
        gather<ROW>(rows, row);
        return X::from_words(row);
    }
    static F power_of_two(int k) {
        F r = F::one();
        while (k-- > 0) r = r.dbl();
        return r;
    }

    const Point* points_ = nullptr;
    std::vector<Group> groups_;
    std::vector<Flags> flags_;
    std::vector<Entry> steps_;  // [step of AT_ONCE][lane], rows of STRIDE
};
