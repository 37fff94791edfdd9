// octet.cuh - three layers at once of the networks of ntt.cuh, on eight values in registers, both ways from one table.
//
// Problem: layers that go through memory one by one wait for it; and tables for both directions take twice the room.
// Design: an octet is what three layers make of eight values that lie one part of a block apart, the block being number k
// of the first layer. Its twelve products take the twiddles t[k], t[2k], t[2k + 1] and t[4k] .. t[4k + 3]. Those of the
// down table are the up table's read backwards: with N = log n - 1 bits, w^-e = -w^(2^N - e), and rev(k) is 2^N - rev(j)
// where j is k with all bits below its highest one turned round. So t_down[k] = -t_up[mirrored(k)] for k > 0, and t[0] = 1
// both ways: no product at all, where all threads of a warp have it.
// The next level of the table, t[8k] .. t[8k + 7], is w_2n^rev(i) for the eight indices i of the octet's values, once the
// last layer is through: what moves coefficients in bit-reversed order to the odd coset.
#pragma once
#include "factor.cuh"

// f(x[j], j) for each of the eight, two at a time.
template <class Fr, class F>
HD void each(Fr (&x)[8], const F& f) {
    ROLLED for (int j = 0; j < 8; j += 2) {
        f(x[0], j), f(x[1], j + 1);
        const Fr first = x[0], second = x[1];
        UNROLL for (int i = 0; i < 6; ++i) x[i] = x[i + 2];
        x[6] = first, x[7] = second;
    }
}

// k with all bits below its highest one turned round; 0 for 0.
HD uint32_t mirrored(uint32_t k) {
    uint32_t below = k >> 1;
    below |= below >> 1;
    below |= below >> 2;
    below |= below >> 4;
    below |= below >> 8;
    below |= below >> 16;
    return k ^ below;
}

// Number i of the products of a layer (0, 1 or 2 of an octet) is with the twiddle of this block.
HD uint32_t block_of(uint32_t k, int layer, int i) { return k << layer | (i & ((1u << layer) - 1)); }
// mirrored(block_of(k, layer, i)), from m = mirrored(k): the bits behind k are turned round as well, where k is not 0.
HD uint32_t mirrored_block_of(uint32_t m, int layer, int i) {
    const uint32_t behind = (1u << layer) - 1;
    return m == 0 ? mirrored(i & behind) : m << layer | (~i & behind);
}

// A table of twiddles, read ahead: a product wants the quotient of its factor first, and that comes from memory while the
// product before is made; the value comes while the product is made with the quotient. Quotient: of the next product.
// Table: has quotient(k) and value(k), of entry k of the up table.
template <class Fr, class Table>
struct Ahead {
    Table table;
    Fr quotient;
    HD explicit Ahead(const Table& table_) : table(table_) {}
    HD void fetch(uint32_t k) { quotient = table.quotient(k); }
    // Of entry k, whose quotient has been fetched; that of entry `next` is fetched.
    HD Factor<Fr> take(uint32_t k, uint32_t next) {
        const Factor<Fr> factor{table.value(k), quotient};
        fetch(next);
        return factor;
    }
};

// A layer of `down` on eight values whose indices have the bits b2 b1 b0 in this order, where the layer joins those that
// differ in b2; the order is rotated to b1 b0 b2, so that the next layer finds its bit where this one did, and a loop over
// layers is code for four products. After three layers all is where it was.
// m: mirrored(k), for block k. after(): the entry of the product that follows the octet's.
template <class Fr, class Table, class After>
HD void layer_down(Fr (&x)[8], Ahead<Fr, Table>& twiddles, uint32_t m, int layer, const After& after) {
    Fr low[4], high[4];
    UNROLL for (int i = 0; i < 4; ++i) {
        const uint32_t entry = mirrored_block_of(m, layer, i);  // 0 for block 0 alone
        const Factor<Fr> t = twiddles.take(entry, i < 3       ? mirrored_block_of(m, layer, i + 1)
                                                  : layer < 2 ? mirrored_block_of(m, layer + 1, 0)
                                                              : after());
        const Fr y = entry == 0 ? x[i + 4].neg() : t.times(x[i + 4]);  // -t_down x[i + 4]
        low[i] = x[i] - y, high[i] = x[i] + y;
    }
    UNROLL for (int i = 0; i < 4; ++i) x[2 * i] = low[i], x[2 * i + 1] = high[i];
}
// The mirror: joins values that differ in b0, and rotates to b0 b2 b1; layer 2 comes first.
template <class Fr, class Table, class After>
HD void layer_up(Fr (&x)[8], Ahead<Fr, Table>& twiddles, uint32_t k, int layer, int skip, const After& after) {
    Fr low[4], high[4];
    UNROLL for (int i = 0; i < 4; ++i) {
        const uint32_t block = block_of(k, layer, i);
        const Factor<Fr> t = twiddles.take(block, i < 3         ? block_of(k, layer, i + 1)
                                                  : layer > skip ? k << (layer - 1)
                                                                 : after());
        low[i] = x[2 * i] + x[2 * i + 1], high[i] = x[2 * i] - x[2 * i + 1];
        if (block != 0) high[i] = t.times(high[i]);
    }
    UNROLL for (int i = 0; i < 4; ++i) x[i] = low[i], x[i + 4] = high[i];
}
// Their rotations alone.
template <class Fr>
HD void rotate_down(Fr (&x)[8]) {
    const Fr x1 = x[1], x3 = x[3];
    x[1] = x[4], x[4] = x[2], x[2] = x1;
    x[3] = x[5], x[5] = x[6], x[6] = x3;
}
template <class Fr>
HD void rotate_up(Fr (&x)[8]) {
    const Fr x1 = x[1], x3 = x[3];
    x[1] = x[2], x[2] = x[4], x[4] = x1;
    x[3] = x[6], x[6] = x[5], x[5] = x3;
}

// Layers of `down` on the octet of block k, m = mirrored(k); the first `skip` (0, 1 or 2) of the three are done already, or
// do not exist. The first product's quotient has been fetched; that of entry after() is, for the octet that follows.
template <class Fr, class Table, class After>
HD void octet_down(Fr (&x)[8], Ahead<Fr, Table>& twiddles, uint32_t m, int skip, const After& after) {
    ROLLED for (int layer = 0; layer < skip; ++layer) rotate_down(x);
    ROLLED for (int layer = skip; layer < 3; ++layer) layer_down(x, twiddles, m, layer, after);
}
// The mirror: layers of `up` on the octet of block k, the last one first.
template <class Fr, class Table, class After>
HD void octet_up(Fr (&x)[8], Ahead<Fr, Table>& twiddles, uint32_t k, int skip, const After& after) {
    ROLLED for (int layer = 2; layer >= skip; --layer) layer_up(x, twiddles, k, layer, skip, after);
    ROLLED for (int layer = 0; layer < skip; ++layer) rotate_up(x);
}
