// Config and argument of the kernel that adds up parts of a product, and the launch numbers that host and device share.
#pragma once

#include <deep_gemm/format.cuh>

namespace deep_gemm {

inline constexpr int32_t kAddPartsThreads = 128;

struct AddPartsConfig {
    Element output = Element::bf16;
    bool add_c = false;
};

/// parts [parts][rows][cols] FP32 -> D [rows][cols] = C + their sum. Distances in elements.
struct AddPartsParams {
    const float* parts;
    const void* c;
    void* d;
    int64_t part_stride, part_row_stride;
    int64_t c_stride, d_stride;
    int32_t num_parts;
    int32_t rows, cols;
};

}  // namespace deep_gemm
