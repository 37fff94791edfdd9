// batch.hpp - sums of many short lists of affine points, with one inversion for hundreds of additions.
//
// Problem: adding affine points costs 5M + 1S, half of a projective addition, but for one inversion each.
// Design: a pair tree. The points of all lists lie in one buffer, list after list. In each round every list pairs its
// neighbours; the pairs of all lists share one inversion (Montgomery's trick); lists halve until each holds one point.
// Formulas: https://hyperelliptic.org/EFD/g1p/auto-shortw.html. Exceptional pairs (an infinity, equal, opposite) take
// their own way and never put a zero into the running product.
#pragma once
#include <cstddef>
#include <vector>

#include "cpu/cancel.hpp"
#include "cpu/scalars.hpp"
#include "curve.cuh"

// A list of points to be summed into lists' slot `out`.
struct List {
    uint32_t out, length;
};

template <class F>
class BatchAdder {
public:
    // About the number of points that keeps buffer and prefixes inside a second-level cache of 512 KiB.
    static constexpr size_t CAPACITY = (size_t(192) << 10) / sizeof(Affine<F>);

    // This thread's adder, empty: making one costs more than a small sum. points: what entries mean.
    static BatchAdder& local(const Affine<F>* points = nullptr) {
        static thread_local BatchAdder adder;
        adder.entry_points_ = points;
        adder.lists_.clear();
        adder.points_.clear();
        return adder;
    }

    // Starts a list whose sum will go to sums[out].
    void open(uint32_t out) { lists_.push_back({out, 0}); }
    // Appends to the list opened last; infinity is dropped. When the buffer is full, all lists so far are summed into
    // `sums`, and the open one goes on with its sum.
    void push(const Affine<F>& p, Affine<F>* sums) {
        if (p.is_infinity()) return;
        if (points_.size() >= CAPACITY) {
            check_cancelled();
            uint32_t out = lists_.back().out;
            reduce(sums);
            open(out);
            push(sums[out], sums);
        }
        points_.push_back(p);
        ++lists_.back().length;
    }

    // A list of n entries, as of LaneAdder (batch_lanes.hpp): the points that they mean.
    void add(uint32_t out, const Entry* entries, size_t n, Affine<F>* sums) {
        constexpr size_t AHEAD = 8;
        open(out);
        for (size_t i = 0; i < n; ++i) {
            if (i + AHEAD < n) {
                const char* next = reinterpret_cast<const char*>(entry_points_ + (entries[i + AHEAD] >> 1));
                __builtin_prefetch(next);
                __builtin_prefetch(next + sizeof(Affine<F>) - 1);
            }
            push(entry_points_[entries[i] >> 1].neg_if(entries[i] & 1), sums);
        }
    }

    // Sums every list into sums[list.out] (infinity for an empty list) and forgets them.
    void reduce(Affine<F>* sums) {
        while (round()) {
        }
        size_t at = 0;
        for (const List& list : lists_) {
            sums[list.out] = list.length ? points_[at] : Affine<F>::infinity();
            at += list.length;
        }
        lists_.clear();
        points_.clear();
    }

private:
    enum class Kind { add, dbl, take_first, take_second, cancel };

    static Kind kind(const Affine<F>& a, const Affine<F>& b) {
        if (a.x == b.x) {
            if (a.is_infinity()) return Kind::take_second;
            return a.y == b.y && !a.y.is_zero() ? Kind::dbl : Kind::cancel;
        }
        if (a.is_infinity()) return Kind::take_second;
        return b.is_infinity() ? Kind::take_first : Kind::add;
    }

    // One halving of every list; false when none had two points. The first pass runs backwards over the pairs and the
    // second forwards, so that results may overwrite the front of the buffer.
    bool round() {
        size_t at = points_.size(), pairs = 0;
        F product = F::one();
        for (size_t l = lists_.size(); l-- > 0;) {
            size_t begin = at - lists_[l].length;
            for (size_t i = lists_[l].length / 2; i-- > 0;) {
                const Affine<F>&a = points_[begin + 2 * i], &b = points_[begin + 2 * i + 1];
                prefix_[pairs++] = product;
                Kind k = kind(a, b);
                if (k == Kind::add)
                    product = product * (b.x - a.x);
                else if (k == Kind::dbl)
                    product = product * a.y.dbl();
            }
            at = begin;
        }
        if (pairs == 0) return false;
        F inverse = product.inv();
        size_t read = 0, write = 0;
        for (List& list : lists_) {
            for (size_t i = 0; i + 1 < list.length; i += 2)
                points_[write++] = sum(points_[read + i], points_[read + i + 1], inverse, prefix_[--pairs]);
            if (list.length & 1) points_[write++] = points_[read + list.length - 1];
            read += list.length;
            list.length = (list.length + 1) / 2;
        }
        points_.resize(write);
        return true;
    }

    // a + b; inverse: 1 / (product of the denominators from this pair to the last); before: product of those after this
    // pair. Leaves in `inverse` what the next pair wants.
    static Affine<F> sum(const Affine<F>& a, const Affine<F>& b, F& inverse, const F& before) {
        F slope;
        switch (kind(a, b)) {
            case Kind::take_first: return a;
            case Kind::take_second: return b;
            case Kind::cancel: return Affine<F>::infinity();
            case Kind::dbl: {
                F xx = a.x.sqr(), d = a.y.dbl();
                slope = (xx.dbl() + xx) * (inverse * before);     // 3 x^2 / 2 y
                inverse = inverse * d;
                break;
            }
            case Kind::add: {
                F d = b.x - a.x;
                slope = (b.y - a.y) * (inverse * before);         // (y2 - y1) / (x2 - x1)
                inverse = inverse * d;
                break;
            }
        }
        Affine<F> r;
        r.x = slope.sqr() - a.x - b.x;                            // x3 = m^2 - x1 - x2
        r.y = slope * (a.x - r.x) - a.y;                          // y3 = m (x1 - x3) - y1
        return r;
    }

    BatchAdder() {
        points_.reserve(CAPACITY + 1);
        prefix_.resize(CAPACITY / 2 + 2);
    }

    const Affine<F>* entry_points_ = nullptr;
    std::vector<Affine<F>> points_;
    std::vector<List> lists_;
    std::vector<F> prefix_;
};
