#include "unpack_weights.hpp"

#include <deep_gemm/kernels/unpack_weights_params.cuh>

#include "kernel_table.hpp"

namespace deep_gemm {
namespace {

jit::KernelSource render(Element element) {
    const std::string entry = concat("unpack_weights_", facts(element).name);
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/unpack_weights.cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr UnpackWeightsConfig kConfig{.element = Element::", facts(element).name, "};\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(kUnpackWeightsThreads)\n", entry,
                           "(const __grid_constant__ UnpackWeightsParams params) {\n",
                           "    run_unpack_weights<kConfig>(params);\n}\n")};
}

}  // namespace

void unpack_b(Device& device, GemmCall& call, void* stream, Workspace& workspace) {
    const Operand packed = call.problem.b;
    const Matrix codes = call.b;
    const int64_t k_blocks = (codes.cols + kPackedK - 1) / kPackedK,
                  row_blocks = (codes.rows + kPackedRows - 1) / kPackedRows, stride = k_blocks * kPackedK;
    const bool with_scales = folds_exponents(packed.element);
    Matrix& b = call.b;
    b.row_stride = stride, b.group_stride = row_blocks * kPackedRows * stride;
    b.bytes = static_cast<size_t>(b.group_stride);
    const int64_t scale_bytes = with_scales ? static_cast<int64_t>(call.scales_b.bytes) : 0;
    if (!workspace) workspace = allocate_bytes(device, b.group_stride + scale_bytes);
    b.data = workspace.data();
    const int64_t k_parts = (k_blocks + kUnpackWeightsBlocks - 1) / kUnpackWeightsBlocks;
    const UnpackWeightsParams params{
        .codes = reinterpret_cast<const uint8_t*>(codes.data),
        .target = reinterpret_cast<uint8_t*>(b.data),
        .scales = static_cast<const uint32_t*>(call.scales_b.data),
        .target_scales = with_scales ? reinterpret_cast<uint32_t*>(b.data + b.group_stride) : nullptr,
        .zeros = static_cast<const uint32_t*>(call.zeros_b.data),
        .target_stride = stride,
        .padded_rows = call.scales_b.k_stride,
        .zeros_k = packed.zeros_k == kAll ? INT32_MAX : packed.zeros_k,
        .k_blocks = to_int32(k_blocks, "the number of blocks along K"),
        .k_parts = static_cast<uint32_t>(k_parts)};
    const Extent extents[] = {{codes.data, codes.bytes, "b", false},
                              {b.data, b.bytes, "unpacked b", true},
                              {call.scales_b.data, call.scales_b.bytes, "b's scales", false},
                              {params.target_scales, static_cast<size_t>(scale_bytes), "unpacked b's scales", true},
                              {call.zeros_b.data, call.zeros_b.bytes, "b's zeros", false}};
    const Blocks blocks{row_blocks * k_parts, kUnpackWeightsThreads, "weights to unpack"};
    static KernelTable<kElementCount> table;
    table.launch(
        device, static_cast<size_t>(packed.element), [&] { return render(packed.element); }, blocks, params, extents,
        stream);
    if (with_scales) call.scales_b.data = params.target_scales;
    call.zeros_b = {};
}

}  // namespace deep_gemm
