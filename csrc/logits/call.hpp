// A checked call of index logits.
#pragma once

#include <deep_gemm/logits/config.cuh>

#include "../api/call/tensors.hpp"

namespace deep_gemm {

/// Memory of an argument, for the simulator's bounds.
struct LogitsMemory {
    char* data = nullptr;
    size_t bytes = 0;
};

struct LogitsCall {
    DeviceId device;
    bool paged = false;
    bool exponents = false;
    Element element = Element::none, weights = Element::none, logits = Element::none;
    int32_t heads = 0, d = 0;
    int32_t rows = 0, rows_per_request = 1;  // of queries
    int32_t keys = 0;                        // that a row may see
    int32_t columns = 0;
    bool compressed = false, cleaned = false;
    bool row_lengths = false;  // a length for each row of a request

    LogitsMemory query_data, query_exponents, key_data, key_scales, weight_data, first_keys, end_keys, block_table,
        logits_data;
    int64_t query_row_bytes = 0, query_head_bytes = 0;
    int64_t key_stride_bytes = 0;  // between keys; between blocks, where they are paged
    int64_t weight_stride = 0, logits_stride = 0;
    int32_t block_keys = kLogitsTile, num_blocks = 1, table_blocks = 0;
    int64_t table_stride = 0;

    int32_t requests() const { return rows / rows_per_request; }
};

}  // namespace deep_gemm
