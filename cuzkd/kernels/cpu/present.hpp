// present.hpp - which points have a part in a sum.
//
// Problem: keys hold a point for every wire and query, many of them infinity (half of B, in real circuits), and one sum leaves
// out the first wires; the lists of scalars.hpp are common to all sums. A point that is looked at only to be left out costs
// as much memory traffic as one that is added.
// Design: one pass over the bases in order makes a bitmap; entries are held against it before they mean any address. The
// points that remain can be moved together, into memory that is quicker to reach.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "cpu/pool.hpp"
#include "cpu/scalars.hpp"
#include "cpu/vec8.hpp"
#include "curve.cuh"

class Present {
public:
    static constexpr size_t SPARE = 16;

    // Of `count` indices those from `first` on whose point, bases[index - first], is not infinity.
    template <class F>
    Present(const Affine<F>* bases, size_t first, size_t count)
        : first_(first), count_(count), bits_((count + 63) / 64), before_(bits_.size() + 1) {
        parallel_ranges(bits_.size(), 128, [&](size_t begin, size_t end) {
            for (size_t word = begin; word < end; ++word)
                for (size_t i = std::max(first, 64 * word); i < std::min(count, 64 * word + 64); ++i)
                    bits_[word] |= uint64_t(!bases[i - first].is_infinity()) << (i % 64);
        });
        for (size_t word = 0; word < bits_.size(); ++word)
            before_[word + 1] = before_[word] + static_cast<uint32_t>(__builtin_popcountll(bits_[word]));
    }

    size_t size() const { return before_.back(); }
    // Every index, so that lists may be taken as they are.
    bool all() const { return size() == count_; }

    // Copies the points that have a part, without gaps; entries mean places among those from now on.
    template <class F>
    void move_together(const Affine<F>* bases, Affine<F>* to) {
        parallel_ranges(bits_.size(), 128, [&](size_t begin, size_t end) {
            Affine<F>* at = to + before_[begin];
            for (size_t word = begin; word < end; ++word)
                for (uint64_t left = bits_[word]; left; left &= left - 1)
                    *at++ = bases[64 * word + static_cast<size_t>(__builtin_ctzll(left)) - first_];
        });
        gaps_ = size() != count_ - first_;
    }

    // Copies the entries with a part, their indices counted from `first`, or among those with a part once these lie together.
    // Returns how many; writes up to n + SPARE.
    size_t keep(const Entry* from, size_t n, Entry* to) const {
        const Entry base = static_cast<Entry>(gaps_ ? 0 : 2 * first_);
        size_t kept = 0;
        for (size_t i = 0; i < n; i += 16)
            kept += keep_marked(from + i, std::min<size_t>(16, n - i), bits_.data(), base, to + kept);
        for (size_t i = 0; gaps_ && i < kept; ++i) to[i] = place(to[i] >> 1) << 1 | (to[i] & 1);
        return kept;
    }

private:
    Entry place(size_t index) const {
        uint64_t below = bits_[index / 64] & ((uint64_t(1) << index % 64) - 1);
        return before_[index / 64] + static_cast<uint32_t>(__builtin_popcountll(below));
    }

    size_t first_, count_;
    std::vector<uint64_t> bits_;
    std::vector<uint32_t> before_;  // that have a part, up to each word
    bool gaps_ = false;             // points have been moved together, and there were gaps
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
