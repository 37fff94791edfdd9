// scalars.hpp - the scalars of a multi-scalar sum, made ready once and used with several sets of bases.
//
// Problem: four of the five sums of a proof have the same scalars, the witness; most of them are 0 and 1.
// Design: one pass puts every scalar into its class: 0 is forgotten, +-1 goes to a list of plain additions, the others
// are folded and recoded, and kept word by word, so that a compiler takes digits of several at a time. Then, window by
// window, a counting sort puts the others' indices into bucket order. The sums over A, B1, B2 and L only read these lists.
// Life: made from a canonical array (not kept), thrown away after the proof.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/pool.hpp"
#include "cpu/vec8.hpp"
#include "cpu/workspace.hpp"
#include "msm.cuh"

// index << 1 | negative
using Entry = uint32_t;

struct Entries {
    Entry* first = nullptr;
    size_t count = 0;
    size_t size() const { return count; }
    const Entry& operator[](size_t i) const { return first[i]; }
};

struct Window {
    std::vector<uint32_t> start;  // bucket b (digit b + 1) holds entries start[b] .. start[b+1]
    Entries entries;              // of Scalars::room
};

class Scalars {
public:
    static constexpr size_t FEW = 16;  // others up to here are summed without buckets (Msm::few), in windows of 4 bits

    int bits = 0, c = 0;           // c: bits of a window; 0 windows when there are no others
    size_t count = 0;              // scalars, of any class
    std::vector<Entry> ones;       // scalars +-1
    std::vector<Entry> others;     // all other scalars' indices, ascending, signs as folded
    std::vector<Window> windows;   // the others by digit
    Workspace<Entry> room;         // for the entries of each window as many places as there are others

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
        r.classify_all(s, n);
        if (r.others.empty()) return r;
        r.c = r.others.size() <= FEW ? 4 : best_width(r.bits, r.others.size());
        int w = window_count(r.bits, r.c);
        Words words = r.biased(s, w);
        r.windows.resize(w);
        r.room = workspace<Entry>(w * r.others.size());
        parallel_ranges(w, 1 + 4096 / r.others.size(), [&](size_t begin, size_t end) {
            for (size_t i = begin; i < end; ++i) r.sort_window(static_cast<int>(i), words);
        });
        return r;
    }

private:
    static constexpr size_t CHECK = size_t(1) << 14;  // scalars between two looks at the cancel flag
    static constexpr size_t BLOCK = 1024;             // whose digits are taken at a time: they stay in the first cache
    using Words = std::array<Workspace<uint64_t>, 4>;    // [word][k]: of the others' sizes, biased

    // The width with the least work, counted in additions: one per entry, and for each bucket what its beginning, its end and
    // the fold (see msm.hpp) take, which is more beside the cheap additions of vectors. Measured on Sapphire Rapids, BN254 and
    // BLS12-381, G1: best at 2^10 7 to 8, 2^12 9, 2^15 11 to 12, 2^18 13 to 14 with vectors; 2^14 11, 2^18 15, 2^20 16 without.
    static int best_width(int bits, size_t n) {
        constexpr double PER_BUCKET = HAS_LANES ? 4.5 : 2.6, PER_WINDOW = 80;
        int best = 4;
        double least = 0;
        for (int c = 4; c <= 20; ++c) {
            double cost = window_count(bits, c) * (n + PER_BUCKET * std::ldexp(1.0, c - 1) + PER_WINDOW);
            if (c == 4 || cost < least) least = cost, best = c;
        }
        return best;
    }

    // Fills `ones` and `others`.
    template <class Fr>
    void classify_all(const Fr* s, size_t n) {
        struct Found {
            std::vector<Entry> ones, others;
        };
        std::vector<Found> found((n + CHECK - 1) / CHECK);
        Pool::instance().run(found.size(), [&](size_t block) {
            Found mine;  // not yet among the others': two threads would write into one cache line
            mine.others.reserve(std::min(n, CHECK));
            for (size_t i = block * CHECK; i < std::min(n, (block + 1) * CHECK); ++i) {
                if (s[i].is_zero()) continue;
                if (!s[i].is_reduced())
                    throw std::invalid_argument("scalars: element " + std::to_string(i) + " is not below r");
                Folded f = fold_scalar(s[i]);
                bool other = classify(f) == ScalarClass::other;
                (other ? mine.others : mine.ones).push_back(static_cast<Entry>(i << 1) | f.negative);
            }
            found[block] = std::move(mine);
        });
        size_t n_ones = 0, n_others = 0;
        for (const Found& block : found) n_ones += block.ones.size(), n_others += block.others.size();
        ones.reserve(n_ones), others.reserve(n_others);
        for (const Found& block : found) {
            ones.insert(ones.end(), block.ones.begin(), block.ones.end());
            others.insert(others.end(), block.others.begin(), block.others.end());
        }
    }

    template <class Fr>
    Words biased(const Fr* s, int n_windows) const {
        Words words;
        for (auto& word : words) word = workspace<uint64_t>(others.size());
        uint64_t bias[4] = {0, 0, 0, 0};
        bias_windows(bias, c, n_windows);
        parallel_ranges(others.size(), 4096, [&](size_t begin, size_t end) {
            for (size_t k = begin; k < end; ++k) {
                Folded f = fold_scalar(s[others[k] >> 1]);
                uint64_t carry = 0;
                for (int i = 0; i < 4; ++i) words[i][k] = adc(f.w[i], bias[i], carry);
            }
        });
        return words;
    }

    // Of the n others from `begin` on: the bucket that window i puts each into, buckets() where the digit is 0, and its
    // entry there. signed_digit() of msm.cuh, with everything that is the same for all taken out of the loop.
    void digits(int i, const Words& words, size_t begin, size_t n, uint32_t* bucket, Entry* entry) const {
        const int at = c * i, word = at >> 6, shift = at & 63;
        const uint64_t *low = &words[word][begin], *high = &words[std::min(word + 1, 3)][begin];
        const uint64_t mask = (uint64_t(1) << c) - 1;
        const int32_t bias = i + 1 < static_cast<int>(windows.size()) ? int32_t(1) << (c - 1) : 0;
        const uint32_t none = static_cast<uint32_t>(buckets());
        const Entry* other = &others[begin];
        auto take = [&](size_t k, uint64_t value) {
            int32_t digit = static_cast<int32_t>(value & mask) - bias;
            uint32_t size = digit < 0 ? -digit : digit;
            bucket[k] = size == 0 ? none : size - 1;
            entry[k] = other[k] ^ (digit < 0 ? 1u : 0u);
        };
        if (shift + c > 64 && word < 3) {
            for (size_t k = 0; k < n; ++k) take(k, low[k] >> shift | high[k] << (64 - shift));
        } else {
            for (size_t k = 0; k < n; ++k) take(k, low[k] >> shift);
        }
    }

    void sort_window(int i, const Words& words) {
        Window& window = windows[i];
        uint32_t bucket[BLOCK];
        Entry entry[BLOCK];
        auto each_block = [&](auto work) {
            for (size_t k = 0; k < others.size(); k += BLOCK) {
                if (k % CHECK == 0) check_cancelled();
                size_t n = std::min(BLOCK, others.size() - k);
                digits(i, words, k, n, bucket, entry);
                work(n);
            }
        };
        std::vector<uint32_t> next(buckets() + 1);  // the last one for digits 0, whose entries come last and are cut off
        each_block([&](size_t n) {
            for (size_t k = 0; k < n; ++k) ++next[bucket[k]];
        });
        uint32_t total = 0;
        for (uint32_t& s : next) total += s, s = total - s;
        window.start = next;
        if (window.start.back() == 0) return;  // small scalars leave the upper windows empty
        Entry* entries = room.get() + i * others.size();
        each_block([&](size_t n) {
            for (size_t k = 0; k < n; ++k) entries[next[bucket[k]]++] = entry[k];
        });
        window.entries = {entries, window.start.back()};
    }
};
