#include "scale_layout.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "../call/kernel_table.hpp"

namespace deep_gemm {
namespace {

const char* name(ScaleEncoding encoding) {
    constexpr const char* kNames[] = {"words", "exponents_exact", "exponent_bytes", "packed_bytes", "exponent_words"};
    return kNames[static_cast<int>(encoding)];
}

/// What a kernel does with scales, which its name begins with.
const char* verb(ScaleEncoding encoding) {
    constexpr const char* kVerbs[] = {"transpose_scales", "pack_fp32_into_ue8m0", "unpack_ue8m0_scales",
                                      "pack_ue8m0_scales", "unpack_ue8m0_words"};
    return kVerbs[static_cast<int>(encoding)];
}

/// The source of a kernel whose entry calls `function` with one argument of type `params_type`.
jit::KernelSource render_scale_kernel(const std::string& entry, const std::string& params_type,
                                      const std::string& definitions, const std::string& function) {
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/scale_layout.cuh>\n\n", definitions,
                           "extern \"C\" __global__ void __launch_bounds__(deep_gemm::kScaleLayoutThreads)\n", entry,
                           "(const __grid_constant__ deep_gemm::", params_type, " params) {\n",
                           "    deep_gemm::", function, "(params);\n}\n")};
}

jit::KernelSource render(const ScaleLayoutConfig& config) {
    const std::string definition =
        concat("constexpr deep_gemm::ScaleLayoutConfig kConfig{.encoding = deep_gemm::ScaleEncoding::",
               name(config.encoding), ", .rows_first = ", config.rows_first ? "true" : "false",
               ", .tile_k = ", config.tile_k, config.in_blocks ? ", .in_blocks = true" : "", "};\n\n");
    const std::string entry = concat(verb(config.encoding), config.rows_first ? "_rows_first" : "_k_first", "_k",
                                     config.tile_k, config.in_blocks ? "_in_blocks" : "");
    return render_scale_kernel(entry, "ScaleLayoutParams", definition, "run_scale_layout<kConfig>");
}

jit::KernelSource render_k_grouped(int32_t gran_k, ScaleEncoding encoding) {
    return render_scale_kernel(concat(verb(encoding), "_k_grouped_gran", gran_k), "KGroupedScaleLayoutParams", "",
                               concat("run_k_grouped_scale_layout<", gran_k,
                                      ", deep_gemm::ScaleEncoding::", name(encoding), ">"));
}

/// Tiles along K that kernels exist for: a source of few scales a row is then read in whole cache lines as well.
constexpr std::array<int32_t, 3> kScaleTileKs = {4, 16, 64};

ScaleLayoutConfig choose_scale_layout(ScaleEncoding encoding, bool rows_first, int32_t k_scales, bool in_blocks) {
    ScaleLayoutConfig config{.encoding = encoding, .rows_first = rows_first, .in_blocks = in_blocks};
    for (const int32_t tile_k : kScaleTileKs) {
        config.tile_k = tile_k;
        if (tile_k >= k_scales) break;
    }
    return config;
}

/// Whole entries of a row of the source before that of its last scale.
int64_t entries_before(ScaleEncoding encoding, int32_t k_scales) {
    return (k_scales - 1) / (encoding == ScaleEncoding::exponent_words ? kScalesPerWord : 1);
}

/// Elements of K that may share a scale of K groups.
constexpr std::array<int32_t, 3> kKGroupedGranularities = {16, 32, 128};

}  // namespace

jit::KernelSources scale_layout_sources(ScaleEncoding encoding, int32_t k_scales, bool in_blocks) {
    jit::KernelSources sources;
    for (const bool rows_first : {false, true})
        sources.push_back(render(choose_scale_layout(encoding, rows_first, k_scales, in_blocks)));
    return sources;
}

void launch_scale_layout(Device& device, const ScaleLayoutParams& params, ScaleEncoding encoding, bool in_blocks,
                         void* stream) {
    const ScaleLayoutConfig config =
        choose_scale_layout(encoding, params.row_stride < params.k_stride, params.k_scales, in_blocks);
    size_t tile_index = 0;
    while (kScaleTileKs[tile_index] != config.tile_k) ++tile_index;
    static KernelTable<kScaleEncodings * 2 * 2 * kScaleTileKs.size()> table;
    const size_t kind = (static_cast<size_t>(encoding) * 2 + config.rows_first) * 2 + in_blocks;
    const size_t variant = kind * kScaleTileKs.size() + tile_index;
    const int64_t k_tiles = (params.k_scales + config.tile_k - 1) / config.tile_k;
    const int64_t row_tiles = (params.padded_rows + kScaleTileRows - 1) / kScaleTileRows;
    const Blocks blocks{k_tiles * row_tiles * params.num_groups, kScaleLayoutThreads, "the layout of scales"};
    const int64_t source_rows = (params.rows + params.row_granularity - 1) / params.row_granularity;
    const int64_t last = (params.num_groups - 1) * params.group_stride + (source_rows - 1) * params.row_stride +
                         entries_before(encoding, params.k_scales) * params.k_stride;
    const size_t source_bytes = reads_bytes(encoding) ? 1 : 4;
    const size_t target_words = static_cast<size_t>(params.num_groups) * params.k_words * params.padded_rows;
    const Extent extents[] = {
        {.data = params.source, .bytes = static_cast<size_t>(last + 1) * source_bytes, .name = "sf", .writable = false},
        {.data = params.target, .bytes = target_words * 4, .name = "transformed sf", .writable = true}};
    table.launch(device, variant, [&] { return render(config); }, blocks, params, extents, stream);
}

void launch_k_grouped_scale_layout(Device& device, const KGroupedScaleLayoutParams& params, int32_t gran_k,
                                   ScaleEncoding encoding, void* stream) {
    static KernelTable<kScaleEncodings * kKGroupedGranularities.size()> table;
    const size_t granularity = std::ranges::find(kKGroupedGranularities, gran_k) - kKGroupedGranularities.begin();
    require(granularity < kKGroupedGranularities.size(), "scales of K groups are one per 16, 32 or 128 of K, not per ",
            gran_k);
    const size_t variant = granularity * kScaleEncodings + static_cast<size_t>(encoding);
    const bool unpacks = encoding == ScaleEncoding::exponent_words;
    const int64_t source_rows = unpacks ? params.k_words : params.k_scales,
                  target_rows = unpacks ? params.k_scales : params.k_words;

    const int64_t row_blocks = (params.padded_rows + kScaleLayoutThreads - 1) / kScaleLayoutThreads;
    const Blocks blocks{row_blocks * params.k_words, kScaleLayoutThreads, "the layout of K groups' scales"};
    const int64_t last = (source_rows - 1) * params.k_stride + (params.rows - 1) * params.row_stride;
    const size_t scales = source_rows == 0 || params.rows == 0 ? 0 : static_cast<size_t>(last + 1);
    const size_t source_bytes = scales * (reads_bytes(encoding) ? 1 : 4);
    const Extent extents[] = {{.data = params.source, .bytes = source_bytes, .name = "sf", .writable = false},
                              {.data = params.grouped_layout,
                               .bytes = static_cast<size_t>(params.num_groups) * 4,
                               .name = "grouped_layout",
                               .writable = false},
                              {.data = params.target,
                               .bytes = static_cast<size_t>(target_rows) * params.padded_rows * 4,
                               .name = "transformed sf",
                               .writable = true}};
    table.launch(device, variant, [&] { return render_k_grouped(gran_k, encoding); }, blocks, params, extents, stream);
}

}  // namespace deep_gemm
