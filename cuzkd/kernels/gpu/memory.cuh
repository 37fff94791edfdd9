// gpu/memory.cuh - points and field elements in device memory, 16 bytes at a time.
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

template <class T>
__device__ __forceinline__ T load(const T* at) {
    static_assert(sizeof(T) % 16 == 0, "elements of whole sixteens");
    union Whole {
        uint64_t words[sizeof(T) / 8];
        T value;
        __device__ Whole() {}
    } whole;
    const FourWords* from = reinterpret_cast<const FourWords*>(at);
    UNROLL for (size_t i = 0; i < sizeof(T) / 16; ++i) {
        const FourWords part = from[i];
        whole.words[2 * i] = part.w[0] | static_cast<uint64_t>(part.w[1]) << 32;
        whole.words[2 * i + 1] = part.w[2] | static_cast<uint64_t>(part.w[3]) << 32;
    }
    return whole.value;
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

// Bring nearer what a load is going to want.
__device__ __forceinline__ void prefetch(const void* at) {
#if defined(__CUDA_ARCH__)
    asm volatile("prefetch.global.L2 [%0];" : : "l"(at));
#else
    (void)at;
#endif
}
