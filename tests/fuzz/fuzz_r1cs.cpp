// Any bytes as the constraints of an .r1cs: refused in words, or rows in normal form that have the same value as the terms
// in the file, for wires of some values. Bytes 0 .. 4: curve, u16 number of wires, u16 number of constraints.
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

template <class Fr>
static void drive(const uint8_t* raw, size_t size, size_t n_wires, size_t n_constraints) {
    std::array<uint64_t, r1cs::MATRICES> counts;
    try {
        counts = r1cs::count_terms<Fr>(raw, size, n_wires, n_constraints);
    } catch (const Malformed& error) {
        require(error.what()[0] != 0);
        return;
    }
    require(4 * 3 * n_constraints + 36 * (counts[0] + counts[1] + counts[2]) == size);
    for (size_t matrix = 0; matrix < r1cs::MATRICES; ++matrix) {
        std::vector<uint64_t> row_ptr(n_constraints + 1);
        std::vector<uint32_t> cols(counts[matrix]), coeff(counts[matrix]);
        auto rows = r1cs::fill<Fr>(raw, size, n_wires, n_constraints, matrix,
                                   {row_ptr.data(), cols.data(), coeff.data(), cols.size()});
        const std::vector<Fr> table = rows.table();
        require(row_ptr[0] == 0 && row_ptr[n_constraints] == rows.entries() && rows.entries() <= counts[matrix]);
        r1cs::walk<Fr>(raw, size, n_wires, n_constraints, [&](size_t row, size_t of, const r1cs::Terms<Fr>& terms) {
            if (of != matrix) return;
            Fr expected = Fr::zero(), found = Fr::zero();
            for (size_t i = 0; i < terms.count; ++i)
                expected = expected + terms.value(i).from_canonical().from_canonical() * of_wire<Fr>(terms.wire(i));
            require(row_ptr[row] <= row_ptr[row + 1]);
            for (uint64_t e = row_ptr[row]; e < row_ptr[row + 1]; ++e) {
                require(cols[e] < n_wires && (e == row_ptr[row] || cols[e - 1] < cols[e]));
                require(coeff[e] < table.size() && !table[coeff[e]].is_zero());
                found = found + table[coeff[e]] * of_wire<Fr>(cols[e]);
            }
            require(expected == found);
        });
        for (const Fr& value : table) {
            require(value.is_reduced());
            require(std::count(table.begin(), table.end(), value) == 1);
        }
    }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 5) return -1;
    const size_t n_wires = data[1] | data[2] << 8, n_constraints = data[3] | data[4] << 8;
    if (data[0] % 2) drive<Bn254::Fr>(data + 5, size - 5, n_wires, n_constraints);
    else drive<Bls12_381::Fr>(data + 5, size - 5, n_wires, n_constraints);
    return 0;
}
