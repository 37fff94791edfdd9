// packed_rows.cuh - the term of one entry of a sparse row, for rows that a device keeps (gpu/rows.cu); sparse.cuh is
// what the processor does.
//
// A device reads an entry in five or six bytes: a word with the wire and what kind of coefficient it is, and a number of
// one, two or four bytes, which is looked at only where the coefficient is neither +1 nor -1. Of the witness, CANONICAL,
// two bits for each wire say whether its value is 1, or neither 0 nor 1. They stay in the cache where the values
// themselves would not, and answer for most wires of real circuits.
#pragma once
#include "memory.cuh"
#include "sparse.cuh"

constexpr uint32_t WIRE_BITS = 30, WIRE_MASK = (1u << WIRE_BITS) - 1;
constexpr int FEW = 16;  // integers -FEW .. FEW are looked up in Montgomery form

// Bits of 32 wires, the first one's lowest. Both 0: the value is 0. Aligned, so that one load gets both.
struct alignas(8) BitPlanes {
    uint32_t ones, others;
};

// Everything about a matrix but its rows. lookup: -FEW .. FEW in Montgomery form, then each coefficient so; table: each
// coefficient as in sparse.cuh.
template <class Fr>
struct Entries {
    const uint32_t* words;  // wire + 2^30 kind; kind 0: +1, 1: -1, 2: a coefficient of the table
    const void* classes;
    int class_bytes;
    const Fr *table, *lookup;

    __device__ __forceinline__ uint32_t class_of(uint64_t e) const {
        if (class_bytes == 1) return static_cast<const uint8_t*>(classes)[e];
        if (class_bytes == 2) return static_cast<const unsigned short*>(classes)[e];
        return static_cast<const uint32_t*>(classes)[e];
    }
};

// A row, or part of one, being summed: units of small values as an integer, units of others as integers mod r, the rest in
// Montgomery form.
template <class Fr>
struct RowSum {
    int64_t small;
    Fr plain, sum;

    __device__ __forceinline__ static RowSum zero() { return {0, Fr::zero(), Fr::zero()}; }

    __device__ __forceinline__ void add(const Entries<Fr>& of, uint64_t e, const BitPlanes* planes, const Fr* z) {
        const uint32_t word = of.words[e], wire = word & WIRE_MASK, kind = word >> WIRE_BITS, bit = wire & 31;
        const BitPlanes near = planes[wire >> 5];
        if (!(near.others >> bit & 1)) {
            const int64_t v = near.ones >> bit & 1;
            if (kind < 2)
                small += kind ? -v : v;
            else if (v)
                sum = sum + load(of.lookup + 2 * FEW + 1 + of.class_of(e));
            return;
        }
        const Fr value = load(z + wire);
        if (kind >= 2) {
            sum = sum + load(of.table + of.class_of(e)) * value;
        } else if (is_small(value)) {
            const int64_t v = static_cast<int64_t>(value.v[0]);
            small += kind ? -v : v;
        } else {
            plain = kind ? plain - value : plain + value;
        }
    }

    __device__ __forceinline__ void add(const RowSum& other) {
        small += other.small;
        plain = plain + other.plain;
        sum = sum + other.sum;
    }

    // In Montgomery form.
    __device__ __forceinline__ Fr value(const Fr* lookup) const {
        Fr all = plain.is_zero() ? sum : sum + plain.from_canonical();
        if (small >= -FEW && small <= FEW) return all + load(lookup + FEW + small);
        Fr x = Fr::zero();
        x.v[0] = small < 0 ? 0 - static_cast<uint64_t>(small) : static_cast<uint64_t>(small);
        return all + x.from_canonical().neg_if(small < 0);
    }
};
