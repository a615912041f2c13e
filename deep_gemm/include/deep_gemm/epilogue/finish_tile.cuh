// The end of a tile: complete sums become what is stored. In this order in every tile and on every architecture, so
// that an element has the same bits however operands and tiles lie.
//
// A step is a struct in a file of its own (docs/architecture.md, "Adding a step"): whether a task wants it, and what it
// does to values at their place.
#pragma once

#include <deep_gemm/epilogue/add_c.cuh>
#include <deep_gemm/epilogue/alpha.cuh>
#include <deep_gemm/epilogue/bias.cuh>
#include <deep_gemm/epilogue/scales.cuh>
#include <deep_gemm/epilogue/undo_conversion.cuh>
#include <deep_gemm/epilogue/zero_padding.cuh>
#include <deep_gemm/epilogue/zero_points.cuh>

namespace deep_gemm {

template <typename... Steps>
struct StepsInOrder {
    template <GemmConfig c, typename Place, typename Padding>
    static DG_DEVICE void apply(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end) {
        (apply_one<Steps>(values, end), ...);
    }

private:
    template <typename Step, GemmConfig c, typename Place, typename Padding>
    static DG_DEVICE void apply_one(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end) {
        if constexpr (Step::wanted(c)) Step::apply(values, end);
    }
};

/// Elements of the product, in FP32 where D is no integer.
using ProductSteps = StepsInOrder<UndoConversion, ScalesOfA, ScalesOfB, Alpha, Bias, AddC>;
/// Elements of D. (What makes one of two of the product goes between the two.)
using ResultSteps = StepsInOrder<ZeroPadding>;

/// `values` from one thread's `sums`.
template <GemmConfig c, typename Place, typename Padding>
DG_DEVICE void finish_tile(FinishedAt<c, Place>& values, const SumsAt<c, Place>& sums, const Place& at,
                           const Tile& tile, const Padding& padding, const GemmParams& params) {
    const TileEnd<c, Place, Padding> end{at, tile, padding, static_cast<const ParamsFor<c>&>(params)};
    if constexpr (ZeroPoints::wanted(c)) {
        ZeroPoints::apply(values, sums, end);
    } else {
#pragma unroll
        for (int32_t i = 0; i < Place::kValues; ++i) values[i] = static_cast<RegisterOf<c.output>>(sums[i]);
    }
    ProductSteps::apply(values, end);
    ResultSteps::apply(values, end);
}

}  // namespace deep_gemm
