// doublings.hpp - a sum of points, each of them doubled so and so often: what a device leaves of a multi-scalar sum.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "curve.cuh"

// sum of 2^times[i] points[i]. From the most doubled down, so there are no more doublings than the largest `times`.
template <class F>
Affine<F> sum_of_doublings(const Affine<F>* points, const uint32_t* times, size_t n) {
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t(0));
    std::sort(order.begin(), order.end(), [=](size_t a, size_t b) { return times[a] > times[b]; });
    Xyzz<F> total = Xyzz<F>::infinity();
    uint32_t left = n ? times[order[0]] : 0;
    for (size_t i : order) {
        for (; left > times[i]; --left) total = total.dbl();
        total = total.add(points[i]);
    }
    for (; left > 0; --left) total = total.dbl();
    return total.to_affine();
}
