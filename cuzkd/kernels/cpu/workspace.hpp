// workspace.hpp - memory for the length of one call: not initialized, in huge pages where there is enough of it.
//
// Why: fresh memory costs a fault for every 4 KiB, which is as much as a transform of what lies in it.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

struct FreeWorkspace {
    void operator()(void* memory) const { std::free(memory); }
};
template <class T>
using Workspace = std::unique_ptr<T[], FreeWorkspace>;

template <class T>
Workspace<T> workspace(size_t n) {
    static_assert(std::is_trivially_default_constructible_v<T> && std::is_trivially_destructible_v<T>);
    constexpr size_t HUGE = size_t(1) << 21, LINE = 64;
    const size_t page = n * sizeof(T) >= HUGE ? HUGE : LINE, bytes = (n * sizeof(T) + page - 1) / page * page;
    void* memory = std::aligned_alloc(page, bytes);
    if (!memory) throw std::bad_alloc();
    if (page == HUGE) madvise(memory, bytes, MADV_HUGEPAGE);  // a hint: without it the same, but slower
    return Workspace<T>(static_cast<T*>(memory));
}
