#include "transpose_halves.hpp"

#include <deep_gemm/kernels/transpose_halves_params.cuh>

#include "../call/kernel_table.hpp"

namespace deep_gemm {
namespace {

constexpr int64_t kBytes = 2;  // of an element

jit::KernelSource render(const TransposeHalvesConfig& config) {
    const std::string entry = concat("transpose_halves", config.aligned ? "" : "_unaligned");
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/transpose_halves.cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr TransposeHalvesConfig kConfig{.aligned = ", config.aligned ? "true" : "false",
                           "};\n\n", "extern \"C\" __global__ void __launch_bounds__(kTransposeHalvesThreads)\n", entry,
                           "(const __grid_constant__ TransposeHalvesParams params) {\n",
                           "    run_transpose_halves<kConfig>(params);\n}\n")};
}

}  // namespace

Matrix transpose_halves(Device& device, const Matrix& matrix, void* stream, Workspace& workspace) {
    Matrix copy = matrix;
    copy.row_stride = round_up(matrix.cols, kHalvesTile), copy.col_stride = 1;
    copy.group_stride = matrix.rows * copy.row_stride;
    copy.bytes = static_cast<size_t>(matrix.groups * copy.group_stride * kBytes);
    workspace = allocate_bytes(device, static_cast<int64_t>(copy.bytes));
    copy.data = workspace.data();
    const TransposeHalvesParams params{.source = reinterpret_cast<const uint8_t*>(matrix.data),
                                       .target = reinterpret_cast<uint8_t*>(copy.data),
                                       .source_group_stride = matrix.groups == 1 ? 0 : matrix.group_stride * kBytes,
                                       .source_stride = matrix.col_stride * kBytes,
                                       .target_group_stride = copy.group_stride * kBytes,
                                       .target_stride = copy.row_stride * kBytes,
                                       .mn = to_int32(matrix.rows, "the number of rows"),
                                       .k = to_int32(matrix.cols, "K"),
                                       .mn_tiles = static_cast<int32_t>((matrix.rows + kHalvesTile - 1) / kHalvesTile),
                                       .k_tiles = static_cast<int32_t>((matrix.cols + kHalvesTile - 1) / kHalvesTile)};
    const Blocks blocks{int64_t{params.mn_tiles} * params.k_tiles * matrix.groups, kTransposeHalvesThreads,
                        "an operand to transpose"};
    const TransposeHalvesConfig config{.aligned = reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 &&
                                                  params.source_stride % 16 == 0 &&
                                                  params.source_group_stride % 16 == 0};
    static KernelTable<2> table;
    const Extent extents[] = {{matrix.data, matrix.bytes, "operand to transpose", false},
                              {copy.data, copy.bytes, "transposed operand", true}};
    table.launch(device, config.aligned, [&] { return render(config); }, blocks, params, extents, stream);
    return copy;
}

}  // namespace deep_gemm
