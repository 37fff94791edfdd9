// readers.cpp - cuzkd.kernels._readers: what backend/readers.py calls to take the bulk of foreign files apart. A module of
// its own: small, without the processor's special instructions, and driven by fuzzers (tests/fuzz) through its headers.
//
// Contents of files are never trusted here. Every call checks its arguments, lets go of the GIL and writes into arrays
// that the caller made.
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>

#include <variant>

#include "cpu/border.hpp"
#include "cpu/readers_points.hpp"
#include "cpu/readers_r1cs.hpp"
#include "cpu/readers_zkey.hpp"

using Name = std::string;
using Release = nb::gil_scoped_release;
using OutIndices = nb::ndarray<uint32_t, nb::c_contig, nb::device::cpu>;

static std::optional<std::pair<size_t, Name>> decode_points_op(Name curve, Name group, Bytes raw, OutWords out) {
    return with_group(curve, group, [&](auto g) -> std::optional<std::pair<size_t, Name>> {
        using G = decltype(g);
        using Format = Uncompressed<G>;
        auto* points = vector_of<typename Format::Point>(out, "out");
        const size_t n = out.shape(0);
        expect(raw, "raw", {n * Format::BYTES});
        Release nogil;
        const size_t bad = decode_points<G>(raw.data(), points, n);
        if (bad == NONE) return std::nullopt;
        return std::make_pair(bad, Name(fault_text(Format::decode(raw.data() + bad * Format::BYTES, points[bad]))));
    });
}

static nb::object encode_points_op(Name curve, Name group, Words points) {
    return with_group(curve, group, [&](auto g) {
        using Format = Uncompressed<decltype(g)>;
        const auto* p = vector_of<typename Format::Point>(points, "points");
        const size_t n = points.shape(0);
        nb::object bytes = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(n * Format::BYTES)));
        if (!bytes.is_valid()) throw std::bad_alloc();
        auto* out = reinterpret_cast<uint8_t*>(PyBytes_AsString(bytes.ptr()));  // nobody else has seen it yet
        Release nogil;
        encode_points<decltype(g)>(p, out, n);
        return bytes;
    });
}

// A walk over the constraints of an .r1cs with a visitor, over either field: fed block by block, then finished once.
template <template <class> class Visitor>
struct R1cs {
    using Bn = r1cs::Walk<Bn254::Fr, Visitor<Bn254::Fr>>;
    using Bls = r1cs::Walk<Bls12_381::Fr, Visitor<Bls12_381::Fr>>;
    std::variant<Bn, Bls> walk;

    template <class... Arguments>
    R1cs(Name curve, size_t size, size_t n_wires, size_t n_constraints, Arguments... arguments)
        : walk(with_curve(curve, [&](auto c) -> std::variant<Bn, Bls> {
              using Fr = typename decltype(c)::Fr;
              return r1cs::Walk<Fr, Visitor<Fr>>(size, n_wires, n_constraints, Visitor<Fr>{arguments...});
          })) {}

    void feed(Bytes raw) {
        expect(raw, "raw", {ANY});
        Release nogil;
        std::visit([&](auto& w) { w.feed(raw.data(), raw.shape(0)); }, walk);
    }
};

struct R1csCount : R1cs<r1cs::Count> {
    using R1cs::R1cs;

    std::array<uint64_t, r1cs::MATRICES> finish() {
        return std::visit([](auto& w) {
            w.finish();
            return w.visitor.counts;
        }, walk);
    }
};

struct R1csRows : R1cs<r1cs::Rows> {
    OutWords row_ptr;  // hold on to the arrays
    OutIndices cols, coeff;

    R1csRows(Name curve, size_t size, size_t n_wires, size_t n_constraints, size_t matrix, OutWords row_ptr,
             OutIndices cols, OutIndices coeff)
        : R1cs(curve, size, n_wires, n_constraints, checked(matrix, n_constraints, row_ptr, cols, coeff), row_ptr.data(),
               cols.data(), coeff.data(), cols.shape(0)),
          row_ptr(row_ptr), cols(cols), coeff(coeff) {}

    static size_t checked(size_t matrix, size_t n_constraints, const OutWords& row_ptr, const OutIndices& cols,
                          const OutIndices& coeff) {
        expect(row_ptr, "row_ptr", {n_constraints + 1});
        expect(cols, "cols", {ANY});
        expect(coeff, "coeff", {cols.shape(0)});
        if (matrix >= r1cs::MATRICES) refuse("matrix: expected 0, 1 or 2, got " + std::to_string(matrix));
        return matrix;
    }

    // Number of entries, and the table's bytes.
    std::pair<size_t, nb::bytes> finish() {
        return std::visit([](auto& w) {
            w.finish();
            const auto table = w.visitor.table();
            return std::make_pair(w.visitor.entries(), nb::bytes(table.data(), table.size() * sizeof table[0]));
        }, walk);
    }
};

// The entries of a .zkey on their way into matrices: counted, then placed, with the table that A and B
// share.
struct Coefficients {
    using Bn = Distinct<Bn254::Fr>;
    using Bls = Distinct<Bls12_381::Fr>;
    std::variant<Bn, Bls> table;

    explicit Coefficients(Name curve)
        : table(with_curve(curve, [](auto c) -> std::variant<Bn, Bls> {
              using Fr = typename decltype(c)::Fr;
              Fr r2;
              for (int i = 0; i < Fr::N; ++i) r2.v[i] = Fr::Params::r2(i);  // 1, twice Montgomery
              return Distinct<Fr>(r2);
          })) {}

    // Calls f with the table and the number of entries of a block.
    template <class Call>
    auto on(const Bytes& raw, Call f) {
        expect(raw, "raw", {ANY});
        return std::visit([&](auto& t) {
            using Fr = typename std::remove_reference_t<decltype(t.values)>::value_type;
            constexpr size_t bytes = zkey::Entry<Fr>::BYTES;
            if (raw.shape(0) % bytes) refuse("raw: expected whole entries of " + std::to_string(bytes) + " bytes");
            Release nogil;
            f(t, raw.shape(0) / bytes);
        }, table);
    }

    void count(Bytes raw, size_t first, size_t n_wires, OutWords counts) {
        expect(counts, "counts", {zkey::MATRICES, ANY});
        on(raw, [&](auto& t, size_t n) {
            using Fr = typename std::remove_reference_t<decltype(t.values)>::value_type;
            zkey::count<Fr>(raw.data(), n, first, counts.shape(1), n_wires, counts.data());
        });
    }

    // next: uint64[2, n_rows], where the next entry of each row goes; moved on.
    void place(Bytes raw, size_t first, size_t n_wires, OutWords next, OutIndices cols_a, OutIndices coeff_a,
               OutIndices cols_b, OutIndices coeff_b) {
        expect(next, "next", {zkey::MATRICES, ANY});
        const size_t n_rows = next.shape(1);
        auto checked = [&](size_t matrix, const OutIndices& cols, const OutIndices& coeff) {
            expect(cols, "cols", {ANY});
            expect(coeff, "coeff", {cols.shape(0)});
            return zkey::Place{next.data() + matrix * n_rows, cols.data(), coeff.data(), cols.shape(0)};
        };
        const std::array<zkey::Place, zkey::MATRICES> places{checked(0, cols_a, coeff_a), checked(1, cols_b, coeff_b)};
        on(raw, [&](auto& t, size_t n) { zkey::place(raw.data(), n, first, n_rows, n_wires, t, places); });
    }

    nb::bytes distinct() const {
        return std::visit([](const auto& t) { return nb::bytes(t.values.data(), t.values.size() * 32); }, table);
    }
};

NB_MODULE(CUZKD_MODULE, m) {
    auto a = [](const char* name) { return nb::arg(name).noconvert(); };
    nb::exception<Malformed>(m, "Malformed", PyExc_ValueError);
    m.def("decode_points", &decode_points_op, a("curve"), a("group"), a("raw"), a("out"));
    m.def("encode_points", &encode_points_op, a("curve"), a("group"), a("points"));
    nb::class_<R1csCount>(m, "R1csCount")
        .def(nb::init<Name, size_t, size_t, size_t>(), a("curve"), a("size"), a("n_wires"), a("n_constraints"))
        .def("feed", &R1csCount::feed, a("raw"))
        .def("finish", &R1csCount::finish);
    nb::class_<R1csRows>(m, "R1csRows")
        .def(nb::init<Name, size_t, size_t, size_t, size_t, OutWords, OutIndices, OutIndices>(), a("curve"), a("size"),
             a("n_wires"), a("n_constraints"), a("matrix"), a("row_ptr"), a("cols"), a("coeff"))
        .def("feed", &R1csRows::feed, a("raw"))
        .def("finish", &R1csRows::finish);
    nb::class_<Coefficients>(m, "Coefficients")
        .def(nb::init<Name>(), a("curve"))
        .def("count", &Coefficients::count, a("raw"), a("first"), a("n_wires"), a("counts"))
        .def("place", &Coefficients::place, a("raw"), a("first"), a("n_wires"), a("next"), a("cols_a"),
             a("coeff_a"), a("cols_b"), a("coeff_b"))
        .def("distinct", &Coefficients::distinct);
}
