#include "unpack_int4.hpp"

#include <deep_gemm/kernels/unpack_int4_params.cuh>

#include "kernel_table.hpp"

namespace deep_gemm {
namespace {

jit::KernelSource render() {
    return {.name = "unpack_int4",
            .text =
                "#include <deep_gemm/kernels/unpack_int4.cuh>\n\nusing namespace deep_gemm;\n\n"
                "extern \"C\" __global__ void __launch_bounds__(kUnpackInt4Threads)\nunpack_int4"
                "(const __grid_constant__ UnpackInt4Params params) {\n    run_unpack_int4(params);\n}\n"};
}

}  // namespace

Matrix unpack_int4(Device& device, const Matrix& matrix, void* stream, Workspace& workspace) {
    Matrix unpacked{.groups = matrix.groups, .rows = matrix.rows, .cols = 2 * matrix.cols};
    unpacked.row_stride = round_up(unpacked.cols, kBestAlignment);
    unpacked.group_stride = unpacked.rows * unpacked.row_stride;
    unpacked.bytes = static_cast<size_t>(unpacked.groups * unpacked.group_stride);
    workspace = allocate_bytes(device, static_cast<int64_t>(unpacked.bytes));
    unpacked.data = workspace.data();
    const int64_t row_pieces = (matrix.cols + kUnpackInt4Bytes - 1) / kUnpackInt4Bytes,
                  pieces = matrix.groups * matrix.rows * row_pieces;
    const UnpackInt4Params params{.source = reinterpret_cast<const uint8_t*>(matrix.data),
                                  .target = reinterpret_cast<uint8_t*>(unpacked.data),
                                  .source_group_stride = matrix.group_stride,
                                  .source_stride = matrix.row_stride,
                                  .target_stride = unpacked.row_stride,
                                  .row_bytes = matrix.cols,
                                  .pieces = pieces,
                                  .row_pieces = static_cast<uint32_t>(row_pieces),
                                  .rows = static_cast<uint32_t>(matrix.rows)};
    const Extent extents[] = {{matrix.data, matrix.bytes, "a", false},
                              {unpacked.data, unpacked.bytes, "unpacked a", true}};
    const Blocks blocks{(pieces + kUnpackInt4Threads - 1) / kUnpackInt4Threads, kUnpackInt4Threads,
                        "activations to unpack"};
    static KernelTable<1> table;
    table.launch(device, 0, render, blocks, params, extents, stream);
    return unpacked;
}

}  // namespace deep_gemm
