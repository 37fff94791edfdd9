// gpu/ntt.cu - transforms of 2^log_n values of Fr in a few passes over device memory, and what they take.
//
// The two networks of ntt.cuh: `down` takes values to n times their coefficients (natural to bit-reversed), `up` takes
// coefficients to values (bit-reversed to natural). A pass: tile.cuh. All in place.
#define CUZKD_INLINE
#include "ntt.cuh"
#include "tile.cuh"

KERNEL __launch_bounds__(TILE_THREADS, TILE_BLOCKS) ntt_down(PASS_PARAMETERS) {
    __shared__ Shared s;
    const Tile tile = PASS_TILE;
    values += vector_offset(vectors, count, log_n);
    Fr x[8];
    tile.load_octet(x, values, tile.first_step());
    walk_down(tile, s, {t_down}, x);
    const int end = log_cols < 2 ? tile.near_step() : tile.last_step();  // octets of neighbours: not one by one
    if (end != tile.last_step()) exchange(s, x, tile.place(tile.last_step()), tile.place(end));
    tile.store_octet(x, values, end);
}

KERNEL __launch_bounds__(TILE_THREADS, TILE_BLOCKS) ntt_up(PASS_PARAMETERS) {
    __shared__ Shared s;
    const Tile tile = PASS_TILE;
    values += vector_offset(vectors, count, log_n);
    Fr x[8];
    const int begin = log_cols < 2 ? tile.near_step() : tile.last_step();
    tile.load_octet(x, values, begin);
    if (begin != tile.last_step()) exchange(s, x, tile.place(begin), tile.place(tile.last_step()));
    walk_up(tile, s, {t_up}, x);
    tile.store_octet(x, values, tile.first_step());
}

// The last pass of `down`, n times the coefficients to the odd coset w_2n <w>, and the first pass of `up`.
KERNEL __launch_bounds__(TILE_THREADS, TILE_BLOCKS) ntt_turn(PASS_PARAMETERS) {
    __shared__ Shared s;
    const Tile tile = PASS_TILE;
    Fr x[8];
    tile.load_octet(x, values + vector_offset(vectors, count, log_n), tile.first_step());
    walk_down(tile, s, {t_down}, x);
    const auto power = [&](int j) { return tile.block_at(anew(tile.last_step())) << 3 | (j & 7); };
    Ahead<Fr, Twiddles> powers({t_up});
    powers.fetch(power(0));
    each(x, [&](Fr& value, int j) { value = powers.take(power(j), power(j + 1)).times(value); });
    const Tile again = PASS_TILE;  // so that nothing of it is kept from the beginning on
    walk_up(again, s, {t_up}, x);
    again.store_octet(x, values + vector_offset(anew(vectors), count, log_n), again.first_step());
}

// Powers in two levels: base^e = low[e mod 2^split] high[e >> split] (a constant factor may lie in high).
__device__ Fr power(const Fr* low, const Fr* high, int split, uint64_t e) {
    return load(low + (e & ((uint64_t(1) << split) - 1))) * load(high + (e >> split));
}

// out[k] = base^rev(k), k < 2^bits, rev over `bits` bits: a table of twiddles.
KERNEL twiddles(Factor<Fr>* out, const Fr* low, const Fr* high, int split, int bits, uint64_t n) {
    const uint64_t k = thread_index();
    if (k < n) store(out + k, Factor<Fr>::of(power(low, high, split, reverse_bits(k, bits))));
}

// A window of that table, for the tiles first .. first + 2^log_tiles - 1 as if they were the tiles from 2^log_tiles on:
// out[k + 2^(log_tiles + q)] = base^rev((first << q) + k), k < 2^(log_tiles + q), for levels q from `least` on.
KERNEL twiddle_window(Factor<Fr>* out, const Fr* low, const Fr* high, int split, int bits, uint32_t first,
                      int log_tiles, int least, uint64_t n) {
    const uint64_t i = thread_index();
    if (i >= n || i >> (log_tiles + least) == 0) return;
    int q = least;
    while (i >> (log_tiles + q + 1)) ++q;
    const uint64_t k = (static_cast<uint64_t>(first) << q) + i - (uint64_t(1) << (log_tiles + q));
    store(out + i, Factor<Fr>::of(power(low, high, split, reverse_bits(k, bits))));
}

// out[k] = in[rev(k)] base^i, where i is the index of the coefficient: k where the output is in natural order (inverse
// transforms), else rev(k).
KERNEL reorder(const Fr* in, Fr* out, const Fr* low, const Fr* high, int split, int log_n, int natural_out) {
    const uint64_t k = thread_index();
    if (k >= uint64_t(1) << log_n) return;
    const uint64_t from = reverse_bits(k, log_n);
    store(out + k, load(in + from) * power(low, high, split, natural_out ? k : from));
}
