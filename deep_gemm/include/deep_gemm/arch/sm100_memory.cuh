// SM100: where everything lies in shared and in tensor memory, and how many arrivals each barrier waits for.
#pragma once

#include <deep_gemm/arch/sm100.cuh>
#include <deep_gemm/arch/stage_plan.cuh>
#include <deep_gemm/epilogue/run_exchange.cuh>
#include <deep_gemm/scale/runs.cuh>
#include <deep_gemm/tile/group_plan.cuh>

namespace deep_gemm::sm100 {

inline constexpr int32_t kSmemAlignment = 1024;  // of a 128-byte-swizzled stage

/// Rows of scales come in blocks of 128: 32 lanes by four columns of tensor memory.
inline constexpr int32_t kScaleRows = 128, kScaleBlockColumns = 4, kScaleBlockBytes = kScaleRows * 4;
constexpr int32_t scale_blocks(int32_t extent) { return ceil_div(extent, kScaleRows); }

/// Whether a warp brings words of scales into the order of tensor memory.
constexpr bool transposes_words(const GemmConfig& c) {
    return scales_in_instruction(c) && !(c.sm100.row_blocks && c.sm100.col_blocks);
}

/// Where in a stage the words of a block of 128 rows lie, of those that a K block has of so many blocks: in the order
/// in which boxes bring them.
constexpr int32_t word_offset(bool in_blocks, int32_t blocks, int32_t words, int32_t block, int32_t word) {
    return (in_blocks ? block * words + word : word * blocks + block) * kScaleBlockBytes;
}

/// Each store warp stages its 32 rows of D, of its columns, in chunks of one swizzle span of the product's columns.
constexpr StoreChunk store_chunk(const GemmConfig& c) {
    const int32_t size = bytes_of(c.output, 1);
    if (c.swap_ab) {
        const int32_t outer = gcd(store_cols(c), 32);
        return {kWarpRows, outer, c.tile.cols / outer, size};
    }
    const int32_t inner = gcd(store_cols(c), kSwizzleBytes / size);
    return {c.d_cols(inner), kWarpRows, c.tile.cols / inner, size};
}

/// Columns of the instruction's frame in a chunk.
constexpr int32_t chunk_cols(const GemmConfig& c) { return c.tile.cols / store_chunk(c).count; }

/// Columns of D that a store warp has side by side of a chunk.
constexpr int32_t piece_d_cols(const GemmConfig& c) { return c.d_cols(c.swap_ab ? kWarpRows : chunk_cols(c)); }

/// Whether each warpgroup that stores has all columns of D that share a scale with one of its own.
constexpr bool finds_runs_alone(const GemmConfig& c) {
    return !exchanges_across(c, piece_d_cols(c)) &&
           (c.swap_ab || (c.output_scaling.any() && c.d_cols(store_cols(c)) % c.output_scaling.k == 0));
}

/// Chunks of a store warp.
constexpr int32_t warp_chunks(const GemmConfig& c) { return store_chunk(c).count / store_warpgroups(c); }

constexpr int32_t staging_bytes_per_warp(const GemmConfig& c) {
    return is_staged(c.store) ? c.store.buffers * store_chunk(c).bytes() : 0;
}

/// Where CTAs of a cluster split K, they add up a warp's chunks in turn: what each of a CTA's store warps is sent of
/// its chunks by the others. A CTA then has one tile in all, so that these places and their barriers serve once.
constexpr int32_t own_chunks(const GemmConfig& c) { return ceil_div(warp_chunks(c), c.cluster.k); }
constexpr int32_t part_bytes(const GemmConfig& c) { return kWarpRows * chunk_cols(c) * 4; }
constexpr int32_t parts_bytes_per_warp(const GemmConfig& c) {
    return (c.cluster.k - 1) * own_chunks(c) * part_bytes(c);
}

/// Rows that were converted: buffers of a K block each, so that one is converted while others are multiplied.
inline constexpr int32_t kConvertedBuffers = 3;
constexpr int32_t converted_columns(const GemmConfig& c) { return converts(c) ? stage_steps(c) * kStepBytes / 4 : 0; }

/// Columns of tensor memory: sums, and behind them converted rows, or sets of words of scales. There is a set for
/// each stage, but where K blocks have several words: then a set is of all of a block, and there may be fewer
/// (word_sets).
///
/// A set may be written again when all products that read it are over. Sets are taken in turn by words, of which each
/// K block reads one, old or new: between a word's last K block and the first one of the word that takes its place
/// there are as many K blocks as stages, so the stage that the latter comes in has been let go by the former. With
/// fewer sets than stages the multiplying warp waits for that (SetsInUse).
struct TensorPlan {
    int32_t sums, row_scales, col_scales;          // of the first accumulator, of the first set
    int32_t converted;                             // of the first buffer
    int32_t row_scale_columns, col_scale_columns;  // of a set
    int32_t sets;
    int32_t columns;  // in all
    int32_t allocated;
};

inline constexpr int32_t kTensorColumns = 512, kMinTensorColumns = 32;
/// With two sets words are copied while the products of the K block before run; more than four buy nothing.
inline constexpr int32_t kFewWordSets = 2, kMaxWordSets = 4;

/// Sets of `columns` each that fit behind `sums` columns.
constexpr int32_t word_sets(const GemmConfig& c, int32_t sums, int32_t columns) {
    if (!has_several_words(c)) return c.stages;
    const int32_t most = c.stages < kMaxWordSets ? c.stages : kMaxWordSets,
                  room = sums < kTensorColumns ? (kTensorColumns - sums) / columns : 0;
    return room < most ? room : most;
}

constexpr TensorPlan plan_tensor_memory(const GemmConfig& c) {
    TensorPlan p{};
    const bool scales = scales_in_instruction(c);
    p.row_scale_columns = scales ? block_words(c) * kScaleBlockColumns : 0;
    p.col_scale_columns = scales ? block_words(c) * scale_blocks(c.tile.cols) * kScaleBlockColumns : 0;
    p.row_scales = c.sm100.accumulators * c.tile.cols;
    p.sets = word_sets(c, p.row_scales, p.row_scale_columns + p.col_scale_columns);
    p.col_scales = p.row_scales + p.sets * p.row_scale_columns;
    p.converted = p.col_scales + p.sets * p.col_scale_columns;
    p.columns = p.converted + kConvertedBuffers * converted_columns(c);
    p.allocated = kMinTensorColumns;
    while (p.allocated < p.columns) p.allocated *= 2;
    return p;
}

/// Rows of a stage that an operand's extent takes: whole boxes.
constexpr int32_t stage_rows(const Operand& operand, int32_t extent) {
    return operand.mn_major() ? align_up(extent, block_rows(operand.element)) : extent;
}

struct SmemPlan : StagePlan {
    int32_t staging, parts, barriers, tensor_address, groups, padding, exchange;
    int32_t bytes;  // of the launch, alignment slack included
};

/// FP32 scales of `extent` rows or columns that have some each: of so many groups of a stage's K.
constexpr int32_t scale_entries(const GemmConfig& c, const Scaling& s) {
    return !s.per_row() ? 0 : s.k < c.tile.k ? c.tile.k / s.k : 1;
}
/// Places of one word of each row of so many blocks. `of_b`: of B's rows.
constexpr int32_t word_places(const GemmConfig& c, int32_t blocks, bool of_b) {
    return of_b ? scale_places(c, blocks * kScaleRows) : blocks * kScaleRows;
}
constexpr int32_t fp32_scale_bytes(const GemmConfig& c, const Scaling& s, int32_t extent) {
    return promotes(c) ? scale_entries(c, s) * extent * 4 : 0;
}

/// What a stage has for the conversion of each row beside codes: scales that are multiplied in, and zero points.
constexpr int32_t conversion_scale_words(const GemmConfig& c) {
    if (!c.row_scales().in_conversion()) return 0;
    const int32_t k = entry_k(c.row_scales());
    return k < c.tile.k ? c.tile.k / k : 1;
}
constexpr int32_t zero_words(const GemmConfig& c) {
    const int32_t k = c.rows_operand().zeros_k;
    return k == 0 ? 0 : k != kAll && k < c.tile.k ? c.tile.k / k : 1;
}

/// Barriers of 8 bytes in this order: full, empty and one of the scales of each stage, full and empty of each
/// accumulator, two of padding, one of the parts that each store warp is sent, full and empty of converted rows, those
/// of CTAs that exchange maxima.
constexpr int32_t part_barriers(const GemmConfig& c) { return c.cluster.k > 1 ? store_warps(c) : 0; }
constexpr int32_t convert_barriers(const GemmConfig& c) { return converts(c) ? 2 * kConvertedBuffers : 0; }
constexpr int32_t barriers(const GemmConfig& c) {
    return 3 * c.stages + 2 * c.sm100.accumulators + 2 + part_barriers(c) + convert_barriers(c) +
           exchange_barriers(c, piece_d_cols(c));
}

constexpr SmemPlan plan_smem(const GemmConfig& c) {
    SmemPlan p{};
    p.rows_bytes = converts(c) ? c.tile.rows / kPackedRows * packed_block_bytes(c.rows_operand().element)
                               : stage_rows(c.rows_operand(), c.tile.rows) * kSwizzleBytes;
    p.cols_bytes = align_up(stage_rows(c.cols_operand(), own_cols(c)) * col_spans(c) * kSwizzleBytes, kSmemAlignment);
    p.row_scale_bytes = scales_in_instruction(c)        ? block_words(c) * word_places(c, 1, c.swap_ab) * 4
                        : conversion_scale_words(c) > 0 ? conversion_scale_words(c) * c.tile.rows * 4
                                                        : fp32_scale_bytes(c, c.row_scales(), row_scale_places(c));
    p.col_scale_bytes = scales_in_instruction(c)
                            ? block_words(c) * word_places(c, scale_blocks(c.tile.cols), !c.swap_ab) * 4
                            : align_up(fp32_scale_bytes(c, c.col_scales(), col_scale_places(c)), 128);
    p.zero_bytes = zero_words(c) * c.tile.rows * 4;
    p.block_scale_bytes = align_up(block_scale_values(c) * 4, 16);

    p.staging = 0;
    p.parts = store_warps(c) * staging_bytes_per_warp(c);
    p.barriers = p.place(align_up(p.parts + store_warps(c) * parts_bytes_per_warp(c), kSmemAlignment), c.stages);
    p.tensor_address = p.barriers + barriers(c) * 8;
    p.groups = align_up(p.tensor_address + 4, 16);
    p.padding = p.groups + group_table_bytes(c);
    p.exchange = p.padding + align_up(padding_words(c) * 4, 16);
    p.bytes = p.exchange + exchange_bytes(c, piece_d_cols(c)) +
              kSmemAlignment;  // the driver aligns dynamic shared memory to 16 bytes only
    return p;
}

/// Bytes that the copy engine counts of a CTA's operands of one stage; words of scales come on top of them.
constexpr int32_t stage_operand_bytes(const GemmConfig& c) {
    const Operand &rows = c.rows_operand(), &cols = c.cols_operand();
    if (converts(c)) return plan_smem(c).rows_bytes + own_cols(c) * col_spans(c) * kSwizzleBytes;
    return stage_rows(rows, c.tile.rows) * copied_row_bytes(rows.element, cols.element) +
           stage_rows(cols, own_cols(c)) * copied_row_bytes(cols.element, rows.element);
}

/// "full": the copying thread; of a pair without a warp that transposes words, the leader's.
inline constexpr int32_t kFullArrivals = 1;
/// "empty": the commit of the products that read the stage, and the warps that read its FP32 scales.
constexpr int32_t empty_arrivals(const GemmConfig& c) { return 1 + (promotes(c) ? store_warps(c) : 0); }
/// FP32 scales have come: the copying thread, and the warp that writes those of blocks.
constexpr int32_t scales_full_arrivals(const GemmConfig& c) { return 1 + (c.has_block_scales() ? 1 : 0); }
/// Converted rows are there: the warps of each CTA that have each a part of them. And were multiplied: the commit.
inline constexpr int32_t kConvertWarps = 4, kConvertedEmptyArrivals = 1;
constexpr int32_t converted_full_arrivals(const GemmConfig& c) { return mma_ctas(c) * kConvertWarps; }
/// "ready": the transposing warp of each CTA.
constexpr int32_t ready_arrivals(const GemmConfig& c) { return mma_ctas(c); }
/// Sums are full: the commit of the last products that they are of. And read: the store warps of each CTA.
inline constexpr int32_t kSumsFullArrivals = 1;
constexpr int32_t sums_empty_arrivals(const GemmConfig& c) { return mma_ctas(c) * store_warps(c); }

}  // namespace deep_gemm::sm100
