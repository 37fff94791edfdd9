// module.cpp - cuzkd.kernels._native, _native_adx and _native_ifma: what backend/cpu.py calls. One source, built three
// times (CMakeLists.txt); arrays as in backend/protocol.py.
//
// Every call checks its arguments, lets go of the GIL, works with the threads of pool.hpp, and writes into arrays that
// the caller made. Field elements are trusted to be reduced; scalars and matrix indices are checked, because they
// become addresses.
#include "cpu/border.hpp"
#include "cpu/cancel.hpp"
#include "cpu/doublings.hpp"
#include "cpu/elementwise.hpp"
#include "cpu/msm.hpp"
#include "cpu/pairing.hpp"
#include "cpu/pool.hpp"
#include "cpu/scalars.hpp"
#include "cpu/setup.hpp"
#include "cpu/subgroup.hpp"
#include "cpu/transform.hpp"
#include "cpu/vectors.hpp"

using Name = std::string;
using Release = nb::gil_scoped_release;

static void field_op(Name curve, Name field, Name op, Words a, std::optional<Words> b, OutWords out) {
    with_curve(curve, [&](auto c) {
        using C = decltype(c);
        if (field == "fr") return field_loop<typename C::Fr>(op, a, b, out);
        if (field == "fq") return field_loop<typename C::Fq>(op, a, b, out);
        if (field == "fq2") return field_loop<typename C::Fq2>(op, a, b, out);
        refuse("field: expected 'fr', 'fq' or 'fq2', got '" + field + "'");
    });
}

static void point_op(Name curve, Name group, Name op, Words p, std::optional<Words> q, OutWords out) {
    with_group(curve, group, [&](auto g) {
        using F = typename decltype(g)::F;
        using Point = Affine<F>;
        using Sum = Xyzz<F>;
        size_t n = out.ndim() ? out.shape(0) : 0;
        const Point *x = vector_of<Point>(p, "p", n), *y = q ? vector_of<Point>(*q, "q", n) : nullptr;
        Point* z = vector_of<Point>(out, "out");
        if ((op == "add") != (y != nullptr)) refuse("point_op: only 'add' takes, and needs, a second operand");
        if (op != "add" && op != "double" && op != "neg") refuse("point_op: unknown operation '" + op + "'");
        Release nogil;
        parallel_ranges(n, 64, [&](size_t begin, size_t end) {
            std::vector<Sum> sums(end - begin);
            for (size_t i = begin; i < end; ++i) {
                Sum first = Sum::from_affine(x[i]);
                sums[i - begin] = op == "add" ? first.add(y[i]) : op == "double" ? first.dbl() : first.neg();
            }
            to_affine(sums.data(), z + begin, end - begin);
        });
    });
}

static void scalar_mul_op(Name curve, Name group, Words points, Words scalars, OutWords out) {
    with_group(curve, group, [&](auto g) {
        using G = decltype(g);
        using Point = Affine<typename G::F>;
        size_t n = out.ndim() ? out.shape(0) : 0;
        const Point* p = vector_of<Point>(points, "points", n);
        const auto* s = vector_of<typename G::Fr>(scalars, "scalars", n);
        Point* o = vector_of<Point>(out, "out");
        Release nogil;
        scalar_mul(p, s, o, n);
    });
}

static void fixed_base_mul_op(Name curve, Name group, Words scalars, OutWords out) {
    with_group(curve, group, [&](auto g) {
        using G = decltype(g);
        using Point = Affine<typename G::F>;
        size_t n = out.ndim() ? out.shape(0) : 0;
        const auto* s = vector_of<typename G::Fr>(scalars, "scalars", n);
        Point* o = vector_of<Point>(out, "out");
        Release nogil;
        fixed_base_mul(G::generator(), s, o, n);
    });
}

static int64_t check_points_op(Name curve, Name group, Words points, bool subgroup) {
    return with_group(curve, group, [&](auto g) {
        using G = decltype(g);
        const auto* p = vector_of<Affine<typename G::F>>(points, "points");
        size_t n = points.shape(0);
        Release nogil;
        return static_cast<int64_t>(check_points<G>(p, n, subgroup));
    });
}

static void ntt(Name curve, OutWords values, uint64_t root_family, bool inverse, Words shift) {
    with_curve(curve, [&](auto c) {
        using Fr = typename decltype(c)::Fr;
        Fr* x = vector_of<Fr>(values, "values");
        int log_n = log_of(values.shape(0), "values");
        Fr by = *vector_of<Fr>(shift, "shift", 1);
        Release nogil;
        plain_transform(x, log_n, root_family, inverse, by.from_canonical());
    });
}

static void quotient(Name curve, OutWords a, OutWords b, OutWords c, uint64_t root_family, Name reduction,
                     const CancelFlag* cancel) {
    with_curve(curve, [&](auto k) {
        using Fr = typename decltype(k)::Fr;
        Fr* x = vector_of<Fr>(a, "a");
        size_t n = a.shape(0);
        int log_n = log_of(n, "a");
        Fr *y = vector_of<Fr>(b, "b", n), *z = vector_of<Fr>(c, "c", n);
        if (reduction != "circom" && reduction != "bellman")
            refuse("reduction: expected 'circom' or 'bellman', got '" + reduction + "'");
        Release nogil;
        CancelScope scope(cancel);
        (reduction == "circom" ? circom_quotient<Fr> : bellman_quotient<Fr>)(x, y, z, log_n, root_family);
    });
}

static Scalars prepare_scalars(Name curve, Words scalars, const CancelFlag* cancel) {
    return with_curve(curve, [&](auto c) {
        const auto* s = vector_of<typename decltype(c)::Fr>(scalars, "scalars");
        size_t n = scalars.shape(0);
        Release nogil;
        CancelScope scope(cancel);
        return Scalars::prepare(s, n);
    });
}

static void msm(Name curve, Name group, Words bases, const Scalars& scalars, size_t first, OutWords out,
                const CancelFlag* cancel) {
    with_group(curve, group, [&](auto g) {
        using F = typename decltype(g)::F;
        if (scalars.bits != decltype(g)::Fr::Params::BITS) refuse("msm: the scalars belong to another curve");
        if (first > scalars.count) refuse("msm: first scalar " + std::to_string(first) + " is past the last one");
        const auto* p = vector_of<Affine<F>>(bases, "bases", scalars.count - first);
        auto* o = single<Affine<F>>(out, "out");
        Release nogil;
        CancelScope scope(cancel);
        *o = Msm<F>(p, first, scalars).run();
    });
}

static void sum_of_doublings_op(Name curve, Name group, Words points, Indices times, OutWords out) {
    with_group(curve, group, [&](auto g) {
        using Point = Affine<typename decltype(g)::F>;
        expect(times, "times", {ANY});
        size_t n = times.shape(0);
        const auto* p = vector_of<Point>(points, "points", n);
        auto* o = single<Point>(out, "out");
        Release nogil;
        *o = sum_of_doublings(p, times.data(), n);
    });
}

template <bool SHORT>
static void spmv(Name curve, Words row_ptr, Indices cols, Indices coeff, Words table, Words z, OutWords out,
                 size_t begin, size_t end) {
    with_curve(curve, [&](auto c) {
        using Fr = typename decltype(c)::Fr;
        expect(row_ptr, "row_ptr", {ANY});
        expect(cols, "cols", {ANY});
        expect(coeff, "coeff", {cols.shape(0)});
        const Fr *t = vector_of<Fr>(table, "table"), *w = vector_of<Fr>(z, "z");
        Fr* o = vector_of<Fr>(out, "out");
        if (row_ptr.shape(0) == 0) refuse("row_ptr: expected n_rows + 1 entries, got none");
        Csr m{row_ptr.data(), cols.data(), coeff.data(), row_ptr.shape(0) - 1, z.shape(0), cols.shape(0), table.shape(0)};
        expect_range(begin, end, m.n_rows, "the matrix");
        expect_range(begin, end, out.shape(0), "out");
        Release nogil;
        sparse_rows<SHORT>(m, t, w, o, begin, end);
    });
}

static int64_t first_mismatch_op(Name curve, Words a, Words b, Words c, size_t begin, size_t end) {
    return with_curve(curve, [&](auto k) {
        using Fr = typename decltype(k)::Fr;
        const Fr *x = vector_of<Fr>(a, "a"), *y = vector_of<Fr>(b, "b"), *z = vector_of<Fr>(c, "c");
        expect_range(begin, end, a.shape(0), "a");
        expect_range(begin, end, b.shape(0), "b");
        expect_range(begin, end, c.shape(0), "c");
        Release nogil;
        return static_cast<int64_t>(first_mismatch(x, y, z, begin, end));
    });
}

static int64_t copy_witness_op(Name curve, Bytes raw, OutWords out) {
    return with_curve(curve, [&](auto c) {
        using Fr = typename decltype(c)::Fr;
        Fr* o = vector_of<Fr>(out, "out");
        size_t n = out.shape(0);
        expect(raw, "raw", {n * sizeof(Fr)});
        Release nogil;
        return static_cast<int64_t>(copy_witness(raw.data(), o, n));
    });
}

template <class C>
static Fq12<C> pairing_product(const Words& g1, const Words& g2) {
    const auto* p = vector_of<Affine<typename C::Fq>>(g1, "g1");
    const auto* q = vector_of<Affine<typename C::Fq2>>(g2, "g2", g1.shape(0));
    Release nogil;
    return Pairing<C>::product(p, q, g1.shape(0));
}

static bool pairing_check(Name curve, Words g1, Words g2) {
    return with_curve(curve, [&](auto c) {
        using C = decltype(c);
        return pairing_product<C>(g1, g2) == Fq12<C>::one();
    });
}

// Fq12 as py_ecc writes it, Fq[w]/(w^12 - 2 XI0 w^6 + XI0^2 + 1): u = w^6 - XI0, so c0 + c1 u at w^k gives
// c0 - XI0 c1 at w^k and c1 at w^(k+6). Canonical.
static void pairing(Name curve, Words g1, Words g2, OutWords out) {
    with_curve(curve, [&](auto c) {
        using C = decltype(c);
        using Fq = typename C::Fq;
        Fq* o = vector_of<Fq>(out, "out", 12);
        Fq12<C> f = pairing_product<C>(g1, g2);
        Fq xi0 = small<Fq>(C::Data::XI0);
        for (int k = 0; k < 6; ++k) {
            const auto& a = f.coefficient(k);
            o[k] = (a.c0 - xi0 * a.c1).to_canonical();
            o[k + 6] = a.c1.to_canonical();
        }
    });
}

NB_MODULE(CUZKD_MODULE, m) {  // the name of the build: see CMakeLists.txt
    auto a = [](const char* name) { return nb::arg(name).noconvert(); };
    m.def("field_op", &field_op, a("curve"), a("field"), a("op"), a("a"), a("b").none(), a("out"));
    m.def("point_op", &point_op, a("curve"), a("group"), a("op"), a("p"), a("q").none(), a("out"));
    m.def("scalar_mul", &scalar_mul_op, a("curve"), a("group"), a("points"), a("scalars"), a("out"));
    m.def("fixed_base_mul", &fixed_base_mul_op, a("curve"), a("group"), a("scalars"), a("out"));
    m.def("check_points", &check_points_op, a("curve"), a("group"), a("points"), a("subgroup"));
    m.def("ntt", &ntt, a("curve"), a("values"), a("root_family"), a("inverse"), a("shift"));
    // Calls that take seconds take a flag that another thread may set: they throw Cancelled soon after.
    nb::exception<Cancelled>(m, "Cancelled");
    nb::class_<CancelFlag>(m, "CancelFlag").def(nb::init<>()).def("set", &CancelFlag::set);
    auto flag = nb::arg("cancel").none() = nb::none();
    m.def("quotient", &quotient, a("curve"), a("a"), a("b"), a("c"), a("root_family"), a("reduction"), flag);
    nb::class_<Scalars>(m, "Scalars")
        .def_ro("count", &Scalars::count)
        .def_prop_ro("ones", [](const Scalars& s) { return s.ones.size(); })
        .def_prop_ro("bucket_entries", &Scalars::bucket_entries);
    m.def("prepare_scalars", &prepare_scalars, a("curve"), a("scalars"), flag);
    m.def("msm", &msm, a("curve"), a("group"), a("bases"), a("scalars"), a("first"), a("out"), flag);
    m.def("sum_of_doublings", &sum_of_doublings_op, a("curve"), a("group"), a("points"), a("times"), a("out"));
    m.def("spmv", &spmv<true>, a("curve"), a("row_ptr"), a("cols"), a("coeff"), a("table"), a("z"), a("out"),
          a("begin"), a("end"));
    m.def("spmv_by_products", &spmv<false>, a("curve"), a("row_ptr"), a("cols"), a("coeff"), a("table"), a("z"),
          a("out"), a("begin"), a("end"));
    m.def("first_mismatch", &first_mismatch_op, a("curve"), a("a"), a("b"), a("c"), a("begin"), a("end"));
    m.def("copy_witness", &copy_witness_op, a("curve"), a("raw"), a("out"));
    m.def("pairing_check", &pairing_check, a("curve"), a("g1"), a("g2"));
    m.def("pairing", &pairing, a("curve"), a("g1"), a("g2"), a("out"));
    bind_setup(m);
    m.def("set_threads", [](int n) {
        if (n < 1) refuse("set_threads: expected at least 1, got " + std::to_string(n));
        Release nogil;
        Pool::instance().set_width(n);
    }, a("n"));
    m.def("threads", [] { return Pool::instance().width(); });
}
