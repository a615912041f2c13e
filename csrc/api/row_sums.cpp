#include "row_sums.hpp"

#include <deep_gemm/kernels/row_sums_params.cuh>

#include "kernel_table.hpp"

namespace deep_gemm {
namespace {

static_assert(kRowSumsStep == kScaleGroupK);

jit::KernelSource render(const RowSumsConfig& config) {
    const std::string entry = config.scaled ? "row_sums_scaled" : "row_sums";
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/row_sums.cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr RowSumsConfig kConfig{.scaled = ", config.scaled ? "true" : "false", "};\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(kRowSumsThreads)\n", entry,
                           "(const __grid_constant__ RowSumsParams params) {\n",
                           "    run_row_sums<kConfig>(params);\n}\n")};
}

}  // namespace

void require_row_sums(Device& device, GemmCall& call, void* stream, Workspace& workspace) {
    const Problem& p = call.problem;
    if (p.asymmetric_a == 0 || call.sums_b.data != nullptr) return;
    const RowSumsConfig config{.scaled = scales_blocks(p)};
    const int64_t rows = call.b.groups * p.n, bytes = rows * 4;
    require(rows < (int64_t{1} << 31), "b has ", rows, " rows to add up, more than a launch counts");
    workspace = allocate_bytes(device, bytes);
    call.sums_b = {.data = workspace.data(), .group_stride = p.n, .bytes = static_cast<size_t>(bytes)};
    const Scales& scales = call.scales_b;
    const RowSumsParams params{.values = reinterpret_cast<const int8_t*>(call.b.data),
                               .sums = workspace.data(),
                               .scales = static_cast<const float*>(scales.data),
                               .group_stride = call.b.group_stride,
                               .row_stride = call.b.row_stride,
                               .scale_group_stride = scales.group_stride,
                               .scale_row_stride = scales.row_stride,
                               .scale_k_stride = scales.k_stride,
                               .rows_per_scale = scales.row_granularity,
                               .rows = static_cast<uint32_t>(p.n),
                               .all_rows = static_cast<uint32_t>(rows),
                               .k = p.k};
    const Extent extents[] = {{call.b.data, call.b.bytes, "b", false},
                              {scales.data, scales.bytes, "b's scales", false},
                              {call.sums_b.data, call.sums_b.bytes, "sums of b's rows", true}};
    const Blocks blocks{(rows + kRowSumsWarps - 1) / kRowSumsWarps, kRowSumsThreads, "rows to add up"};
    static KernelTable<2> table;
    table.launch(device, config.scaled, [&] { return render(config); }, blocks, params, extents, stream);
}

}  // namespace deep_gemm
