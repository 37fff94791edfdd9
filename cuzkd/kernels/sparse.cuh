// sparse.cuh - one row of a sparse constraint matrix times the witness, shared by CPU and GPU.
//
// Coefficients lie in a table of distinct values as v R^2 mod r, the witness is CANONICAL: one Montgomery product gives
// v z R, the Montgomery form of the term. Real rows are short, their coefficients mostly +1 (index 0) and -1 (index 1),
// and their values mostly 0 and 1. So terms of units and small values are summed as machine integers, those of units
// and large values as plain integers mod r, and each of these two sums is brought to Montgomery form once; a value 1
// takes its coefficient as it is. A row of bits costs no product at all where its sum is one of a few known beforehand.
#pragma once
#include "field.cuh"

// What is known before any row: multiples -SIZE .. SIZE of one in Montgomery form, which most rows sum to, and the table
// of coefficients in Montgomery form, or null where making it does not pay.
template <class Fr>
struct Few {
    static constexpr int SIZE = 4;
    Fr v[2 * SIZE + 1];
    const Fr* once;

    HD static Few make(const Fr* once) {
        Few few;
        few.once = once;
        few.v[SIZE] = Fr::zero();
        for (int i = 1; i <= SIZE; ++i) {
            few.v[SIZE + i] = few.v[SIZE + i - 1] + Fr::one();
            few.v[SIZE - i] = few.v[SIZE + i].neg();
        }
        return few;
    }
};

// Below 2^24: even 2^32 of them fit into an int64_t.
template <class Fr>
HD bool is_small(const Fr& x) {
    uint64_t high = x.v[0] >> 24;
    UNROLL for (int i = 1; i < Fr::N; ++i) high |= x.v[i];
    return high == 0;
}

// An integer in Montgomery form.
template <class Fr>
HD Fr from_integer(int64_t i, const Few<Fr>& few) {
    if (i >= -Few<Fr>::SIZE && i <= Few<Fr>::SIZE) return few.v[Few<Fr>::SIZE + i];
    Fr x = Fr::zero();
    x.v[0] = i < 0 ? 0 - static_cast<uint64_t>(i) : static_cast<uint64_t>(i);
    return x.from_canonical().neg_if(i < 0);
}

// Row entries begin .. end; cols[e] < n_cols and coeff[e] < table length (checked by the caller).
template <class Fr>
HD Fr sparse_row(uint64_t begin, uint64_t end, const uint32_t* cols, const uint32_t* coeff, const Fr* table,
                 const Fr* z, const Few<Fr>& few) {
    int64_t small = 0;
    bool large = false;
    Fr plain = Fr::zero(), sum = Fr::zero();
    for (uint64_t e = begin; e < end; ++e) {
        const Fr& value = z[cols[e]];
        const uint32_t k = coeff[e];
        if (is_small(value)) {
            int64_t v = static_cast<int64_t>(value.v[0]);
            if (k < 2)
                small += k ? -v : v;
            else if (v <= 1 && few.once)
                sum = sum + few.once[k].masked(0 - static_cast<uint64_t>(v));  // no branch: bits are a coin's
            else if (v)
                sum = sum + table[k] * value;
        } else if (k < 2) {
            plain = k ? plain - value : plain + value;
            large = true;
        } else {
            sum = sum + table[k] * value;
        }
    }
    if (large) sum = sum + plain.from_canonical();
    return sum + from_integer(small, few);
}

// The same row with a product for every entry, whatever it is: what sparse_row saves, for benches that measure it.
template <class Fr>
HD Fr sparse_row_by_products(uint64_t begin, uint64_t end, const uint32_t* cols, const uint32_t* coeff, const Fr* table,
                             const Fr* z) {
    Fr sum = Fr::zero();
    for (uint64_t e = begin; e < end; ++e) sum = sum + table[coeff[e]] * z[cols[e]];
    return sum;
}
