// The source of a kernel: what a person would write by hand for this config.
#pragma once

#include <deep_gemm/config.cuh>

#include <string>

#include "../config/sm90.hpp"
#include "../util/require.hpp"
#include "ffma_yields.hpp"
#include "kernel.hpp"

namespace deep_gemm {

inline const char* name(Arch value) { return value == Arch::sm90 ? "sm90" : "sm100"; }
inline const char* name(ElementType value) {
    constexpr const char* kNames[] = {"e4m3", "bf16", "fp32"};
    return kNames[static_cast<int>(value)];
}
inline const char* name(ScaleKind value) {
    constexpr const char* kNames[] = {"none", "per_row", "per_block"};
    return kNames[static_cast<int>(value)];
}
inline const char* name(Grouping value) {
    constexpr const char* kNames[] = {"dense", "m_contiguous", "m_psum", "masked", "k_contiguous"};
    return kNames[static_cast<int>(value)];
}
inline const char* name(StoreKind value) {
    constexpr const char* kNames[] = {"tma", "tma_add", "direct", "direct_add"};
    return kNames[static_cast<int>(value)];
}

/// A config as designated initialisers, one aspect a line.
inline std::string render_config(const GemmConfig& c) {
    return concat("{\n    .arch = Arch::", name(c.arch), ", .grouping = Grouping::", name(c.grouping),
                  ",\n    .operand = ElementType::", name(c.operand), ", .output = ElementType::", name(c.output),
                  ",\n    .scales_a = ScaleKind::", name(c.scales_a), ", .scales_b = ScaleKind::", name(c.scales_b),
                  ",\n    .mn_major_a = ", c.mn_major_a ? "true" : "false",
                  ", .mn_major_b = ", c.mn_major_b ? "true" : "false",
                  ",\n    .swap_ab = ", c.swap_ab ? "true" : "false", ",\n    .tile = {.rows = ", c.tile.rows,
                  ", .cols = ", c.tile.cols, ", .k = ", c.tile.k, "},\n    .cluster = {.rows = ", c.cluster.rows,
                  ", .cols = ", c.cluster.cols, ", .k = ", c.cluster.k,
                  "}, .shares_last = ", c.shares_last ? "true" : "false",
                  ",\n    .math_warpgroups = ", c.math_warpgroups, ", .k_warpgroups = ", c.k_warpgroups,
                  ",\n    .parts_in_ring = ", c.parts_in_ring ? "true" : "false",
                  ", .look_ahead = ", c.look_ahead ? "true" : "false",
                  ", .wgmma_products = ", c.wgmma_products ? "true" : "false",
                  ",\n    .skips_padding = ", c.skips_padding ? "true" : "false", ", .stages = ", c.stages,
                  ",\n    .add_c = ", c.add_c ? "true" : "false", ", .store = StoreKind::", name(c.store),
                  ", .store_buffers = ", c.store_buffers, ",\n    .stream_b = ", c.stream_b ? "true" : "false",
                  ", .tensor_core_percent = ", c.tensor_core_percent, ", .group_capacity = ", c.group_capacity,
                  ", .group_maps = ", c.group_maps ? "true" : "false", ",\n    .shape = {.m = ", c.shape.m,
                  ", .n = ", c.shape.n, ", .k = ", c.shape.k, "}}");
}

/// What profilers show: "fp8_gemm_sm90_masked_swapped_64x112_cluster1x2x1". The tile is written as `explain` does.
inline std::string kernel_name(const GemmConfig& c) {
    const auto unless_one = [](bool one, const auto&... parts) { return one ? std::string() : concat(parts...); };
    return concat(c.operand == ElementType::bf16 ? "bf16" : "fp8", "_gemm_", name(c.arch), "_", name(c.grouping),
                  c.swap_ab ? "_swapped_" : "_", c.tile.rows, "x", c.tile.cols,
                  unless_one(c.cluster.size() == 1, "_cluster", c.cluster.rows, "x", c.cluster.cols, "x", c.cluster.k),
                  unless_one(c.k_warpgroups == 1, "_turns", c.k_warpgroups));
}

inline jit::KernelSource render(const GemmConfig& config) {
    const std::string header = concat("gemm_", name(config.arch)), entry = kernel_name(config);
    const std::optional<int32_t> yields = sm90::ffma_yields(config);
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/", header, ".cuh>\n\nusing namespace deep_gemm;\n\n",
                           yields ? jit::ffma_yields_line(*yields) : "", "constexpr GemmConfig kConfig",
                           render_config(config), ";\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(kConfig.threads(), 1)\n", entry,
                           "(const __grid_constant__ ParamsFor<kConfig> params) {\n    run_", header,
                           "<kConfig>(params);\n}\n")};
}

}  // namespace deep_gemm
