// readers_points.hpp - points as bellman's files hold them uncompressed, to and from affine Montgomery form.
//
// A coordinate is a canonical integer, big-endian; G1 is x y, G2 is x.c1 x.c0 y.c1 y.c0. The bits above those of q are
// flags, in the first byte: 0x80 compressed, 0x40 infinity and, where q leaves three bits free (BLS12-381), 0x20 "the
// larger y", which compressed points alone have. Infinity is its flag and zeros.
//
// Plain memory in, plain memory out: no Python here, so that a fuzzer can drive it.
#pragma once
#include <cstring>

#include "cpu/vectors.hpp"
#include "curves.cuh"

enum class PointFault { NONE, COMPRESSED, SORTED, INFINITY_AND_MORE, NOT_REDUCED, UNFLAGGED_ZERO };

inline const char* fault_text(PointFault fault) {
    switch (fault) {
        case PointFault::NONE: return "";
        case PointFault::COMPRESSED: return "flag 0x80 is set: expected an uncompressed point";
        case PointFault::SORTED: return "flag 0x20 is set, which only compressed points have";
        case PointFault::INFINITY_AND_MORE: return "the flag of infinity is set, and other bits are not zero";
        case PointFault::NOT_REDUCED: return "a coordinate is not below q";
        case PointFault::UNFLAGGED_ZERO: return "all coordinates are zero without the flag of infinity";
    }
    return "";
}

// G: G1<C> or G2<C>. BYTES: of one point, in a file as in memory.
template <class G>
struct Uncompressed {
    using Point = Affine<typename G::F>;
    using Fq = typename G::Curve::Fq;
    static constexpr size_t BYTES = sizeof(Point), NUMBER = sizeof(Fq), COUNT = BYTES / NUMBER;
    static constexpr int FREE_BITS = 8 * NUMBER - Fq::Params::BITS;
    static constexpr uint8_t COMPRESSED = 0x80, INFINITE = 0x40, SORTED = FREE_BITS > 2 ? 0x20 : 0;
    static_assert(FREE_BITS >= 2);

    static PointFault decode(const uint8_t* in, Point& out) {
        const uint8_t flags = in[0] & (COMPRESSED | INFINITE | SORTED);
        if (flags & COMPRESSED) return PointFault::COMPRESSED;
        if (flags & SORTED) return PointFault::SORTED;
        Fq numbers[COUNT];
        bool any = false;
        for (size_t i = 0; i < COUNT; ++i) {
            numbers[i] = load(in + place(i) * NUMBER, place(i) == 0 ? flags : 0);
            any |= !numbers[i].is_zero();
        }
        if (flags & INFINITE) {
            out = Point::infinity();
            return any ? PointFault::INFINITY_AND_MORE : PointFault::NONE;
        }
        if (!any) return PointFault::UNFLAGGED_ZERO;  // it would be taken for infinity
        for (Fq& number : numbers) {
            if (!number.is_reduced()) return PointFault::NOT_REDUCED;
            number = number.from_canonical();
        }
        std::memcpy(&out, numbers, BYTES);
        return PointFault::NONE;
    }

    static void encode(const Point& in, uint8_t* out) {
        Fq numbers[COUNT];
        std::memcpy(numbers, &in, BYTES);
        for (size_t i = 0; i < COUNT; ++i) store(numbers[i].to_canonical(), out + place(i) * NUMBER);
        if (in.is_infinity()) out[0] = INFINITE;
    }

private:
    // Where the i-th number of a point in memory (x.c0 x.c1 y.c0 y.c1) stands in the file.
    static constexpr size_t place(size_t i) { return COUNT == 4 ? i ^ 1 : i; }

    static Fq load(const uint8_t* at, uint8_t without) {
        Fq r;
        for (int i = 0; i < Fq::N; ++i) {
            uint64_t word;
            std::memcpy(&word, at + 8 * (Fq::N - 1 - i), 8);
            r.v[i] = __builtin_bswap64(word);
        }
        r.v[Fq::N - 1] &= ~(uint64_t(without) << 56);
        return r;
    }
    static void store(const Fq& value, uint8_t* at) {
        for (int i = 0; i < Fq::N; ++i) {
            uint64_t word = __builtin_bswap64(value.v[i]);
            std::memcpy(at + 8 * (Fq::N - 1 - i), &word, 8);
        }
    }
};

// n points of raw into out. The index of the first bad one, or NONE; after an index some of out is not written.
template <class G>
size_t decode_points(const uint8_t* raw, typename Uncompressed<G>::Point* out, size_t n) {
    using Format = Uncompressed<G>;
    return first_where(0, n, 512, [&](size_t i) {
        return Format::decode(raw + i * Format::BYTES, out[i]) != PointFault::NONE;
    });
}

template <class G>
void encode_points(const typename Uncompressed<G>::Point* points, uint8_t* out, size_t n) {
    using Format = Uncompressed<G>;
    parallel_ranges(n, 512, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) Format::encode(points[i], out + i * Format::BYTES);
    });
}
