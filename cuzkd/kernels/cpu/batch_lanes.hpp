// batch_lanes.hpp - BatchAdder's work by vectors: sums of many lists of points, of any lengths.
//
// Problem: sums_lanes.hpp wants thousands of lists of about equal lengths; a sum of many points has one bucket with a million
// and a thousand with three.
// Design: lists are collected until there is enough to do, then sorted by length; those that are much longer than others
// are cut into pieces. The pieces' sums are lists of points again, and so on until every list is one sum.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "cpu/sums_lanes.hpp"

template <class F>
class LaneAdder {
    using Point = Affine<F>;

public:
    // This thread's adder, empty, for entries that mean points[index].
    static LaneAdder& local(const Point* points) {
        static thread_local LaneAdder adder;
        adder.points_ = points;
        adder.lists_.clear();
        adder.total_ = 0;
        return adder;
    }

    // The sum of n entries will go to sums[out], at the latest by reduce(). Until then the entries stay where they are.
    void add(uint32_t out, const Entry* entries, size_t n, Point* sums) {
        lists_.push_back({entries, n, out});
        total_ += n;
        if (total_ + lists_.size() >= ENOUGH) reduce(sums);
    }

    // Sums every list into sums[list.out] (infinity for an empty list) and forgets them.
    void reduce(Point* sums) {
        const Point* points = points_;
        std::vector<Point> parts, before;
        while (!lists_.empty()) {
            cut(sums, parts);
            sort_walks();
            for (size_t at = 0; at < walks_.size(); at += LANES)
                lanes_.run(points, walks_.data() + at, std::min(LANES, walks_.size() - at));
            before.swap(parts);
            points = before.data();
        }
        total_ = 0;
    }

private:
    struct List {
        const Entry* entries;
        size_t length;
        uint32_t out;
    };

    static constexpr size_t LANES = LaneSums<F>::LANES;
    static constexpr size_t ENOUGH = 32 * LANES;  // entries and lists
    // Lanes fewer than these are not worth an inversion, which takes as long as so many additions.
    static constexpr size_t FEW = 64;
    static constexpr size_t LONGEST = 128;  // walks: then most additions of a long list have full lanes, and parts are few

    // The length at which lists are cut: all lanes have work then, and fewer than FEW lists are longer.
    size_t longest() {
        size_t most = std::max<size_t>(2, (total_ + LANES - 1) / LANES);
        lengths_.clear();
        for (const List& list : lists_)
            if (list.length > most) lengths_.push_back(list.length);
        if (lengths_.size() >= FEW) {
            std::nth_element(lengths_.begin(), lengths_.end() - FEW, lengths_.end());
            most = lengths_[lengths_.size() - FEW];
        }
        return std::min(most, LONGEST);
    }

    // Walks for all lists. Those that were cut remain, as lists over `parts`.
    void cut(Point* sums, std::vector<Point>& parts) {
        const size_t most = longest();
        auto pieces = [&](const List& list) { return (list.length + most - 1) / most; };
        size_t n_parts = 0;
        for (const List& list : lists_)
            if (list.length > most) n_parts += pieces(list);
        parts.resize(n_parts);
        for (size_t i = all_.size(); i < n_parts; ++i) all_.push_back(static_cast<Entry>(i << 1));
        walks_.clear();
        size_t part = 0, left = 0;
        for (List& list : lists_) {
            if (list.length > most) {
                size_t n = pieces(list);
                for (size_t i = 0; i < n; ++i) {
                    size_t from = list.length * i / n, to = list.length * (i + 1) / n;
                    walks_.push_back({list.entries + from, static_cast<uint32_t>(to - from), &parts[part + i]});
                }
                lists_[left++] = {nullptr, n, list.out};
                part += n;
            } else if (list.length > 0) {
                walks_.push_back({list.entries, static_cast<uint32_t>(list.length), sums + list.out});
            } else {
                sums[list.out] = Point::infinity();
            }
        }
        lists_.resize(left);
        const Entry* at = all_.data();
        for (List& list : lists_) list.entries = at, at += list.length;
        total_ = n_parts;
    }

    // The longest first.
    void sort_walks() {
        uint32_t most = 0;
        for (const Walk<F>& walk : walks_) most = std::max(most, walk.length);
        count_.assign(most + 2, 0);
        for (const Walk<F>& walk : walks_) ++count_[most - walk.length + 1];
        for (size_t i = 0; i <= most; ++i) count_[i + 1] += count_[i];
        sorted_.resize(walks_.size());
        for (const Walk<F>& walk : walks_) sorted_[count_[most - walk.length]++] = walk;
        walks_.swap(sorted_);
    }

    const Point* points_ = nullptr;
    std::vector<List> lists_;
    size_t total_ = 0;        // entries of lists_
    std::vector<Entry> all_;  // 0, 1, 2 ... as entries: of parts
    std::vector<Walk<F>> walks_, sorted_;
    std::vector<size_t> count_, lengths_;
    LaneSums<F> lanes_;
};
