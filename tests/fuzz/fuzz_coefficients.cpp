// Any bytes as the coefficients of a .zkey, in blocks: refused in words, or each entry at its place. Bytes 0 .. 7: curve,
// u16 number of wires, u16 number of rows (ten bits of it), entries in a block, u16 where and how the second reading differs.
#include <cstdlib>

#include "cpu/readers_zkey.hpp"

static void require(bool good) {
    if (!good) std::abort();
}

template <class Fr>
static void drive(const uint8_t* raw, size_t size, size_t n_wires, size_t n_rows, size_t block, size_t change) {
    using Entry = zkey::Entry<Fr>;
    const size_t n = size / Entry::BYTES;
    std::vector<uint64_t> counts(2 * n_rows), next, ends;
    Fr one;
    for (int i = 0; i < Fr::N; ++i) one.v[i] = Fr::Params::r2(i);
    Distinct<Fr> table(one);
    std::vector<uint8_t> second(raw, raw + size);
    if (change && size) second[change % size] ^= change >> 8;
    const bool same = std::equal(second.begin(), second.end(), raw);
    std::vector<uint32_t> cols[2], coeff[2];
    try {
        for (size_t i = 0; i < n; i += block)
            zkey::count<Fr>(raw + i * Entry::BYTES, std::min(block, n - i), i, n_rows, n_wires, counts.data());
        for (size_t matrix = 0; matrix < 2; ++matrix) {
            uint64_t sum = 0;
            for (size_t row = 0; row < n_rows; ++row) {
                next.push_back(sum);
                ends.push_back(sum += counts[matrix * n_rows + row]);
            }
            cols[matrix].resize(sum);
            coeff[matrix].resize(sum);
        }
        std::array<zkey::Place, 2> places;
        for (size_t m = 0; m < 2; ++m)
            places[m] = {next.data() + m * n_rows, cols[m].data(), coeff[m].data(), cols[m].size()};
        for (size_t i = 0; i < n; i += block)
            zkey::place<Fr>(second.data() + i * Entry::BYTES, std::min(block, n - i), i, n_rows, n_wires, table, places);
    } catch (const Malformed& error) {
        require(error.what()[0] != 0);
        return;
    }
    require(cols[0].size() + cols[1].size() == n);
    if (next != ends) require(!same);
    if (!same) return;
    std::vector<uint64_t> at(2 * n_rows);
    for (size_t i = 0; i < n; ++i) {  // the k-th entry of a row in the file is the k-th of it in the matrix
        const Entry e = Entry::at(raw + i * Entry::BYTES);
        const size_t row = e.matrix * n_rows + e.row, to = ends[row] - counts[row] + at[row]++;
        require(cols[e.matrix][to] == e.wire && table.values[coeff[e.matrix][to]] == e.value);
    }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 8) return -1;
    const size_t n_wires = data[1] | data[2] << 8, n_rows = (data[3] | data[4] << 8) & 1023, block = 1 + data[5];
    const size_t change = data[6] | data[7] << 8;
    if (data[0] % 2) drive<Bn254::Fr>(data + 8, size - 8, n_wires, n_rows, block, change);
    else drive<Bls12_381::Fr>(data + 8, size - 8, n_wires, n_rows, block, change);
    return 0;
}
