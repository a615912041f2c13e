// Tiles of down to CTAs that have had different numbers of tiles of gate and up.
#pragma once

#include <deep_gemm/moe/config.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// Where tiles of `up` fill all waves but the last, those without one in it get as many of `down` first as it is worth;
/// then all get one in turn. (Where there is one wave, nobody's rows are there before it is over.)
template <Constant<GemmConfig> c>
struct DealAfterUp {
    int32_t next;

    DG_DEVICE DealAfterUp(const GemmParams& params, const GroupTable<c>& table) : next(first_place<c>(params)) {
        const auto& all = static_cast<const DownParams&>(params);
        const int32_t walkers = gridDim.x / c.tile_ctas(), tiles = table.all_blocks() * all.up_blocks,
                      last_wave = tiles % walkers;
        const int32_t head_start = tiles > walkers && last_wave > 0 ? all.head_start : 0, free = walkers - last_wave;
        then_ = free * head_start + next;
        if (head_start == 0 || next < last_wave) {
            next = then_;
            return;
        }
        next -= last_wave, step_ = free, left_ = head_start - 1;
    }

    DG_DEVICE void advance() {
        if (left_ > 0) {
            --left_, next += step_;
        } else if (left_ == 0 && step_ > 0) {
            step_ = 0, next = then_;
        } else {
            next += gridDim.x / c.tile_ctas();
        }
    }

private:
    int32_t then_, step_ = 0, left_ = 0;  // the first tile in turn; those before it: how far apart, how many more
};

}  // namespace deep_gemm
