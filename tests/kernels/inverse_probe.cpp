// inverse_probe.cpp - divide() of inverse.cuh in both widths, as a filter: "FIELD BITS x y" -> x/y, numbers in hexadecimal.
#include <cstdio>
#include <iostream>
#include <string>

#include "constants.cuh"
#include "field.cuh"

template <class P, int B>
static void answer(const std::string& x, const std::string& y) {
    uint64_t words[3][P::N] = {};
    for (int k = 0; k < 2; ++k) {
        const std::string& digits = k == 0 ? x : y;
        for (size_t i = 0; i < digits.size(); ++i) {
            uint64_t digit = std::stoul(std::string(1, digits[digits.size() - 1 - i]), nullptr, 16);
            words[k][i / 16] |= digit << 4 * (i % 16);
        }
    }
    divide<P, B>(words[2], words[0], words[1]);
    for (int i = P::N - 1; i >= 0; --i) std::printf("%016llx", static_cast<unsigned long long>(words[2][i]));
    std::printf("\n");
}

template <class P>
static void answer(int bits, const std::string& x, const std::string& y) {
    if (bits == 30) return answer<P, 30>(x, y);
    if (bits == 62) return answer<P, 62>(x, y);
    throw std::invalid_argument("30 or 62 bits");
}

int main() {
    std::string field, x, y;
    for (int bits; std::cin >> field >> bits >> x >> y;) {
        if (field == "bn254.fr") answer<Bn254FrParams>(bits, x, y);
        else if (field == "bn254.fq") answer<Bn254FqParams>(bits, x, y);
        else if (field == "bls12_381.fr") answer<Bls12381FrParams>(bits, x, y);
        else if (field == "bls12_381.fq") answer<Bls12381FqParams>(bits, x, y);
        else throw std::invalid_argument(field);
    }
}
