#include "transpose_fp4.hpp"

#include <deep_gemm/kernels/transpose_fp4_params.cuh>

#include "../call/kernel_table.hpp"

namespace deep_gemm {
namespace {

jit::KernelSource render(const TransposeFp4Config& config) {
    const std::string entry = concat("transpose_fp4", config.aligned ? "" : "_unaligned");
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/transpose_fp4.cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr TransposeFp4Config kConfig{.aligned = ", config.aligned ? "true" : "false",
                           "};\n\n", "extern \"C\" __global__ void __launch_bounds__(kTransposeFp4Threads)\n", entry,
                           "(const __grid_constant__ TransposeFp4Params params) {\n",
                           "    run_transpose_fp4<kConfig>(params);\n}\n")};
}

}  // namespace

jit::KernelSources transpose_fp4_sources() { return {render({.aligned = true}), render({.aligned = false})}; }

Matrix transpose_fp4(Device& device, const Matrix& codes, void* stream, Workspace& workspace) {
    Matrix copy = codes;
    copy.row_stride = round_up(codes.cols, 2 * kBestAlignment), copy.col_stride = 1;
    copy.group_stride = codes.rows * copy.row_stride;
    copy.bytes = static_cast<size_t>(codes.groups * copy.group_stride / 2);
    workspace = allocate_bytes(device, static_cast<int64_t>(copy.bytes));
    copy.data = workspace.data();
    const TransposeFp4Params params{.source = reinterpret_cast<const uint8_t*>(codes.data),
                                    .target = reinterpret_cast<uint8_t*>(copy.data),
                                    .source_group_stride = codes.groups == 1 ? 0 : codes.group_stride / 2,
                                    .source_stride = codes.col_stride / 2,
                                    .target_group_stride = copy.group_stride / 2,
                                    .target_stride = copy.row_stride / 2,
                                    .mn_bytes = to_int32(codes.rows / 2, "the number of rows"),
                                    .k = to_int32(codes.cols, "K"),
                                    .mn_tiles = static_cast<int32_t>((codes.rows + kFp4Tile - 1) / kFp4Tile),
                                    .k_tiles = static_cast<int32_t>((codes.cols + kFp4Tile - 1) / kFp4Tile)};
    const Blocks blocks{int64_t{params.mn_tiles} * params.k_tiles * codes.groups, kTransposeFp4Threads,
                        "FP4 codes to transpose"};
    const TransposeFp4Config config{.aligned = reinterpret_cast<uintptr_t>(codes.data) % 16 == 0 &&
                                               params.source_stride % 16 == 0 && params.source_group_stride % 16 == 0};
    static KernelTable<2> table;
    const Extent extents[] = {{codes.data, codes.bytes, "FP4 codes to transpose", false},
                              {copy.data, copy.bytes, "transposed FP4 codes", true}};
    table.launch(device, config.aligned, [&] { return render(config); }, blocks, params, extents, stream);
    return copy;
}

}  // namespace deep_gemm
