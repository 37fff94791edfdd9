// network_lanes.hpp - the networks of ntt.cuh on vectors of eight lanes, in a cache.
//
// Every lane is a transform of its own, so every twiddle is one number for all lanes, and a table serves all layers of
// all blocks. Layers are taken in pairs, depth first, until a block fits into the first cache.
// Bounds, in multiples of p, R/p being above 35 (lanes.hpp): a down network takes values below 2 p and adds 2 p in every
// layer, so 14 layers stay below 30 p. An up network takes and leaves values below 4 p, and has none above 16 p.
#pragma once
#include "cpu/factor.hpp"

template <class P>
class LaneNetwork {
public:
    using Vector = Loose<P>;

    // Tables in bit-reversed order, as in ntt.cuh: of 1/w for down, of w for up; at least half as long as what is walked.
    LaneNetwork(const Factor<P>* down, const Factor<P>* up) : down_(down), up_(up) {}

    // Down, then middle(x + i, i, size) on every piece, then up, on 2^k vectors at x; down or up may be left out.
    template <bool DOWN, bool UP, class Middle>
    void walk(Vector* x, size_t size, Middle middle) const {
        block<DOWN, UP>(x, size, 0, middle);
    }

private:
    static constexpr size_t LEAF = 64;  // vectors, 20 KiB, that are walked layer by layer instead of depth first

    template <bool DOWN, bool UP, class Middle>
    void block(Vector* x, size_t size, size_t k, Middle& middle) const {
        if (size > LEAF) {
            if (DOWN) down4(x, size / 4, k);
            for (size_t i = 0; i < 4; ++i) block<DOWN, UP>(x + i * (size / 4), size / 4, 4 * k + i, middle);
            if (UP) up4(x, size / 4, k);
            return;
        }
        if (DOWN) {
            size_t s = size, first = k;
            for (; s >= 4; s /= 4, first *= 4)
                for (size_t i = 0; i < size / s; ++i) down4(x + i * s, s / 4, first + i);
            if (s == 2)
                for (size_t i = 0; i < size / 2; ++i) down2(x[2 * i], x[2 * i + 1], Spread<P>(down_[first + i]));
        }
        middle(x, k * size, size);
        if (UP) {
            size_t s = size;
            while (s >= 4) s /= 4;
            if (s == 2)
                for (size_t i = 0; i < size / 2; ++i) up2(x[2 * i], x[2 * i + 1], Spread<P>(up_[k * (size / 2) + i]));
            for (s *= 4; s <= size; s *= 4)
                for (size_t i = 0; i < size / s; ++i) up4(x + i * s, s / 4, k * (size / s) + i);
        }
    }

    // x <- x f, y <- y g: both below 2 p. Where f or g is 1 only a multiple of p is taken away.
    template <bool F_IS_1, bool G_IS_1>
    static VEC void multiply(Vector& x, const Spread<P>& f, Vector& y, const Spread<P>& g) {
        if constexpr (!F_IS_1) return modulo_r::multiply_both(x, f, y, g);
        x = modulo_r::reduced(x);
        y = G_IS_1 ? modulo_r::reduced(y) : modulo_r::times(y, g);
    }
    // x below a p, y below 2 p: both below (a + 2) p.
    static VEC void sum_and_difference(Vector& x, Vector& y) {
        const Vector x2 = modulo_r::plus_multiple<2>(x);
        x = x + y;
        y = x2 - y;
    }

    static VEC void down2(Vector& x, Vector& y, const Spread<P>& t) {
        y = modulo_r::times(y, t);
        sum_and_difference(x, y);
    }
    // Two layers of block k. In block 0 t = u0 = 1.
    void down4(Vector* x, size_t q, size_t k) const { k ? down4_of<false>(x, q, k) : down4_of<true>(x, q, k); }
    template <bool FIRST>
    void down4_of(Vector* x, size_t q, size_t k) const {
        const Spread<P> t(down_[k]), u0(down_[2 * k]), u1(down_[2 * k + 1]);
        for (size_t j = 0; j < q; ++j) {
            Vector x0 = x[j], x1 = x[j + q], x2 = x[j + 2 * q], x3 = x[j + 3 * q];
            multiply<FIRST, FIRST>(x2, t, x3, t);
            sum_and_difference(x0, x2);
            sum_and_difference(x1, x3);
            multiply<FIRST, false>(x1, u0, x3, u1);
            sum_and_difference(x0, x1);
            sum_and_difference(x2, x3);
            x[j] = x0, x[j + q] = x1, x[j + 2 * q] = x2, x[j + 3 * q] = x3;
        }
    }

    // The first layer, where it is walked alone, of values below 2 p.
    static VEC void up2(Vector& x, Vector& y, const Spread<P>& t) {
        const Vector d = modulo_r::plus_multiple<2>(x - y);
        x = x + y;
        y = modulo_r::times(d, t);
    }
    void up4(Vector* x, size_t q, size_t k) const { k ? up4_of<false>(x, q, k) : up4_of<true>(x, q, k); }
    template <bool FIRST>
    void up4_of(Vector* x, size_t q, size_t k) const {
        const Spread<P> t(up_[k]), u0(up_[2 * k]), u1(up_[2 * k + 1]);
        for (size_t j = 0; j < q; ++j) {
            const Vector x0 = x[j], x1 = x[j + q], x2 = x[j + 2 * q], x3 = x[j + 3 * q], s = x0 + x1, e = x2 + x3;
            Vector d = modulo_r::plus_multiple<4>(x0 - x1), f = modulo_r::plus_multiple<4>(x2 - x3);
            multiply<FIRST, false>(d, u0, f, u1);
            Vector y2 = modulo_r::plus_multiple<8>(s - e), y3 = modulo_r::plus_multiple<2>(d - f);
            multiply<FIRST, FIRST>(y2, t, y3, t);
            x[j] = modulo_r::reduced(s + e), x[j + q] = d + f, x[j + 2 * q] = y2, x[j + 3 * q] = y3;
        }
    }

    const Factor<P>*down_, *up_;
};
