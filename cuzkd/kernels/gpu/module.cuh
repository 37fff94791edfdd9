// gpu/module.cuh - what the sources in this folder share: the types that one compiled module is about.
//
// Each .cu file is compiled once for each curve (and group or field) that it serves; backend/nvrtc.py names them:
//   CUZKD_CURVE   Bn254 or Bls12_381
//   CUZKD_GROUP   G1 or G2, where the file is about points
//   CUZKD_FIELD   Fr, Fq or Fq2, where the file is about a field
// Small modules compile at the same time and only the ones in use are loaded.
// Entry points are extern "C", take plain pointers into device memory, allocate nothing and wait for nothing. Grids come
// from upper bounds known to the host; what the device counted itself is read by the kernels.
#pragma once
#include "curves.cuh"

using Curve = CUZKD_CURVE;
using Fr = Curve::Fr;

#define KERNEL extern "C" __global__ void

// Index of this thread in the grid.
__device__ __forceinline__ uint64_t thread_index() {
    return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
