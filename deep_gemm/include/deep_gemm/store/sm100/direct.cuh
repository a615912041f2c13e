// A store warp's chunks from registers.
#pragma once

#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/store/sm100/piece.cuh>

namespace deep_gemm::sm100 {

/// From registers, in place of what is there or added to it.
template <Constant<GemmConfig> c>
class DirectStores {
public:
    DG_DEVICE explicit DirectStores(const Smem<c>&) {}

    DG_DEVICE void write(const PieceValues<c>& values, const PlaceOfD<Piece<c>>& piece, const Tile&, int32_t,
                         const GemmParams& params) const {
        using Stored = typename Piece<c>::Stored;
        constexpr int32_t kCols = PlaceOfD<Piece<c>>::kCols;
        static_assert(!adds_to_memory(c.store) || c.output == Element::fp32, "16 bits would be rounded twice");
        auto* data = static_cast<Stored*>(params.d_data) + piece.group * params.d_group_stride;
        if (!adds_to_memory(c.store) && piece.is_whole(data, params.d_stride)) {
            auto* line = reinterpret_cast<uint4*>(piece.place(data, params.d_stride, 0));
#pragma unroll
            for (int32_t i = 0; i < kCols / kUnit<c>; ++i) {
                uint32_t words[4];
                to_words<c>(values + i * kUnit<c>, words);
                line[i] = make_uint4(words[0], words[1], words[2], words[3]);
            }
            return;
        }
#pragma unroll
        for (int32_t i = 0; i < kCols; ++i) {
            if (!piece.inside(i)) continue;
            Stored* const at = piece.place(data, params.d_stride, i);
            if constexpr (adds_to_memory(c.store))
                ptx::add_global(at, values[i]);
            else
                from_register<c.output>(*at, values[i]);
        }
    }

    DG_DEVICE void finish() const {}
};

}  // namespace deep_gemm::sm100
