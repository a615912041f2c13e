// The end of a tile: complete sums become what is stored. In one order in every tile and on every architecture, so that
// an element has the same bits however operands and tiles lie.
#pragma once

#include <deep_gemm/epilogue/tile_end.cuh>

namespace deep_gemm {

template <typename Step, Constant<GemmConfig> c, typename Place, typename Padding>
DG_DEVICE void apply_step(FinishedAt<c, Place>& values, const TileEnd<c, Place, Padding>& end) {
    if constexpr (!Step::wanted(c))
        return;
    else if constexpr (__is_empty(typename Step::Params))
        Step::apply(values, end, {});
    else
        Step::apply(values, end, end.params.steps.template of<Step>());
}

template <typename... Steps, Constant<GemmConfig> c, typename Place, typename Padding>
DG_DEVICE void apply_steps(epilogue::StepsInOrder<Steps...>, FinishedAt<c, Place>& values,
                           const TileEnd<c, Place, Padding>& end) {
    (apply_step<Steps>(values, end), ...);
}

/// Elements of the product from one thread's sums.
template <Constant<GemmConfig> c, typename Place, typename Padding>
DG_DEVICE void finish_product(FinishedAt<c, Place>& values, const SumsAt<c, Place>& sums,
                              const TileEnd<c, Place, Padding>& end) {
    if constexpr (epilogue::ZeroPoints::wanted(c)) {
        epilogue::ZeroPoints::apply(values, sums, end, end.params.steps.template of<epilogue::ZeroPoints>());
    } else {
#pragma unroll
        for (int32_t i = 0; i < Place::kValues; ++i) values[i] = static_cast<RegisterOf<c.output>>(sums[i]);
    }
    apply_steps(epilogue::ProductSteps{}, values, end);
}

/// `values` from one thread's `sums`. Where a gate makes one of two, they are half as many, in the place of D.
template <Constant<GemmConfig> c, typename Place, typename Padding>
DG_DEVICE void finish_tile(FinishedAt<c, PlaceOfD<Place>>& values, const SumsAt<c, Place>& sums, const Place& at,
                           const Tile& tile, const Padding& padding, const GemmParams& params) {
    const TileEnd<c, Place, Padding> end{at, tile, padding, static_cast<const ParamsFor<c>&>(params)};
    if constexpr (c.gate.any()) {
        FinishedAt<c, Place> product;
        finish_product<c>(product, sums, end);
        epilogue::ApplyGate::apply<c, Place>(values, product, end.params.steps.template of<epilogue::ApplyGate>());
        const PlaceOfD<Place> at_d(at);
        apply_steps(epilogue::ResultSteps{}, values,
                    TileEnd<c, PlaceOfD<Place>, Padding>{at_d, tile, padding, end.params});
    } else {
        finish_product<c>(values, sums, end);
        apply_steps(epilogue::ResultSteps{}, values, end);
    }
}

/// The last step, where `finish_tile` at a place that `finds` has made `values` of the sums, and others have sent what
/// they found.
template <Constant<GemmConfig> c, typename Place, typename Padding>
DG_DEVICE void quantise_found(FinishedAt<c, PlaceOfD<Place>>& values, const Place& at, const Tile& tile,
                              const Padding& padding, const GemmParams& params) {
    const auto& all = static_cast<const ParamsFor<c>&>(params);
    const auto& quantise = all.steps.template of<epilogue::Quantise>();
    if constexpr (c.gate.any()) {
        const PlaceOfD<Place> at_d(at);
        epilogue::Quantise::apply(values, TileEnd<c, PlaceOfD<Place>, Padding>{at_d, tile, padding, all}, quantise);
    } else {
        epilogue::Quantise::apply(values, TileEnd<c, Place, Padding>{at, tile, padding, all}, quantise);
    }
}

}  // namespace deep_gemm
