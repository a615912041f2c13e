// Launches the kernels that pack weights of four bits.
#pragma once

#include <deep_gemm/kernels/pack_weights_params.cuh>

#include "call.hpp"
#include "workspace.hpp"

namespace deep_gemm {

/// `codes` [groups, rows, bytes]: int8 or uint8, with K contiguous. `blocks` are as many as PackedWeights has, on the
/// same device. `found`: an int32 there, for kFoundOutOfRange and kFoundMinusEight; null where the config finds
/// neither.
void launch_pack_codes(Device& device, const Matrix& codes, char* blocks, int32_t* found, PackCodesConfig config,
                       void* stream);

/// `scales` in any strides, of one of the elements of PackScalesConfig.
void launch_pack_scales(Device& device, const PackScalesParams& params, Element element, int64_t groups,
                        size_t source_bytes, void* stream);

/// `b` and its scales in `workspace`, packed on `stream`, where the call has weights that are not.
void require_packed(Device& device, GemmCall& call, void* stream, Workspace& workspace);

}  // namespace deep_gemm
