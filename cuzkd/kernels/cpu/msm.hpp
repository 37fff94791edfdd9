// msm.hpp - multi-scalar sums on the CPU: Pippenger's buckets, filled and folded by batched affine additions.
//
// Steps, for bases P and scalars made ready by scalars.hpp:
//   1. ones:    the points with scalar +-1 are summed by pair trees, no bucket.
//   2. fill:    per window, slices of whole buckets (about equal in entries) are tasks; each sums its buckets' points.
//   3. fold:    sum of (b + 1) B_b per window. With b = 2^h row + column the sum is
//               2^h sum row Row_row + sum (column + 1) Column_column, where Row, Column are plain sums of buckets: again
//               many short lists for the pair tree, 12M per bucket in place of 24M for a running sum. Only the last
//               2 sqrt(buckets) points need running sums.
//   4. combine: windows from the top, c doublings between.
// Order of additions does not matter: the result is one affine point, the same for any number of threads.
// Pippenger: https://cr.yp.to/papers/pippenger.pdf; signed digits and the fold: see msm.cuh.
#pragma once
#include <vector>

#include "cpu/batch.hpp"
#include "cpu/pool.hpp"
#include "cpu/scalars.hpp"
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
        if (!scalars_.windows.empty()) {
            fill();
            total = combine(fold()).add(total);
        }
        return total.to_affine();
    }

private:
    // Pushes the point of an entry; bases before `first` have no part in this sum.
    void push(BatchAdder<F>& adder, Entry entry) const {
        size_t index = entry >> 1;
        if (index >= first_) adder.push(bases_[index - first_].neg_if(entry & 1));
    }
    void prefetch(const Entry* entry) const {
        const char* at = reinterpret_cast<const char*>(bases_ + ((*entry >> 1) - first_));
        __builtin_prefetch(at);
        __builtin_prefetch(at + sizeof(Point) - 1);
    }

    Sum ones() {
        const std::vector<Entry>& list = scalars_.ones;
        size_t pieces = (list.size() + BatchAdder<F>::CAPACITY - 1) / BatchAdder<F>::CAPACITY;
        std::vector<Point> sums(pieces, Point::infinity());
        Pool::instance().run(pieces, [&](size_t piece) {
            BatchAdder<F> adder;
            adder.open(static_cast<uint32_t>(piece));
            size_t end = list.size() * (piece + 1) / pieces;
            for (size_t i = list.size() * piece / pieces; i < end; ++i) push(adder, list[i]);
            adder.reduce(sums.data());
        });
        Sum total = Sum::infinity();
        for (const Point& p : sums) total = total.add(p);
        return total;
    }

    void fill() {
        size_t n_windows = scalars_.windows.size(), buckets = scalars_.buckets();
        buckets_.assign(n_windows * buckets, Point::infinity());
        size_t threads = Pool::instance().width();
        size_t slices = std::min(buckets, (4 * threads + n_windows - 1) / n_windows);
        Pool::instance().run(n_windows * slices, [&](size_t task) {
            const Window& window = scalars_.windows[task / slices];
            size_t slice = task % slices, total = window.entries.size();
            size_t begin = bucket_at(window, total * slice / slices);
            size_t end = slice + 1 == slices ? buckets : bucket_at(window, total * (slice + 1) / slices);
            if (slice == 0) begin = 0;
            fill_slice(window, begin, end, buckets_.data() + (task / slices) * buckets);
        });
    }

    // First bucket that begins at entry `at` or later.
    static size_t bucket_at(const Window& window, size_t at) {
        return std::lower_bound(window.start.begin(), window.start.end() - 1, at) - window.start.begin();
    }

    void fill_slice(const Window& window, size_t begin, size_t end, Point* sums) const {
        BatchAdder<F> adder;
        const Entry* entries = window.entries.data();
        const Entry* ahead_end = entries + window.entries.size() - 8;
        for (size_t b = begin; b < end; ++b) {
            if (window.start[b] == window.start[b + 1]) continue;
            adder.open(static_cast<uint32_t>(b));
            for (size_t e = window.start[b]; e < window.start[b + 1]; ++e) {
                if (adder.full()) {  // a bucket longer than the buffer goes on with what it has so far
                    adder.reduce(sums);
                    adder.open(static_cast<uint32_t>(b));
                    adder.push(sums[b]);
                }
                if (window.entries.size() > 8 && entries + e < ahead_end) prefetch(entries + e + 8);
                push(adder, entries[e]);
            }
        }
        adder.reduce(sums);
    }

    // Weighted bucket sum of each window.
    std::vector<Sum> fold() {
        size_t n_windows = scalars_.windows.size();
        int log_columns = scalars_.c / 2;  // rows 2^(c - 1 - log_columns)
        size_t columns = size_t(1) << log_columns, rows = scalars_.buckets() / columns;
        std::vector<Sum> parts(2 * n_windows);
        Pool::instance().run(2 * n_windows, [&](size_t task) {
            const Point* grid = buckets_.data() + (task / 2) * rows * columns;
            if (task % 2 == 0) {
                Sum by_rows = weighted(grid, rows, columns, columns, 1, 0);
                for (int i = 0; i < log_columns; ++i) by_rows = by_rows.dbl();
                parts[task] = by_rows;
            } else {
                parts[task] = weighted(grid, columns, rows, 1, columns, 1);
            }
        });
        std::vector<Sum> sums(n_windows);
        for (size_t i = 0; i < n_windows; ++i) sums[i] = parts[2 * i].add(parts[2 * i + 1]);
        return sums;
    }

    // sum over l < lines of (l + offset) Line_l, Line_l = sum over k < length of grid[l * line_step + k * step].
    static Sum weighted(const Point* grid, size_t lines, size_t length, size_t line_step, size_t step, int offset) {
        BatchAdder<F> adder;
        std::vector<Point> line(lines, Point::infinity());
        for (size_t l = 0; l < lines; ++l) {
            adder.open(static_cast<uint32_t>(l));
            for (size_t k = 0; k < length; ++k) {
                if (adder.full()) {
                    adder.reduce(line.data());
                    adder.open(static_cast<uint32_t>(l));
                    adder.push(line[l]);
                }
                adder.push(grid[l * line_step + k * step]);
            }
        }
        adder.reduce(line.data());
        Sum running = Sum::infinity(), total = Sum::infinity();
        for (size_t l = lines; l-- > 0;) {  // after line l: running = sum of the lines from l on
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
