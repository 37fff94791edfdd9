// Any bytes as bellman's points: what is decoded is reduced and is encoded to the very same bytes; where decoding stops,
// all before it is good. Byte 0 picks curve and group.
#include <cstdlib>

#include "cpu/readers_points.hpp"

static void require(bool good) {
    if (!good) std::abort();
}

template <class G>
static void drive(const uint8_t* raw, size_t size) {
    using Format = Uncompressed<G>;
    using Fq = typename Format::Fq;
    const size_t n = size / Format::BYTES;
    std::vector<typename Format::Point> points(n);
    const size_t bad = decode_points<G>(raw, points.data(), n);
    const size_t good = bad == NONE ? n : bad;
    require(good <= n);
    if (bad != NONE) {
        typename Format::Point point;
        require(*fault_text(Format::decode(raw + bad * Format::BYTES, point)) != 0);
    }
    const Fq* numbers = reinterpret_cast<const Fq*>(points.data());
    for (size_t i = 0; i < good * Format::COUNT; ++i) require(numbers[i].is_reduced());
    std::vector<uint8_t> again(good * Format::BYTES);
    encode_points<G>(points.data(), again.data(), good);
    require(good == 0 || std::memcmp(again.data(), raw, again.size()) == 0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return -1;
    switch (data[0] % 4) {
        case 0: drive<G1<Bn254>>(data + 1, size - 1); break;
        case 1: drive<G2<Bn254>>(data + 1, size - 1); break;
        case 2: drive<G1<Bls12_381>>(data + 1, size - 1); break;
        default: drive<G2<Bls12_381>>(data + 1, size - 1);
    }
    return 0;
}
