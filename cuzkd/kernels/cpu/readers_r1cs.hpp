// readers_r1cs.hpp - section 2 of an .r1cs, the constraints: the walk over it, and one of its matrices out of it.
//
//   per constraint, for A, B and C each: u32 number of terms, then (u32 wire, 32 bytes coefficient) a term
//
// All little-endian, coefficients canonical. Nothing says where a constraint begins but those before it.
//
// Problem: hundreds of megabytes whose every count and index may lie, and of which most may be a hole in the file that
// costs its sender nothing; one linear combination may name a wire twice; a million distinct coefficients, or three.
// Design: one walk that checks all it passes and is fed block by block, whatever the borders cut; a visitor is told of
// checked terms only. A first visitor counts, for the caller to make arrays of that size; a second one fills them. Rows
// come out in normal form: wires ascend, each once, no coefficient zero. Most lie so in the file; the others are sorted
// and merged. Terms that are zero are walked over and take no memory.
// Life of data: a block belongs to the caller; 36 bytes of it are kept at most, and the terms of the row under way.
//
// Plain memory in, plain memory out: no Python here, so that a fuzzer can drive it.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/readers_table.hpp"
#include "curves.cuh"

namespace r1cs {

constexpr size_t COUNT_BYTES = 4, WIRE_BYTES = 4, MATRICES = 3;

inline std::string where(size_t constraint, size_t matrix) {
    return "constraint " + std::to_string(constraint) + ", " + "ABC"[matrix] + ": ";
}

// A walk over a section of `size` bytes. For each linear combination in order it calls visitor.term(matrix, wire, value)
// for its terms (wire < n_wires, value < r, canonical) and then visitor.end(constraint, matrix). `feed` and `finish`
// throw Malformed at the first number that the bytes do not bear out.
template <class Fr, class Visitor>
class Walk {
public:
    static constexpr size_t TERM_BYTES = WIRE_BYTES + sizeof(Fr);

    Walk(size_t size, size_t n_wires, size_t n_constraints, Visitor visitor)
        : visitor(std::move(visitor)), left_(size), n_wires_(n_wires), n_constraints_(n_constraints) {}

    Visitor visitor;

    // The next bytes of the section.
    void feed(const uint8_t* raw, size_t size) {
        const uint8_t* const end = raw + size;
        while (begin_item()) {
            const uint8_t* item = take(raw, end);
            if (!item) return;
            if (in_row_) term(item);
            else count(item);
        }
        if (raw != end) throw Malformed("more bytes came than the section has");
    }

    // All has been fed.
    void finish() {
        feed(nullptr, 0);
        if (constraint_ < n_constraints_) throw Malformed("fewer bytes came than the section has");
    }

private:
    // Whether there is another count or term. Ends rows that are complete.
    bool begin_item() {
        if (in_row_ && terms_left_ == 0) {
            visitor.end(constraint_, matrix_);
            in_row_ = false;
            matrix_ = (matrix_ + 1) % MATRICES;
            constraint_ += matrix_ == 0;
        }
        if (constraint_ == n_constraints_) {
            if (left_)
                throw Malformed(std::to_string(left_) + " bytes after the last of " + std::to_string(n_constraints_) +
                                " constraints");
            return false;
        }
        if (!in_row_ && left_ < COUNT_BYTES)
            throw Malformed(where(constraint_, matrix_) + "expected a count of 4 bytes, but the section ends after " +
                            std::to_string(left_));
        return true;
    }
    // The bytes of a count or of a term, in the block or, where its border cuts them, in carry_. Null: to be continued.
    const uint8_t* take(const uint8_t*& raw, const uint8_t* end) {
        const size_t wanted = in_row_ ? TERM_BYTES : COUNT_BYTES, here = end - raw;
        const uint8_t* item = raw;
        if (carried_ || here < wanted) {
            const size_t n = std::min(wanted - carried_, here);
            if (n) std::memcpy(carry_ + carried_, raw, n);
            raw += n;
            carried_ += n;
            if (carried_ < wanted) return nullptr;
            carried_ = 0;
            item = carry_;
        } else {
            raw += wanted;
        }
        left_ -= wanted;
        return item;
    }
    void count(const uint8_t* item) {
        uint32_t count;
        std::memcpy(&count, item, sizeof count);
        if (count > left_ / TERM_BYTES)
            throw Malformed(where(constraint_, matrix_) + "claims " + std::to_string(count) + " terms of " +
                            std::to_string(TERM_BYTES) + " bytes, but the section ends after " + std::to_string(left_) +
                            " bytes");
        in_row_ = true;
        terms_ = terms_left_ = count;
    }
    void term(const uint8_t* item) {
        uint32_t wire;
        Fr value;
        std::memcpy(&wire, item, sizeof wire);
        std::memcpy(&value, item + WIRE_BYTES, sizeof value);
        if (wire >= n_wires_)
            throw Malformed(where(constraint_, matrix_) + "term " + std::to_string(terms_ - terms_left_) +
                            ": expected a wire below " + std::to_string(n_wires_) + ", found " + std::to_string(wire));
        if (!value.is_reduced())
            throw Malformed(where(constraint_, matrix_) + "term " + std::to_string(terms_ - terms_left_) +
                            ": coefficient is not below r");
        visitor.term(matrix_, wire, value);
        --terms_left_;
    }

    size_t left_;  // bytes of the section that have not been walked over
    size_t n_wires_, n_constraints_;
    size_t constraint_ = 0, matrix_ = 0;
    uint32_t terms_ = 0, terms_left_ = 0;
    bool in_row_ = false;  // its count has been read
    size_t carried_ = 0;
    uint8_t carry_[TERM_BYTES] = {};
};

// How many terms that are not zero each matrix has in the file: as many entries as its rows can have.
template <class Fr>
struct Count {
    std::array<uint64_t, MATRICES> counts{};

    void term(size_t matrix, uint32_t, const Fr& value) { counts[matrix] += !value.is_zero(); }
    void end(size_t, size_t) {}
};

// One matrix, compressed by row, into arrays of the caller: row_ptr of n_constraints + 1, cols and coeff of `capacity`.
template <class Fr>
class Rows {
public:
    Rows(size_t matrix, uint64_t* row_ptr, uint32_t* cols, uint32_t* coeff, size_t capacity)
        : matrix_(matrix), row_ptr_(row_ptr), cols_(cols), coeff_(coeff), capacity_(capacity), distinct_(plain_one()) {
        row_ptr_[0] = 0;
    }

    void term(size_t matrix, uint32_t wire, const Fr& value) {
        if (matrix != matrix_ || value.is_zero()) return;
        if (row_.size() == capacity_ - used_)
            throw Malformed("more terms than were counted: the file changes while it is read");
        ascending_ = ascending_ && (row_.empty() || row_.back().wire < wire);
        row_.push_back({wire, value});
    }

    void end(size_t constraint, size_t matrix) {
        if (matrix != matrix_) return;
        if (!ascending_) merge();
        for (const Term& term : row_) {
            cols_[used_] = term.wire;
            coeff_[used_++] = distinct_.index_of(term.value);
        }
        row_.clear();
        ascending_ = true;
        row_ptr_[constraint + 1] = used_;
    }

    size_t entries() const { return used_; }

    // The distinct coefficients as v R^2 mod r.
    std::vector<Fr> table() const {
        std::vector<Fr> table;
        table.reserve(distinct_.values.size());
        for (const Fr& value : distinct_.values) table.push_back(value.from_canonical().from_canonical());
        return table;
    }

private:
    struct Term {
        uint32_t wire;
        Fr value;
    };

    static Fr plain_one() {
        Fr one = Fr::zero();
        one.v[0] = 1;
        return one;
    }
    // Wires ascending, the terms of each summed, those that come to nothing left out.
    void merge() {
        std::sort(row_.begin(), row_.end(), [](const Term& a, const Term& b) { return a.wire < b.wire; });
        size_t kept = 0;
        for (size_t i = 0; i < row_.size();) {
            Term sum = row_[i++];
            for (; i < row_.size() && row_[i].wire == sum.wire; ++i) sum.value = sum.value + row_[i].value;
            if (!sum.value.is_zero()) row_[kept++] = sum;
        }
        row_.resize(kept);
    }

    size_t matrix_;
    uint64_t* row_ptr_;
    uint32_t *cols_, *coeff_;
    size_t capacity_, used_ = 0;
    Distinct<Fr> distinct_;
    std::vector<Term> row_;  // of the row under way
    bool ascending_ = true;
};

}  // namespace r1cs
