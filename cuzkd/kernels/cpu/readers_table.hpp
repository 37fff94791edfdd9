// readers_table.hpp - what two formats of coefficients have in common: errors in words, and the table of those distinct.
#pragma once
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

// What is wrong with a section and where in it, in words for people.
struct Malformed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Each distinct coefficient once, in the order of first appearance after +1 and -1, as SparseMatrix.table wants it.
// `one`: how the format at hand writes 1. Open addressing, at most half full. The keys of the hash are random, so that no
// file can be made to collide: eight 32-bit words times 64-bit keys, of which the high bits are a strongly universal
// family (Lemire, Kaser, "Strongly universal string hashing is fast", 2014).
template <class Fr>
class Distinct {
public:
    explicit Distinct(const Fr& one) : values{one, one.neg()} {
        std::random_device entropy;
        for (uint64_t& key : keys_) key = uint64_t(entropy()) << 32 | entropy();
        rehash(5);
    }

    std::vector<Fr> values;

    uint32_t index_of(const Fr& value) {
        if (value == values[0]) return 0;
        if (value == values[1]) return 1;
        for (size_t slot = hash(value);; slot = (slot + 1) & (slots_.size() - 1)) {
            if (slots_[slot] == EMPTY) {
                if (values.size() == EMPTY) throw Malformed("more than 2^32 - 1 distinct coefficients");
                values.push_back(value);
                slots_[slot] = static_cast<uint32_t>(values.size() - 1);
                if (2 * values.size() > slots_.size()) rehash(log_slots_ + 1);
                return static_cast<uint32_t>(values.size() - 1);
            }
            if (values[slots_[slot]] == value) return slots_[slot];
        }
    }

private:
    static constexpr uint32_t EMPTY = ~uint32_t(0);
    static constexpr size_t WORDS = sizeof(Fr) / 4;

    size_t hash(const Fr& value) const {
        uint64_t sum = keys_[WORDS];
        for (int i = 0; i < Fr::N; ++i)
            sum += keys_[2 * i] * static_cast<uint32_t>(value.v[i]) + keys_[2 * i + 1] * (value.v[i] >> 32);
        return sum >> (64 - log_slots_);
    }
    void rehash(int log_slots) {
        log_slots_ = log_slots;
        slots_.assign(size_t(1) << log_slots, EMPTY);
        for (size_t i = 2; i < values.size(); ++i) {
            size_t slot = hash(values[i]);
            while (slots_[slot] != EMPTY) slot = (slot + 1) & (slots_.size() - 1);
            slots_[slot] = static_cast<uint32_t>(i);
        }
    }

    uint64_t keys_[WORDS + 1];
    int log_slots_ = 0;
    std::vector<uint32_t> slots_;
};
