// present.hpp - which points have a part in a sum.
//
// Problem: keys hold a point for every wire and query, many of them infinity (half of B, in real circuits), and one sum leaves
// out the first wires; the lists of scalars.hpp are common to all sums. A point that is looked at only to be left out costs
// as much memory traffic as one that is added.
// Design: one pass over the bases in order makes a bitmap; entries are held against it before they mean any address.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <vector>

#include "cpu/pool.hpp"
#include "cpu/scalars.hpp"
#include "cpu/vec8.hpp"
#include "curve.cuh"

class Present {
public:
    // Of `count` indices those from `first` on whose point, bases[index - first], is not infinity. copy: all points, or none.
    template <class F>
    Present(const Affine<F>* bases, size_t first, size_t count, Affine<F>* copy)
        : first_(first), bits_((count + 63) / 64) {
        std::atomic<bool> all{first == 0};
        parallel_ranges(bits_.size(), 128, [&](size_t begin, size_t end) {
            bool here = true;
            for (size_t word = begin; word < end; ++word) {
                const size_t from = std::max(first, 64 * word), to = std::min(count, 64 * word + 64);
                for (size_t i = from; i < to; ++i) {
                    bits_[word] |= uint64_t(!bases[i - first].is_infinity()) << (i % 64);
                    if (copy) copy[i - first] = bases[i - first];
                }
                here = here && bits_[word] == (count - 64 * word < 64 ? (uint64_t(1) << count % 64) - 1 : ~uint64_t(0));
            }
            if (!here) all = false;
        });
        all_ = all;
    }

    // Every index, so that lists may be taken as they are.
    bool all() const { return all_; }

    static constexpr size_t SPARE = 16;
    // Copies the entries with a part, their indices counted from `first`. Returns how many; writes up to n + SPARE.
    size_t keep(const Entry* from, size_t n, Entry* to) const {
        size_t kept = 0;
        for (size_t i = 0; i < n; i += 16)
            kept += keep_marked(from + i, std::min<size_t>(16, n - i), bits_.data(), static_cast<Entry>(2 * first_), to + kept);
        return kept;
    }

private:
    size_t first_;
    std::vector<uint64_t> bits_;
    bool all_ = false;
};

// Gives lists to an adder, but for entries without a part.
template <class Adder>
class PresentLists {
public:
    PresentLists(const Present& present, Adder& adder) : present_(present), adder_(adder) {}

    // As adder.add().
    template <class Point>
    void add(uint32_t out, const Entry* entries, size_t n, Point* sums) {
        if (present_.all()) return adder_.add(out, entries, n, sums);
        if (kept_.size() < used_ + n + Present::SPARE) {
            adder_.reduce(sums);  // nothing points into kept_ any more
            used_ = 0;
            if (kept_.size() < n + Present::SPARE) kept_.resize(std::max(n + Present::SPARE, ROOM));
        }
        size_t kept = present_.keep(entries, n, &kept_[used_]);
        adder_.add(out, &kept_[used_], kept, sums);
        used_ += kept;
    }

private:
    static constexpr size_t ROOM = size_t(1) << 16;

    const Present& present_;
    Adder& adder_;
    std::vector<Entry> kept_;
    size_t used_ = 0;
};
