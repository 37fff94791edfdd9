// Sums of lists of points, by vectors and one by one, for test_sums_lanes.py.
#include <cstring>
#include <string>

#include "cpu/batch.hpp"
#include "cpu/batch_lanes.hpp"
#include "curves.cuh"

template <class Adder, class F>
static void sums(const Affine<F>* points, const Entry* entries, const uint32_t* lengths, size_t n, Affine<F>* out) {
    Adder& adder = Adder::local(points);
    for (size_t i = 0; i < n; entries += lengths[i++]) adder.add(static_cast<uint32_t>(i), entries, lengths[i], out);
    adder.reduce(out);
}

template <class G>
static void both(const uint64_t* points, const Entry* entries, const uint32_t* lengths, size_t n, uint64_t* by_lanes,
                 uint64_t* one_by_one) {
    using F = typename G::F;
    auto p = reinterpret_cast<const Affine<F>*>(points);
    sums<LaneAdder<F>>(p, entries, lengths, n, reinterpret_cast<Affine<F>*>(by_lanes));
    sums<BatchAdder<F>>(p, entries, lengths, n, reinterpret_cast<Affine<F>*>(one_by_one));
}

extern "C" __attribute__((visibility("default"))) int probe(const char* group, const uint64_t* points, const Entry* entries,
                                                           const uint32_t* lengths, size_t n, uint64_t* by_lanes,
                                                           uint64_t* one_by_one) {
    std::string g = group;
    if (g == "bn254 g1") return both<G1<Bn254>>(points, entries, lengths, n, by_lanes, one_by_one), 0;
    if (g == "bn254 g2") return both<G2<Bn254>>(points, entries, lengths, n, by_lanes, one_by_one), 0;
    if (g == "bls12_381 g1") return both<G1<Bls12_381>>(points, entries, lengths, n, by_lanes, one_by_one), 0;
    if (g == "bls12_381 g2") return both<G2<Bls12_381>>(points, entries, lengths, n, by_lanes, one_by_one), 0;
    return 1;
}
