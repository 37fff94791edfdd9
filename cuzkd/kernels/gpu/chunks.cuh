// gpu/chunks.cuh - the entries of a bin, in chunks that a block orders by key in shared memory.
//
// Entries and keys lie side by side, bin by bin, and are read by 16 bytes: eight keys and their entries at a time, from a
// multiple of eight on. So a block may read some places before its chunk and behind it, which lists have room for.
// A chunk that is a whole bin is written as it lies in shared memory; of others each bucket gets a run.
#pragma once
#include "memory.cuh"
#include "scan.cuh"

using Key = unsigned short;  // a bucket's number in its bin

// Shared memory of as many bytes as the launch says: a block has more than 48 KiB only if it asks for it. Where kernels are
// compiled for a processor, all that a block can have.
#if defined(__CUDA_ARCH__)
#define SHARED_WORDS(name) extern __shared__ __align__(16) uint32_t name[]
#else
#define SHARED_WORDS(name) __shared__ uint32_t name[(227 << 10) / 4] __attribute__((aligned(16)))
#endif

// The bin that a chunk is of, and the entries of it. For all threads of the block alike; each warp looks in 32 places.
struct Chunk {
    uint32_t bin, begin, size;
    bool leads, alone;  // first of its bin; the only one
};
__device__ Chunk chunk_of(uint32_t chunk, const uint32_t* starts, const uint32_t* chunks, uint32_t n_bins,
                          uint32_t chunk_size) {
    uint32_t low = 0, bins = n_bins;  // chunks[low] <= chunk < chunks[low + bins]
    while (bins > 1) {
        const uint32_t step = (bins + 31) / 32, at = (threadIdx.x & 31) * step;
        const bool reached = at < bins && chunks[low + at] <= chunk;
        const uint32_t passed = (__popc(__ballot_sync(ALL_LANES, reached)) - 1) * step;
        low += passed;
        bins = bins - passed < step ? bins - passed : step;
    }
    const uint32_t number = chunk - chunks[low], begin = starts[low] + number * chunk_size, left = starts[low + 1] - begin;
    return {low, begin, left < chunk_size ? left : chunk_size, number == 0, chunks[low + 1] - chunks[low] == 1};
}

// Keys that lie in 16 bytes, and their entries.
constexpr uint32_t PACKED = 8;
struct Packed {
    FourWords keys, entries[2];
    __device__ uint32_t key(uint32_t k) const { return keys.w[k / 2] >> k % 2 * 16 & 0xffff; }
    __device__ uint32_t entry(uint32_t k) const { return entries[k / 4].w[k % 4]; }
};

// put(place_of(key), entry) for each entry of a chunk. AHEAD times eight keys, and their entries unless that is null, are on
// their way to a thread at once; it asks for eight places before it puts anything there.
template <uint32_t AHEAD, class PlaceOf, class Put>
__device__ void each_entry(const Key* keys, const uint32_t* entries, const Chunk& chunk, PlaceOf place_of, Put put) {
    const uint32_t before = chunk.begin % PACKED, end = before + chunk.size;  // from a multiple of eight on
    const uint64_t from = chunk.begin - before;
    for (uint32_t first = threadIdx.x * PACKED; first < end; first += AHEAD * PACKED * blockDim.x) {
        Packed found[AHEAD];
        UNROLL for (uint32_t j = 0; j < AHEAD; ++j) {
            const uint32_t i = first + j * PACKED * blockDim.x;
            if (i >= end) continue;
            found[j].keys = *reinterpret_cast<const FourWords*>(keys + from + i);
            if (!entries) continue;
            const FourWords* at = reinterpret_cast<const FourWords*>(entries + from + i);
            UNROLL for (int h = 0; h < 2; ++h) found[j].entries[h] = at[h];
        }
        UNROLL for (uint32_t j = 0; j < AHEAD; ++j) {
            const uint32_t i = first + j * PACKED * blockDim.x - before;
            uint32_t places[PACKED];
            UNROLL for (uint32_t k = 0; k < PACKED; ++k) places[k] = i + k < chunk.size ? place_of(found[j].key(k)) : 0;
            UNROLL for (uint32_t k = 0; k < PACKED; ++k)
                if (i + k < chunk.size) put(places[k], found[j].entry(k));
        }
    }
}

// The entries of a chunk by key.
__device__ void count_keys(const Key* keys, const Chunk& chunk, uint32_t* counts) {
    auto count = [&](uint32_t key) {
        atomicAdd(counts + key, 1u);
        return 0u;
    };
    each_entry<4>(keys, nullptr, chunk, count, [](uint32_t, uint32_t) {});
}

// A chunk that is its bin alone, ordered, to its place.
__device__ void write_bin(const uint32_t* sorted, uint32_t before, const Chunk& chunk, uint32_t* out) {
    const uint32_t end = before + chunk.size;
    out += chunk.begin - before;  // a multiple of four
    for (uint32_t i = threadIdx.x * 4; i < end; i += blockDim.x * 4) {
        if (i >= before && i + 4 <= end) {
            *reinterpret_cast<FourWords*>(out + i) = *reinterpret_cast<const FourWords*>(sorted + i);
        } else {
            for (uint32_t k = i; k < i + 4; ++k)
                if (k - before < chunk.size) out[k] = sorted[k];
        }
    }
}

// The runs of a chunk that is one of several, each to its bucket; a quarter of a warp for each.
__device__ void write_runs(const uint32_t* sorted, const uint32_t* ends, uint32_t n, const uint32_t* places, uint32_t* out) {
    constexpr uint32_t LANES = 8;
    for (uint32_t b = threadIdx.x / LANES; b < n; b += blockDim.x / LANES) {
        const uint32_t begin = b ? ends[b - 1] : 0, size = ends[b] - begin, to = places[b];
        for (uint32_t i = threadIdx.x % LANES; i < size; i += LANES) out[to + i] = sorted[begin + i];
    }
}
