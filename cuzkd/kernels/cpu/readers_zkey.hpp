// readers_zkey.hpp - section 4 of a .zkey, the coefficients of A and B, block by block: (u32 matrix, u32 row, u32 wire,
// 32 bytes value) an entry, little-endian, values twice Montgomery.
//
// Problem: a gigabyte of entries in any order, each of which may point outside.
// Design: two readings. The first checks every entry and counts those of each row; the second puts them at their places,
// a counting sort that keeps their order within a row. The file may change in between, so the second one believes nothing;
// whether each row got what was counted is for the caller to see.
//
// Plain memory in, plain memory out: no Python here, so that a fuzzer can drive it.
#pragma once
#include <array>
#include <cstring>
#include <string>

#include "cpu/readers_table.hpp"
#include "curves.cuh"

namespace zkey {

constexpr size_t MATRICES = 2;

template <class Fr>
struct Entry {
    static constexpr size_t BYTES = 12 + sizeof(Fr);
    uint32_t matrix, row, wire;
    Fr value;

    static Entry at(const uint8_t* raw) {
        Entry e;
        std::memcpy(&e.matrix, raw, 4);
        std::memcpy(&e.row, raw + 4, 4);
        std::memcpy(&e.wire, raw + 8, 4);
        std::memcpy(&e.value, raw + 12, sizeof(Fr));
        return e;
    }
    // index: of this entry in the section, for the message.
    void require(size_t index, size_t n_rows, size_t n_wires) const {
        below(index, "matrix", matrix, MATRICES);
        below(index, "row", row, n_rows);
        below(index, "wire", wire, n_wires);
        if (!value.is_reduced()) throw Malformed("entry " + std::to_string(index) + ": coefficient is not below r");
    }

private:
    static void below(size_t index, const char* what, uint32_t found, size_t limit) {
        if (found >= limit)
            throw Malformed("entry " + std::to_string(index) + ": expected a " + what + " index below " +
                            std::to_string(limit) + ", found " + std::to_string(found));
    }
};

// The n entries of a block, the first of them number `first` of the section, into counts[2][n_rows].
template <class Fr>
void count(const uint8_t* raw, size_t n, size_t first, size_t n_rows, size_t n_wires, uint64_t* counts) {
    for (size_t i = 0; i < n; ++i) {
        const auto e = Entry<Fr>::at(raw + i * Entry<Fr>::BYTES);
        e.require(first + i, n_rows, n_wires);
        ++counts[e.matrix * n_rows + e.row];
    }
}

// Where the entries of a matrix go: the next one of row r to next[r] of cols and coeff, which hold `capacity`.
struct Place {
    uint64_t* next;
    uint32_t *cols, *coeff;
    size_t capacity;
};

template <class Fr>
void place(const uint8_t* raw, size_t n, size_t first, size_t n_rows, size_t n_wires, Distinct<Fr>& table,
           const std::array<Place, MATRICES>& places) {
    for (size_t i = 0; i < n; ++i) {
        const auto e = Entry<Fr>::at(raw + i * Entry<Fr>::BYTES);
        e.require(first + i, n_rows, n_wires);
        const Place& to = places[e.matrix];
        if (to.next[e.row] >= to.capacity)
            throw Malformed("entry " + std::to_string(first + i) + ": the file changes while it is read");
        const uint64_t at = to.next[e.row]++;
        to.cols[at] = e.wire;
        to.coeff[at] = table.index_of(e.value);
    }
}

}  // namespace zkey
