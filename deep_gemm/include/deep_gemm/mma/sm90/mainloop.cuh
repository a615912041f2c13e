// All K blocks of a tile, for one math warpgroup: wait for a stage, multiply, promote, let the stage go.
#pragma once

#include <deep_gemm/mma/sm90/accumulate.cuh>
#include <deep_gemm/mma/sm90/accumulate_converted.cuh>
#include <deep_gemm/mma/sm90/promote/ahead.cuh>
#include <deep_gemm/mma/sm90/promote/converted_ahead.cuh>
#include <deep_gemm/mma/sm90/promote/from_smem.cuh>
#include <deep_gemm/mma/sm90/promote/group_by_group.cuh>
#include <deep_gemm/mma/sm90/promote/groups.cuh>
#include <deep_gemm/mma/sm90/promote/in_turn.cuh>
#include <deep_gemm/mma/sm90/promote/overlapped.cuh>
#include <deep_gemm/mma/sm90/rescale.cuh>

namespace deep_gemm {

template <bool kServes, typename Way>
struct Case {};

/// The first case that serves.
template <typename... Cases>
struct FirstOf;
template <typename Way, typename... Others>
struct FirstOf<Case<true, Way>, Others...> {
    using Type = Way;
};
template <typename Way, typename... Others>
struct FirstOf<Case<false, Way>, Others...> : FirstOf<Others...> {};

/// How a warpgroup goes through its K blocks.
template <Constant<GemmConfig> c>
using WayThroughK = typename FirstOf<Case<!promotes_blocks(c) && c.rows_operand().packed(), AccumulateConverted<c>>,
                                     Case<!c.scaled(), Accumulate<c>>,   //
                                     Case<c.sm90.rescales, Rescale<c>>,  //
                                     Case<(scale_groups(c) > 1) && c.rows_operand().packed(), PromoteGroups<c>>,
                                     Case<(scale_groups(c) > 1), PromoteGroupByGroup<c>>,  //
                                     Case<overlaps_blocks(c), PromoteOverlapped<c>>,       //
                                     Case<converts_ahead(c), PromoteConvertedAhead<c>>,    //
                                     Case<c.sm90.look_ahead, PromoteAhead<c>>,             //
                                     Case<scales_stay_in_smem(c), PromoteFromSmem<c>>,     //
                                     Case<true, PromoteInTurn<c>>>::Type;

template <Constant<GemmConfig> c>
class MainLoop {
public:
    static constexpr int32_t kSubtiles = deep_gemm::kSubtiles<c>;
    using Totals = deep_gemm::Totals<c>;

    DG_DEVICE MainLoop(const Smem<c>& smem, int32_t warpgroup) : stages_(smem, warpgroup) {
        if constexpr (c.split_k.warpgroups > 1) turn_ = warpgroup / row_warpgroups(c);
    }

    /// `total` = the sum of the tile's K blocks, or of this warpgroup's share of them. `meanwhile()` is called once,
    /// and clears the sums; where it has more to do, when the first rows are under way: the tensor cores wait for
    /// nothing that can be done then. (A branch that did no more than clear the sums would become a select of each sum
    /// in each round.)
    template <typename Meanwhile>
    DG_DEVICE void run(Totals& total, const Tile& tile, const Meanwhile& meanwhile) {
        constexpr CompilerHints kHints = compiler_hints(c);
        int32_t count = tile.k_blocks;
        // The ring's position serves one tile only: where warpgroups take turns, a CTA has no other.
        if constexpr (c.split_k.warpgroups > 1)
            count = (count - turn_ + c.split_k.warpgroups - 1) / c.split_k.warpgroups;
        if constexpr (kHints.makes_count_uniform) count = ptx::uniform(count);
        constexpr bool kEarly = promotes_blocks(c) && (stores_late(c) || !TileScheduler<c>::kPlaced);
        const bool empty = !kHints.never_empty && count == 0;
        if (!kEarly || empty) meanwhile();
        if (empty) return;
        WayThroughK<c>::run(stages_, total, tile, count, [&] {
            if constexpr (kEarly) meanwhile();
        });
    }

    /// After the last tile.
    DG_DEVICE void end() const { stages_.end(); }

    static DG_DEVICE void clear(Totals& total) {
#pragma unroll
        for (int32_t i = 0; i < kSubtiles * kAccumulators<c>; ++i)
            total[i / kAccumulators<c>][i % kAccumulators<c>] = 0;
    }

private:
    static constexpr bool is_stage(const Scaling& scaling) {
        return scaling.per_channel() || c.tile.k * c.stages_of_block() % entry_k(scaling) == 0;
    }
    static_assert(!c.scaled() || (is_stage(c.row_scales()) && is_stage(c.col_scales())),
                  "a stage, or a block in several, holds whole groups of scales");
    static_assert(!c.scaled() || c.sm90.rescales || c.stages_of_block() == 1);
    static_assert(!c.rows_operand().packed() || scale_entries(c, c.col_scales()) == 1,
                  "beside packed rows columns have a scale for all of a stage");
    static_assert(!c.sm90.wgmma_products || (c.sm90.look_ahead && kSubtiles == 1));

    Stages<c> stages_;
    int32_t turn_ = 0;  // among the warpgroups that share its rows
};

}  // namespace deep_gemm
