#include "unpack_weights.hpp"

#include <deep_gemm/kernels/unpack_weights_params.cuh>

#include <algorithm>
#include <array>
#include <utility>

#include "../../config/unpacked.hpp"
#include "../call/kernel_table.hpp"

namespace deep_gemm {
namespace {

// What there are kernels for.
constexpr std::array kTargets = {Element::bf16, Element::fp16, Element::e4m3, Element::s8};
constexpr std::array kScalesK = {0, kConversionScales32.k, kConversionScales16.k};
constexpr std::array kZerosK = {0, kAll, 128, 64, 32};
constexpr size_t kVariants = kElementCount * std::size(kTargets) * std::size(kScalesK) * std::size(kZerosK);

UnpackWeightsConfig config_of(const Operand& packed, Element target) {
    return {.element = packed.element,
            .target = target,
            .scales_k = packed.scaling.in_conversion() ? packed.scaling.k : 0,
            .zeros_k = packed.zeros_k};
}

template <typename Value, size_t kCount>
size_t index_in(const std::array<Value, kCount>& values, const Value& value) {
    const auto* const found = std::ranges::find(values, value);
    require_runtime(found != values.end(), "no kernel unpacks such weights (a bug: please report it)");
    return found - values.begin();
}

size_t variant_of(const UnpackWeightsConfig& config) {
    const size_t element = static_cast<size_t>(config.element) * kTargets.size() + index_in(kTargets, config.target);
    return (element * kScalesK.size() + index_in(kScalesK, config.scales_k)) * kZerosK.size() +
           index_in(kZerosK, config.zeros_k);
}

jit::KernelSource render(const UnpackWeightsConfig& config) {
    const char *const element = facts(config.element).name, *const target = facts(config.target).name;
    const std::string entry = concat("unpack_weights_", element, "_to_", target,
                                     config.scales_k > 0 ? concat("_scales", config.scales_k) : "",
                                     config.zeros_k > 0 ? concat("_zeros", config.zeros_k) : "");
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/unpack_weights.cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr UnpackWeightsConfig kConfig{.element = Element::", element,
                           ", .target = Element::", target, ", .scales_k = ", config.scales_k,
                           ", .zeros_k = ", config.zeros_k, "};\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(kUnpackWeightsThreads)\n", entry,
                           "(const __grid_constant__ UnpackWeightsParams params) {\n",
                           "    run_unpack_weights<kConfig>(params);\n}\n")};
}

}  // namespace

jit::KernelSource unpack_source(const Problem& p) { return render(config_of(p.b, unpacked(p).b.element)); }

void unpack_b(Device& device, GemmCall& call, void* stream, Workspace& workspace) {
    const Operand &packed = call.problem.b, left = unpacked(call.problem).b;
    const UnpackWeightsConfig config = config_of(packed, left.element);
    const Matrix codes = call.b;
    const int64_t k_blocks = (codes.cols + kPackedK - 1) / kPackedK,
                  row_blocks = (codes.rows + kPackedRows - 1) / kPackedRows;
    const bool with_scales = folds_exponents(packed.element);
    Matrix& b = call.b;
    b.row_stride = k_blocks * kPackedK, b.group_stride = row_blocks * kPackedRows * b.row_stride;
    const int64_t target_bytes = bytes_of(left.element, b.group_stride),
                  scale_bytes = with_scales ? static_cast<int64_t>(call.scales_b.bytes) : 0;
    b.bytes = static_cast<size_t>(target_bytes);
    if (!workspace) workspace = allocate_bytes(device, target_bytes + scale_bytes);
    b.data = workspace.data();
    const Scales& words = packed.has_zeros() ? call.zeros_b : call.scales_b;
    const int32_t blocks_of_cta = unpacked_blocks(packed.element);
    const int64_t k_parts = (k_blocks + blocks_of_cta - 1) / blocks_of_cta;
    const UnpackWeightsParams params{
        .codes = reinterpret_cast<const uint8_t*>(codes.data),
        .target = reinterpret_cast<uint8_t*>(b.data),
        .words = static_cast<const uint32_t*>(words.data),
        .target_scales = with_scales ? reinterpret_cast<uint32_t*>(b.data + target_bytes) : nullptr,
        .target_stride = bytes_of(left.element, b.row_stride),
        .padded_rows = words.k_stride,
        .k_blocks = to_int32(k_blocks, "the number of blocks along K"),
        .k_parts = static_cast<uint32_t>(k_parts)};
    const Extent extents[] = {{codes.data, codes.bytes, "b", false},
                              {b.data, b.bytes, "unpacked b", true},
                              {words.data, words.bytes, packed.has_zeros() ? "b's zeros" : "b's scales", false},
                              {params.target_scales, static_cast<size_t>(scale_bytes), "unpacked b's scales", true}};
    const Blocks blocks{row_blocks * k_parts, kUnpackWeightsThreads, "weights to unpack"};
    static KernelTable<kVariants> table;
    table.launch(device, variant_of(config), [&] { return render(config); }, blocks, params, extents, stream);
    if (with_scales) call.scales_b.data = params.target_scales;
    if (packed.scaling.in_conversion()) call.scales_b = std::exchange(call.second_scales_b, {});
    call.zeros_b = {};
}

}  // namespace deep_gemm
