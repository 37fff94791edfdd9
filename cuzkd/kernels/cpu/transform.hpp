// transform.hpp - number-theoretic transforms on the CPU: how the networks of ntt.cuh are walked by threads and caches.
//
// The first radix-4 layers run over the whole vector, columns shared among threads, until there are enough blocks;
// each block then is one task that goes on alone, depth first, so that it ends inside a cache.
// A quotient joins the end of one transform with the start of the next: a block of coefficients is finished, moved to the
// coset and taken up again by the same task.
// Where eight elements go in step (transform_lanes.hpp), all but tiny transforms go that way.
#pragma once
#include <cstdint>
#include <vector>

#include "cpu/domain.hpp"
#include "cpu/pool.hpp"
#include "cpu/transform_lanes.hpp"
#include "ntt.cuh"

template <class Fr>
class Transform {
public:
    explicit Transform(const Domain<Fr>& domain) : d_(domain), n_(size_t(1) << domain.log_n) {}

    // In place on each of `arrays` (n elements): down network, finish(array, begin, end) on every range, up network
    // where `both`. Without `both`: natural order in, bit-reversed out, times n.
    template <class Finish>
    void down_then(const std::vector<Fr*>& arrays, bool both, Finish finish) const {
        size_t size = n_;
        for (; more_layers(size, arrays.size()); size /= 4)
            layer(arrays, size, [&](Fr* x, size_t q, size_t k, size_t b, size_t e) { down4(x, q, k, b, e); });
        size_t blocks = n_ / size;
        Pool::instance().run(blocks * arrays.size(), [&](size_t task) {
            size_t k = task % blocks, begin = k * size;
            Fr* x = arrays[task / blocks];
            down_block(x + begin, size, k);
            finish(x, begin, begin + size);
            if (both) up_block(x + begin, size, k);
        });
        if (both) up_layers(arrays, size);
    }

    // In place: bit-reversed order in, natural out.
    void up(Fr* x) const {
        std::vector<Fr*> arrays{x};
        size_t size = n_;
        while (more_layers(size, 1)) size /= 4;
        Pool::instance().run(n_ / size, [&](size_t k) { up_block(x + k * size, size, k); });
        up_layers(arrays, size);
    }

private:
    static constexpr size_t LEAF = 2048;  // elements that a block walks layer by layer instead of depth first

    bool more_layers(size_t size, size_t n_arrays) const {
        size_t threads = Pool::instance().width();
        return threads > 1 && size >= 1024 && n_arrays * (n_ / size) < 4 * threads;
    }

    void up_layers(const std::vector<Fr*>& arrays, size_t size) const {
        while (size < n_) {
            size *= 4;
            layer(arrays, size, [&](Fr* x, size_t q, size_t k, size_t b, size_t e) { up4(x, q, k, b, e); });
        }
    }

    // One radix-4 layer on blocks of `size`, over all arrays; the columns of a block are cut into pieces.
    template <class Step>
    void layer(const std::vector<Fr*>& arrays, size_t size, Step step) const {
        size_t quarter = size / 4, blocks = n_ / size, pieces = std::max<size_t>(1, quarter / 256);
        pieces = std::min<size_t>(pieces, size_t(4) * Pool::instance().width());
        Pool::instance().run(arrays.size() * blocks * pieces, [&](size_t task) {
            size_t piece = task % pieces, k = task / pieces % blocks;
            step(arrays[task / pieces / blocks] + k * size, quarter, k, quarter * piece / pieces,
                 quarter * (piece + 1) / pieces);
        });
    }

    void down4(Fr* x, size_t q, size_t k, size_t begin, size_t end) const {
        const Fr *t = d_.down.data(), u1 = t[2 * k + 1];
        if (k == 0) {
            for (size_t j = begin; j < end; ++j) radix4_down_first(x[j], x[j + q], x[j + 2 * q], x[j + 3 * q], u1);
        } else {
            const Fr t0 = t[k], u0 = t[2 * k];
            for (size_t j = begin; j < end; ++j)
                radix4_down(x[j], x[j + q], x[j + 2 * q], x[j + 3 * q], t0, u0, u1);
        }
    }

    void up4(Fr* x, size_t q, size_t k, size_t begin, size_t end) const {
        const Fr *t = d_.up.data(), u1 = t[2 * k + 1];
        if (k == 0) {
            for (size_t j = begin; j < end; ++j) radix4_up_first(x[j], x[j + q], x[j + 2 * q], x[j + 3 * q], u1);
        } else {
            const Fr t0 = t[k], u0 = t[2 * k];
            for (size_t j = begin; j < end; ++j) radix4_up(x[j], x[j + q], x[j + 2 * q], x[j + 3 * q], t0, u0, u1);
        }
    }

    // All layers inside block k of `size` elements at x.
    void down_block(Fr* x, size_t size, size_t k) const {
        if (size > LEAF) {
            check_cancelled();
            down4(x, size / 4, k, 0, size / 4);
            for (size_t i = 0; i < 4; ++i) down_block(x + i * (size / 4), size / 4, 4 * k + i);
            return;
        }
        size_t s = size, first = k;
        for (; s >= 4; s /= 4, first *= 4)
            for (size_t i = 0; i < size / s; ++i) down4(x + i * s, s / 4, first + i, 0, s / 4);
        if (s == 2)
            for (size_t i = 0; i < size / 2; ++i) butterfly_down(x[2 * i], x[2 * i + 1], d_.down[first + i]);
    }

    void up_block(Fr* x, size_t size, size_t k) const {
        if (size > LEAF) {
            check_cancelled();
            for (size_t i = 0; i < 4; ++i) up_block(x + i * (size / 4), size / 4, 4 * k + i);
            up4(x, size / 4, k, 0, size / 4);
            return;
        }
        size_t s = size;
        while (s >= 4) s /= 4;
        if (s == 2)
            for (size_t i = 0; i < size / 2; ++i)
                butterfly_up(x[2 * i], x[2 * i + 1], d_.up[k * (size / 2) + i]);
        for (s *= 4; s <= size; s *= 4)
            for (size_t i = 0; i < size / s; ++i) up4(x + i * s, s / 4, k * (size / s) + i, 0, s / 4);
    }

    const Domain<Fr>& d_;
    size_t n_;
};

// a, b: Montgomery values on the domain; c working space. All three become values on the odd coset, C being the
// interpolation of a o b; then keep(i, (A B - C)(w_2n^(2i+1))) for every i, Montgomery.
template <class Fr, class Keep>
void numerator_on_odd_coset(Fr* a, Fr* b, Fr* c, int log_n, uint64_t nqr, Keep keep) {
    size_t n = size_t(1) << log_n;
    auto coset = OddCoset<Fr>::get(nqr, log_n, Way::there);
    parallel_ranges(n, 2048, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) c[i] = a[i] * b[i];
    });
    Transform<Fr>(*coset->domain).down_then({a, b, c}, true, [&](Fr* x, size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) x[i] = x[i] * coset->factor[i];
    });
    parallel_ranges(n, 2048, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) keep(i, a[i] * b[i] - c[i]);
    });
}

// The scalars of the H sum of either reduction, CANONICAL, in a's place; b and c hold rubbish then. Arguments as above.
//   circom   (A B - C)(w_2n^(2i+1))
//   bellman  the coefficients of (A B - C)/(X^n - 1): those values over -2, taken back. The way back ends in
//            bit-reversed order, and a is free by then: each coefficient goes to its place as it becomes CANONICAL
template <class Fr>
void circom_quotient(Fr* a, Fr* b, Fr* c, int log_n, uint64_t nqr) {
    if constexpr (VEC8_IS_FAST)
        if (by_lanes<Fr>(log_n)) return circom_quotient_by_lanes(a, b, c, log_n, nqr);
    numerator_on_odd_coset(a, b, c, log_n, nqr, [&](size_t i, const Fr& value) { a[i] = value.to_canonical(); });
}
template <class Fr>
void bellman_quotient(Fr* a, Fr* b, Fr* c, int log_n, uint64_t nqr) {
    if constexpr (VEC8_IS_FAST)
        if (by_lanes<Fr>(log_n)) return bellman_quotient_by_lanes(a, b, c, log_n, nqr);
    numerator_on_odd_coset(a, b, c, log_n, nqr, [&](size_t i, const Fr& value) { c[i] = value; });
    auto coset = OddCoset<Fr>::get(nqr, log_n, Way::back);
    Transform<Fr>(*coset->domain).down_then({c}, false, [&](Fr* x, size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i)
            a[reverse_bits(static_cast<uint32_t>(i), log_n)] = x[i] * coset->factor[i];
    });
}

// x[i] <- x[i] first ratio^i
template <class Fr>
void scale(Fr* x, size_t n, const Fr& first, const Fr& ratio) {
    if (ratio == Fr::one() && first == Fr::one()) return;
    parallel_ranges(n, 1024, [&](size_t begin, size_t end) {
        const uint64_t e = begin;
        Fr factor = first * ratio.pow(&e, 1);
        for (size_t i = begin; i < end; ++i, factor = factor * ratio) x[i] = x[i] * factor;
    });
}

// In place, natural order in and out. forward: coefficients -> values on shift * <w>; inverse: the way back.
template <class Fr>
void plain_transform(Fr* x, int log_n, uint64_t nqr, bool inverse, const Fr& shift) {
    const size_t n = size_t(1) << log_n;
    const Fr over_n = small<Fr>(n).inv();
    if (!inverse) scale(x, n, Fr::one(), shift);
    if constexpr (VEC8_IS_FAST) {
        if (by_lanes<Fr>(log_n)) {
            plain_transform_by_lanes(x, log_n, nqr, inverse, inverse ? over_n : Fr::one());
            if (inverse) scale(x, n, Fr::one(), shift.inv());
            return;
        }
    }
    auto domain = Domain<Fr>::get(nqr, log_n);
    auto reorder = [&] {
        for (size_t i = 0; i < n; ++i) {
            size_t j = reverse_bits(static_cast<uint32_t>(i), log_n);
            if (i < j) std::swap(x[i], x[j]);
        }
    };
    if (inverse) {
        Transform<Fr>(*domain).down_then({x}, false, [](Fr*, size_t, size_t) {});
        reorder();
        scale(x, n, over_n, shift.inv());
    } else {
        reorder();
        Transform<Fr>(*domain).up(x);
    }
}
