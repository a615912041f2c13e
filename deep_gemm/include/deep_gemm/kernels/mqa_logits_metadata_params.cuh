// Argument of the kernel that says where each SM's part of paged index logits begins.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

inline constexpr int32_t kLogitsMetadataThreads = 512, kLogitsSplitKeys = 256;

struct LogitsMetadataParams {
    const int32_t* lengths;  // the longest row's of a request, its last: so many entries apart
    int32_t* starts;         // [SMs + 1][request, split of 256 keys]
    int32_t requests, length_stride, sms;
};

}  // namespace deep_gemm
