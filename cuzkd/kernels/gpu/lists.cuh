// gpu/lists.cuh - lists that lie one after another: which of them an item is of, and how long they get by halving.
#pragma once
#include "arch.cuh"

// Values that are left of `length` after `times` halvings, each rounded up.
__device__ __forceinline__ uint32_t halved(uint32_t length, uint32_t times) {
    return length ? ((length - 1) >> times) + 1 : 0;
}

// The list that holds an item: begins[list] <= item < begins[list + 1]; item < begins[n_lists]. low: a list up to which
// nothing holds it. Steps from there grow twofold until they are too far: mostly it is near.
__device__ __forceinline__ uint32_t list_of(const uint32_t* begins, uint32_t n_lists, uint32_t item, uint32_t low) {
    uint32_t high = n_lists;  // begins[low] <= item < begins[high]
    for (uint32_t step = 1; low + step < high; step *= 2) {
        if (item < begins[low + step]) high = low + step; else low += step;
    }
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (begins[mid] <= item) low = mid; else high = mid;
    }
    return low;
}
