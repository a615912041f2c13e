#include "widen.hpp"

#include <deep_gemm/kernels/widen_params.cuh>

#include "kernel_table.hpp"

namespace deep_gemm {
namespace {

jit::KernelSource render() {
    return {.name = "widen_fp8",
            .text =
                "#include <deep_gemm/kernels/widen.cuh>\n\nusing namespace deep_gemm;\n\n"
                "extern \"C\" __global__ void __launch_bounds__(kWidenThreads)\nwiden_fp8"
                "(const __grid_constant__ WidenParams params) {\n    run_widen(params);\n}\n"};
}

/// What is widened, of which rows if not of all, and by how much.
struct Source {
    const Matrix& matrix;
    const char *name, *wide_name;
    const int32_t* row_counts = nullptr;
    size_t row_counts_bytes = 0;
    uint32_t factor = 0;
};

Matrix widen(Device& device, const Source& source, void* stream, Workspace& workspace) {
    const Matrix& from = source.matrix;
    const int64_t stride_bytes = round_up(bytes_of(Element::fp16, from.cols), kBestAlignment);
    Matrix wide = from;
    wide.row_stride = elements_in(Element::fp16, stride_bytes), wide.col_stride = 1;
    wide.group_stride = from.rows * wide.row_stride;
    wide.bytes = static_cast<size_t>(from.groups * from.rows * stride_bytes);
    if (!workspace) workspace = allocate_bytes(device, static_cast<int64_t>(wide.bytes));
    wide.data = workspace.data();
    const int64_t row_blocks = (from.cols + kWidenBlockK - 1) / kWidenBlockK;
    const WidenParams params{.source = reinterpret_cast<const uint8_t*>(from.data),
                             .target = reinterpret_cast<uint8_t*>(wide.data),
                             .row_counts = source.row_counts,
                             .source_group_stride = from.group_stride,
                             .source_stride = from.row_stride,
                             .target_stride = stride_bytes,
                             .factor = source.factor,
                             .k = to_int32(from.cols, "K"),
                             .row_blocks = static_cast<uint32_t>(row_blocks),
                             .rows = static_cast<uint32_t>(from.rows)};
    const Extent extents[] = {{from.data, from.bytes, source.name, false},
                              {wide.data, wide.bytes, source.wide_name, true},
                              {source.row_counts, source.row_counts_bytes, "grouped_layout", false}};
    const Blocks blocks{from.groups * from.rows * row_blocks, kWidenThreads, "an operand to widen"};
    static KernelTable<1> table;
    table.launch(device, 0, render, blocks, params, extents, stream);
    return wide;
}

}  // namespace

Matrix widen_a(Device& device, const GemmCall& call, void* stream, Workspace& workspace) {
    const bool masked = call.problem.grouping == Grouping::masked;
    const Source source{.matrix = call.a,
                        .name = "a",
                        .wide_name = "widened a",
                        .row_counts = masked ? call.grouped_layout : nullptr,
                        .row_counts_bytes = masked ? call.grouped_layout_bytes : 0,
                        .factor = kWidenFactorA};
    return widen(device, source, stream, workspace);
}

Matrix widen_b(Device& device, const GemmCall& call, void* stream, Workspace& workspace) {
    const Source source{.matrix = call.b, .name = "b", .wide_name = "widened b", .factor = kWidenFactorB};
    return widen(device, source, stream, workspace);
}

}  // namespace deep_gemm
