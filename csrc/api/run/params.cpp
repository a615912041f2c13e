#include "params.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace deep_gemm {
namespace {

/// [groups and blocks of rows, words, rows of a block], a word of scales for each, in boxes of `box_words` of one
/// block.
TensorMapSpec scale_block_map(const Scales& s, int32_t box_words) {
    const int64_t blocks = s.groups * ((s.rows + kWordBlockRows - 1) / kWordBlockRows);
    return {.address = const_cast<void*>(s.data),
            .type = facts(s.element).map_type,
            .rank = 3,
            .sizes = {kWordBlockRows, static_cast<uint64_t>(s.k_scales), static_cast<uint64_t>(blocks)},
            .strides_bytes = {bytes_of<uint64_t>(s.element, kWordBlockRows),
                              bytes_of<uint64_t>(s.element, kWordBlockRows * s.k_scales)},
            .box = {kWordBlockRows, static_cast<uint32_t>(box_words), 1}};
}

/// [groups, groups along K, rows], an FP32 scale or a word of them for each, in boxes of `box_groups` by
/// `box_rows`.
TensorMapSpec scale_map(const Scales& s, int32_t box_rows, int32_t box_groups) {
    if (s.in_blocks) return scale_block_map(s, box_groups);
    const uint64_t group_stride = s.groups == 1 ? s.k_scales * s.k_stride : s.group_stride;
    return {
        .address = const_cast<void*>(s.data),
        .type = facts(s.element).map_type,
        .rank = 3,
        .sizes = {static_cast<uint64_t>(s.rows), static_cast<uint64_t>(s.k_scales), static_cast<uint64_t>(s.groups)},
        .strides_bytes = {bytes_of<uint64_t>(s.element, s.k_stride), bytes_of(s.element, group_stride)},
        .box = {static_cast<uint32_t>(box_rows), static_cast<uint32_t>(box_groups), 1}};
}

TensorMapSpec output_map(const Matrix& d, Element output, const StoreChunk& chunk) {
    const TensorMapSwizzle swizzle = chunk.swizzle_bytes() == 128  ? TensorMapSwizzle::bytes_128
                                     : chunk.swizzle_bytes() == 64 ? TensorMapSwizzle::bytes_64
                                     : chunk.swizzle_bytes() == 32 ? TensorMapSwizzle::bytes_32
                                                                   : TensorMapSwizzle::none;
    return {.address = d.data,
            .type = facts(output).map_type,
            .rank = 3,
            .sizes = {static_cast<uint64_t>(d.cols), static_cast<uint64_t>(d.rows), static_cast<uint64_t>(d.groups)},
            .strides_bytes = {bytes_of<uint64_t>(output, d.row_stride), bytes_of<uint64_t>(output, d.group_stride)},
            .box = {static_cast<uint32_t>(chunk.inner), static_cast<uint32_t>(chunk.outer), 1},
            .swizzle = swizzle};
}

PerChannel<float> channel_scales(const Scales& s) {
    if (!s.scaling.per_channel())
        return {.data = nullptr, .group_stride = 0, .stride = 0, .value = 1};  // are in the sums
    return {.data = static_cast<const float*>(s.data),
            .group_stride = s.group_stride,
            .stride = static_cast<int32_t>(s.row_stride),
            .value = s.value};
}

}  // namespace

/// What threads copy by.
void write_plain(const TensorMapSpec& spec, TensorMap& map) {
    const PlainMap plain{
        .address = static_cast<const uint8_t*>(spec.address),
        .strides_bytes = {static_cast<int64_t>(spec.strides_bytes[0]), static_cast<int64_t>(spec.strides_bytes[1])},
        .sizes = {static_cast<int32_t>(spec.sizes[0]), static_cast<int32_t>(spec.sizes[1])}};
    std::memcpy(&map, &plain, sizeof(plain));
}

void encode(const Device& device, bool plain, const TensorMapSpec& spec, TensorMap& map) {
    if (plain) return write_plain(spec, map);
    static_assert(sizeof(TensorMap) == sizeof(EncodedTensorMap));
    // Not kept: a recorder ends with its recording, and another device may lie where it was.
    if (device.id().recorded) return void(map = std::bit_cast<TensorMap>(device.encode(spec)));
    struct Entry {
        const Device* device = nullptr;
        TensorMapSpec spec;
        TensorMap map;
    };
    constexpr size_t kEntries = 256;
    thread_local std::vector<Entry> entries(kEntries);
    uint64_t hash = reinterpret_cast<uintptr_t>(spec.address);
    for (int i = 0; i < 3; ++i) hash = (hash ^ spec.sizes[i] ^ (uint64_t{spec.box[i]} << 40)) * 0x9e3779b97f4a7c15;
    Entry& entry = entries[(hash ^ spec.strides_bytes[0]) * 0x9e3779b97f4a7c15 >> 56];
    if (entry.device != &device || !(entry.spec == spec)) {
        entry.map = std::bit_cast<TensorMap>(device.encode(spec));
        entry.spec = spec;
        entry.device = &device;
    }
    map = entry.map;
}

/// Packed weights: lines of words, so many a block of 64 rows by 128 of K, all blocks along K side by side.
TensorMapSpec packed_map(const Matrix& m, Element element, int32_t stages_of_block, int32_t box_rows) {
    constexpr uint32_t kWords = kPackedLineBytes / 4;
    const auto lines = static_cast<uint32_t>(packed_lines(element));
    const uint64_t k_blocks = (m.cols + kPackedK - 1) / kPackedK,
                   row_blocks = packed_blocks(static_cast<int32_t>(m.rows));
    return {.address = m.data,
            .type = TensorMapType::i32,
            .rank = 3,
            .sizes = {kWords, k_blocks * lines, row_blocks * m.groups},
            .strides_bytes = {kPackedLineBytes, k_blocks * lines * kPackedLineBytes},
            .box = {kWords, lines / stages_of_block, static_cast<uint32_t>(box_rows / kPackedRows)}};
}

TensorMapSpec operand_map(const Matrix& m, const Operand& lying, const Choice& choice, int32_t box_rows) {
    if (lying.packed()) return packed_map(m, lying.element, choice.config.stages_of_block(), box_rows);
    const Element type = lying.element;
    const bool spread = !choice.copies.plain_operands && (unpacked_by_tma(type, choice.config.a.element) ||
                                                          unpacked_by_tma(type, choice.config.b.element));
    const int64_t bytes = bytes_of(type, m.groups * m.rows * m.cols);
    const bool mn_major = lying.mn_major();
    const auto extent = [](int64_t value) { return static_cast<uint64_t>(value); };
    constexpr int32_t kSpanBytes = 128;  // of the swizzle
    const TensorMapType map_type = spread                   ? TensorMapType::u4_spread
                                   : type == Element::e2m1r ? TensorMapType::u4
                                                            : facts(type).map_type;
    return {.address = m.data,
            .type = map_type,
            .rank = 3,
            .sizes = {extent(mn_major ? m.rows
                             : spread ? round_up(m.cols, kSpreadCodes)
                                      : m.cols),
                      extent(mn_major ? m.cols : m.rows), extent(m.groups)},
            .strides_bytes = {bytes_of<uint64_t>(type, mn_major ? m.col_stride : m.row_stride),
                              bytes_of<uint64_t>(type, m.group_stride)},
            .box = {static_cast<uint32_t>(mn_major ? choice.copies.mn_box
                                          : spread ? kSpreadCodes
                                                   : elements_in(type, kSpanBytes)),
                    static_cast<uint32_t>(mn_major ? choice.config.tile.k : box_rows), 1},
            .swizzle = TensorMapSwizzle::bytes_128,
            .l2_promotion =
                bytes < choice.lines_below_bytes ? TensorMapL2Promotion::bytes_128 : TensorMapL2Promotion::bytes_256};
}

/// B where tiles have gates and ups, K-major: K; 8 gates or ups; which of the two; groups of these; matrices. A box
/// lays them side by side, 8 and 8, whether B has them in halves or in turn. Groups of which the last is not complete
/// would reach beyond B: then the second dimension is all gates or ups, and a box has 8.
TensorMapSpec gated_map(const Matrix& b, const Operand& lying, const Choice& choice, int32_t box_rows) {
    TensorMapSpec spec = operand_map(b, lying, choice, box_rows);
    const uint64_t row = spec.strides_bytes[0], matrix = spec.strides_bytes[1], groups = spec.sizes[2];
    const uint64_t pairs = static_cast<uint64_t>(b.rows) / 2, pair_groups = pairs / kGateCols;
    const bool halves = choice.config.gate.joins_halves();
    spec.rank = 5;
    const bool partial = choice.config.gate.partial != 0;
    spec.sizes[1] = partial ? pairs : kGateCols, spec.sizes[2] = 2, spec.sizes[3] = partial ? 1 : pair_groups;
    spec.sizes[4] = groups;
    spec.strides_bytes[0] = halves ? row : 2 * row, spec.strides_bytes[1] = halves ? pairs * row : row;
    spec.strides_bytes[2] = (halves ? kGateCols : 2 * kGateCols) * row;
    spec.strides_bytes[3] = groups == 1 ? static_cast<uint64_t>(b.rows) * row : matrix;
    spec.box[1] = kGateCols, spec.box[2] = 2;
    spec.box[3] = static_cast<uint32_t>(choice.config.gate.copied_at_once(box_rows) / (2 * kGateCols));
    spec.box[4] = 1;
    return spec;
}

void fill_params(GemmParams& params, const Device& device, const GemmCall& call, const LaunchPlan& plan) {
    const Choice& choice = plan.choice;
    const GemmConfig& c = choice.config;
    const Matrix& rows = c.swap_ab ? call.b : call.a;
    const Matrix& cols = c.swap_ab ? call.a : call.b;
    const bool plain = choice.copies.plain_operands;
    const bool joins = c.gate.joins() && !plain;  // threads that copy count rows themselves
    const auto rows_map = joins && c.swap_ab ? gated_map : operand_map;
    const auto cols_map = joins && !c.swap_ab ? gated_map : operand_map;
    const Scales& row_scales = c.swap_ab ? call.scales_b : call.scales_a;
    const Scales& col_scales = c.swap_ab ? call.scales_a : call.scales_b;
    if (!c.group_maps) {
        encode(device, plain, rows_map(rows, c.rows_operand(), choice, choice.copies.rows_box), params.rows);
        encode(device, plain, cols_map(cols, c.cols_operand(), choice, choice.copies.cols_box), params.cols);
    }
    const auto encode_last = [&](auto map_of, bool wanted, const Matrix& m, const Operand& lying, int32_t tile,
                                 TensorMap& map) {
        if (const int32_t extent = static_cast<int32_t>(m.rows); wanted && extent % tile != 0)
            encode(device, plain, map_of(m, lying, choice, last_box(extent, tile)), map);
    };
    encode_last(rows_map, choice.copies.last_rows, rows, c.rows_operand(), c.tile.rows, params.last_rows);
    encode_last(cols_map, choice.copies.last_cols, cols, c.cols_operand(), c.tile.cols, params.last_cols);
    const auto encode_scales = [&](bool by_threads, const Scales& scales, int32_t box_rows, int32_t box_groups,
                                   TensorMap& map) {
        if (box_rows > 0) encode(device, by_threads, scale_map(scales, box_rows, box_groups), map);
    };
    const CopyPlan& copies = choice.copies;
    encode_scales(copies.plain_row_scales, row_scales, copies.row_scale_box, copies.row_scale_entries,
                  params.row_scales);
    encode_scales(copies.plain_col_scales, col_scales, copies.col_scale_box, copies.col_scale_entries,
                  params.col_scales);
    encode_scales(plain, call.zeros_b, copies.zeros_box, copies.zero_groups, params.zeros);
    if (is_staged(c.store)) encode(device, false, output_map(call.d, c.output, choice.copies.d), params.d);
    params.d_data = call.d.data;
    params.c_data = call.c.data;
    params.d_stride = call.d.row_stride, params.d_group_stride = call.d.group_stride;
    params.c_stride = call.c.row_stride, params.c_group_stride = call.c.group_stride;
    params.fetched_ahead = choice.fetched_ahead;
    const Scales& block = row_scales.scaling.per_block() ? row_scales : col_scales;
    params.block_scales = static_cast<const float*>(block.data);
    params.block_scale_stride = block.row_stride, params.block_scale_k_stride = block.k_stride;
    params.block_scale_group_stride = block.group_stride;
    params.grouped_layout = call.grouped_layout;
    params.k_groups = call.k_groups;
    params.first_group = 0;
    params.m = call.problem.m, params.n = call.problem.n, params.k = call.problem.k;
    params.num_groups = call.problem.num_groups;
    params.raster_group_blocks = FastDivisor(choice.raster_group_blocks);
    params.raster_group_tiles = FastDivisor(choice.raster_group_blocks * ceil_div(call.problem.n, c.super_tile_n()));
    params.first_shared = choice.first_shared;
    std::ranges::copy(choice.cta_order, params.cta_order);
    params.likely_blocks = choice.likely_blocks;
    params.m_alignment = call.problem.m_alignment;
    params.zero_padding = call.zero_padding;
    if (c.grouping == Grouping::batch_sum) {
        const int32_t blocks = ceil_div(static_cast<int32_t>(call.a.cols), c.tile.k);
        params.matrix_blocks = FastDivisor(blocks);
        params.k = static_cast<int32_t>(call.a.groups) * blocks * c.tile.k;
    }
    params.group_tiles =
        FastDivisor(ceil_div(call.problem.m, c.super_tile_m()) * ceil_div(call.problem.n, c.super_tile_n()));
}

void fill_steps(StepParams& params, const GemmCall& call) {
    params.of<epilogue::ScalesOfA>() = channel_scales(call.scales_a);
    params.of<epilogue::ScalesOfB>() =
        channel_scales(call.scales_b.scaling.in_conversion() ? call.second_scales_b : call.scales_b);
    params.of<epilogue::Alpha>() = channel_scales(call.alpha);
    params.of<epilogue::RowScale>() = channel_scales(call.row_scale);
    params.of<epilogue::Quantise>() = {.scales = const_cast<void*>(call.d_scales.data),
                                       .group_stride = call.d_scales.group_stride,
                                       .k_stride = call.d_scales.k_stride};
    params.of<epilogue::ApplyGate>() = call.gate;
    params.of<epilogue::Clamp>() = call.clamp;
    params.of<epilogue::ZeroPoints>() = {.zeros = {.data = static_cast<const int32_t*>(call.zeros_a.data),
                                                   .group_stride = call.zeros_a.group_stride,
                                                   .stride = static_cast<int32_t>(call.zeros_a.stride),
                                                   .value = call.zeros_a.value},
                                         .sums_b = call.sums_b.data,
                                         .sums_group_stride = call.sums_b.group_stride};
    params.of<epilogue::Bias>() = {.data = call.bias.data,
                                   .group_stride = call.bias.group_stride,
                                   .stride = static_cast<int32_t>(call.bias.stride)};
}

size_t fill_all_params(GemmParamsWithSteps& params, Device& device, const GemmCall& call, const LaunchPlan& plan) {
    fill_params(params, device, call, plan);
    if (!has_step_params(plan.choice.config)) return sizeof(GemmParams);
    fill_steps(params.steps, call);
    return sizeof(GemmParamsWithSteps);
}

}  // namespace deep_gemm
