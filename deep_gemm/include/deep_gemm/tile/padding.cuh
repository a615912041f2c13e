// Rows of padding in a contiguous layout whose rows name their experts: D becomes zero there, whatever A and its scales
// hold.
//
// A role of its own reads the layout. Of each tile of this CTA it tells the math warps which rows are padding, long
// before they store the tile and clear those rows. Blocks of nothing but padding have no tile: all CTAs together fill
// them with zeros, while the role has nothing to tell.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// What the layout says of a row, to all lanes of a warp.
template <Constant<GemmConfig> c>
struct ExpertOfRows {
    const GemmParams& params;

    /// A row beyond M is none.
    DG_DEVICE bool is_padding(uint32_t row) const {
        if (row >= static_cast<uint32_t>(extent_m<c>(params))) return false;
        const int32_t expert = ptx::load_global_int(params.grouped_layout + row);
        return static_cast<uint32_t>(expert) >= static_cast<uint32_t>(params.num_groups);
    }
};

/// The blocks of nothing but padding that this CTA fills, 8 rows at a time: CTAs take them in turn, since such blocks
/// may all lie together. Each lane looks at 8 rows, so that memory is waited for once in 32 times.
template <Constant<GemmConfig> c>
class PaddingBlocks {
public:
    /// This is the `warp`th warp of a CTA's `warps` that fill them.
    DG_DEVICE explicit PaddingBlocks(const GemmParams& params, uint32_t warp = 0, uint32_t warps = 1)
        : params_(params), next_((blockIdx.x * warps + warp) * kRows), step_(gridDim.x * warps * kRows) {}

    /// Whether there is anything left to do.
    DG_DEVICE bool left() {
        while (found_ == 0) {
            if (next_ >= static_cast<uint32_t>(extent_m<c>(params_))) return false;
            first_ = next_;
            const uint32_t row = first_ + ptx::lane() * step_;
            found_ = __ballot_sync(0xffffffff, is_padding_block(row / kBlock * kBlock));
            next_ += 32 * step_;
        }
        return true;
    }

    /// Fill 8 rows. There must be some left.
    DG_DEVICE void fill() {
        const uint32_t row = first_ + (__ffs(found_) - 1) * step_;
        found_ &= found_ - 1;
        const uint32_t end = min(row + kRows, static_cast<uint32_t>(extent_m<c>(params_)));
        for (uint32_t i = row; i < end; ++i) fill_row(i);
    }

private:
    using Stored = typename Storage<c.output>::Type;
    static constexpr uint32_t kBlock = padding_block(c), kRows = 8;
    static_assert(kBlock % kRows == 0);

    /// Whether no row of the block names an expert; not so beyond M. Mostly the first row says it.
    DG_DEVICE bool is_padding_block(uint32_t block) const {
        const uint32_t last = static_cast<uint32_t>(extent_m<c>(params_)) - 1;
        bool padding = ExpertOfRows<c>{params_}.is_padding(block);
#pragma unroll 1
        for (uint32_t i = 0; i < kBlock && padding; i += kRows) {
            // No branch: all are asked for before the first one is there.
            uint32_t experts[kRows], least = ~0u;
#pragma unroll
            for (uint32_t j = 0; j < kRows; ++j)
                experts[j] =
                    static_cast<uint32_t>(ptx::load_global_int(params_.grouped_layout + min(block + i + j, last)));
#pragma unroll
            for (uint32_t j = 0; j < kRows; ++j) least = min(least, experts[j]);
            padding = least >= static_cast<uint32_t>(params_.num_groups);
        }
        return padding;
    }

    DG_DEVICE void fill_row(uint32_t row) const {
        constexpr int32_t kElements = 16 / sizeof(Stored);
        Stored* const line = static_cast<Stored*>(params_.d_data) + row * params_.d_stride;
        const int32_t n = c.d_cols(extent_n<c>(params_));
        const bool whole = reinterpret_cast<uint64_t>(line) % 16 == 0 && n % kElements == 0;
#pragma unroll 1
        for (int32_t col = ptx::lane() * (whole ? kElements : 1); col < n; col += 32 * (whole ? kElements : 1)) {
            if (whole)
                ptx::clear_global_x4(line + col);
            else
                line[col] = 0;
        }
        if constexpr (epilogue::Quantise::wanted(c))
            epilogue::Quantise::fill_row<c>(static_cast<const ParamsFor<c>&>(params_)
                                                .steps.template of<epilogue::Quantise>(),
                                            static_cast<int32_t>(row), n);
    }

    const GemmParams& params_;
    uint32_t next_, step_, first_ = 0, found_ = 0;
};

/// Where each of a CTA's warps fills its share when all tiles are done.
template <Constant<GemmConfig> c>
DG_DEVICE void fill_padding_blocks(const GemmParams& params, uint32_t warp, uint32_t warps) {
    PaddingBlocks<c> blocks(params, warp, warps);
    while (blocks.left()) blocks.fill();
}

/// The padding role: one warp.
template <Constant<GemmConfig> c, typename Smem>
DG_DEVICE void find_padding(const Smem& smem, const GemmParams& params) {
    constexpr int32_t kWords = padding_words(c);
    const int32_t lane = ptx::lane();
    TileScheduler<c> tiles(params, smem.groups());
    PaddingBlocks<c> blocks(params);
    Tile tile;
    for (uint32_t phase = 1; tiles.next(tile); phase ^= 1) {
        tiles.place(tile);
        const int32_t first = c.swap_ab ? tile.col : tile.row;
        bool padding[kWords];
#pragma unroll
        for (int32_t i = 0; i < kWords; ++i) padding[i] = ExpertOfRows<c>{params}.is_padding(first + 32 * i + lane);
        uint32_t mine = 0;
#pragma unroll
        for (int32_t i = 0; i < kWords; ++i) {
            const uint32_t word = __ballot_sync(0xffffffff, padding[i]);
            if (lane == i) mine = word;
        }
        while (!__all_sync(0xffffffff, ptx::barrier_passed(smem.padding_read(), phase)) && blocks.left()) blocks.fill();
        ptx::barrier_wait(smem.padding_read(), phase);
        if (lane < kWords) ptx::store_shared_int(smem.padding() + lane * 4, static_cast<int32_t>(mine));
        __syncwarp();
        if (lane == 0) ptx::barrier_arrive(smem.padding_known());
    }
    while (blocks.left()) blocks.fill();
}

}  // namespace deep_gemm
