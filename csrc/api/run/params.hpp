// A checked call and its plan -> the kernel's argument.
#pragma once

#include <deep_gemm/params.cuh>

#include "../call/call.hpp"
#include "plan_cache.hpp"

namespace deep_gemm {

/// Sets `map` to what a spec encodes to. Encoding costs the driver a large part of a microsecond and calls come again
/// with the same tensors, so each thread remembers its latest ones. A map says nothing that its spec does not, so none
/// ever goes stale.
void encode(const Device& device, bool plain, const TensorMapSpec& spec, TensorMap& map);

/// [groups, rows, K] in boxes of one swizzled K block by `box_rows`; of an MN-major operand [groups, K, rows], in boxes
/// of 64 swizzled rows by the K block.
TensorMapSpec operand_map(const Matrix& m, const Operand& lying, const Choice& choice, int32_t box_rows);

void fill_params(GemmParams& params, const Device& device, const GemmCall& call, const LaunchPlan& plan);

/// What steps of the epilogue take beside it.
void fill_steps(StepParams& params, const GemmCall& call);
/// Both, as far as the plan's kernel takes them. Returns how many bytes of them it takes.
size_t fill_all_params(GemmParamsWithSteps& params, Device& device, const GemmCall& call, const LaunchPlan& plan);

}  // namespace deep_gemm
