// readers_r1cs.hpp - section 2 of an .r1cs, the constraints: the walk over it, and one of its matrices out of it.
//
//   per constraint, for A, B and C each: u32 number of terms, then (u32 wire, 32 bytes coefficient) a term
//
// All little-endian, coefficients canonical. Nothing says where a constraint begins but those before it.
//
// Problem: hundreds of megabytes whose every count and index may lie; one linear combination may name a wire twice;
// a million distinct coefficients, or three.
// Design: one walk that checks all it passes, given a visitor; nobody reads a term that it has not checked. A first
// visitor counts, for the caller to make arrays of that size; a second one fills them. Rows come out in normal form:
// wires ascend, each once, no coefficient zero. Most lie so in the file; the others are sorted and merged.
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

// The terms of one linear combination, where they lie in the file.
template <class Fr>
struct Terms {
    static constexpr size_t BYTES = WIRE_BYTES + sizeof(Fr);
    const uint8_t* at;
    size_t count;

    uint32_t wire(size_t i) const {
        uint32_t wire;
        std::memcpy(&wire, at + i * BYTES, sizeof wire);
        return wire;
    }
    Fr value(size_t i) const {  // canonical
        Fr value;
        std::memcpy(&value, at + i * BYTES + WIRE_BYTES, sizeof value);
        return value;
    }
};

inline std::string where(size_t constraint, size_t matrix) {
    return "constraint " + std::to_string(constraint) + ", " + "ABC"[matrix] + ": ";
}

// Calls visit(constraint, matrix, terms) for all linear combinations in order. Throws Malformed at the first number that
// the bytes do not bear out; the terms visited have been checked (wire < n_wires, coefficient < r).
template <class Fr, class Visit>
void walk(const uint8_t* raw, size_t size, size_t n_wires, size_t n_constraints, Visit visit) {
    using Row = Terms<Fr>;
    const uint8_t* const end = raw + size;
    for (size_t constraint = 0; constraint < n_constraints; ++constraint) {
        for (size_t matrix = 0; matrix < MATRICES; ++matrix) {
            size_t left = end - raw;
            if (left < COUNT_BYTES)
                throw Malformed(where(constraint, matrix) + "expected a count of 4 bytes, but the section ends after " +
                                std::to_string(left));
            uint32_t count;
            std::memcpy(&count, raw, sizeof count);
            raw += COUNT_BYTES;
            left -= COUNT_BYTES;
            if (count > left / Row::BYTES)
                throw Malformed(where(constraint, matrix) + "claims " + std::to_string(count) + " terms of " +
                                std::to_string(Row::BYTES) + " bytes, but the section ends after " +
                                std::to_string(left) + " bytes");
            Row terms{raw, count};
            for (size_t i = 0; i < count; ++i) {
                if (terms.wire(i) >= n_wires)
                    throw Malformed(where(constraint, matrix) + "term " + std::to_string(i) +
                                    ": expected a wire below " + std::to_string(n_wires) + ", found " +
                                    std::to_string(terms.wire(i)));
                if (!terms.value(i).is_reduced())
                    throw Malformed(where(constraint, matrix) + "term " + std::to_string(i) +
                                    ": coefficient is not below r");
            }
            visit(constraint, matrix, terms);
            raw += count * Row::BYTES;
        }
    }
    if (raw != end)
        throw Malformed(std::to_string(end - raw) + " bytes after the last of " + std::to_string(n_constraints) +
                        " constraints");
}

// How many terms each matrix has in the file: as many entries as its rows can have.
template <class Fr>
std::array<uint64_t, MATRICES> count_terms(const uint8_t* raw, size_t size, size_t n_wires, size_t n_constraints) {
    std::array<uint64_t, MATRICES> counts{};
    walk<Fr>(raw, size, n_wires, n_constraints,
             [&](size_t, size_t matrix, const Terms<Fr>& terms) { counts[matrix] += terms.count; });
    return counts;
}

// One matrix, compressed by row, into arrays of the caller: row_ptr of n_constraints + 1, cols and coeff of `capacity`.
template <class Fr>
class Rows {
public:
    Rows(uint64_t* row_ptr, uint32_t* cols, uint32_t* coeff, size_t capacity)
        : row_ptr_(row_ptr), cols_(cols), coeff_(coeff), capacity_(capacity), distinct_(plain_one()) {
        row_ptr_[0] = 0;
    }

    void append(size_t row, const Terms<Fr>& terms) {
        bool ascending = true;
        for (size_t i = 1; i < terms.count && ascending; ++i) ascending = terms.wire(i - 1) < terms.wire(i);
        if (ascending)
            for (size_t i = 0; i < terms.count; ++i) put(terms.wire(i), terms.value(i));
        else
            merge(terms);
        row_ptr_[row + 1] = used_;
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
    static Fr plain_one() {
        Fr one = Fr::zero();
        one.v[0] = 1;
        return one;
    }
    void put(uint32_t wire, const Fr& value) {
        if (value.is_zero()) return;
        if (used_ == capacity_) throw Malformed("more terms than were counted: the bytes change while they are read");
        cols_[used_] = wire;
        coeff_[used_++] = distinct_.index_of(value);
    }
    void merge(const Terms<Fr>& terms) {
        order_.resize(terms.count);
        for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<uint32_t>(i);
        std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return terms.wire(a) < terms.wire(b); });
        for (size_t i = 0; i < order_.size();) {
            const uint32_t wire = terms.wire(order_[i]);
            Fr sum = Fr::zero();
            for (; i < order_.size() && terms.wire(order_[i]) == wire; ++i) sum = sum + terms.value(order_[i]);
            put(wire, sum);
        }
    }

    uint64_t* row_ptr_;
    uint32_t *cols_, *coeff_;
    size_t capacity_, used_ = 0;
    Distinct<Fr> distinct_;
    std::vector<uint32_t> order_;
};

template <class Fr>
Rows<Fr> fill(const uint8_t* raw, size_t size, size_t n_wires, size_t n_constraints, size_t matrix, Rows<Fr> rows) {
    walk<Fr>(raw, size, n_wires, n_constraints, [&](size_t constraint, size_t of, const Terms<Fr>& terms) {
        if (of == matrix) rows.append(constraint, terms);
    });
    return rows;
}

}  // namespace r1cs
