// Calls of the routing kernels: checks, and launches. Results are allocated in deep_gemm/_routing.py.
#pragma once

#include <deep_gemm/routing/config.cuh>

#include "../api/call/tensors.hpp"
#include "../util/ffi.hpp"

namespace deep_gemm {

struct RouteTensors {
    const TensorView& ids;
    const OptionalTensor& weights;      // of choices
    const OptionalTensor& row_weights;  // of rows: written where there are weights
    const OptionalTensor& indices;
    const TensorView& row_of;
    const TensorView& source;
    const TensorView& ends;
    const TensorView& counts;
};

void route(const RouteTensors& tensors, bool masked, int64_t alignment);

struct GatherTensors {
    const TensorView& x;
    const OptionalTensor& scales;
    const TensorView& source;
    const OptionalTensor& out_scales;
    const TensorView& out;
};

void gather_rows(const GatherTensors& tensors, int64_t choices, bool clear);

struct CombineTensors {
    const TensorView& x;
    const OptionalTensor& weights;
    const TensorView& row_of;
    const TensorView& out;
};

void combine_rows(const CombineTensors& tensors);

}  // namespace deep_gemm
