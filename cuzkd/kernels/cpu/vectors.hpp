// vectors.hpp - plain loops over host vectors: sparse rows, comparison, witness intake, elementwise scalar products.
// Threads, no allocation of the size of the data.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/pool.hpp"
#include "curves.cuh"
#include "sparse.cuh"

constexpr size_t NONE = ~size_t(0);

// The smallest index in [begin, end) that `bad` accepts, or NONE.
template <class Bad>
size_t first_where(size_t begin, size_t end, size_t grain, Bad bad) {
    std::atomic<size_t> first{NONE};
    parallel_ranges(end - begin, grain, [&](size_t from, size_t to) {
        for (size_t i = begin + from; i < begin + to && i < first.load(std::memory_order_relaxed); ++i) {
            if (!bad(i)) continue;
            size_t seen = first.load();
            while (i < seen && !first.compare_exchange_weak(seen, i)) {
            }
            return;
        }
    });
    return first.load();
}

struct Csr {
    const uint64_t* row_ptr;
    const uint32_t *cols, *coeff;
    size_t n_rows, n_cols, nnz, n_table;
};

// Rows begin .. end of matrix . z into out[begin .. end]. Every index is checked before it is used. SHORT: no products
// for units and zeros (sparse.cuh).
template <bool SHORT, class Fr>
void sparse_rows(const Csr& m, const Fr* table, const Fr* z, Fr* out, size_t begin, size_t end) {
    std::atomic<size_t> wrong{NONE};
    std::vector<Fr> once;
    if (SHORT && m.n_table <= (end - begin) / 16) {
        Fr plain_one = Fr::zero();
        plain_one.v[0] = 1;
        for (size_t k = 0; k < m.n_table; ++k) once.push_back(table[k] * plain_one);
    }
    const Few<Fr> few = Few<Fr>::make(once.empty() ? nullptr : once.data());
    parallel_ranges(end - begin, 256, [&](size_t from, size_t to) {
        for (size_t row = begin + from; row < begin + to; ++row) {
            uint64_t first = m.row_ptr[row], last = m.row_ptr[row + 1];
            bool good = first <= last && last <= m.nnz;
            for (uint64_t e = first; good && e < last; ++e) good = m.cols[e] < m.n_cols && m.coeff[e] < m.n_table;
            if (!good) {
                wrong = row;
                return;
            }
            out[row] = SHORT ? sparse_row(first, last, m.cols, m.coeff, table, z, few)
                             : sparse_row_by_products(first, last, m.cols, m.coeff, table, z);
        }
    });
    if (wrong != NONE)
        throw std::out_of_range("matrix row " + std::to_string(wrong.load()) +
                                ": an entry, column or coefficient index is out of bounds");
}

// First row where a o b differs from c, or NONE.
template <class Fr>
size_t first_mismatch(const Fr* a, const Fr* b, const Fr* c, size_t begin, size_t end) {
    return first_where(begin, end, 1024, [&](size_t i) { return a[i] * b[i] != c[i]; });
}

// Copies n little-endian 32-byte integers (at any alignment); first index whose integer is >= r, or NONE.
template <class Fr>
size_t copy_witness(const uint8_t* raw, Fr* out, size_t n) {
    return first_where(0, n, 4096, [&](size_t i) {
        std::memcpy(&out[i], raw + i * sizeof(Fr), sizeof(Fr));
        return !out[i].is_reduced();
    });
}

// n sums -> affine with one inversion (Montgomery's trick over ZZZ). One thread.
template <class F>
void to_affine(const Xyzz<F>* sums, Affine<F>* out, size_t n) {
    std::vector<F> prefix(n);
    F product = F::one();
    for (size_t i = 0; i < n; ++i) {
        prefix[i] = product;
        if (!sums[i].is_infinity()) product = product * sums[i].zzz;
    }
    F inverse = product.inv();
    for (size_t i = n; i-- > 0;) {
        out[i] = Affine<F>::infinity();
        if (sums[i].is_infinity()) continue;
        F i3 = inverse * prefix[i];
        inverse = inverse * sums[i].zzz;
        F i1 = sums[i].zz * i3;  // 1/Z
        out[i] = {sums[i].x * i1.sqr(), sums[i].y * i3};
    }
}

// out[i] = scalars[i] * points[i]; scalars CANONICAL.
template <class F, class Fr>
void scalar_mul(const Affine<F>* points, const Fr* scalars, Affine<F>* out, size_t n) {
    parallel_ranges(n, 4, [&](size_t begin, size_t end) {
        std::vector<Xyzz<F>> sums(end - begin);
        for (size_t i = begin; i < end; ++i) sums[i - begin] = Xyzz<F>::mul(points[i], scalars[i].v, Fr::N);
        to_affine(sums.data(), out + begin, end - begin);
    });
}

// out[i] = scalars[i] * base; scalars CANONICAL. A table of d 2^(8 w) base for every window w and digit d: 32 additions
// per product and no doubling.
template <class F, class Fr>
void fixed_base_mul(const Affine<F>& base, const Fr* scalars, Affine<F>* out, size_t n) {
    constexpr int WINDOWS = 8 * Fr::N, DIGITS = 256;
    std::vector<Xyzz<F>> projective(WINDOWS * DIGITS);
    Xyzz<F> step = Xyzz<F>::from_affine(base);
    for (int w = 0; w < WINDOWS; ++w) {
        projective[w * DIGITS] = Xyzz<F>::infinity();
        for (int d = 1; d < DIGITS; ++d) projective[w * DIGITS + d] = projective[w * DIGITS + d - 1].add(step);
        step = projective[w * DIGITS + DIGITS - 1].add(step);
    }
    std::vector<Affine<F>> table(projective.size());
    to_affine(projective.data(), table.data(), table.size());
    constexpr size_t BLOCK = 256;
    Pool::instance().run((n + BLOCK - 1) / BLOCK, [&](size_t block) {
        Xyzz<F> sums[BLOCK];
        size_t begin = block * BLOCK, end = std::min(n, begin + BLOCK);
        for (size_t i = begin; i < end; ++i) {
            Xyzz<F> sum = Xyzz<F>::infinity();
            for (int w = 0; w < WINDOWS; ++w) {
                unsigned digit = (scalars[i].v[w / 8] >> (8 * (w % 8))) & 255;
                if (digit) sum = sum.add(table[w * DIGITS + digit]);
            }
            sums[i - begin] = sum;
        }
        to_affine(sums, out + begin, end - begin);
    });
}
