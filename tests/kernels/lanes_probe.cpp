// Operations of lanes.hpp and lanes2.hpp over arrays of limbs, for test_lanes.py: [groups][limb][lane] in and out.
#include <cstring>
#include <string>

#include "cpu/lanes2.hpp"
#include "curves.cuh"

template <class P>
static Loose<P> loose(const uint64_t* from) {
    Loose<P> r;
    for (int i = 0; i < Loose<P>::L; ++i) r.l[i] = V8::load(from + 8 * i);
    return r;
}
template <class P>
static void keep(const Loose<P>& x, uint64_t* to) {
    for (int i = 0; i < Loose<P>::L; ++i) x.l[i].store(to + 8 * i);
}
static V8 all_ones(Mask8 mask) { return select(mask, V8::all(~uint64_t(0)), V8::zero()); }

template <class P>
static int run(const std::string& op, const uint64_t* a, const uint64_t* b, uint64_t* out, size_t groups) {
    using X = Lanes<P>;
    for (size_t g = 0; g < groups; ++g, a += X::WORDS, b += X::WORDS, out += X::WORDS) {
        X x = X::load(a), y = X::load(b);
        if (op == "mul") (x * y).carried().store(out);
        else if (op == "sqr") sqr(x).carried().store(out);
        else if (op == "mul_sub") (redc(wide_mul(x, x) - wide_mul(y, y)) + X::multiple(1)).carried().store(out);
        else if (op == "mul_add") redc(wide_mul(x, x) + wide_mul(y, y)).carried().store(out);
        else if (op == "add") (x + y).carried().store(out);
        else if (op == "sub") (x - y + X::multiple(7)).carried().store(out);
        else if (op == "carried") loose<P>(a).carried().store(out);
        else if (op == "reduced") loose<P>(a).reduced().store(out);
        else if (op == "canonical") x.canonical().store(out);
        else if (op == "shl") x.template shl<X::K::E>().store(out);
        else if (op == "shl2") x.template shl<2>().store(out);
        else if (op == "is_zero") all_ones(x.is_zero()).store(out);
        else if (op == "select") select(0xa5, x, y).store(out);
        else return 1;
    }
    return 0;
}

// Elements [8 groups] -> limbs, limbs -> elements.
template <class P>
static int turn(const std::string& op, const uint64_t* a, uint64_t* out, size_t groups) {
    using X = Lanes<P>;
    for (size_t g = 0; g < groups; ++g)
        if (op == "gather") X::gather_from(reinterpret_cast<const Field<P>*>(a) + 8 * g).store(out + g * X::WORDS);
        else if (op == "scatter") X::load(a + g * X::WORDS).scatter_to(reinterpret_cast<Field<P>*>(out) + 8 * g);
        else if (op == "constant") X::same(X::constant(reinterpret_cast<const Field<P>*>(a)[g])).store(out + g * X::WORDS);
        else return 1;
    return 0;
}

// Of the quadratic extension: [groups][coordinate][limb][lane].
template <class P>
static int run2(const std::string& op, const uint64_t* a, const uint64_t* b, uint64_t* out, size_t groups) {
    using X = Lanes2<P>;
    for (size_t g = 0; g < groups; ++g, a += X::WORDS, b += X::WORDS, out += X::WORDS) {
        X x = X::load(a), y = X::load(b);
        if (op == "mul") (x * y).carried().store(out);
        else if (op == "sqr") sqr(x).carried().store(out);
        else if (op == "is_zero") all_ones(x.is_zero()).store(out);
        else return 1;
    }
    return 0;
}

template <class P>
static int any(const std::string& op, const uint64_t* a, const uint64_t* b, uint64_t* out, size_t groups) {
    if (op == "one") return Lanes<P>::one().store(out), 0;
    return turn<P>(op, a, out, groups) ? run<P>(op, a, b, out, groups) : 0;
}

// 0, or 1 when there is no such operation.
extern "C" __attribute__((visibility("default"))) int probe(const char* op, const char* field, const uint64_t* a,
                                                           const uint64_t* b, uint64_t* out, size_t groups) {
    std::string f = field;
    if (f == "bn254 fq") return any<Bn254FqParams>(op, a, b, out, groups);
    if (f == "bn254 fr") return any<Bn254FrParams>(op, a, b, out, groups);
    if (f == "bn254 fq2") return run2<Bn254FqParams>(op, a, b, out, groups);
    if (f == "bls12_381 fq2") return run2<Bls12381FqParams>(op, a, b, out, groups);
    if (f == "bls12_381 fq") return any<Bls12381FqParams>(op, a, b, out, groups);
    if (f == "bls12_381 fr") return any<Bls12381FrParams>(op, a, b, out, groups);
    return 1;
}
