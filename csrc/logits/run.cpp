#include "run.hpp"

#include <algorithm>

#include "../api/call/call_settings.hpp"
#include "../api/call/kernel_cache.hpp"
#include "../api/call/lender.hpp"
#include "../api/run/params.hpp"
#include "plan.hpp"

namespace deep_gemm {
namespace {

const TargetRow& target_of(const DeviceFacts& facts) {
    const TargetRow* const target = find_target(facts.target);
    require_runtime(target != nullptr, "index logits run on ", Later{targets_text}, ", but ", facts.name, " is an ",
                    facts.target);
    return *target;
}

TensorMapSwizzle swizzle_of(int32_t bytes) {
    return bytes == 128  ? TensorMapSwizzle::bytes_128
           : bytes == 64 ? TensorMapSwizzle::bytes_64
                         : TensorMapSwizzle::bytes_32;
}

/// [rows, heads, D] in boxes of a product's rows, heads that do not exist included: the copy engine makes zeros of
/// them.
TensorMapSpec query_map(const LogitsCall& call, const LogitsConfig& c) {
    return {.address = call.query_data.data,
            .rank = 3,
            .sizes = {static_cast<uint64_t>(c.key_bytes()), static_cast<uint64_t>(call.heads),
                      static_cast<uint64_t>(call.rows)},
            .strides_bytes = {static_cast<uint64_t>(call.query_head_bytes),
                              static_cast<uint64_t>(call.rows == 1 ? call.heads * call.query_head_bytes
                                                                   : call.query_row_bytes)},
            .box = {static_cast<uint32_t>(c.key_bytes()), static_cast<uint32_t>(c.padded_heads),
                    static_cast<uint32_t>(c.rows)},
            .swizzle = swizzle_of(c.key_bytes())};
}

/// [blocks, keys of a block, D] in boxes of a tile's keys or of a smaller block's. Keys that lie in no blocks are one.
TensorMapSpec key_map(const LogitsCall& call, const LogitsConfig& c) {
    const int64_t in_block = call.paged ? call.block_keys : call.keys;
    return {
        .address = call.key_data.data,
        .rank = 3,
        .sizes = {static_cast<uint64_t>(c.key_bytes()), static_cast<uint64_t>(in_block),
                  static_cast<uint64_t>(call.paged ? call.num_blocks : 1)},
        .strides_bytes = {static_cast<uint64_t>(call.paged ? c.key_bytes() : call.key_stride_bytes),
                          static_cast<uint64_t>(call.paged ? call.key_stride_bytes : in_block * call.key_stride_bytes)},
        .box = {static_cast<uint32_t>(c.key_bytes()),
                static_cast<uint32_t>(call.paged ? std::min(call.block_keys, kLogitsTile) : kLogitsTile), 1},
        .swizzle = swizzle_of(c.key_bytes())};
}

/// [blocks, keys of a block], an FP32 scale or a word of exponents each: behind the codes of a block, or all of them in
/// one.
TensorMapSpec scale_map(const LogitsCall& call, const LogitsConfig& c) {
    const uint64_t in_block = call.paged ? call.block_keys : call.keys;
    char* const first = call.paged ? call.key_data.data + call.block_keys * c.key_bytes() : call.key_scales.data;
    const uint64_t stride = call.paged ? call.key_stride_bytes : round_up(in_block * 4, kTmaAlignment);
    return {.address = first,
            .type = facts(c.exponents ? Element::s32 : Element::fp32).map_type,
            .rank = 3,
            .sizes = {in_block, static_cast<uint64_t>(call.paged ? call.num_blocks : 1), 1},
            .strides_bytes = {stride, stride},
            .box = {static_cast<uint32_t>(call.paged ? std::min(call.block_keys, kLogitsTile) : kLogitsTile), 1, 1}};
}

template <typename Type>
const Type* words(const LogitsMemory& memory) {
    return reinterpret_cast<const Type*>(memory.data);
}

LogitsParams make_params(const Device& device, const LogitsCall& call, const LogitsPlan& plan) {
    const LogitsConfig& c = plan.config;
    const int32_t together = c.cta_rows(), of_request = call.paged ? call.rows_per_request : call.rows;
    const int32_t atoms = ceil_div(of_request, together);
    LogitsParams params{};
    params.query_data = words<uint8_t>(call.query_data), params.key_data = words<uint8_t>(call.key_data);
    params.key_scales = words<float>(call.key_scales), params.key_exponents = words<int32_t>(call.key_scales);
    params.query_exponents = words<int32_t>(call.query_exponents);
    params.weights = call.weight_data.data, params.logits = call.logits_data.data;
    params.query_stride = call.query_row_bytes, params.query_head_stride = call.query_head_bytes;
    params.key_stride = call.key_stride_bytes;
    params.weight_stride = call.weight_stride, params.logits_stride = call.logits_stride;
    params.first_keys = words<int32_t>(call.first_keys), params.end_keys = words<int32_t>(call.end_keys);
    params.block_table = words<int32_t>(call.block_table), params.block_table_stride = call.table_stride;
    params.table_blocks = call.table_blocks, params.num_blocks = call.num_blocks;
    params.rows = call.rows, params.atoms = call.paged ? atoms * call.requests() : atoms;
    params.keys_in_all = call.keys;
    params.rows_per_request = call.rows_per_request, params.atoms_per_request = atoms;
    params.row_lengths = call.row_lengths, params.columns = call.columns;
    params.compressed = call.compressed, params.cleaned = call.cleaned;
    if (facts(plan.arch).copy_engine) {
        encode(device, false, query_map(call, c), params.queries);
        encode(device, false, key_map(call, c), params.keys);
        encode(device, false, scale_map(call, c), params.scales);
    }
    return params;
}

}  // namespace

void run_logits(const LogitsCall& call) {
    if (call.rows == 0 || call.columns == 0 || call.keys == 0 || call.num_blocks == 0) return;
    Device& device = Device::get(call.device);
    const LogitsPlan plan = plan_logits(call, target_of(device.facts()));
    const LogitsParams params = make_params(device, call, plan);
    const Extent extents[] = {{call.query_data.data, call.query_data.bytes, "q", false},
                              {call.query_exponents.data, call.query_exponents.bytes, "q's scales", false},
                              {call.key_data.data, call.key_data.bytes, "keys", false},
                              {call.key_scales.data, call.key_scales.bytes, "scales of keys", false},
                              {call.weight_data.data, call.weight_data.bytes, "weights", false},
                              {call.first_keys.data, call.first_keys.bytes, "cu_seq_len_k_start", false},
                              {call.end_keys.data, call.end_keys.bytes, "lengths of keys", false},
                              {call.block_table.data, call.block_table.bytes, "block_table", false},
                              {call.logits_data.data, call.logits_data.bytes, "logits", true}};
    const int64_t most_tiles = int64_t{params.atoms} * ceil_div(call.columns + kLogitsTile, kLogitsTile);
    const int32_t sms = CallSettings::of(device.id()).allowed_sms(device.facts());
    const LaunchShape shape{.grid = static_cast<uint32_t>(std::min<int64_t>(sms, most_tiles)),
                            .block = plan.threads,
                            .smem_bytes = plan.smem_bytes};
    const Kernel& kernel = cached_kernel(device, plan.config, plan.smem_bytes, [&] { return render_logits(plan); });
    device.launch(kernel, may_start_early(shape, device), &params, sizeof(params), current_stream(device.id()),
                  extents);
}

}  // namespace deep_gemm
