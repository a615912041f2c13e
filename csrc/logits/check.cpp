#include "check.hpp"

#include <algorithm>
#include <array>

#include "../api/call/dtypes.hpp"

namespace deep_gemm {
namespace {

constexpr int32_t kMaxHeads = 128, kHeadStep = 4, kScaleBytes = 4, kAlignment = 16;
constexpr std::array kD = {32, 64, 128};
constexpr std::array kBlockKeys = {32, 64, 128};

LogitsMemory memory_of(const TensorView& tensor) { return {tensor.data(), extent_bytes(tensor)}; }

bool is_bytes(DLDataType type) { return is_dtype(type, kDLInt, 8) || is_dtype(type, kDLUInt, 8); }

void require_int32(const TensorView& tensor, const char* name, DeviceId device) {
    require_type(is_int32(tensor.dtype()), name, " must be int32, got ", describe(tensor.dtype()));
    require_device(tensor, name, device, "q");
}

/// [size], without gaps.
void require_line(const TensorView& tensor, const char* name, int64_t size, const char* of) {
    require(tensor.ndim() == 1 && tensor.size(0) == size && (size <= 1 || tensor.stride(0) == 1), name,
            " must be contiguous [", size, "], one for each ", of, ", but has shape ", describe_shape(tensor),
            " and strides ", describe_strides(tensor));
}

bool is_contiguous(const TensorView& tensor) {
    int64_t step = 1;
    for (int i = tensor.ndim() - 1; i >= 0; step *= tensor.size(i--))
        if (tensor.size(i) > 1 && tensor.stride(i) != step) return false;
    return true;
}

/// What codes are: E4M3, or pairs of E2M1 in bytes. `codes` is how many the last dimension of `tensor` holds.
Element element_of_codes(const TensorView& tensor, const char* name, int64_t& codes) {
    const DLDataType type = tensor.dtype();
    const int64_t last = tensor.size(tensor.ndim() - 1);
    if (element_of(type) == Element::e4m3) return codes = last, Element::e4m3;
    require_type(is_bytes(type), name, " must be float8_e4m3fn, or int8 that packs two E2M1 codes, got ",
                 describe(type));
    return codes = 2 * last, Element::e2m1r;
}

void check_queries(LogitsCall& call, const LogitsRecord& given) {
    const TensorView& q = given.q;
    const int last = q.ndim() - 1;
    int64_t d = 0;
    call.device = device_id_of(q, "q");
    call.element = element_of_codes(q, "q", d);
    const int64_t heads = q.size(last - 1);
    call.heads = to_int32(heads, "heads"), call.d = to_int32(d, "D");
    const int64_t rows = call.paged ? q.size(0) * q.size(1) : q.size(0);
    call.rows = to_int32(rows, "the number of query rows");
    call.rows_per_request = call.paged ? to_int32(q.size(1), "next_n") : 1;
    call.query_head_bytes = q.stride(last - 1);
    call.query_row_bytes = call.paged && q.size(1) == 1 ? q.stride(0) : q.stride(last - 2);
    require(q.stride(last) == 1 && (heads == 1 || call.query_head_bytes % kAlignment == 0) &&
                (rows <= 1 || call.query_row_bytes % kAlignment == 0) &&
                (!call.paged || q.size(0) <= 1 || q.size(1) <= 1 || q.stride(0) == q.size(1) * q.stride(1)) &&
                reinterpret_cast<uintptr_t>(q.data()) % kAlignment == 0,
            "q must have D contiguous, and heads and rows at multiples of 16 bytes that are equally far apart, but has "
            "shape ",
            describe_shape(q), " and strides ", describe_strides(q));
    call.query_data = memory_of(q);
    call.exponents = given.q_scales.has_value();
    require_kinds(call);
    if (!call.exponents) return;
    const TensorView& exponents = *given.q_scales;
    require_int32(exponents, "q's scales", call.device);
    bool same_sizes = exponents.ndim() == last;
    for (int i = 0; same_sizes && i < last; ++i) same_sizes = exponents.size(i) == q.size(i);
    require(same_sizes && is_contiguous(exponents),
            "q's scales must be contiguous [..., heads], a word of four exponents for each head, but q has shape ",
            describe_shape(q), " and they ", describe_shape(exponents));
    call.query_exponents = memory_of(exponents);
}

void check_weights(LogitsCall& call, const TensorView& weights) {
    call.weights = element_of(weights.dtype());
    require_type(call.weights == Element::fp32 || call.weights == Element::bf16,
                 "weights must be float32 or bfloat16, got ", describe(weights.dtype()));
    require_device(weights, "weights", call.device, "q");
    require(weights.ndim() == 2 && weights.size(0) == call.rows && weights.size(1) == call.heads &&
                weights.stride(1) == 1,
            "weights must be [", call.rows, ", ", call.heads, "] with heads contiguous, but have shape ",
            describe_shape(weights), " and strides ", describe_strides(weights));
    call.weight_data = memory_of(weights), call.weight_stride = weights.stride(0);
}

void check_output(LogitsCall& call, const TensorView& logits) {
    call.logits = element_of(logits.dtype());
    require_type(call.logits == Element::fp32 || call.logits == Element::bf16,
                 "logits must be float32 or bfloat16, got ", describe(logits.dtype()));
    require_device(logits, "logits", call.device, "q");
    require(logits.ndim() == 2 && logits.size(0) == call.rows && logits.stride(1) == 1, "logits must be [", call.rows,
            ", columns] with columns contiguous, but have shape ", describe_shape(logits));
    call.columns = to_int32(logits.size(1), "the number of columns");
    call.logits_data = memory_of(logits), call.logits_stride = logits.stride(0);
}

LogitsCall begin(const LogitsRecord& given, bool paged) {
    require(given.q.ndim() == (paged ? 4 : 3), "q must be ",
            paged ? "[requests, next_n, heads, D]" : "[rows, heads, D]", ", but has shape ", describe_shape(given.q));
    LogitsCall call;
    call.paged = paged, call.cleaned = given.cleaned;
    check_queries(call, given);
    check_weights(call, given.weights);
    check_output(call, given.logits);
    return call;
}

}  // namespace

void require_kinds(const LogitsCall& call) {
    require(std::ranges::find(kD, call.d) != kD.end(), "D must be 32, 64 or 128, got ", call.d);
    require(call.element == Element::e4m3 || call.d >= 64, "D of FP4 must be 64 or 128, got ", call.d);
    require(call.heads >= kHeadStep && call.heads <= kMaxHeads && call.heads % kHeadStep == 0,
            "heads must be a multiple of 4 up to 128, got ", call.heads);
    require(call.element == Element::e4m3 || call.exponents,
            "q of FP4 needs scales: a pair (q, int32 words of four UE8M0 exponents)");
    require(std::ranges::find(kBlockKeys, call.block_keys) != kBlockKeys.end(),
            "blocks of kv_cache must have 32, 64 or 128 keys, got ", call.block_keys);
}

LogitsCall check_logits(const DenseLogitsRecord& record) {
    const TensorView &keys = record.keys, &scales = record.scales;
    const TensorView &first_keys = record.first_keys, &end_keys = record.end_keys;
    LogitsCall call = begin(record, false);
    call.compressed = record.compressed;
    require(keys.ndim() == 2, "keys must be [keys, D], but have shape ", describe_shape(keys));
    require_device(keys, "keys", call.device, "q");
    int64_t d = 0;
    const Element element = element_of_codes(keys, "keys", d);
    require(element == call.element && d == call.d, "keys must be ", dtype_name(call.element), " [keys, ", call.d,
            "] as q is, got ", describe(keys.dtype()), " ", describe_shape(keys));
    call.keys = to_int32(keys.size(0), "the number of keys");
    call.key_stride_bytes = call.keys == 1 ? keys.size(1) : keys.stride(0);
    require((keys.size(1) == 1 || keys.stride(1) == 1) && call.key_stride_bytes % kAlignment == 0 &&
                reinterpret_cast<uintptr_t>(keys.data()) % kAlignment == 0,
            "keys must have D contiguous and start at multiples of 16 bytes, but their strides are ",
            describe_strides(keys));
    call.key_data = memory_of(keys);
    require_type(call.exponents ? is_int32(scales.dtype()) : element_of(scales.dtype()) == Element::fp32,
                 "scales of keys must be ", call.exponents ? "int32, as those of q" : "float32", ", got ",
                 describe(scales.dtype()));
    require_device(scales, "scales of keys", call.device, "q");
    require_line(scales, "scales of keys", call.keys, "key");
    call.key_scales = memory_of(scales);
    require_int32(first_keys, "cu_seq_len_k_start", call.device),
        require_int32(end_keys, "cu_seq_len_k_end", call.device);
    require_line(first_keys, "cu_seq_len_k_start", call.rows, "query row");
    require_line(end_keys, "cu_seq_len_k_end", call.rows, "query row");
    call.first_keys = memory_of(first_keys), call.end_keys = memory_of(end_keys);
    return call;
}

LogitsCall check_logits(const PagedLogitsRecord& record) {
    const TensorView &cache = record.cache, &lengths = record.lengths, &block_table = record.block_table;
    LogitsCall call = begin(record, true);
    const int32_t requests = call.rows_per_request == 0 ? 0 : call.requests();
    const int64_t key_bytes = bytes_of<int64_t>(call.element, call.d) + kScaleBytes;
    require_type(is_bytes(cache.dtype()), "kv_cache must be uint8, got ", describe(cache.dtype()));
    require_device(cache, "kv_cache", call.device, "q");
    require(cache.ndim() == 4 && cache.size(2) == 1 && cache.size(3) == key_bytes && cache.stride(3) == 1 &&
                cache.stride(1) == key_bytes,
            "kv_cache must be [blocks, keys of a block, 1, ", key_bytes, "] without gaps in a block, but has shape ",
            describe_shape(cache), " and strides ", describe_strides(cache));
    call.block_keys = to_int32(cache.size(1), "keys of a block");
    require_kinds(call);
    call.num_blocks = to_int32(cache.size(0), "the number of blocks");
    call.key_stride_bytes = call.num_blocks <= 1 ? cache.size(1) * key_bytes : cache.stride(0);
    require(call.key_stride_bytes % kAlignment == 0 && reinterpret_cast<uintptr_t>(cache.data()) % kAlignment == 0,
            "blocks of kv_cache must start at multiples of 16 bytes, but they are ", call.key_stride_bytes,
            " bytes apart, from address ", static_cast<void*>(cache.data()));
    call.key_data = memory_of(cache);
    require_int32(lengths, "context_lens", call.device), require_int32(block_table, "block_table", call.device);
    call.row_lengths = lengths.ndim() == 2;
    require((call.row_lengths ? lengths.size(1) == call.rows_per_request : lengths.ndim() == 1) &&
                lengths.size(0) == requests && is_contiguous(lengths),
            "context_lens must be contiguous [", requests, ", ", call.rows_per_request, "] or [", requests,
            "], but has shape ", describe_shape(lengths), " and strides ", describe_strides(lengths));
    call.end_keys = memory_of(lengths);
    require(block_table.ndim() == 2 && block_table.size(0) == requests &&
                (block_table.size(1) <= 1 || block_table.stride(1) == 1),
            "block_table must be [", requests, ", blocks of a request] with blocks contiguous, but has shape ",
            describe_shape(block_table), " and strides ", describe_strides(block_table));
    call.table_blocks = to_int32(block_table.size(1), "the number of blocks of a request");
    call.table_stride = block_table.stride(0);
    call.block_table = memory_of(block_table);
    call.keys = static_cast<int32_t>(std::min<int64_t>(int64_t{call.table_blocks} * call.block_keys,
                                                       std::max(call.columns, 0)));
    return call;
}

}  // namespace deep_gemm
