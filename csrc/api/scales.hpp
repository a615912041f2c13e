// Scales -> the layout that the kernel reads. Per-row scales come through the copy engine, which wants them MN-major
// with K columns 16 bytes apart; per-block scales are read as they lie. E8M0 becomes FP32.
#pragma once

#include "call.hpp"
#include "scale_layout.hpp"

namespace deep_gemm {

inline bool is_mn_major_aligned(const Scales& s) {
    return !s.exponents && (s.row_stride == 1 || s.rows == 1) && (s.k_stride % 4 == 0 || s.k_scales == 1) &&
           (s.k_stride >= s.rows || s.k_scales == 1) && (s.groups == 1 || s.group_stride % 4 == 0) &&
           reinterpret_cast<uintptr_t>(s.data) % kTmaAlignment == 0;
}

/// Memory for scales in the required layout. From torch's allocator on its current stream, so it is legal while a CUDA
/// graph is captured, and may be released as soon as the kernel that reads it has been launched.
using ScaleWorkspace = std::optional<tvm::ffi::Tensor>;

inline ScaleWorkspace require_layout(Device& device, Scales& s, void* stream) {
    if (s.kind != ScaleKind::per_row && !s.exponents) return {};
    if (is_mn_major_aligned(s)) {
        // A single row or column carries an arbitrary stride; the tensor map wants a legal one.
        if (s.k_scales == 1) s.k_stride = (s.rows + 3) / 4 * 4;
        return {};
    }
    const int64_t padded = (s.rows + 3) / 4 * 4;
    const DLDevice dl = device.id().simulated ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, device.id().index};
    tvm::ffi::Tensor target = tvm::ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, {s.groups, s.k_scales, padded},
                                                             DLDataType{kDLFloat, 32, 1}, dl);
    const ScaleLayoutParams params{.source = reinterpret_cast<const uint32_t*>(s.data),
                                   .target = static_cast<uint32_t*>(target.data_ptr()),
                                   .group_stride = s.group_stride,
                                   .row_stride = s.row_stride,
                                   .k_stride = s.k_stride,
                                   .rows = to_int32(s.rows, "the number of rows"),
                                   .padded_rows = to_int32(padded, "the number of rows"),
                                   .k_scales = static_cast<int32_t>(s.k_scales),
                                   .k_words = static_cast<int32_t>(s.k_scales),
                                   .num_groups = static_cast<int32_t>(s.groups),
                                   .row_granularity = 1};
    launch_scale_layout(device, params, s.exponents ? ScaleEncoding::exponent_bytes : ScaleEncoding::words, stream);
    s.data = static_cast<const float*>(target.data_ptr()), s.exponents = false;
    s.group_stride = s.k_scales * padded, s.row_stride = 1, s.k_stride = padded;
    s.bytes = static_cast<size_t>(s.groups * s.k_scales * padded) * 4;
    return target;
}

}  // namespace deep_gemm
