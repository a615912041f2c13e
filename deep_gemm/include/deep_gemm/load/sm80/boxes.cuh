// Copies of a stage by the copy engine, where an architecture with SM80's roles has one (Schedule::copy_engine): one
// lane of a warp asks for boxes, which the engine lays as threads would, in lines of 128 bytes whose chunks are
// swapped.
//
// Scales of blocks of rows, and those of gates and ups, which lie in another order than the tile's, are copied by the
// warp's lanes.
#pragma once

#include <deep_gemm/load/gated_boxes.cuh>
#include <deep_gemm/load/sm80/cp_async.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/tma.cuh>

namespace deep_gemm::sm80 {

/// A side's scales, where threads copy them.
template <Constant<GemmConfig> c, bool kRows, bool = scales_in_boxes(c, kRows)>
class CopiedScales : public ScaleCopies<c, kRows ? c.row_scales() : c.col_scales(), kRows ? c.tile.rows : c.tile.cols,
                                        c.gate.joins() && c.swap_ab == kRows> {};

/// Nothing, where they come in a box.
template <Constant<GemmConfig> c, bool kRows>
class CopiedScales<c, kRows, true> {
public:
    DG_DEVICE void place(const GemmParams&, const TensorMap&, int32_t, int32_t, int32_t) const {}
    DG_DEVICE void copy(uint32_t, int32_t, int32_t) const {}
    DG_DEVICE void advance(int32_t) const {}
};

template <Constant<GemmConfig> c, bool kRows>
struct BoxedSide {
    static constexpr Operand kOperand = kRows ? c.rows_operand() : c.cols_operand();
    static constexpr int32_t kExtent = kRows ? c.tile.rows : c.tile.cols;
    static constexpr bool kGated = c.gate.joins() && c.swap_ab == kRows;

    /// What an operand has of a stage, a box for each 128 bytes of K.
    static DG_DEVICE void load(uint32_t target, const TensorMap& map, uint32_t full, int32_t k, int32_t start,
                               int32_t group) {
        constexpr int32_t kSpans = row_bytes(c, kOperand) / kSwizzleBytes,
                          kSpanK = kSwizzleBytes * 8 / stage_bits(c, kOperand);
#pragma unroll
        for (int32_t span = 0; span < kSpans; ++span) {
            const uint32_t to = target + span * kExtent * kSwizzleBytes;
            if constexpr (kGated)
                for_each_gated_box<c, kExtent>(start, [&](int32_t row, int32_t pair, int32_t pairs) {
                    ptx::load_box_5d_of_cta(to + row * kSwizzleBytes, &map, full, k + span * kSpanK, pair, pairs,
                                            group);
                });
            else
                ptx::load_box_of_cta(to, &map, full, k + span * kSpanK, start, group);
        }
    }
};

template <Constant<GemmConfig> c>
class BoxCopies {
    using Rows = BoxedSide<c, true>;
    using Cols = BoxedSide<c, false>;

public:
    DG_DEVICE BoxCopies(const Smem<c>& smem, const GemmParams& params) : smem_(smem), params_(params) {}

    /// Always the first warp's, or that of a warp of its own.
    static DG_DEVICE bool is_turn(const Ring<c.stages>&) { return has_copy_warp(c) || threadIdx.x < copy_threads(c); }
    static DG_DEVICE bool leads() { return ptx::elect_one(); }

    DG_DEVICE void place(const Tile& tile, int32_t block) {
        row_scales_.place(params_, params_.row_scales, tile.row, row_scale_place(tile, block), row_group<c>(tile));
        col_scales_.place(params_, params_.col_scales, tile.col, col_scale_place(tile, block), col_group<c>(tile));
    }
    DG_DEVICE void advance(const Tile& tile, int32_t block) {
        const int32_t next = block - words_origin<c>(tile);
        row_scales_.advance(next), col_scales_.advance(next);
    }

    /// A stage, with a K block or without any.
    DG_DEVICE void fill(int32_t stage, bool has_block, const Tile& tile, int32_t block) const {
        const bool leads = BoxCopies::leads();
        const auto [k, matrix] = place_block<c>(params_, block);
        const uint32_t full = smem_.full(stage);
        if (leads) ptx::barrier_arrive_expect(full, has_block ? stage_box_bytes(c) : 0);
        if (leads && has_block) {
            Rows::load(smem_.rows(stage), params_.rows, full, k, tile.row, row_group<c>(tile) + matrix);
            Cols::load(smem_.cols(stage), params_.cols, full, k, tile.col, col_group<c>(tile) + matrix);
            if constexpr (scales_in_boxes(c, true))
                ptx::load_box_of_cta(smem_.row_scales(stage), &params_.row_scales, full, tile.row,
                                     row_scale_place(tile, block), row_group<c>(tile));
            if constexpr (scales_in_boxes(c, false))
                ptx::load_box_of_cta(smem_.col_scales(stage), &params_.col_scales, full, tile.col,
                                     col_scale_place(tile, block), col_group<c>(tile));
        }
        if constexpr (copies_scales(c)) {
            const int32_t rows_end = c.swap_ab ? extent_n<c>(params_) : extent_m<c>(params_),
                          cols_end = c.swap_ab ? extent_m<c>(params_) : extent_n<c>(params_);
            // Groups along K have a group of scales for each K block.
            const int32_t k_left = divides_k(c.grouping) ? c.tile.k : params_.k - k;
            if (has_block) {
                row_scales_.copy(smem_.row_scales(stage), rows_end - tile.row, k_left);
                col_scales_.copy(smem_.col_scales(stage), cols_end - tile.col, k_left);
            }
            ptx::barrier_arrive_after_copies(full);
        }
    }

private:
    DG_DEVICE int32_t row_scale_place(const Tile& tile, int32_t block) const {
        return scale_place<c, ConfigParts<c>::kRowScales>(tile, block, smem_.groups(), params_);
    }
    DG_DEVICE int32_t col_scale_place(const Tile& tile, int32_t block) const {
        return scale_place<c, ConfigParts<c>::kColScales>(tile, block, smem_.groups(), params_);
    }

    const Smem<c>& smem_;
    const GemmParams& params_;
    CopiedScales<c, true> row_scales_;
    CopiedScales<c, false> col_scales_;
};

}  // namespace deep_gemm::sm80
