// A store warp's chunks through shared memory and the copy engine.
#pragma once

#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/tma.cuh>
#include <deep_gemm/store/sm100/piece.cuh>
#include <deep_gemm/store/swizzle.cuh>

namespace deep_gemm::sm100 {

/// Through the copy engine: each warp's chunks take turns in its staging buffers.
template <Constant<GemmConfig> c>
class StagedStores {
public:
    DG_DEVICE explicit StagedStores(const Smem<c>& smem) : buffers_(smem.staging(threadIdx.x / 32)) {}

    DG_DEVICE void write(const PieceValues<c>& values, const PlaceOfD<Piece<c>>&, const Tile& tile, int32_t chunk,
                         const GemmParams& params) {
        const uint32_t buffer = buffers_ + turn_ * kChunk.bytes();
        // The engine may still read an earlier chunk from this buffer. (Groups of stores belong to a thread: always the
        // same lane is elected.)
        if (ptx::elect_one()) ptx::wait_stores_read<c.store.buffers - 1>();
        __syncwarp();
        stage(buffer, values);
        ptx::fence_for_async_proxy();
        __syncwarp();
        if (ptx::elect_one()) copy(buffer, tile, chunk, params);
        turn_ = turn_ + 1 == c.store.buffers ? 0 : turn_ + 1;
    }

    /// Shared memory must outlive the copies that read it.
    DG_DEVICE void finish() const {
        if (ptx::elect_one()) ptx::wait_stores<0>();
    }

private:
    static constexpr StoreChunk kChunk = store_chunk(c);
    static constexpr int32_t kSpan = kChunk.swizzle_bytes();

    static DG_DEVICE void stage(uint32_t buffer, const PieceValues<c>& values) {
        static_assert(!c.gate.any() || !c.swap_ab, "8 columns of D of neighbouring lanes are stored from registers");
        const int32_t lane = ptx::lane();
        if constexpr (c.swap_ab && bits(c.output) == 16) {
            stage_pairs(buffer, values);
        } else if constexpr (c.swap_ab) {
#pragma unroll
            for (int32_t i = 0; i < Piece<c>::kCols; ++i)
                ptx::store_shared(buffer + swizzled<kSpan>(i * kSpan + lane * 4), values[i]);
        } else {
#pragma unroll
            for (int32_t unit = 0; unit < PlaceOfD<Piece<c>>::kCols / kUnit<c>; ++unit) {
                uint32_t words[4];
                to_words<c>(values + unit * kUnit<c>, words);
                ptx::store_shared_x4(buffer + swizzled<kSpan>(lane * kSpan + unit * 16), static_cast<int32_t>(words[0]),
                                     static_cast<int32_t>(words[1]), static_cast<int32_t>(words[2]),
                                     static_cast<int32_t>(words[3]));
            }
        }
    }

    /// Neighbours of D's rows are in neighbouring lanes: the even one takes both of one row, the odd one of the next.
    static DG_DEVICE void stage_pairs(uint32_t buffer, const PieceValues<c>& values) {
        static_assert(2 * kSpan == 128, "two rows are swizzled alike");
        const int32_t lane = ptx::lane();
        const bool odd = lane % 2 != 0;
        const uint32_t own = odd * kSpan + lane / 2 * 4;
#pragma unroll
        for (int32_t i = 0; i < Piece<c>::kCols; i += 2) {
            const uint32_t first = i * kSpan, exchange = swizzled<kSpan>(first) ^ first;
            const float mine = odd ? values[i + 1] : values[i], given = odd ? values[i] : values[i + 1],
                        other = __shfl_xor_sync(0xffffffff, given, 1);
            const uint32_t both = Pack<c.output>::pack(odd ? other : mine, odd ? mine : other);
            ptx::store_shared_int(buffer + (own ^ exchange) + first, static_cast<int32_t>(both));
        }
    }

    /// One thread.
    static DG_DEVICE void copy(uint32_t buffer, const Tile& tile, int32_t chunk, const GemmParams& params) {
        const int32_t row = tile.row + tensor_warp() * kWarpRows,
                      col = tile.col + first_store_col<c>() + chunk * Piece<c>::kCols;
        const int32_t x = columns_of_d<c, kChunk.inner>(c.d_cols(c.swap_ab ? row : col)), y = c.swap_ab ? col : row;
        if constexpr (adds_to_memory(c.store))
            ptx::add_box(&params.d, buffer, x, y, group_of_d<c>(tile));
        else
            ptx::store_box(&params.d, buffer, x, y, group_of_d<c>(tile));
        ptx::commit_stores();
    }

    uint32_t buffers_;
    int32_t turn_ = 0;
};

}  // namespace deep_gemm::sm100
