// msm.hpp - multi-scalar sums on the CPU: Pippenger's buckets, filled and folded by batched affine additions.
//
// Steps, for bases P and scalars made ready by scalars.hpp:
//   1. ones:    the points with scalar +-1 are summed by pair trees, no bucket.
//   2. fill:    the buckets of all windows, one after the other, are cut into tasks of about equally many entries; each
//               sums its buckets' points.
//   3. fold:    sum of (b + 1) B_b per window. With b = 2^h row + column the sum is
//               2^h sum row Row_row + sum (column + 1) Column_column, where Row, Column are plain sums of buckets: again
//               many short lists for the adder, 2 additions per bucket. The few lines that remain are summed once for every
//               bit of their weights: no running sum, whose additions would wait for each other.
//   4. combine: all bits of all windows from the top, a doubling between.
// Up to Scalars::FEW others take Straus's way instead, without buckets (assembly of a proof, tiny circuits).
// The adder is batch_lanes.hpp's where there are vectors, else batch.hpp's. Order of additions does not matter: the result
// is one affine point, the same for any number of threads.
// Pippenger: https://cr.yp.to/papers/pippenger.pdf; signed digits and the fold: see msm.cuh.
#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "cpu/batch.hpp"
#include "cpu/batch_lanes.hpp"
#include "cpu/pool.hpp"
#include "cpu/present.hpp"
#include "cpu/scalars.hpp"
#include "cpu/vectors.hpp"
#include "curve.cuh"

template <class F>
class Msm {
    using Point = Affine<F>;
    using Sum = Xyzz<F>;
    using Adder = std::conditional_t<HAS_LANES, LaneAdder<F>, BatchAdder<F>>;
    static constexpr size_t COPIED_BYTES = size_t(2) << 20;  // what a second-level cache does not hold

public:
    // sum over i of scalar[first + i] * bases[i]; bases has scalars.count - first points.
    Msm(const Point* bases, size_t first, const Scalars& scalars)
        : first_(first), scalars_(scalars), present_(bases, first, scalars.count), bases_(bases) {
        if (!worth_a_copy()) return;
        near_ = workspace<Point>(present_.size());
        present_.move_together(bases, near_.get());
        bases_ = near_.get();
    }

    Point run() {
        Sum total = ones();
        if (scalars_.others.size() <= Scalars::FEW) {
            total = few().add(total);
        } else {
            fill();
            fold();
            total = combine().add(total);
        }
        return total.to_affine();
    }

private:
    // Every base is fetched once for each window, in no order: those that have a part, in huge pages and whole cache lines, are
    // quicker to fetch. Measured at 2^20 on BN254: the whole sum a fifth faster in G1 and a third in G2 where the bases lie in
    // small pages, a twentieth where they lie in huge pages already.
    bool worth_a_copy() const {
        return HAS_LANES && present_.size() * sizeof(Point) >= COPIED_BYTES &&
               scalars_.bucket_entries() >= 4 * (scalars_.count - first_);
    }

    // Tasks for work of `total` units, of which a task should have at least `grain`.
    static size_t task_count(size_t total, size_t grain) {
        return std::min(total / grain + 1, size_t(4) * Pool::instance().width());
    }

    Sum ones() {
        const std::vector<Entry>& list = scalars_.ones;
        size_t pieces = list.empty() ? 0 : task_count(list.size(), 256);
        std::vector<Point> sums(pieces, Point::infinity());
        Pool::instance().run(pieces, [&](size_t piece) {
            Adder& adder = Adder::local(bases_);
            PresentLists<Adder> lists(present_, adder);
            size_t begin = list.size() * piece / pieces, end = list.size() * (piece + 1) / pieces;
            lists.add(static_cast<uint32_t>(piece), &list[begin], end - begin, sums.data());
            adder.reduce(sums.data());
        });
        Sum total = Sum::infinity();
        for (const Point& p : sums) total = total.add(p);
        return total;
    }

    // Straus: the multiples 1 .. 8 of every point, then digit by digit with doublings between.
    Sum few() const {
        constexpr size_t MULTIPLES = 8;
        const std::vector<Entry>& others = scalars_.others;
        std::vector<Sum> sums(MULTIPLES * others.size(), Sum::infinity());
        for (size_t k = 0; k < others.size(); ++k) {
            size_t index = others[k] >> 1;
            if (index < first_) continue;
            Sum multiple = Sum::infinity();
            for (size_t d = 0; d < MULTIPLES; ++d)
                sums[MULTIPLES * k + d] = multiple = multiple.add(bases_[index - first_]);
        }
        std::vector<Point> table(sums.size());
        to_affine(sums.data(), table.data(), table.size());
        Sum total = Sum::infinity();
        for (size_t w = scalars_.windows.size(); w-- > 0;) {
            if (!total.is_infinity())  // small scalars leave the upper windows empty
                for (int k = 0; k < scalars_.c; ++k) total = total.dbl();
            const Window& window = scalars_.windows[w];
            for (size_t d = 0; d < MULTIPLES; ++d)
                for (size_t e = window.start[d]; e < window.start[d + 1]; ++e) {
                    // Entries carry the index and their own sign; the table has the points in the order of `others`.
                    Entry entry = window.entries[e];
                    size_t k = std::lower_bound(others.begin(), others.end(), entry & ~Entry(1)) - others.begin();
                    total = total.add(table[MULTIPLES * k + d].neg_if(entry & 1));
                }
        }
        return total;
    }

    void fill() {
        n_windows_ = scalars_.windows.size();
        while (scalars_.windows[n_windows_ - 1].entries.size() == 0) --n_windows_;  // small scalars leave upper ones empty
        std::vector<size_t> before(n_windows_ + 1);  // entries of the windows before
        for (size_t w = 0; w < n_windows_; ++w) before[w + 1] = before[w] + scalars_.windows[w].entries.size();
        const size_t total = before[n_windows_];
        buckets_ = workspace<Point>(n_windows_ * scalars_.buckets());
        size_t tasks = task_count(total, 512);
        Pool::instance().run(tasks, [&](size_t task) {
            Adder& adder = Adder::local(bases_);
            PresentLists<Adder> lists(present_, adder);
            size_t begin = total * task / tasks, end = total * (task + 1) / tasks;
            for (size_t w = 0; w < n_windows_; ++w) {
                const bool empty = before[w] == before[w + 1];
                if (empty ? before[w] < begin || before[w] >= end : before[w + 1] <= begin || before[w] >= end) continue;
                const Window& window = scalars_.windows[w];
                // Buckets whose first entry lies in this task's range.
                size_t from = before[w] >= begin ? 0 : bucket_at(window, begin - before[w]);
                size_t to = before[w + 1] <= end ? scalars_.buckets() : bucket_at(window, end - before[w]);
                for (size_t b = from; b < to; ++b)
                    lists.add(static_cast<uint32_t>(w * scalars_.buckets() + b), window.entries.first + window.start[b],
                              window.start[b + 1] - window.start[b], buckets_.get());
            }
            adder.reduce(buckets_.get());
        });
    }

    // First bucket that begins at entry `at` or later.
    static size_t bucket_at(const Window& window, size_t at) {
        return std::lower_bound(window.start.begin(), window.start.end() - 1, at) - window.start.begin();
    }

    // Weighted bucket sums, bit by bit. Item 2w: the rows of window w, with weights from 0; item 2w + 1: its columns, from 1.
    void fold() {
        const size_t n_items = 2 * n_windows_, log_columns = scalars_.c / 2;
        const size_t columns = size_t(1) << log_columns, rows = scalars_.buckets() / columns;
        n_bits_ = log_columns + 1;
        bit_sums_.assign(n_items * n_bits_, Point::infinity());
        size_t tasks = std::min(n_items, task_count(n_items / 2 * scalars_.buckets(), 256));
        Pool::instance().run(tasks, [&](size_t task) {
            size_t begin = n_items * task / tasks, end = n_items * (task + 1) / tasks, most = std::max(rows, columns);
            std::vector<Point> lines((end - begin) * most, Point::infinity());
            auto entries = workspace<Entry>((end - begin) * rows * columns);
            Adder& adder = Adder::local(buckets_.get());
            Entry* at = entries.get();
            for (size_t item = begin; item < end; ++item) {
                const bool by_row = item % 2 == 0;
                for (size_t l = 0; l < (by_row ? rows : columns); ++l) {
                    Entry* list = at;
                    for (size_t k = 0; k < (by_row ? columns : rows); ++k) {
                        size_t b = item / 2 * rows * columns + (by_row ? l * columns + k : k * columns + l);
                        if (!buckets_[b].is_infinity()) *at++ = static_cast<Entry>(b << 1);
                    }
                    adder.add(static_cast<uint32_t>((item - begin) * most + l), list, at - list, lines.data());
                }
            }
            adder.reduce(lines.data());
            add_bits(lines, begin, end, rows, columns);
        });
    }

    // lines: of items begin .. end, each in max(rows, columns) places.
    void add_bits(const std::vector<Point>& lines, size_t begin, size_t end, size_t rows, size_t columns) {
        size_t most = std::max(rows, columns);
        std::vector<Entry> entries((end - begin) * n_bits_ * most);
        Adder& adder = Adder::local(lines.data());
        Entry* at = entries.data();
        for (size_t item = begin; item < end; ++item)
            for (size_t bit = 0; bit < n_bits_; ++bit) {
                Entry* list = at;
                for (size_t l = 0; l < (item % 2 == 0 ? rows : columns); ++l)
                    if ((l + item % 2) >> bit & 1) *at++ = static_cast<Entry>(((item - begin) * most + l) << 1);
                adder.add(static_cast<uint32_t>(item * n_bits_ + bit), list, at - list, bit_sums_.data());
            }
        adder.reduce(bit_sums_.data());
    }

    // Bit k of item 2w counts 2^(c w + log columns + k), of item 2w + 1 2^(c w + k).
    Sum combine() const {
        const size_t c = scalars_.c, log_columns = c / 2;
        Sum total = Sum::infinity();
        for (size_t place = c * n_windows_ + 1; place-- > 0;) {
            total = total.dbl();
            for (size_t w = place / c, back = 0; back < 2 && w + 1 > back; ++back) {  // columns reach the window above
                if (w - back >= n_windows_) continue;
                size_t k = place - c * (w - back);
                const Point* sums = &bit_sums_[2 * (w - back) * n_bits_];
                if (k >= log_columns && k - log_columns < n_bits_) total = total.add(sums[k - log_columns]);
                if (k < n_bits_) total = total.add(sums[n_bits_ + k]);
            }
        }
        return total;
    }

    size_t first_;
    const Scalars& scalars_;
    Present present_;
    const Point* bases_;
    Workspace<Point> near_;        // a copy of the bases, or nothing
    Workspace<Point> buckets_;     // [window][bucket]
    size_t n_windows_ = 0;         // up to the last one that has entries
    size_t n_bits_ = 0;            // of a line's weight
    std::vector<Point> bit_sums_;  // [item][bit]
};
