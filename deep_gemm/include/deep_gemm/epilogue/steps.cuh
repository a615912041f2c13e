// The steps between complete sums and what is stored, in the order in which they are applied, and what they take of the
// kernel's argument.
#pragma once

#include <deep_gemm/epilogue/add_c.cuh>
#include <deep_gemm/epilogue/alpha.cuh>
#include <deep_gemm/epilogue/bias.cuh>
#include <deep_gemm/epilogue/clamp.cuh>
#include <deep_gemm/epilogue/gate.cuh>
#include <deep_gemm/epilogue/quantize.cuh>
#include <deep_gemm/epilogue/round_at_random.cuh>
#include <deep_gemm/epilogue/row_scale.cuh>
#include <deep_gemm/epilogue/scales.cuh>
#include <deep_gemm/epilogue/undo_conversion.cuh>
#include <deep_gemm/epilogue/zero_padding.cuh>
#include <deep_gemm/epilogue/zero_points.cuh>

namespace deep_gemm::epilogue {

template <typename Step, bool = __is_empty(typename Step::Params)>
struct StepSlot {};
template <typename Step>
struct StepSlot<Step, false> {
    typename Step::Params params;
};

template <typename... Steps>
struct ParamsOfSteps : StepSlot<Steps>... {
    /// Of a step that has some.
    template <typename Step>
    DG_HOST_DEVICE typename Step::Params& of() {
        return static_cast<StepSlot<Step>&>(*this).params;
    }
    template <typename Step>
    DG_HOST_DEVICE const typename Step::Params& of() const {
        return static_cast<const StepSlot<Step>&>(*this).params;
    }
};

template <typename... Steps>
struct StepsInOrder {
    /// Whether a config has one that takes parameters.
    static constexpr bool take_params(const GemmConfig& c) {
        return ((Steps::wanted(c) && !__is_empty(typename Steps::Params)) || ...);
    }
};

template <typename... Lists>
struct JoinSteps;
template <typename... First, typename... Second, typename... Rest>
struct JoinSteps<StepsInOrder<First...>, StepsInOrder<Second...>, Rest...>
    : JoinSteps<StepsInOrder<First..., Second...>, Rest...> {};
template <typename... Steps>
struct JoinSteps<StepsInOrder<Steps...>> {
    using Type = StepsInOrder<Steps...>;
    using Params = ParamsOfSteps<Steps...>;
};

/// From sums to elements of the product: else they are only converted.
using SumSteps = StepsInOrder<ZeroPoints>;
/// Elements of the product, in FP32 where D is no integer.
using ProductSteps = StepsInOrder<UndoConversion, ScalesOfA, ScalesOfB, Alpha, Bias, AddC>;
/// From two elements of the product to one of D: else they are the same.
using GateSteps = StepsInOrder<ApplyGate>;
/// Elements of D.
using ResultSteps = StepsInOrder<RowScale, ZeroPadding, RoundAtRandom, Clamp, Quantise>;

using AllSteps = JoinSteps<SumSteps, ProductSteps, ResultSteps, GateSteps>;

}  // namespace deep_gemm::epilogue

namespace deep_gemm {

using StepParams = epilogue::AllSteps::Params;
constexpr bool has_step_params(const GemmConfig& c) { return epilogue::AllSteps::Type::take_params(c); }

}  // namespace deep_gemm
