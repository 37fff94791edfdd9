// Transforms by lanes and their products, for test_transform_lanes.py: arrays in memory as everywhere.
#include <string>

#include "cpu/transform_lanes.hpp"
#include "curves.cuh"

// x [groups][limb][lane] below R -> x w, [groups][limb][lane], limbs of 52 bits; reduced and canonical without w.
template <class P>
static int products(const std::string& op, const uint64_t* x, const Field<P>& w, uint64_t* out, size_t groups) {
    const Spread<P> factor(Factor<P>::of(w));
    for (size_t g = 0; g < groups; ++g, x += Lanes<P>::WORDS, out += Lanes<P>::WORDS) {
        const Loose<P> v = Loose<P>::load(x);
        if (op == "times") modulo_r::settled(modulo_r::times(v, factor)).store(out);
        else if (op == "reduced") modulo_r::settled(modulo_r::reduced(v)).store(out);
        else if (op == "canonical") modulo_r::canonical(v).store(out);
        else return 1;
    }
    return 0;
}

template <class P>
static int quotients(const std::string& op, Field<P>* a, Field<P>* b, Field<P>* c, int log_n, uint64_t family) {
    if (op == "circom") circom_quotient_by_lanes(a, b, c, log_n, family);
    else if (op == "bellman") bellman_quotient_by_lanes(a, b, c, log_n, family);
    else return 1;
    return 0;
}

// Down or up on x [n][8] in place: n of a column at its longest. Values at their greatest: p is added to each.
template <class P>
static int networks(const std::string& op, Field<P>* x, uint64_t family) {
    const auto domain = LaneDomain<P>::get(family, LaneDomain<P>::MAX_LOG);
    const size_t n = domain->columns;
    const auto v = workspace<Loose<P>>(n);
    for (size_t i = 0; i < n; ++i) v[i] = modulo_r::plus_multiple<1>(Lanes<P>::gather_from(x + 8 * i));
    auto nothing = [](Loose<P>*, size_t, size_t) {};
    if (op == "down") domain->network().template walk<true, false>(v.get(), n, nothing);
    else if (op == "up") domain->network().template walk<false, true>(v.get(), n, nothing);
    else return 1;
    for (size_t i = 0; i < n; ++i) modulo_r::canonical(v[i]).scatter_to(x + 8 * i);
    return 0;
}

template <class Call>
static int with_field(const std::string& curve, Call call) {
    if (curve == "bn254") return call(Bn254::Fr{});
    if (curve == "bls12_381") return call(Bls12_381::Fr{});
    return 1;
}

#define EXPORT extern "C" __attribute__((visibility("default")))

// w: one Montgomery element.
EXPORT int product(const char* op, const char* curve, const uint64_t* x, const uint64_t* w, uint64_t* out, size_t groups) {
    return with_field(curve, [&](auto field) {
        using Fr = decltype(field);
        return products<typename Fr::Params>(op, x, *reinterpret_cast<const Fr*>(w), out, groups);
    });
}

EXPORT int quotient(const char* op, const char* curve, uint64_t* a, uint64_t* b, uint64_t* c, int log_n, uint64_t family) {
    return with_field(curve, [&](auto field) {
        using Fr = decltype(field);
        return quotients(op, reinterpret_cast<Fr*>(a), reinterpret_cast<Fr*>(b), reinterpret_cast<Fr*>(c), log_n, family);
    });
}

// scale: one Montgomery element.
EXPORT int transform(const char* curve, uint64_t* x, int log_n, uint64_t family, bool inverse, const uint64_t* scale) {
    return with_field(curve, [&](auto field) {
        using Fr = decltype(field);
        plain_transform_by_lanes(reinterpret_cast<Fr*>(x), log_n, family, inverse, *reinterpret_cast<const Fr*>(scale));
        return 0;
    });
}

EXPORT int network(const char* op, const char* curve, uint64_t* x, uint64_t family) {
    return with_field(curve, [&](auto field) {
        using Fr = decltype(field);
        return networks(op, reinterpret_cast<Fr*>(x), family);
    });
}
