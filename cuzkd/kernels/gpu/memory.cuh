// gpu/memory.cuh - points and field elements in device memory, 16 bytes at a time; and how what will be read is sent for.
//
// Why: they are made of words of 8 bytes, and the compiler reads them so; a load of 16 is one instruction for two.
// Addresses and sizes are multiples of 16: the device's allocator and the sizes of all elements see to that.
#pragma once
#include "arch.cuh"

struct alignas(16) Sixteen {
    uint64_t low, high;
};

// Read by words of 32 bits: of elements of three sixteens, in words of 64, NVRTC reads the second one in two halves.
struct alignas(16) FourWords {
    uint32_t w[4];
};

// An element whose sixteens are part(0), part(1), ...
template <class T, class Part>
__device__ __forceinline__ T assembled(const Part& part) {
    static_assert(sizeof(T) % 16 == 0, "elements of whole sixteens");
    union Whole {
        uint64_t words[sizeof(T) / 8];
        T value;
        __device__ Whole() {}
    } whole;
    UNROLL for (uint32_t i = 0; i < sizeof(T) / 16; ++i) {
        const FourWords four = part(i);
        whole.words[2 * i] = four.w[0] | static_cast<uint64_t>(four.w[1]) << 32;
        whole.words[2 * i + 1] = four.w[2] | static_cast<uint64_t>(four.w[3]) << 32;
    }
    return whole.value;
}

template <class T>
__device__ __forceinline__ T load(const T* at) {
    const FourWords* from = reinterpret_cast<const FourWords*>(at);
    return assembled<T>([=](uint32_t i) { return from[i]; });
}

template <class T>
__device__ __forceinline__ void store(T* at, const T& value) {
    static_assert(sizeof(T) % 16 == 0, "elements of whole sixteens");
    union Whole {
        Sixteen parts[sizeof(T) / 16];
        T value;
        __device__ Whole() {}
    } whole;
    whole.value = value;
    Sixteen* to = reinterpret_cast<Sixteen*>(at);
    UNROLL for (size_t i = 0; i < sizeof(T) / 16; ++i) to[i] = whole.parts[i];
}

// Bring it as near as can be: of what all threads of a warp read side by side.
__device__ __forceinline__ void prefetch(const void* at) {
#if defined(__CUDA_ARCH__)
    asm volatile("prefetch.global.L1 [%0];" ::"l"(at));
#else
    (void)at;
#endif
}

// Number i of an element's sixteens.
template <class T>
__device__ __forceinline__ FourWords sixteen(const T& value, uint32_t i) {
    const uint64_t low = value.v[2 * i], high = value.v[2 * i + 1];
    return {{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
             static_cast<uint32_t>(high >> 32)}};
}

// To shared memory, while the thread goes on: 16 bytes, or zeros where they are not wanted. They are there for the thread
// that asked once arrived() has returned. By way of L1: two sixteens are one sector, which is fetched once (past L1, twice:
// a sum of 2^24 on an H200 takes a tenth longer or more).
__device__ __forceinline__ void copy_ahead(FourWords* to, const FourWords* from, bool wanted) {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
                 "l"(from), "r"(wanted ? 16 : 0)
                 : "memory");
#else
    *to = wanted ? *from : FourWords{};
#endif
}
__device__ __forceinline__ void arrived() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
