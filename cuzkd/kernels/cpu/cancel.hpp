// cancel.hpp - stopping work that nobody wants any more.
//
// Problem: a sum over millions of points takes seconds, in many threads, several levels below the caller who may lose
// interest at any moment.
// Design: a caller's flag belongs to its thread for as long as the call lasts (CancelScope); the pool hands it on to the
// threads that work for the call. Whoever loops for long asks `check_cancelled` once in a while, a load each, which throws
// Cancelled through everything up to the caller. What had been computed is thrown away. Without a flag nothing happens.
#pragma once
#include <atomic>
#include <exception>

class Cancelled : public std::exception {
public:
    const char* what() const noexcept override { return "cancelled"; }
};

// Set once, from any thread; never taken back.
class CancelFlag {
public:
    void set() { set_.store(true, std::memory_order_relaxed); }
    bool is_set() const { return set_.load(std::memory_order_relaxed); }

private:
    std::atomic<bool> set_{false};
};

// The flag of this thread's work, or nullptr.
inline const CancelFlag*& current_cancel() {
    static thread_local const CancelFlag* current = nullptr;
    return current;
}

inline bool cancelled() {
    const CancelFlag* flag = current_cancel();
    return flag && flag->is_set();
}

inline void check_cancelled() {
    if (cancelled()) throw Cancelled();
}

// What this thread does until the end of the scope is work for `flag`, which outlives it.
class CancelScope {
public:
    explicit CancelScope(const CancelFlag* flag) : before_(current_cancel()) { current_cancel() = flag; }
    ~CancelScope() { current_cancel() = before_; }
    CancelScope(const CancelScope&) = delete;
    CancelScope& operator=(const CancelScope&) = delete;

private:
    const CancelFlag* before_;
};
