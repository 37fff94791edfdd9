// vec8.hpp - eight 64-bit words side by side, and the few operations on them that fields and points need.
//
// Problem: AVX-512 IFMA multiplies eight pairs of 52-bit numbers at once; its carries break at values that random tests
// never meet, and not every machine that runs the tests has it.
// Design: this is the only file that knows the instruction set. With CUZKD_IFMA a V8 is a register; with
// CUZKD_EMULATE_VEC8 it is a plain array that does the same, so that what is built upon it can be tested anywhere, up to
// its extremes. Everything above is written once.
// mad_lo, mad_hi: acc + the low or high 52 bits of the product of a's and b's low 52 bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

// VEC: a function, INLINED: a lambda, that must disappear in its caller, or its vectors would travel through memory.
#if defined(CUZKD_IFMA)
#include <immintrin.h>
#define INLINED __attribute__((always_inline))
constexpr bool VEC8_IS_FAST = true;  // whoever has a scalar way too takes this one
#else
#define INLINED
constexpr bool VEC8_IS_FAST = false;
#endif
#define VEC inline INLINED

// Whether this build works on vectors, real or emulated.
#if defined(CUZKD_IFMA) || defined(CUZKD_EMULATE_VEC8)
constexpr bool HAS_LANES = true;
#else
constexpr bool HAS_LANES = false;
#endif

constexpr uint64_t LOW52 = (uint64_t(1) << 52) - 1;

using Mask8 = uint8_t;  // bit k: lane k

// body(0), ..., body(N - 1) with constants as arguments: loops that must be unrolled, shifts that must be immediate.
template <class Body, int... I>
VEC void each_of(std::integer_sequence<int, I...>, [[maybe_unused]] Body body) {
    (body(std::integral_constant<int, I>{}), ...);
}
template <int N, class Body>
VEC void each(Body body) {
    each_of(std::make_integer_sequence<int, N>{}, body);
}

#if defined(CUZKD_IFMA)

struct V8 {
    __m512i v;
    static VEC V8 zero() { return {_mm512_setzero_si512()}; }
    static VEC V8 all(uint64_t x) { return {_mm512_set1_epi64(static_cast<long long>(x))}; }
    static VEC V8 load(const uint64_t* from) { return {_mm512_loadu_si512(from)}; }
    VEC void store(uint64_t* to) const { _mm512_storeu_si512(to, v); }
    VEC V8 operator+(V8 b) const { return {_mm512_add_epi64(v, b.v)}; }
    VEC V8 operator-(V8 b) const { return {_mm512_sub_epi64(v, b.v)}; }
    VEC V8 operator&(V8 b) const { return {_mm512_and_si512(v, b.v)}; }
    VEC V8 operator|(V8 b) const { return {_mm512_or_si512(v, b.v)}; }
    template <int K>
    VEC V8 shl() const { return {_mm512_slli_epi64(v, K)}; }
    template <int K>
    VEC V8 shr() const { return {_mm512_srli_epi64(v, K)}; }
    template <int K>  // of signed words
    VEC V8 sar() const { return {_mm512_srai_epi64(v, K)}; }
    VEC V8 at_least_0() const { return {_mm512_max_epi64(v, _mm512_setzero_si512())}; }
    VEC Mask8 negative() const { return _mm512_movepi64_mask(v); }
    VEC Mask8 operator==(V8 b) const { return _mm512_cmpeq_epi64_mask(v, b.v); }
    VEC Mask8 operator<(V8 b) const { return _mm512_cmplt_epu64_mask(v, b.v); }
};

VEC V8 mad_lo(V8 acc, V8 a, V8 b) { return {_mm512_madd52lo_epu64(acc.v, a.v, b.v)}; }
VEC V8 mad_hi(V8 acc, V8 a, V8 b) { return {_mm512_madd52hi_epu64(acc.v, a.v, b.v)}; }
// Lane by lane: a where the mask is set, else b.
VEC V8 select(Mask8 mask, V8 a, V8 b) { return {_mm512_mask_blend_epi64(mask, b.v, a.v)}; }
// a - b where the mask is set, else b.
VEC V8 minus_where(Mask8 mask, V8 a, V8 b) { return {_mm512_mask_sub_epi64(b.v, mask, a.v, b.v)}; }
// Lane k: table's lane index[k], 0 .. 7.
VEC V8 look_up(V8 index, V8 table) { return {_mm512_permutexvar_epi64(index.v, table.v)}; }

// Words 4 c .. 4 c + 3 of eight rows, turned: out[i] has word 4 c + i of each row.
VEC void turn_in(const uint64_t* const rows[8], int c, V8 out[4]) {
    __m512i half[4];  // row k and row k + 4
    for (int k = 0; k < 4; ++k) {
        __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k] + 4 * c));
        __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k + 4] + 4 * c));
        half[k] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    const __m512i front = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), back = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    __m512i even01 = _mm512_unpacklo_epi64(half[0], half[1]), odd01 = _mm512_unpackhi_epi64(half[0], half[1]);
    __m512i even23 = _mm512_unpacklo_epi64(half[2], half[3]), odd23 = _mm512_unpackhi_epi64(half[2], half[3]);
    out[0].v = _mm512_permutex2var_epi64(even01, front, even23);
    out[1].v = _mm512_permutex2var_epi64(odd01, front, odd23);
    out[2].v = _mm512_permutex2var_epi64(even01, back, even23);
    out[3].v = _mm512_permutex2var_epi64(odd01, back, odd23);
}

// The way back.
VEC void turn_out(const V8 in[4], uint64_t* const rows[8], int c) {
    const __m512i front = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), back = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    __m512i even01 = _mm512_permutex2var_epi64(in[0].v, front, in[2].v);  // words 0, 2 of rows 0, 1, 4, 5 ...
    __m512i odd01 = _mm512_permutex2var_epi64(in[1].v, front, in[3].v);
    __m512i even23 = _mm512_permutex2var_epi64(in[0].v, back, in[2].v);
    __m512i odd23 = _mm512_permutex2var_epi64(in[1].v, back, in[3].v);
    const __m512i half[4] = {_mm512_unpacklo_epi64(even01, odd01), _mm512_unpackhi_epi64(even01, odd01),
                             _mm512_unpacklo_epi64(even23, odd23), _mm512_unpackhi_epi64(even23, odd23)};
    for (int k = 0; k < 4; ++k) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows[k] + 4 * c), _mm512_castsi512_si256(half[k]));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows[k + 4] + 4 * c), _mm512_extracti64x4_epi64(half[k], 1));
    }
}

// Of up to 16 words those whose bit word >> 1 is set in `bits`, less `base`, one after the other to `to`, where there is room
// for 16. Returns how many.
VEC size_t keep_marked(const uint32_t* from, size_t n, const uint64_t* bits, uint32_t base, uint32_t* to) {
    const __mmask16 here = static_cast<__mmask16>((1u << n) - 1);
    __m512i word = _mm512_maskz_loadu_epi32(here, from);
    __m512i half = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), here, _mm512_srli_epi32(word, 6), bits, 4);
    __m512i place = _mm512_and_si512(_mm512_srli_epi32(word, 1), _mm512_set1_epi32(31));
    __mmask16 marked = _mm512_test_epi32_mask(half, _mm512_sllv_epi32(_mm512_set1_epi32(1), place));
    word = _mm512_sub_epi32(word, _mm512_set1_epi32(static_cast<int>(base)));
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(marked, word));
    return static_cast<size_t>(__builtin_popcount(marked));
}

#else

struct V8 {
    uint64_t v[8];
    template <class Make>
    static V8 make(Make lane) {
        V8 r;
        for (int k = 0; k < 8; ++k) r.v[k] = lane(k);
        return r;
    }
    template <class Test>
    static Mask8 test(Test lane) {
        Mask8 m = 0;
        for (int k = 0; k < 8; ++k) m = static_cast<Mask8>(m | (lane(k) ? 1 << k : 0));
        return m;
    }
    static V8 zero() { return all(0); }
    static V8 all(uint64_t x) { return make([&](int) { return x; }); }
    static V8 load(const uint64_t* from) { return make([&](int k) { return from[k]; }); }
    void store(uint64_t* to) const { for (int k = 0; k < 8; ++k) to[k] = v[k]; }
    V8 operator+(V8 b) const { return make([&](int k) { return v[k] + b.v[k]; }); }
    V8 operator-(V8 b) const { return make([&](int k) { return v[k] - b.v[k]; }); }
    V8 operator&(V8 b) const { return make([&](int k) { return v[k] & b.v[k]; }); }
    V8 operator|(V8 b) const { return make([&](int k) { return v[k] | b.v[k]; }); }
    template <int K>
    V8 shl() const { return make([&](int k) { return v[k] << K; }); }
    template <int K>
    V8 shr() const { return make([&](int k) { return v[k] >> K; }); }
    template <int K>
    V8 sar() const { return make([&](int k) { return static_cast<uint64_t>(static_cast<int64_t>(v[k]) >> K); }); }
    V8 at_least_0() const { return make([&](int k) { return v[k] >> 63 ? 0 : v[k]; }); }
    Mask8 negative() const { return test([&](int k) { return v[k] >> 63; }); }
    Mask8 operator==(V8 b) const { return test([&](int k) { return v[k] == b.v[k]; }); }
    Mask8 operator<(V8 b) const { return test([&](int k) { return v[k] < b.v[k]; }); }
};

inline unsigned __int128 product52(uint64_t a, uint64_t b) {
    return static_cast<unsigned __int128>(a & LOW52) * (b & LOW52);
}
inline V8 mad_lo(V8 acc, V8 a, V8 b) {
    return V8::make([&](int k) { return acc.v[k] + (static_cast<uint64_t>(product52(a.v[k], b.v[k])) & LOW52); });
}
inline V8 mad_hi(V8 acc, V8 a, V8 b) {
    return V8::make([&](int k) { return acc.v[k] + static_cast<uint64_t>(product52(a.v[k], b.v[k]) >> 52); });
}
inline V8 select(Mask8 mask, V8 a, V8 b) {
    return V8::make([&](int k) { return mask >> k & 1 ? a.v[k] : b.v[k]; });
}
inline V8 minus_where(Mask8 mask, V8 a, V8 b) { return select(mask, a - b, b); }
inline V8 look_up(V8 index, V8 table) {
    return V8::make([&](int k) { return table.v[index.v[k] & 7]; });
}
inline size_t keep_marked(const uint32_t* from, size_t n, const uint64_t* bits, uint32_t base, uint32_t* to) {
    size_t kept = 0;
    for (size_t i = 0; i < n; ++i) {
        to[kept] = from[i] - base;
        kept += bits[from[i] >> 7] >> (from[i] >> 1 & 63) & 1;
    }
    return kept;
}
inline void turn_in(const uint64_t* const rows[8], int c, V8 out[4]) {
    for (int i = 0; i < 4; ++i) out[i] = V8::make([&](int k) { return rows[k][4 * c + i]; });
}
inline void turn_out(const V8 in[4], uint64_t* const rows[8], int c) {
    for (int i = 0; i < 4; ++i)
        for (int k = 0; k < 8; ++k) rows[k][4 * c + i] = in[i].v[k];
}

#endif

// The first N words of eight rows, turned: out[i] has word i of each row. What remains of N / 4 goes word by word.
template <int N>
VEC void gather(const uint64_t* const rows[8], V8 out[N]) {
    each<N / 4>([&](auto c) INLINED { turn_in(rows, c, out + 4 * c); });
    each<N % 4>([&](auto i) INLINED {
        constexpr int at = N / 4 * 4 + i;
        alignas(64) uint64_t word[8];
        for (int k = 0; k < 8; ++k) word[k] = rows[k][at];
        out[at] = V8::load(word);
    });
}
template <int N>
VEC void scatter(const V8 in[N], uint64_t* const rows[8]) {
    each<N / 4>([&](auto c) INLINED { turn_out(in + 4 * c, rows, c); });
    each<N % 4>([&](auto i) INLINED {
        constexpr int at = N / 4 * 4 + i;
        alignas(64) uint64_t word[8];
        in[at].store(word);
        for (int k = 0; k < 8; ++k) rows[k][at] = word[k];
    });
}
