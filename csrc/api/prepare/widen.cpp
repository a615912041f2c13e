#include "widen.hpp"

#include <deep_gemm/kernels/widen_params.cuh>

#include "../call/kernel_table.hpp"

namespace deep_gemm {

jit::KernelSource widen_source() {
    return {.name = "widen_fp8",
            .text =
                "#include <deep_gemm/kernels/widen.cuh>\n\nusing namespace deep_gemm;\n\n"
                "extern \"C\" __global__ void __launch_bounds__(kWidenThreads)\nwiden_fp8"
                "(const __grid_constant__ WidenParams params) {\n    run_widen(params);\n}\n"};
}

Matrix widen_a(Device& device, const GemmCall& call, void* stream, Workspace& workspace) {
    const Matrix& a = call.a;
    const bool masked = call.problem.grouping == Grouping::masked;
    const int64_t stride_bytes = round_up(bytes_of(Element::fp16, a.cols), kBestAlignment);
    Matrix wide = a;
    wide.row_stride = elements_in(Element::fp16, stride_bytes), wide.col_stride = 1;
    wide.group_stride = a.rows * wide.row_stride;
    wide.bytes = static_cast<size_t>(a.groups * a.rows * stride_bytes);
    if (!workspace) workspace = allocate_bytes(device, static_cast<int64_t>(wide.bytes));
    wide.data = workspace.data();
    const int64_t row_blocks = (a.cols + kWidenBlockK - 1) / kWidenBlockK;
    const WidenParams params{.source = reinterpret_cast<const uint8_t*>(a.data),
                             .target = reinterpret_cast<uint8_t*>(wide.data),
                             .row_counts = masked ? call.grouped_layout : nullptr,
                             .source_group_stride = a.group_stride,
                             .source_stride = a.row_stride,
                             .target_stride = stride_bytes,
                             .k = to_int32(a.cols, "K"),
                             .row_blocks = static_cast<uint32_t>(row_blocks),
                             .rows = static_cast<uint32_t>(a.rows)};
    const Extent extents[] = {{a.data, a.bytes, "a", false},
                              {wide.data, wide.bytes, "widened a", true},
                              {call.grouped_layout, call.grouped_layout_bytes, "grouped_layout", false}};
    const Blocks blocks{a.groups * a.rows * row_blocks, kWidenThreads, "a to widen"};
    static KernelTable<1> table;
    table.launch(device, 0, widen_source, blocks, params, extents, stream);
    return wide;
}

}  // namespace deep_gemm
