// Launches the kernels that pack weights of few bits.
#pragma once

#include <deep_gemm/kernels/pack_weights_params.cuh>

#include "../call/call.hpp"
#include "../call/workspace.hpp"

namespace deep_gemm {

/// Where the kernel that packs codes tells what it found, on the codes' device; null where nobody asks.
struct CodesNotes {
    int32_t* found = nullptr;     // kFoundOutOfRange and kFoundMinusEight
    float* nan_scales = nullptr;  // packed scales of 128 of K, which become NaN where codes of 8 bits are
};

/// `codes` [groups, rows, bytes], with K contiguous. `blocks` are as many as PackedWeights has, on the same device.
void launch_pack_codes(Device& device, const Matrix& codes, char* blocks, const CodesNotes& notes,
                       PackCodesConfig config, void* stream);

/// `scales` in any strides, of one of the elements of PackScalesConfig.
void launch_pack_scales(Device& device, const PackScalesParams& params, Element element, int64_t groups,
                        size_t source_bytes, void* stream);

/// `b` and its scales in `workspace`, packed on `stream`, where the call has weights that are not.
void require_packed(Device& device, GemmCall& call, void* stream, Workspace& workspace);

}  // namespace deep_gemm
