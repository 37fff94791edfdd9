// elementwise.hpp - one operation on each element of vectors, by all threads; products eight at a time where that is fast.
#pragma once
#include <optional>
#include <string>

#include "cpu/border.hpp"
#include "cpu/lanes.hpp"
#include "cpu/pool.hpp"

// z[i] = eight(x[i ..], y[i ..]) in groups of eight, what is left over by one(i). eight: canonical Lanes of Lanes.
template <class P, class Eight, class One>
void eight_at_a_time(const Field<P>* x, const Field<P>* y, Field<P>* z, size_t n, Eight eight, One one) {
    parallel_ranges(n, 1024, [&](size_t begin, size_t end) {
        size_t i = begin;
        for (; i + 8 <= end; i += 8)
            eight(Lanes<P>::gather_from(x + i), Lanes<P>::gather_from(y + i)).scatter_to(z + i);
        for (; i < end; ++i) z[i] = one(i);
    });
}

// Has `op` been done by lanes? y: x where there is no second operand.
template <class P>
bool products_by_lanes(const std::string& op, const Field<P>* x, const Field<P>* y, Field<P>* z, size_t n) {
    using V = Lanes<P>;
    constexpr int E = Limbs52<P>::E;
    Field<P> r2, two_e = Field<P>::zero();  // what takes x into Montgomery form, and out of it
    for (int i = 0; i < P::N; ++i) r2.v[i] = P::r2(i);
    two_e.v[0] = uint64_t(1) << E;
    auto times = [](const V& factor) { return [=](const V& a, const V&) { return (a * factor).carried().canonical(); }; };
    if (op == "mul" || op == "sqr")
        eight_at_a_time(x, y, z, n, [](const V& a, const V& b) { return (a.template shl<E>() * b).carried().canonical(); },
                        [&](size_t i) { return x[i] * y[i]; });
    else if (op == "to_mont")
        eight_at_a_time(x, y, z, n, times(V::same(V::constant(r2))), [&](size_t i) { return x[i].from_canonical(); });
    else if (op == "from_mont")
        eight_at_a_time(x, y, z, n, times(V::same(two_e)), [&](size_t i) { return x[i].to_canonical(); });
    else
        return false;
    return true;
}
template <class F>
bool products_by_lanes(const std::string&, const Quadratic<F>*, const Quadratic<F>*, Quadratic<F>*, size_t) {
    return false;
}

template <class F>
void field_loop(const std::string& op, const Words& a, const std::optional<Words>& b, const OutWords& out) {
    size_t n = out.ndim() ? out.shape(0) : 0;
    const F *x = vector_of<F>(a, "a", n), *y = b ? vector_of<F>(*b, "b", n) : nullptr;
    F* z = vector_of<F>(out, "out");
    auto each = [&](auto f) {
        parallel_ranges(n, 1024, [&](size_t begin, size_t end) {
            for (size_t i = begin; i < end; ++i) z[i] = f(i);
        });
    };
    bool binary = op == "add" || op == "sub" || op == "mul";
    if (binary != (y != nullptr)) refuse("field_op: '" + op + "' takes " + (binary ? "two operands" : "one operand"));
    nb::gil_scoped_release nogil;
    if constexpr (VEC8_IS_FAST)
        if (products_by_lanes(op, x, y ? y : x, z, n)) return;
    if (op == "add") return each([&](size_t i) { return x[i] + y[i]; });
    if (op == "sub") return each([&](size_t i) { return x[i] - y[i]; });
    if (op == "mul") return each([&](size_t i) { return x[i] * y[i]; });
    if (op == "sqr") return each([&](size_t i) { return x[i].sqr(); });
    if (op == "neg") return each([&](size_t i) { return x[i].neg(); });
    if (op == "inv") return each([&](size_t i) { return x[i].inv(); });
    if (op == "to_mont") return each([&](size_t i) { return x[i].from_canonical(); });
    if (op == "from_mont") return each([&](size_t i) { return x[i].to_canonical(); });
    refuse("field_op: unknown operation '" + op + "'");
}
