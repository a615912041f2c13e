// Plus C.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/epilogue/tile_end.cuh>

namespace deep_gemm {

struct AddC {
    static constexpr bool wanted(const GemmTask& task) { return task.add_c; }

    template <GemmConfig c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end) {
        constexpr Element kElement = c.output;
        const auto& [at, tile, padding, params] = end;
        at.template for_each_stored<kElement>(static_cast<const StorageOf<kElement>*>(params.c_data), params.c_stride,
                                              params.c_group_stride,
                                              [&](int32_t i, auto value) { values[i] += value; });
    }
};

}  // namespace deep_gemm
