// Tensors -> a checked call of index logits, or an error that says what was wanted and what came.
#pragma once

#include "../api/call/record.hpp"
#include "call.hpp"

namespace deep_gemm {

/// Heads, D, elements and blocks that there are kernels for.
void require_kinds(const LogitsCall& call);

/// What both forms have: queries [rows, heads, D] or [requests, rows of each, heads, D].
struct LogitsRecord {
    TensorView q;
    OptionalTensor q_scales;  // int32 words of exponents
    TensorView weights;
    TensorView logits;     // written
    bool cleaned = false;  // whether columns of no key become -inf
};

template <>
inline constexpr auto kFieldsOf<LogitsRecord> = std::tuple{
    Field{"q", &LogitsRecord::q}, Field{"q_scales", &LogitsRecord::q_scales}, Field{"weights", &LogitsRecord::weights},
    Field{"logits", &LogitsRecord::logits}, Field{"cleaned", &LogitsRecord::cleaned}};

/// keys [keys, D], their scales [keys]; FP32, or int32 words of exponents beside queries that have such. Column 0 of
/// logits is each row's first key if `compressed`.
struct DenseLogitsRecord : LogitsRecord {
    TensorView keys, scales;
    TensorView first_keys, end_keys;
    bool compressed = false;
};

template <>
inline constexpr auto kFieldsOf<DenseLogitsRecord> =
    std::tuple_cat(kFieldsOf<LogitsRecord>,
                   std::tuple{Field{"keys", &DenseLogitsRecord::keys}, Field{"scales", &DenseLogitsRecord::scales},
                              Field{"first_keys", &DenseLogitsRecord::first_keys},
                              Field{"end_keys", &DenseLogitsRecord::end_keys},
                              Field{"compressed", &DenseLogitsRecord::compressed}});

LogitsCall check_logits(const DenseLogitsRecord& record);

/// cache uint8 [blocks, keys of a block, 1, bytes of a key]: of each block all codes, then all scales. lengths
/// [requests, rows of each] or [requests].
struct PagedLogitsRecord : LogitsRecord {
    TensorView cache;
    TensorView lengths, block_table;
};

template <>
inline constexpr auto kFieldsOf<PagedLogitsRecord> =
    std::tuple_cat(kFieldsOf<LogitsRecord>,
                   std::tuple{Field{"cache", &PagedLogitsRecord::cache}, Field{"lengths", &PagedLogitsRecord::lengths},
                              Field{"block_table", &PagedLogitsRecord::block_table}});

LogitsCall check_logits(const PagedLogitsRecord& record);

}  // namespace deep_gemm
