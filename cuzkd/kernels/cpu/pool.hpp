// pool.hpp - the one pool of native threads of this process.
//
// Problem: proving, synthesis and verification all want every core, at once, from several Python threads.
// Design: workers sleep on a condition variable and take task indices from the oldest unfinished job. The thread that
// brings a job works on it too, so a job always ends, even with no worker at all; several jobs may be in flight.
// Width counts the callers: width n keeps n - 1 workers, one of which rests for each caller beyond the first.
// A small proof is some forty jobs of a fraction of a millisecond, and waking a thread takes 40 microseconds and more: so
// before it sleeps, whoever waits looks again for LINGER, and lets other threads have the processor meanwhile.
// A job is work for the caller's cancel flag (cancel.hpp): once that is set, tasks that have not begun are left out.
// The pool is never destroyed: at exit the operating system ends the workers, and no task can be running then.
// A forked child inherits none of the workers, and locks as other threads held them: its pool begins anew.
#pragma once
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "cpu/cancel.hpp"

class Pool {
public:
    static Pool& instance() {
        static Pool* pool = new Pool(default_width());
        static const int watched = pthread_atfork(nullptr, nullptr, [] { pool->begin_anew(); });
        static_cast<void>(watched);
        return *pool;
    }

    // Processors that this process may run on.
    static int default_width() {
        cpu_set_t set;
        if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
        return std::max(1u, std::thread::hardware_concurrency());
    }

    int width() const { return width_.load(); }

    // Waits for surplus workers to finish their task. Jobs in flight go on. Less wide where the system gives no more threads.
    void set_width(int width) {
        std::lock_guard<std::mutex> resizing(resize_);
        std::vector<std::thread> leaving;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            width_ = width;
            while (static_cast<int>(workers_.size()) > width - 1) {
                leaving.push_back(std::move(workers_.back()));
                workers_.pop_back();
            }
            start_workers();
        }
        wake_.notify_all();
        for (auto& worker : leaving) worker.join();
    }

    // Calls task(i) once for every i < n, on any threads, in any order; returns when all have ended. The first exception
    // that a task throws is thrown again here, after the others have ended. Throws Cancelled if the caller's flag is set.
    void run(size_t n, const std::function<void(size_t)>& task) {
        check_cancelled();
        if (n == 0) return;
        if (bare_.load()) {
            std::lock_guard<std::mutex> lock(mutex_);
            start_workers();
        }
        auto job = std::make_shared<Job>(n, task);
        bool shared = n > 1 && width_.load() > 1;
        if (shared) {
            {
                std::lock_guard<std::mutex> lock(mutex_);
                jobs_.push_back(job);
                n_jobs_.store(jobs_.size());
                callers_.fetch_add(1);
            }
            wake_.notify_all();
        }
        job->help([] { return true; });
        if (shared) {
            std::lock_guard<std::mutex> lock(mutex_);
            forget(job);
            callers_.fetch_sub(1);
            if (!jobs_.empty()) wake_.notify_all();  // who rested for this caller
        }
        linger([&] { return job->done.load() == n; });
        std::unique_lock<std::mutex> lock(mutex_);
        job->ended.wait(lock, [&] { return job->done.load() == n; });
        if (job->error) std::rethrow_exception(job->error);
        check_cancelled();
    }

private:
    struct Job {
        const size_t n;
        const std::function<void(size_t)>& task;  // outlives the job: run() returns after the last call
        const CancelFlag* const cancel = current_cancel();
        std::atomic<size_t> next{0}, done{0};
        std::mutex error_mutex;
        std::exception_ptr error;
        std::condition_variable ended;

        Job(size_t n, const std::function<void(size_t)>& task) : n(n), task(task) {}

        // Works until no index is left, or this thread is not wanted any more; true when this call ended the last task.
        template <class Wanted>
        bool help(Wanted wanted) {
            CancelScope scope(cancel);
            bool last = false;
            for (size_t i; wanted() && (i = next.fetch_add(1)) < n;) {
                try {
                    if (!cancelled()) task(i);
                } catch (...) {
                    std::lock_guard<std::mutex> lock(error_mutex);
                    if (!error) error = std::current_exception();
                }
                last = done.fetch_add(1) + 1 == n;
            }
            return last;
        }
    };

    explicit Pool(int width) { set_width(width); }

    // Up to the width. mutex_ is held.
    void start_workers() {
        bare_ = false;
        for (int rank = static_cast<int>(workers_.size()) + 1; rank < width_; ++rank) {
            try {
                workers_.emplace_back([this, rank] { work(rank); });
            } catch (const std::system_error&) {
                width_ = rank;
            }
        }
    }

    // In a forked child: members as if new, whoever held the locks; nothing is destroyed, for threads that are not here
    // cannot be joined. Workers come with the first job: most children only wait to run another program.
    void begin_anew() {
        const int width = width_;
        new (this) Pool();
        width_ = width, bare_ = true;
    }
    Pool() = default;

    void forget(const std::shared_ptr<Job>& job) {
        auto it = std::find(jobs_.begin(), jobs_.end(), job);
        if (it != jobs_.end()) jobs_.erase(it);
        n_jobs_.store(jobs_.size());
    }

    // Looks for `done` for a while.
    template <class Done>
    static void linger(Done done) {
        constexpr std::chrono::microseconds LINGER(20);
        auto until = std::chrono::steady_clock::now() + LINGER;
        while (!done() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    }

    // May this worker take tasks beside the callers that are at work?
    bool wanted(int rank) const { return rank + callers_.load() <= width_.load(); }

    void work(int rank) {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return rank >= width_ || (!jobs_.empty() && wanted(rank)); });
            if (rank >= width_) return;
            std::shared_ptr<Job> job = jobs_.front();
            lock.unlock();
            bool last = job->help([&] { return wanted(rank); });
            lock.lock();
            if (job->next.load() >= job->n) forget(job);
            if (last) job->ended.notify_all();
            lock.unlock();
            linger([&] { return n_jobs_.load() != 0 && wanted(rank); });
            lock.lock();
        }
    }

    std::mutex resize_, mutex_;  // lock order: resize_, mutex_, Job::error_mutex
    std::condition_variable wake_;
    std::deque<std::shared_ptr<Job>> jobs_;
    std::atomic<size_t> n_jobs_{0};  // in jobs_, for those that look without the lock
    std::vector<std::thread> workers_;
    std::atomic<int> width_{1}, callers_{0};  // callers_: in the midst of their jobs
    std::atomic<bool> bare_{false};           // forked, and workers are still to be started
};

// Calls body(begin, end) over [0, n) cut into chunks of at least `grain`, about four per thread.
template <class Body>
void parallel_ranges(size_t n, size_t grain, Body body) {
    Pool& pool = Pool::instance();
    size_t pieces = std::min(std::max<size_t>(1, n / std::max<size_t>(1, grain)), size_t(4) * pool.width());
    pool.run(n == 0 ? 0 : pieces, [&](size_t i) { body(n * i / pieces, n * (i + 1) / pieces); });
}
