// msm.hpp - multi-scalar sums on the CPU: Pippenger's buckets, filled and folded by batched affine additions.
//
// Steps, for bases P and scalars made ready by scalars.hpp:
//   1. ones:    the points with scalar +-1 are summed by pair trees, no bucket.
//   2. fill:    the buckets of all windows, one after the other, are cut into tasks of about equally many entries; each
//               sums its buckets' points.
//   3. fold:    sum of (b + 1) B_b per window. With b = 2^h row + column the sum is
//               2^h sum row Row_row + sum (column + 1) Column_column, where Row, Column are plain sums of buckets: again
//               many short lists for the pair tree, 12M per bucket in place of 24M for a running sum. Only the last
//               2 sqrt(buckets) points need running sums.
//   4. combine: windows from the top, c doublings between.
// Up to Scalars::FEW others take Straus's way instead, without buckets (assembly of a proof, tiny circuits).
// Order of additions does not matter: the result is one affine point, the same for any number of threads.
// Pippenger: https://cr.yp.to/papers/pippenger.pdf; signed digits and the fold: see msm.cuh.
#pragma once
#include <algorithm>
#include <vector>

#include "cpu/batch.hpp"
#include "cpu/pool.hpp"
#include "cpu/scalars.hpp"
#include "cpu/vectors.hpp"
#include "curve.cuh"

template <class F>
class Msm {
    using Point = Affine<F>;
    using Sum = Xyzz<F>;

public:
    // sum over i of scalar[first + i] * bases[i]; bases has scalars.count - first points.
    Msm(const Point* bases, size_t first, const Scalars& scalars) : bases_(bases), first_(first), scalars_(scalars) {}

    Point run() {
        Sum total = ones();
        if (scalars_.others.size() <= Scalars::FEW) {
            total = few().add(total);
        } else {
            fill();
            total = combine(fold()).add(total);
        }
        return total.to_affine();
    }

private:
    // Pushes the point of an entry; bases before `first` have no part in this sum.
    void push(BatchAdder<F>& adder, Entry entry, Point* sums) const {
        size_t index = entry >> 1;
        if (index >= first_) adder.push(bases_[index - first_].neg_if(entry & 1), sums);
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
            BatchAdder<F>& adder = BatchAdder<F>::local();
            adder.open(static_cast<uint32_t>(piece));
            size_t end = list.size() * (piece + 1) / pieces;
            for (size_t i = list.size() * piece / pieces; i < end; ++i) push(adder, list[i], sums.data());
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
        size_t n_windows = scalars_.windows.size(), total = 0;
        std::vector<size_t> before(n_windows + 1);  // entries of the windows before
        for (size_t w = 0; w < n_windows; ++w) before[w] = total, total += scalars_.windows[w].entries.size();
        before[n_windows] = total;
        buckets_.assign(n_windows * scalars_.buckets(), Point::infinity());
        size_t tasks = task_count(total, 512);
        Pool::instance().run(tasks, [&](size_t task) {
            BatchAdder<F>& adder = BatchAdder<F>::local();
            size_t begin = total * task / tasks, end = total * (task + 1) / tasks;
            for (size_t w = 0; w < n_windows; ++w) {
                if (before[w + 1] <= begin || before[w] >= end) continue;
                const Window& window = scalars_.windows[w];
                // Buckets whose first entry lies in this task's range.
                size_t from = before[w] >= begin ? 0 : bucket_at(window, begin - before[w]);
                size_t to = before[w + 1] <= end ? scalars_.buckets() : bucket_at(window, end - before[w]);
                fill_buckets(adder, window, from, to, w * scalars_.buckets());
            }
            adder.reduce(buckets_.data());
        });
    }

    // First bucket that begins at entry `at` or later.
    static size_t bucket_at(const Window& window, size_t at) {
        return std::lower_bound(window.start.begin(), window.start.end() - 1, at) - window.start.begin();
    }

    // offset: of the window's buckets among all.
    void fill_buckets(BatchAdder<F>& adder, const Window& window, size_t from, size_t to, size_t offset) {
        constexpr size_t AHEAD = 8;
        const std::vector<Entry>& entries = window.entries;
        for (size_t b = from; b < to; ++b) {
            if (window.start[b] == window.start[b + 1]) continue;
            adder.open(static_cast<uint32_t>(offset + b));
            for (size_t e = window.start[b]; e < window.start[b + 1]; ++e) {
                if (e + AHEAD < entries.size() && (entries[e + AHEAD] >> 1) >= first_) {
                    const char* next = reinterpret_cast<const char*>(bases_ + ((entries[e + AHEAD] >> 1) - first_));
                    __builtin_prefetch(next);
                    __builtin_prefetch(next + sizeof(Point) - 1);
                }
                push(adder, entries[e], buckets_.data());
            }
        }
    }

    // Weighted bucket sum of each window. Item 2w: the rows of window w; item 2w + 1: its columns.
    std::vector<Sum> fold() const {
        size_t n_windows = scalars_.windows.size(), items = 2 * n_windows, log_columns = scalars_.c / 2;
        size_t columns = size_t(1) << log_columns, rows = scalars_.buckets() / columns;
        std::vector<Sum> parts(items);
        size_t tasks = std::min(items, task_count(n_windows * scalars_.buckets(), 256));
        Pool::instance().run(tasks, [&](size_t task) {
            size_t begin = items * task / tasks, end = items * (task + 1) / tasks, most = std::max(rows, columns);
            BatchAdder<F>& adder = BatchAdder<F>::local();
            std::vector<Point> lines((end - begin) * most, Point::infinity());
            for (size_t item = begin; item < end; ++item) {
                const Point* grid = buckets_.data() + (item / 2) * rows * columns;
                bool by_row = item % 2 == 0;
                for (size_t l = 0; l < (by_row ? rows : columns); ++l) {
                    adder.open(static_cast<uint32_t>((item - begin) * most + l));
                    for (size_t k = 0; k < (by_row ? columns : rows); ++k)
                        adder.push(by_row ? grid[l * columns + k] : grid[k * columns + l], lines.data());
                }
            }
            adder.reduce(lines.data());
            for (size_t item = begin; item < end; ++item) {
                const Point* line = lines.data() + (item - begin) * most;
                parts[item] = item % 2 == 0 ? weighted(line, rows, 0) : weighted(line, columns, 1);
                for (size_t i = 0; item % 2 == 0 && i < log_columns; ++i) parts[item] = parts[item].dbl();
            }
        });
        std::vector<Sum> sums(n_windows);
        for (size_t i = 0; i < n_windows; ++i) sums[i] = parts[2 * i].add(parts[2 * i + 1]);
        return sums;
    }

    // sum over l < n of (l + offset) line[l], offset 0 or 1.
    static Sum weighted(const Point* line, size_t n, int offset) {
        Sum running = Sum::infinity(), total = Sum::infinity();
        for (size_t l = n; l-- > 0;) {  // after line l: running = sum of the lines from l on
            if (offset == 0) total = total.add(running);
            running = running.add(line[l]);
            if (offset == 1) total = total.add(running);
        }
        return total;
    }

    Sum combine(const std::vector<Sum>& sums) const {
        Sum total = Sum::infinity();
        for (size_t i = sums.size(); i-- > 0;) {
            for (int k = 0; k < scalars_.c; ++k) total = total.dbl();
            total = total.add(sums[i]);
        }
        return total;
    }

    const Point* bases_;
    size_t first_;
    const Scalars& scalars_;
    std::vector<Point> buckets_;  // [window][bucket]
};
