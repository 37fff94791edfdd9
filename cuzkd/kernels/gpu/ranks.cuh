// gpu/ranks.cuh - a query's bases where only some scalars have one: bits, and how many bits come before.
#pragma once
#include "arch.cuh"

constexpr uint32_t NO_BASE = 0xffffffffu;

// Which of 32 scalars have a base, and how many of those before have.
struct Rank {
    uint32_t bits, before;
};

// The index of scalar i's base, or NO_BASE. No ranks: there is a base for each scalar.
__device__ __forceinline__ uint32_t base_of(const Rank* ranks, uint32_t i) {
    if (!ranks) return i;
    Rank rank = ranks[i >> 5];
    uint32_t bit = 1u << (i & 31);
    return rank.bits & bit ? rank.before + __popc(rank.bits & (bit - 1)) : NO_BASE;
}
