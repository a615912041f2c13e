// BF16 rounded up or down at random, up so much the likelier as a value is nearer there: on average nothing is lost.
// What is stored is rounded here; stores find nothing left to round.
//
// The random bits are a hash of four neighbours of a row of D and of their place in it: the same result gives the same
// bits, whatever tile makes it. As DeepGEMM has it, to the bit.
#pragma once

#include <deep_gemm/epilogue/step.cuh>

namespace deep_gemm::epilogue {

struct RoundAtRandom {
    using Params = NoParams;
    static constexpr bool wanted(const GemmConfig& c) { return c.rounding == Rounding::at_random; }

#if defined(__CUDACC__)
    template <Constant<GemmConfig> c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end, NoParams) {
        constexpr int32_t kHeld = Place::kQuartetValues;  // of four by this thread
        const Place& at = end.at;
        int32_t cols[Place::kValues];
        at.for_each_col([&](int32_t i, int32_t col) { cols[i] = col; });
#pragma unroll
        for (int32_t first = 0; first < Place::kValues; first += kHeld) {
            uint32_t hash = 0;
#pragma unroll
            for (int32_t i = first; i < first + kHeld; ++i)
                hash += cols[i] < at.n_end ? __float_as_uint(values[i]) * factor(Place::in_quartet(i)) : 0;
            hash = scrambled(Place::sum_over_quartet(hash) + cols[first] / 4);
#pragma unroll
            for (int32_t i = first; i < first + kHeld; ++i)
                values[i] = rounded(values[i], random_bits(hash, Place::in_quartet(i)));
        }
    }

private:
    static DG_DEVICE uint32_t factor(int32_t place) {
        return place == 0 ? 0x5671d42bu : place == 1 ? 0x9995e499u : place == 2 ? 0xace1b8a5u : 0xe153538du;
    }
    static DG_DEVICE uint32_t scrambled(uint32_t hash) {
        hash = (hash ^ hash >> 23) * 0x7feb352du;
        return hash ^ hash >> 16;
    }
    /// Sixteen of them.
    static DG_DEVICE uint32_t random_bits(uint32_t hash, int32_t place) {
        const uint32_t two = hash * (place < 2 ? 0x846ca68bu : 0xd35a2d97u), mixed = two ^ two >> 11;
        return place % 2 == 0 ? mixed & 0xffffu : mixed >> 16;
    }
    /// NaN stays one, of which a carry could make zero.
    static DG_DEVICE float rounded(float value, uint32_t random) {
        const float stored = __uint_as_float((__float_as_uint(value) + random) & 0xffff0000u);
        return value == value ? stored : value;
    }
#endif
};

}  // namespace deep_gemm::epilogue
