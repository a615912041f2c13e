#include "row_sums.hpp"

#include <deep_gemm/kernels/row_sums_params.cuh>

#include "../call/kernel_table.hpp"
#include "operand_copies.hpp"

namespace deep_gemm {
namespace {

static_assert(kRowSumsScaleK == kScaleGroupK && kRowSumsPiece == kTmaAlignment);

jit::KernelSource render(const RowSumsConfig& config) {
    const std::string entry = config.scaled ? "row_sums_scaled" : "row_sums";
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/row_sums.cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr RowSumsConfig kConfig{.scaled = ", config.scaled ? "true" : "false", "};\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(kRowSumsThreads)\n", entry,
                           "(const __grid_constant__ RowSumsParams params) {\n",
                           "    run_row_sums<kConfig>(params);\n}\n")};
}

size_t sums_bytes(const Matrix& b) { return static_cast<size_t>(b.groups * b.rows) * sizeof(int32_t); }

/// Of a B whose rows lie K-major at multiples of 16 bytes.
void launch_row_sums(Device& device, const Matrix& b, const Scales* scales, void* sums, void* stream) {
    const RowSumsConfig config{.scaled = scales != nullptr};
    const Scales given = scales == nullptr ? Scales{} : *scales;
    const int64_t rows = b.groups * b.rows;
    require(rows < (int64_t{1} << 31), "b has ", rows, " rows to add up, more than a launch counts");
    const RowSumsParams params{.values = reinterpret_cast<const int8_t*>(b.data),
                               .sums = sums,
                               .scales = static_cast<const float*>(given.data),
                               .group_stride = b.group_stride,
                               .row_stride = b.row_stride,
                               .scale_group_stride = given.group_stride,
                               .scale_row_stride = given.row_stride,
                               .scale_k_stride = given.k_stride,
                               .rows_per_scale = given.row_granularity,
                               .rows = static_cast<uint32_t>(b.rows),
                               .all_rows = static_cast<uint32_t>(rows),
                               .k = to_int32(b.cols, "K")};
    const Extent extents[] = {{b.data, b.bytes, "b", false},
                              {given.data, given.bytes, "b's scales", false},
                              {sums, sums_bytes(b), "sums of b's rows", true}};
    const Blocks blocks{(rows + kRowSumsWarps - 1) / kRowSumsWarps, kRowSumsThreads, "rows to add up"};
    static KernelTable<2> table;
    table.launch(device, config.scaled, [&] { return render(config); }, blocks, params, extents, stream);
}

bool sums_are_scaled(const Problem& p) { return row_sums_element(p.b.scaling) == Element::fp32; }

}  // namespace

jit::KernelSources row_sums_sources(const Problem& p) {
    return p.asymmetric_a ? jit::KernelSources{render({.scaled = sums_are_scaled(p)})} : jit::KernelSources{};
}

void require_row_sums(Device& device, GemmCall& call, void* stream, Workspace& workspace) {
    const Problem& p = call.problem;
    if (!p.asymmetric_a || call.sums_b.data != nullptr) return;
    const bool scaled = sums_are_scaled(p);
    const size_t bytes = sums_bytes(call.b);
    workspace = allocate_bytes(device, static_cast<int64_t>(bytes));
    call.sums_b = {.data = workspace.data(), .group_stride = p.n, .bytes = bytes};
    launch_row_sums(device, call.b, scaled ? &call.scales_b : nullptr, workspace.data(), stream);
}

void make_row_sums(Device& device, const Matrix& b, const Scales* scales, void* sums, void* stream) {
    Workspace copy;
    const Matrix readable = require_readable(device, b, {.element = Element::s8}, Element::s8, stream, copy);
    launch_row_sums(device, readable, scales, sums, stream);
}

}  // namespace deep_gemm
