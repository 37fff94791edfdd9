// border.hpp - where Python arrays become C++ pointers: every shape is checked here, and nowhere below.
//
// dtype, order and device are in nanobind's types (arguments are never converted); a wrong shape is a ValueError that
// names the argument, what was expected and what came. Names of curves, groups and operations are resolved here.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "curves.cuh"

namespace nb = nanobind;

using Words = nb::ndarray<const uint64_t, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const uint32_t, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using OutWords = nb::ndarray<uint64_t, nb::c_contig, nb::device::cpu>;

constexpr size_t ANY = ~size_t(0);

[[noreturn]] inline void refuse(const std::string& message) { throw nb::value_error(message.c_str()); }

inline std::string shape_text(const std::vector<size_t>& shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); ++i)
        text += (i ? ", " : "") + (shape[i] == ANY ? std::string("n") : std::to_string(shape[i]));
    return text + "]";
}

template <class Array>
std::vector<size_t> shape_of(const Array& array) {
    std::vector<size_t> shape(array.ndim());
    for (size_t i = 0; i < shape.size(); ++i) shape[i] = array.shape(i);
    return shape;
}

template <class Array>
void expect(const Array& array, const char* name, const std::vector<size_t>& want) {
    std::vector<size_t> got = shape_of(array);
    bool good = got.size() == want.size();
    for (size_t i = 0; good && i < got.size(); ++i) good = want[i] == ANY || want[i] == got[i];
    if (!good) refuse(std::string(name) + ": expected shape " + shape_text(want) + ", got " + shape_text(got));
}

// The words of one T: [4], [2, 6], [2, 2, 4] ...
template <class T>
struct Layout;
template <class P>
struct Layout<Field<P>> {
    static std::vector<size_t> dims() { return {P::N}; }
};
template <class F>
struct Layout<Quadratic<F>> {
    static std::vector<size_t> dims() { return {2, F::N}; }
};
template <class F>
struct Layout<Affine<F>> {
    static std::vector<size_t> dims() {
        std::vector<size_t> d = Layout<F>::dims();
        d.insert(d.begin(), 2);
        return d;
    }
};

// A vector of n T (ANY: of any length; the length is array.shape(0)), or a single T.
template <class T, class Array>
auto vector_of(const Array& array, const char* name, size_t n = ANY) {
    std::vector<size_t> want = Layout<T>::dims();
    want.insert(want.begin(), n);
    expect(array, name, want);
    using Word = std::remove_pointer_t<decltype(array.data())>;
    return reinterpret_cast<std::conditional_t<std::is_const_v<Word>, const T, T>*>(array.data());
}
template <class T>
T* single(const OutWords& array, const char* name) {
    expect(array, name, Layout<T>::dims());
    return reinterpret_cast<T*>(array.data());
}

inline void expect_range(size_t begin, size_t end, size_t n, const char* of) {
    if (begin > end || end > n)
        refuse("rows " + std::to_string(begin) + " .. " + std::to_string(end) + ": expected a range within the " +
               std::to_string(n) + " rows of " + of);
}

// log2 of a power of two.
inline int log_of(size_t n, const char* name) {
    if (n == 0 || (n & (n - 1)) || n >> 31) refuse(std::string(name) + ": expected 2^k rows, got " + std::to_string(n));
    return __builtin_ctzll(n);
}

// Calls f with the curve's type as a value.
template <class Call>
auto with_curve(const std::string& curve, Call f) {
    if (curve == "bn254") return f(Bn254{});
    if (curve == "bls12_381") return f(Bls12_381{});
    refuse("curve: expected 'bn254' or 'bls12_381', got '" + curve + "'");
}
template <class Call>
auto with_group(const std::string& curve, const std::string& group, Call f) {
    return with_curve(curve, [&](auto c) {
        using C = decltype(c);
        if (group == "g1") return f(G1<C>{});
        if (group == "g2") return f(G2<C>{});
        refuse("group: expected 'g1' or 'g2', got '" + group + "'");
    });
}
