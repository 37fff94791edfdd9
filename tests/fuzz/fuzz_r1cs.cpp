// Any bytes as the constraints of an .r1cs: refused in words, or rows in normal form that have the same value as the terms
// in the file, for wires of some values; the same however the bytes are cut into blocks. Bytes 0 .. 5: curve, u16 number
// of wires, u16 number of constraints, bytes of a block.
#include <cstdlib>

#include "cpu/readers_r1cs.hpp"

static void require(bool good) {
    if (!good) std::abort();
}

template <class Fr>
static Fr of_wire(uint64_t wire) {
    Fr value = Fr::one();
    value.v[0] ^= wire * 0x9E3779B97F4A7C15;
    value.reduce_once();
    return value;
}

// The value of each linear combination in the file, in order.
template <class Fr>
struct Sums {
    std::vector<std::array<Fr, r1cs::MATRICES>> rows;
    Fr sum = Fr::zero();

    void term(size_t, uint32_t wire, const Fr& value) {
        sum = sum + value.from_canonical().from_canonical() * of_wire<Fr>(wire);
    }
    void end(size_t row, size_t matrix) {
        if (matrix == 0) rows.emplace_back();
        require(rows.size() == row + 1);
        rows[row][matrix] = sum;
        sum = Fr::zero();
    }
};

struct Section {
    const uint8_t* raw;
    size_t size, n_wires, n_constraints;

    template <class Fr, class Visitor>
    Visitor walk(Visitor visitor, size_t block) const {
        r1cs::Walk<Fr, Visitor> walk(size, n_wires, n_constraints, std::move(visitor));
        for (size_t at = 0; at < size; at += block) {  // a copy: nothing beyond a block may be looked at
            const std::vector<uint8_t> piece(raw + at, raw + std::min(size, at + block));
            walk.feed(piece.data(), piece.size());
        }
        walk.finish();
        return std::move(walk.visitor);
    }
};

template <class Fr>
static void drive(const Section& section, size_t block) {
    std::array<uint64_t, r1cs::MATRICES> counts;
    std::string refused[2];
    for (size_t i = 0; i < 2; ++i) {
        try {
            counts = section.walk<Fr>(r1cs::Count<Fr>(), i ? block : section.size + 1).counts;
        } catch (const Malformed& error) {
            refused[i] = error.what();
            require(!refused[i].empty());
        }
    }
    require(refused[0] == refused[1]);
    if (!refused[0].empty()) return;
    const size_t n = section.n_constraints;
    require(12 * n + 36 * (counts[0] + counts[1] + counts[2]) <= section.size);
    const auto sums = section.walk<Fr>(Sums<Fr>(), section.size + 1).rows;
    require(sums.size() == n);
    for (size_t matrix = 0; matrix < r1cs::MATRICES; ++matrix) {
        std::vector<uint64_t> row_ptr(n + 1);
        std::vector<uint32_t> cols(counts[matrix]), coeff(counts[matrix]);
        const auto rows = section.walk<Fr>(
            r1cs::Rows<Fr>(matrix, row_ptr.data(), cols.data(), coeff.data(), cols.size()), block);
        const std::vector<Fr> table = rows.table();
        require(row_ptr[0] == 0 && row_ptr[n] == rows.entries() && rows.entries() <= counts[matrix]);
        for (size_t row = 0; row < n; ++row) {
            Fr found = Fr::zero();
            require(row_ptr[row] <= row_ptr[row + 1]);
            for (uint64_t e = row_ptr[row]; e < row_ptr[row + 1]; ++e) {
                require(cols[e] < section.n_wires && (e == row_ptr[row] || cols[e - 1] < cols[e]));
                require(coeff[e] < table.size() && !table[coeff[e]].is_zero());
                found = found + table[coeff[e]] * of_wire<Fr>(cols[e]);
            }
            require(sums[row][matrix] == found);
        }
        for (const Fr& value : table) {
            require(value.is_reduced());
            require(std::count(table.begin(), table.end(), value) == 1);
        }
    }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 6) return -1;
    const Section section{data + 6, size - 6, size_t(data[1] | data[2] << 8), size_t(data[3] | data[4] << 8)};
    const size_t block = 1 + data[5];
    if (data[0] % 2) drive<Bn254::Fr>(section, block);
    else drive<Bls12_381::Fr>(section, block);
    return 0;
}
