#include "batch_sum.hpp"

#include <deep_gemm/kernels/add_parts_params.cuh>

#include <algorithm>

#include "../../config/fields.hpp"
#include "../call/call_settings.hpp"
#include "../call/kernel_table.hpp"
#include "../call/lender.hpp"
#include "../call/workspace.hpp"
#include "gemm.hpp"

namespace deep_gemm {
namespace {

/// In how many parts K is cut, so that all SMs have tiles of some 128x128. A part of fewer K is not worth its D. Where
/// a row's bits must not depend on M, as if there were so many blocks of M.
int32_t parts_of(const Problem& p) {
    constexpr int32_t kTile = 128, kMinK = 512, kInvariantBlocks = 4;
    const int64_t m_blocks = p.batch_invariant ? kInvariantBlocks : ceil_div(p.m, kTile);
    const int64_t parts = std::min<int64_t>(p.num_sms / (m_blocks * ceil_div(p.n, kTile)), p.k / kMinK);
    return static_cast<int32_t>(std::max<int64_t>(parts, 1));
}

/// An FP32 D for each part, in rows that the copy engine can write.
Matrix make_parts(const Device& device, const Problem& p, int32_t parts, Workspace& workspace) {
    constexpr int64_t kStep = elements_in(Element::fp32, kTmaAlignment);
    Matrix made{.groups = parts, .rows = p.m, .cols = round_up(p.n, kStep)};
    made.row_stride = made.cols, made.group_stride = made.rows * made.cols;
    made.bytes = static_cast<size_t>(bytes_of(Element::fp32, made.groups * made.group_stride));
    workspace = allocate_bytes(device, static_cast<int64_t>(made.bytes));
    made.data = workspace.data();
    return made;
}

jit::KernelSource render(const AddPartsConfig& config) {
    const std::string entry = concat("add_parts_", name(config.output), config.add_c ? "_to_c" : "");
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/add_parts.cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr AddPartsConfig kConfig{.output = Element::", name(config.output),
                           ", .add_c = ", config.add_c ? "true" : "false", "};\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(kAddPartsThreads)\n", entry,
                           "(const __grid_constant__ AddPartsParams params) {\n",
                           "    run_add_parts<kConfig>(params);\n}\n")};
}

void launch_add_parts(Device& device, const Matrix& parts, const Matrix& c, const Matrix& d, Element output,
                      void* stream) {
    const AddPartsParams params{.parts = reinterpret_cast<const float*>(parts.data),
                                .c = c.data,
                                .d = d.data,
                                .part_stride = parts.group_stride,
                                .part_row_stride = parts.row_stride,
                                .c_stride = c.row_stride,
                                .d_stride = d.row_stride,
                                .num_parts = static_cast<int32_t>(parts.groups),
                                .rows = static_cast<int32_t>(d.rows),
                                .cols = static_cast<int32_t>(d.cols)};
    const AddPartsConfig config{.output = output, .add_c = c.data != nullptr};
    const Extent extents[] = {
        {parts.data, parts.bytes, "parts", false}, {c.data, c.bytes, "c", false}, {d.data, d.bytes, "d", true}};
    const int64_t count = (d.rows * d.cols + kAddPartsThreads - 1) / kAddPartsThreads;
    const Blocks blocks{count, kAddPartsThreads, "parts of a sum"};
    static KernelTable<2 * kElementCount> table;
    const size_t variant = static_cast<size_t>(output) * 2 + config.add_c;
    table.launch(device, variant, [&] { return render(config); }, blocks, params, extents, stream);
}

}  // namespace

bool run_batch_sum(GemmCall&& call) {
    Problem& p = call.problem;
    if (p.m == 0 || p.n == 0) return true;
    if (p.k == 0) return false;
    Device& device = *call.runs_on;
    CallSettings::of(call.device).apply(p, device.facts());
    p.num_groups = parts_of(p);
    if (p.num_groups == 1) return run_checked_gemm(std::move(call), nullptr, Generation::now());
    Workspace workspace;
    const Matrix parts = make_parts(device, p, p.num_groups, workspace), c = call.c, d = call.d;
    const Element output = p.output;
    call.d = parts, call.c = {};
    p.output = Element::fp32, p.add_c = false, p.in_place = 0, p.aligned_store = 1;
    run_checked_gemm(std::move(call), nullptr, Generation::now());
    launch_add_parts(device, parts, c, d, output, current_stream(device.id()));
    return true;
}

}  // namespace deep_gemm
