// scratch.hpp - vectors of numbers that are large, short-lived, and written before they are read.
//
// Problem: a proof takes tens of megabytes several times over, and gives them back. Pages that come one by one, and are
// zeroed twice, take a fifth of the time of sorting scalars.
// Design: std::vector with an allocator that asks for huge pages, and leaves new elements as they are.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

template <class T>
struct ScratchAllocator {
    using value_type = T;
    static constexpr size_t HUGE_PAGE = size_t(2) << 20;

    ScratchAllocator() = default;
    template <class U>
    ScratchAllocator(const ScratchAllocator<U>&) {}

    T* allocate(size_t n) {
        if (n > size_t(-1) / 2 / sizeof(T)) throw std::bad_array_new_length();
        size_t bytes = n * sizeof(T), page = bytes < HUGE_PAGE ? 64 : HUGE_PAGE;
        bytes = (bytes + page - 1) / page * page;
        void* memory = std::aligned_alloc(page, bytes);
        if (!memory) throw std::bad_alloc();
        if (page == HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish
        return static_cast<T*>(memory);
    }
    void deallocate(T* memory, size_t) { std::free(memory); }
    template <class U>
    void construct(U* at) {
        ::new (static_cast<void*>(at)) U;
    }
    template <class U, class... Args>
    void construct(U* at, Args&&... args) {
        ::new (static_cast<void*>(at)) U(static_cast<Args&&>(args)...);
    }
    template <class U>
    bool operator==(const ScratchAllocator<U>&) const {
        return true;
    }
    template <class U>
    bool operator!=(const ScratchAllocator<U>&) const {
        return false;
    }
};

template <class T>
using Scratch = std::vector<T, ScratchAllocator<T>>;
