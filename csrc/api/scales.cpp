#include "scales.hpp"

#include "scale_layout.hpp"

namespace deep_gemm {
namespace {

bool is_mn_major_aligned(const Scales& s) {
    return s.element == s.scaling.type && (s.row_stride == 1 || s.rows == 1) &&
           (s.k_stride % 4 == 0 || s.k_scales == 1) && (s.k_stride >= s.rows || s.k_scales == 1) &&
           (s.groups == 1 || s.group_stride % 4 == 0) && reinterpret_cast<uintptr_t>(s.data) % kTmaAlignment == 0;
}

}  // namespace

void require_layout(Device& device, Scales& s, void* stream, Workspace& workspace) {
    if (!s.scaling.per_row() && s.element == s.scaling.type) return;
    if (is_mn_major_aligned(s)) {
        // A single row or column carries an arbitrary stride; the tensor map wants a legal one.
        if (s.k_scales == 1) s.k_stride = (s.rows + 3) / 4 * 4;
        return;
    }
    const int64_t padded = (s.rows + 3) / 4 * 4;
    const int64_t elements = s.groups * s.k_scales * padded;
    workspace = allocate_bytes(device, elements * static_cast<int64_t>(sizeof(float)));
    const ScaleLayoutParams params{.source = static_cast<const uint32_t*>(s.data),
                                   .target = reinterpret_cast<uint32_t*>(workspace.data()),
                                   .group_stride = s.group_stride,
                                   .row_stride = s.row_stride,
                                   .k_stride = s.k_stride,
                                   .rows = to_int32(s.rows, "the number of rows"),
                                   .padded_rows = to_int32(padded, "the number of rows"),
                                   .k_scales = static_cast<int32_t>(s.k_scales),
                                   .k_words = static_cast<int32_t>(s.k_scales),
                                   .num_groups = static_cast<int32_t>(s.groups),
                                   .row_granularity = 1};
    launch_scale_layout(device, params,
                        s.element == Element::ue8m0 ? ScaleEncoding::exponent_bytes : ScaleEncoding::words, stream);
    s.data = workspace.data(), s.element = s.scaling.type;
    s.group_stride = s.k_scales * padded, s.row_stride = 1, s.k_stride = padded;
    s.bytes = static_cast<size_t>(elements) * sizeof(float);
}

}  // namespace deep_gemm
