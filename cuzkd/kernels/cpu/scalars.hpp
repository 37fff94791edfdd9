// scalars.hpp - the scalars of a multi-scalar sum, made ready once and used with several sets of bases.
//
// Problem: four of the five sums of a proof have the same scalars, the witness; most of them are 0 and 1.
// Design: one pass puts every scalar into its class: 0 is forgotten, +-1 goes to a list of plain additions, the others
// are folded and recoded. Then, window by window, a counting sort puts the others' indices into bucket order. The sums
// over A, B1, B2 and L only read these lists.
// Life: made from a canonical array (not kept), thrown away after the proof.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/pool.hpp"
#include "msm.cuh"

// index << 1 | negative
using Entry = uint32_t;

struct Window {
    std::vector<uint32_t> start;  // bucket b (digit b + 1) holds entries start[b] .. start[b+1]
    std::vector<Entry> entries;
};

class Scalars {
public:
    static constexpr size_t FEW = 16;  // others up to here are summed without buckets (Msm::few), in windows of 4 bits

    int bits = 0, c = 0;           // c: bits of a window; 0 windows when there are no others
    size_t count = 0;              // scalars, of any class
    std::vector<Entry> ones;       // scalars +-1
    std::vector<Entry> others;     // all other scalars' indices, ascending, signs as folded
    std::vector<Window> windows;   // the others by digit

    size_t buckets() const { return size_t(1) << (c - 1); }

    // Additions into buckets that a sum over these scalars makes, over all windows.
    size_t bucket_entries() const {
        size_t total = 0;
        for (const Window& window : windows) total += window.entries.size();
        return total;
    }

    // s: CANONICAL, n < 2^31. Throws on an element >= r: digits become addresses.
    template <class Fr>
    static Scalars prepare(const Fr* s, size_t n) {
        if (n >> 31) throw std::invalid_argument("scalars: more than 2^31 - 1");
        Scalars r;
        r.bits = Fr::Params::BITS;
        r.count = n;
        std::vector<Folded> folded = r.classify_all(s, n);
        if (folded.empty()) return r;
        r.c = folded.size() <= FEW ? 4 : best_width(r.bits, folded.size());
        int w = window_count(r.bits, r.c);
        parallel_ranges(folded.size(), 4096, [&](size_t begin, size_t end) {
            for (size_t i = begin; i < end; ++i) bias_windows(folded[i].w, r.c, w);
        });
        r.windows.resize(w);
        parallel_ranges(w, 1 + 4096 / folded.size(), [&](size_t begin, size_t end) {
            for (size_t i = begin; i < end; ++i) r.sort_window(static_cast<int>(i), w, folded);
        });
        return r;
    }

private:
    static constexpr size_t CHECK = size_t(1) << 16;  // scalars between two looks at the cancel flag

    // The width with the fewest field products: 6 per entry and, in the bucket reduction, 12 per bucket and 24 per step
    // of the last running sums (see msm.hpp), plus the doublings between windows, which one thread does alone.
    static int best_width(int bits, size_t n) {
        int best = 4;
        double least = 0;
        for (int c = 4; c <= 20; ++c) {
            double buckets = std::ldexp(1.0, c - 1);
            double cost = window_count(bits, c) * (6.0 * n + 12.0 * buckets + 48.0 * std::sqrt(buckets) + 500.0);
            if (c == 4 || cost < least) least = cost, best = c;
        }
        return best;
    }

    // Fills `ones` and `others`; returns the others folded, in step.
    template <class Fr>
    std::vector<Folded> classify_all(const Fr* s, size_t n) {
        std::vector<Folded> folded;
        for (size_t i = 0; i < n; ++i) {
            if (i % CHECK == 0) check_cancelled();
            if (s[i].is_zero()) continue;
            if (!s[i].is_reduced()) throw std::invalid_argument("scalars: element " + std::to_string(i) + " is not below r");
            Folded f = fold_scalar(s[i]);
            Entry entry = static_cast<Entry>(i << 1) | (f.negative ? 1 : 0);
            if (classify(f) == ScalarClass::other) {
                others.push_back(entry);
                folded.push_back(f);
            } else {
                ones.push_back(entry);
            }
        }
        return folded;
    }

    void sort_window(int i, int n_windows, const std::vector<Folded>& folded) {
        Window& window = windows[i];
        window.start.assign(buckets() + 1, 0);
        std::vector<int32_t> digits(folded.size());
        for (size_t k = 0; k < folded.size(); ++k) {
            if (k % CHECK == 0) check_cancelled();
            digits[k] = signed_digit(folded[k].w, i, c, n_windows);
            if (digits[k] != 0) ++window.start[std::abs(digits[k]) - 1];
        }
        uint32_t total = 0;
        for (uint32_t& s : window.start) total += s, s = total - s;
        window.entries.resize(total);
        std::vector<uint32_t> next(window.start.begin(), window.start.end() - 1);
        for (size_t k = 0; k < folded.size(); ++k) {
            if (k % CHECK == 0) check_cancelled();
            if (digits[k] == 0) continue;
            window.entries[next[std::abs(digits[k]) - 1]++] = others[k] ^ (digits[k] < 0 ? 1 : 0);
        }
    }
};
