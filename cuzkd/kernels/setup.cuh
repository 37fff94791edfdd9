// setup.cuh - the arithmetic of a set-up from known secrets (groth16/setup.py), item by item, shared by CPU and GPU.
//
// Scalars are CANONICAL all along, the constants they meet are Montgomery: a product of the two is CANONICAL again.
// Where items share an inversion, thread t of `threads` takes items t, t + threads, t + 2 threads, ..., at most a SHARE of
// them, so that neighbouring threads touch neighbouring memory; threads * SHARE covers all n items.
#pragma once
#include "curve.cuh"
#include "field.cuh"

// -- sums of scalars: 32-bit words added up in 64-bit columns, in any order, up to 2^32 of them --

constexpr int COLUMNS = 8;

template <class Fr>
HD uint64_t column(const Fr& value, int i) {
    return (value.v[i / 2] >> (32 * (i & 1))) & 0xffffffffu;
}

// sum of columns_i 2^(32 i) mod r, whatever the columns hold: < 2^289, as 256 bits and the rest, which counts 2^256 = R.
template <class Fr>
HD Fr settle(const uint64_t* columns) {
    static_assert(2 * Fr::N == COLUMNS, "scalars of 256 bits");
    Fr low, high = Fr::zero();
    uint64_t rest = 0;
    UNROLL for (int i = 0; i < Fr::N; ++i) {
        uint64_t even = columns[2 * i], odd = columns[2 * i + 1], carry = 0, again = 0;
        low.v[i] = adc(adc(even, odd << 32, carry), rest, again);
        rest = (odd >> 32) + carry + again;
    }
    while (!low.is_reduced()) low.reduce_once();  // 2^256 / r is below 6 on both curves
    high.v[0] = rest;
    return low + high.from_canonical();
}

// -- a product with the transpose of a sparse matrix, entry by entry --

// The row that holds entry e: row_ptr[0] <= e < row_ptr[n_rows], never falling; empty rows hold none.
HD uint64_t row_of(const uint64_t* row_ptr, uint64_t n_rows, uint64_t e) {
    uint64_t low = 0, high = n_rows;  // row_ptr[low] <= e < row_ptr[high]
    while (high - low > 1) {
        uint64_t mid = low + (high - low) / 2;
        if (row_ptr[mid] <= e) low = mid; else high = mid;
    }
    return low;
}

// Coefficient k times a value. table: Montgomery (ONCE, unlike SparseMatrix's); 0 is +1 and 1 is -1.
template <class Fr>
HD Fr term(const Fr* table, uint32_t k, const Fr& value) {
    return k == 0 ? value : k == 1 ? value.neg() : table[k] * value;
}

// -- Lagrange values --

constexpr int LAGRANGE_SHARE = 16;

// factor x_i / (tau - x_i) at x_i = first ratio^i, none of which is tau; leap = ratio^threads. All Montgomery.
template <class Fr>
struct Lagrange {
    Fr tau, first, ratio, leap, factor;
};

template <class Fr>
HD_COLD void lagrange_share(const Lagrange<Fr>& of, uint64_t t, uint64_t threads, uint64_t n, Fr* out) {
    Fr points[LAGRANGE_SHARE], before[LAGRANGE_SHARE], product = Fr::one(), x = of.first * of.ratio.pow(&t, 1);
    int count = 0;
    for (uint64_t i = t; i < n && count < LAGRANGE_SHARE; i += threads, ++count) {
        points[count] = x;
        before[count] = product;
        product = product * (of.tau - x);
        x = x * of.leap;
    }
    Fr inverse = product.inv() * of.factor;  // of the denominators not yet passed, times the factor
    while (count-- > 0) {
        Fr value = points[count] * (inverse * before[count]);
        inverse = inverse * (of.tau - points[count]);
        out[t + count * threads] = value.to_canonical();
    }
}

// -- powers --

// first ratio^i; leap = ratio^threads. first is CANONICAL, the others are Montgomery.
template <class Fr>
struct Progression {
    Fr first, ratio, leap;
};

template <class Fr>
HD void progression_share(const Progression<Fr>& of, uint64_t t, uint64_t threads, uint64_t n, Fr* out) {
    Fr value = of.first * of.ratio.pow(&t, 1);
    for (uint64_t i = t; i < n; i += threads, value = value * of.leap) out[i] = value;
}

// -- multiples of one point, from a table of them --

constexpr int POINTS_SHARE = 8;

// Window i of `bits` bits (8 or 16) of a scalar of four words.
HD uint32_t window_digit(const uint64_t* scalar, int i, int bits) {
    int at = bits * i;
    return static_cast<uint32_t>(scalar[at >> 6] >> (at & 63)) & ((1u << bits) - 1);
}

// The point times any 256-bit integer; table[(i << bits) + d] = d 2^(bits i) times the point, and those with d = 0 are
// never read. One mixed addition per window.
template <class F>
HD_CALL Xyzz<F> table_multiple(const Affine<F>* table, int bits, const uint64_t* scalar) {
    Xyzz<F> sum = Xyzz<F>::infinity();
    for (int i = 0; i < 256 / bits; ++i) {
        uint32_t digit = window_digit(scalar, i, bits);
        if (digit) sum = sum.add(table[(static_cast<uint64_t>(i) << bits) + digit]);
    }
    return sum;
}

// out[i] = make(i), affine, with one inversion for all of a thread.
template <class F, class Make>
HD void affine_share(uint64_t t, uint64_t threads, uint64_t n, Affine<F>* out, Make make) {
    Xyzz<F> sums[POINTS_SHARE];
    F before[POINTS_SHARE], product = F::one();
    int count = 0;
    for (uint64_t i = t; i < n && count < POINTS_SHARE; i += threads, ++count) {
        Xyzz<F> sum = make(i);
        sums[count] = sum;
        before[count] = product;
        if (!sum.is_infinity()) product = product * sum.zzz;
    }
    F inverse = product.inv();  // of the ZZZ not yet passed
    while (count-- > 0) {
        Xyzz<F> sum = sums[count];
        Affine<F> point = Affine<F>::infinity();
        if (!sum.is_infinity()) {
            F i3 = inverse * before[count];  // 1/Z^3
            F i1 = sum.zz * i3;              // 1/Z
            inverse = inverse * sum.zzz;
            point = {sum.x * i1.sqr(), sum.y * i3};
        }
        out[t + count * threads] = point;
    }
}

// out[i] = scalars[i] times the point, affine; scalars: four words each.
template <class F>
HD_COLD void multiples_share(const Affine<F>* table, int bits, const uint64_t* scalars, uint64_t t, uint64_t threads,
                             uint64_t n, Affine<F>* out) {
    affine_share(t, threads, n, out, [=](uint64_t i) { return table_multiple(table, bits, scalars + 4 * i); });
}

// out[i] = 2^times points[i].
template <class F>
HD_COLD void doubled_share(const Affine<F>* points, int times, uint64_t t, uint64_t threads, uint64_t n, Affine<F>* out) {
    affine_share(t, threads, n, out, [=](uint64_t i) {
        Xyzz<F> sum = Xyzz<F>::from_affine(points[i]);
        for (int k = 0; k < times; ++k) sum = sum.dbl();
        return sum;
    });
}
