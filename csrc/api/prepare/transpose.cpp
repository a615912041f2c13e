#include "transpose.hpp"

#include "../call/kernel_table.hpp"

namespace deep_gemm {
namespace {

jit::KernelSource render(const TransposeConfig& config) {
    const std::string entry =
        concat("transpose_fp8", config.k_grouped ? "_k_grouped" : "", config.aligned ? "" : "_unaligned");
    return {
        .name = entry,
        .text = concat("#include <deep_gemm/kernels/transpose.cuh>\n\nusing namespace deep_gemm;\n\n",
                       "constexpr TransposeConfig kConfig{.aligned = ", config.aligned ? "true" : "false",
                       ", .k_grouped = ", config.k_grouped ? "true" : "false", "};\n\n",
                       "extern \"C\" __global__ void __launch_bounds__(kTransposeThreads)\n", entry,
                       "(const __grid_constant__ TransposeParams params) {\n    run_transpose<kConfig>(params);\n}\n")};
}

}  // namespace

jit::KernelSources transpose_sources() { return {render({.aligned = true}), render({.aligned = false})}; }

void launch_transpose(Device& device, const Matrix& source, const Matrix& target, int64_t k_tiles,
                      const KGroupLayout* k_groups, void* stream) {
    TransposeParams params{.source = reinterpret_cast<const uint8_t*>(source.data),
                           .target = reinterpret_cast<uint8_t*>(target.data),
                           .source_group_stride = source.groups == 1 ? 0 : source.group_stride,
                           .source_stride = source.col_stride,
                           .target_group_stride = target.group_stride,
                           .target_stride = target.row_stride,
                           .mn = to_int32(source.rows, "the number of rows"),
                           .k = to_int32(source.cols, "K"),
                           .mn_tiles = static_cast<int32_t>((source.rows + kTransposeTile - 1) / kTransposeTile),
                           .k_tiles = static_cast<int32_t>(k_tiles),
                           .k_groups = {}};
    if (k_groups != nullptr) params.k_groups = *k_groups;
    const Blocks blocks{params.mn_tiles * k_tiles * source.groups, kTransposeThreads, "an operand to transpose"};
    const TransposeConfig config{.aligned = reinterpret_cast<uintptr_t>(source.data) % 16 == 0 &&
                                            params.source_stride % 16 == 0 && params.source_group_stride % 16 == 0,
                                 .k_grouped = k_groups != nullptr};
    static KernelTable<4> table;
    const Extent extents[] = {
        {source.data, source.bytes, "operand to transpose", false},
        {target.data, target.bytes, "transposed operand", true},
        {params.k_groups.values, static_cast<size_t>(params.k_groups.num_groups) * 4, "grouped_layout", false}};
    const size_t variant = config.aligned * 2 + config.k_grouped;
    table.launch(device, variant, [&] { return render(config); }, blocks, params, extents, stream);
}

Matrix require_k_major(Device& device, const Matrix& matrix, void* stream, Workspace& workspace) {
    if (is_k_major(matrix)) return matrix;
    const int64_t stride = (matrix.cols + kTransposeTile - 1) / kTransposeTile * kTransposeTile;
    Matrix copy = matrix;
    copy.row_stride = stride, copy.col_stride = 1, copy.group_stride = matrix.rows * stride;
    copy.bytes = static_cast<size_t>(matrix.groups * copy.group_stride);
    workspace = allocate_bytes(device, matrix.groups * copy.group_stride);
    copy.data = workspace.data();
    launch_transpose(device, matrix, copy, stride / kTransposeTile, nullptr, stream);
    return copy;
}

}  // namespace deep_gemm
