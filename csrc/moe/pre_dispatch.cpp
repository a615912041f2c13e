#include "pre_dispatch.hpp"

#include <deep_gemm/moe/pre_dispatch.cuh>

#include <bit>

#include "../api/call/call_settings.hpp"
#include "../api/call/dtypes.hpp"
#include "../api/call/kernel_cache.hpp"
#include "../api/call/lender.hpp"

namespace deep_gemm {
namespace {

jit::KernelSource render(const PreDispatchConfig& c) {
    return {.name = "pre_dispatch",
            .text = concat("#include <deep_gemm/kernels/pre_dispatch.cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr PreDispatchConfig kConfig{.quantize = QuantizeConfig", config_text(c.quantize),
                           ", .wide_ids = ", c.wide_ids ? "true" : "false", "};\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(kQuantizeThreads)\npre_dispatch",
                           "(const __grid_constant__ PreDispatchParams params) {\n",
                           "    run_pre_dispatch<kConfig>(params);\n}\n")};
}

/// [rows, choices], choices side by side; where rows begin.
int64_t row_stride_of(const TensorView& tensor, const char* name, const TensorView& like) {
    require(tensor.ndim() == 2 && tensor.size(1) == like.size(1), name, " must be [tokens, ", like.size(1),
            "], got shape ", describe_shape(tensor));
    require(tensor.size(1) <= 1 || tensor.stride(1) == 1 || extent_bytes(tensor) == 0, name,
            " must have the choices of a token side by side, got strides ", describe_strides(tensor));
    return tensor.stride(0);
}

}  // namespace

void pre_dispatch(const PreDispatchRecord& t) {
    QuantizeRecord record{};
    record.x = t.x, record.q = t.q, record.s = t.s;
    record.element = static_cast<int64_t>(Element::e4m3), record.group = kBlockK;
    QuantizeCall call = check_quantize(record);
    PreDispatchParams p{};
    PreDispatchConfig c{.quantize = {}, .wide_ids = is_dtype(t.ids.dtype(), kDLInt, 64)};
    require_type(c.wide_ids || is_int32(t.ids.dtype()), "topk_idx must be int32 or int64, got ",
                 describe(t.ids.dtype()));
    p.ids_stride = row_stride_of(t.ids, "topk_idx", t.out_ids);
    p.weights_stride = row_stride_of(t.weights, "topk_weights", t.out_weights);
    for (const auto& [tensor, name] : {std::pair{&t.out_ids, "buf_topk_idx"}, {&t.out_weights, "buf_topk_weights"}})
        require(row_stride_of(*tensor, name, t.out_ids) == tensor->size(1) || tensor->size(0) <= 1, name,
                " must be contiguous, got strides ", describe_strides(*tensor));
    for (const auto& [tensor, name] : {std::pair{&t.ids, "topk_idx"},
                                       {&t.weights, "topk_weights"},
                                       {&t.out_ids, "buf_topk_idx"},
                                       {&t.out_weights, "buf_topk_weights"}})
        require_device(*tensor, name, call.device, "x");
    p.ids = t.ids.data(), p.weights = reinterpret_cast<const float*>(t.weights.data());
    p.out_ids = reinterpret_cast<int64_t*>(t.out_ids.data());
    p.out_weights = reinterpret_cast<float*>(t.out_weights.data());
    p.factor = std::bit_cast<float>(static_cast<uint32_t>(t.factor_bits)), p.tokens = call.params.rows;
    p.room = to_int32(t.out_ids.size(0), "tokens"), p.choices = to_int32(t.out_ids.size(1), "choices");

    Device& device = Device::get(call.device);
    const int64_t planned = plan_quantize(call, CallSettings::of(call.device).allowed_sms(device.facts()));
    p.quantize_blocks = p.tokens == 0 ? 0 : to_int32(planned, "blocks");
    p.quantize = call.params, c.quantize = call.config;
    const int64_t blocks = p.quantize_blocks + (int64_t{p.room} * p.choices + kChoicesOfBlock - 1) / kChoicesOfBlock;
    std::vector<Extent> extents(call.extents.begin(), call.extents.end());
    extents.push_back({t.ids.data(), extent_bytes(t.ids), "topk_idx", false});
    extents.push_back({t.weights.data(), extent_bytes(t.weights), "topk_weights", false});
    extents.push_back({t.out_ids.data(), extent_bytes(t.out_ids), "buf_topk_idx", true});
    extents.push_back({t.out_weights.data(), extent_bytes(t.out_weights), "buf_topk_weights", true});
    const LaunchShape shape{.grid = static_cast<uint32_t>(blocks), .block = kQuantizeThreads};
    const Kernel& kernel = cached_kernel(device, c, 0, [&] { return render(c); });
    device.launch(kernel, may_start_early(shape, device), &p, sizeof(p), current_stream(call.device), extents);
}

}  // namespace deep_gemm
