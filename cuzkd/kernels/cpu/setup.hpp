// setup.hpp - what the kernels of a development key do, item by item (setup.cuh): the tests compare it with plain ints.
// On the processor nobody else runs it, so there are no threads here; `threads` says how the items are shared out.
#pragma once
#include <string>

#include "cpu/border.hpp"
#include "setup.cuh"

// sums[cols[e]] += term e, by columns.
inline void setup_terms(std::string curve, Words row_ptr, Indices cols, Indices coeff, Words table, Words values,
                        OutWords sums) {
    with_curve(curve, [&](auto c) {
        using Fr = typename decltype(c)::Fr;
        expect(row_ptr, "row_ptr", {ANY});
        expect(cols, "cols", {ANY});
        expect(coeff, "coeff", {cols.shape(0)});
        expect(sums, "sums", {ANY, COLUMNS});
        const Fr *t = vector_of<Fr>(table, "table"), *v = vector_of<Fr>(values, "values");
        size_t n_rows = values.shape(0), n = cols.shape(0);
        expect(row_ptr, "row_ptr", {n_rows + 1});
        if (row_ptr.data()[0] != 0 || row_ptr.data()[n_rows] != n) refuse("row_ptr: its rows do not fit the entries");
        for (size_t e = 0; e < n; ++e) {
            uint32_t wire = cols.data()[e], k = coeff.data()[e];
            if (wire >= sums.shape(0) || k >= table.shape(0)) refuse("entry " + std::to_string(e) + " is out of bounds");
            Fr product = term(t, k, v[row_of(row_ptr.data(), n_rows, e)]);
            for (int i = 0; i < COLUMNS; ++i) sums.data()[size_t(wire) * COLUMNS + i] += column(product, i);
        }
    });
}

inline void setup_settle(std::string curve, Words sums, OutWords out) {
    with_curve(curve, [&](auto c) {
        using Fr = typename decltype(c)::Fr;
        Fr* o = vector_of<Fr>(out, "out");
        expect(sums, "sums", {out.shape(0), COLUMNS});
        for (size_t i = 0; i < out.shape(0); ++i) o[i] = settle<Fr>(sums.data() + i * COLUMNS);
    });
}

// described: the members of Lagrange, in order.
inline void setup_lagrange(std::string curve, Words described, uint64_t threads, OutWords out) {
    with_curve(curve, [&](auto c) {
        using Fr = typename decltype(c)::Fr;
        const Fr* d = vector_of<Fr>(described, "described", 5);
        Fr* o = vector_of<Fr>(out, "out");
        Lagrange<Fr> of{d[0], d[1], d[2], d[3], d[4]};
        for (uint64_t t = 0; t < threads; ++t) lagrange_share(of, t, threads, out.shape(0), o);
    });
}

// described: the members of Progression, in order.
inline void setup_progression(std::string curve, Words described, uint64_t threads, OutWords out) {
    with_curve(curve, [&](auto c) {
        using Fr = typename decltype(c)::Fr;
        const Fr* d = vector_of<Fr>(described, "described", 3);
        Fr* o = vector_of<Fr>(out, "out");
        Progression<Fr> of{d[0], d[1], d[2]};
        for (uint64_t t = 0; t < threads; ++t) progression_share(of, t, threads, out.shape(0), o);
    });
}

inline void setup_multiples(std::string curve, std::string group, Words table, int bits, Words scalars, uint64_t threads,
                            OutWords out) {
    with_group(curve, group, [&](auto g) {
        using Point = Affine<typename decltype(g)::F>;
        if (bits != 8 && bits != 16) refuse("bits: expected 8 or 16, got " + std::to_string(bits));
        const Point* p = vector_of<Point>(table, "table", size_t(256 / bits) << bits);
        Point* o = vector_of<Point>(out, "out");
        expect(scalars, "scalars", {out.shape(0), 4});
        for (uint64_t t = 0; t < threads; ++t) multiples_share(p, bits, scalars.data(), t, threads, out.shape(0), o);
    });
}

inline void bind_setup(nb::module_& m) {
    auto a = [](const char* name) { return nb::arg(name).noconvert(); };
    m.def("setup_terms", &setup_terms, a("curve"), a("row_ptr"), a("cols"), a("coeff"), a("table"), a("values"),
          a("sums"));
    m.def("setup_settle", &setup_settle, a("curve"), a("sums"), a("out"));
    m.def("setup_lagrange", &setup_lagrange, a("curve"), a("described"), a("threads"), a("out"));
    m.def("setup_progression", &setup_progression, a("curve"), a("described"), a("threads"), a("out"));
    m.def("setup_multiples", &setup_multiples, a("curve"), a("group"), a("table"), a("bits"), a("scalars"), a("threads"),
          a("out"));
}
