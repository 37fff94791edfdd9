// sparse.cuh - one row of a sparse constraint matrix times the witness, shared by CPU and GPU.
//
// Coefficients lie in a table of distinct values as v R^2 mod r, the witness is CANONICAL: one Montgomery product gives
// v z R, the Montgomery form of the term. Index 0 of the table is +1 and index 1 is -1: their terms are summed as plain
// integers mod r and brought to Montgomery form together, one product per row. Zeros of the witness cost a look.
#pragma once
#include "field.cuh"

// Row entries begin .. end; cols[e] < n_cols and coeff[e] < table length (checked by the caller).
template <class Fr>
HD Fr sparse_row(uint64_t begin, uint64_t end, const uint32_t* cols, const uint32_t* coeff, const Fr* table,
                 const Fr* z) {
    Fr plain = Fr::zero(), sum = Fr::zero();
    for (uint64_t e = begin; e < end; ++e) {
        Fr value = z[cols[e]];
        if (value.is_zero()) continue;
        uint32_t k = coeff[e];
        if (k == 0)
            plain = plain + value;
        else if (k == 1)
            plain = plain - value;
        else
            sum = sum + table[k] * value;
    }
    return sum + plain.from_canonical();
}

// The same row with a product for every entry, whatever it is: what sparse_row saves, for benches that measure it.
template <class Fr>
HD Fr sparse_row_by_products(uint64_t begin, uint64_t end, const uint32_t* cols, const uint32_t* coeff, const Fr* table,
                             const Fr* z) {
    Fr sum = Fr::zero();
    for (uint64_t e = begin; e < end; ++e) sum = sum + table[coeff[e]] * z[cols[e]];
    return sum;
}
