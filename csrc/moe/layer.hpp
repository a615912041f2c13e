// Both products of a MoE layer in one launch (kernels/moe_layer_sm90.cuh).
#pragma once

#include <deep_gemm/moe/config.cuh>

#include "../api/check/checks_gate.hpp"
#include "../config/candidate.hpp"
#include "../jit/kernel.hpp"
#include "../ranks/group.hpp"

namespace deep_gemm {

struct MoeLayerTensors {
    const TensorView& rows;  // of experts, as routing lays them, E4M3
    const OptionalTensor& row_scales;
    const TensorView& up;
    const OptionalTensor& up_scales;
    const TensorView& down;
    const OptionalTensor& down_scales;
    const TensorView& ends;         // of experts' rows
    const TensorView& row_weights;  // of the router
    const TensorView& inner;        // written: what lies between the products
    const OptionalTensor& inner_scales;
    const TensorView& out;    // written
    const TensorView& ready;  // a counter for each 8 rows, 0 before and after each call
};

/// Where rows come from other ranks, and results go there: `rows` are written first, and `out` is not.
struct MoeLayerTravel {
    Group group;
    const TensorView& source;  // of each row: which choice
    const TensorView& pulled;  // counters as `ready`
    TokenRange range;
};

/// The tiles of both products, which one kernel has room for, with the least cost together.
struct MoeLayerChoice {
    Choice up, down;
    MoeLayerConfig config() const { return {.up = up.config, .down = down.config}; }
};
MoeLayerChoice choose_moe_layer(const Problem& up, const Problem& down, bool travels);
jit::KernelSource render(const MoeLayerChoice& choice, bool travels);

/// Refuses what cannot be right in a sentence.
void run_moe_layer(const MoeLayerTensors& tensors, int64_t expected_m, const ffi::Integers& gate,
                   const MoeLayerTravel* travel = nullptr);

}  // namespace deep_gemm
