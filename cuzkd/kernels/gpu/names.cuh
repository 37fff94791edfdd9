// gpu/names.cuh - how the pairs of the tree are named: what rounds.cu writes and tree.cu reads.
//
// Why: which list a pair is of, and where its points are, takes a chain of loads to find. That is done once for all who walk
// the same lists, by a kernel that has nothing else to do.
#pragma once
#include "arch.cuh"

// In round 0, entries: the number of a base, with the sign in the top bit. Later, places in `points`.
struct alignas(8) Names {
    uint32_t p, q;
};

constexpr uint32_t NEGATIVE = 0x80000000u;
constexpr uint32_t NOTHING = 0x7fffffffu;  // the number of no base
constexpr uint32_t LAST = 0x80000000u;     // of a target: a list's number, whose sum this is; else a place in `points`

// Pairs of the rounds before one: those of all rounds lie one after another.
__device__ __forceinline__ uint32_t pairs_before(const uint32_t* begins, uint32_t n_lists, uint32_t round) {
    uint32_t sum = 0;
    for (uint32_t r = 0; r < round; ++r) sum += begins[r * (n_lists + static_cast<size_t>(1)) + n_lists];
    return sum;
}
