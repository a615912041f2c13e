// Both products of a MoE layer in one launch (kernels/moe_layer_sm90.cuh).
#pragma once

#include <deep_gemm/moe/config.cuh>

#include "../api/check/checks_gate.hpp"
#include "../config/candidate.hpp"
#include "../jit/kernel.hpp"
#include "../ranks/group.hpp"

namespace deep_gemm {

struct MoeLayerRecord {
    TensorView up, down;
    OptionalTensor up_scales, down_scales;
    TensorView ends;         // of experts' rows
    TensorView row_weights;  // of the router
    TensorView ready;        // a counter for each 8 rows, 0 before and after each call
    int64_t expected_m = 0;
    ffi::Integers gate;
    TensorView rows;  // of experts, as routing lays them, E4M3
    OptionalTensor row_scales;
    // Written.
    TensorView inner;  // what lies between the products
    OptionalTensor inner_scales;
    TensorView out;
};

template <>
inline constexpr auto kFieldsOf<MoeLayerRecord> = std::tuple{
    Field{"up", &MoeLayerRecord::up},
    Field{"up_scales", &MoeLayerRecord::up_scales},
    Field{"down", &MoeLayerRecord::down},
    Field{"down_scales", &MoeLayerRecord::down_scales},
    Field{"ends", &MoeLayerRecord::ends},
    Field{"row_weights", &MoeLayerRecord::row_weights},
    Field{"ready", &MoeLayerRecord::ready},
    Field{"expected_m", &MoeLayerRecord::expected_m},
    Field{"gate", &MoeLayerRecord::gate},
    Field{"rows", &MoeLayerRecord::rows},
    Field{"row_scales", &MoeLayerRecord::row_scales},
    Field{"inner", &MoeLayerRecord::inner},
    Field{"inner_scales", &MoeLayerRecord::inner_scales},
    Field{"out", &MoeLayerRecord::out},
};

/// Where rows come from other ranks, and results go there: `rows` are written first, and `out` is not.
struct MoeLayerOfRanksRecord : MoeLayerRecord, TravelRecord {
    TensorView pulled;  // counters as `ready`
};

template <>
inline constexpr auto kFieldsOf<MoeLayerOfRanksRecord> =
    std::tuple_cat(kFieldsOf<MoeLayerRecord>, kFieldsOf<TravelRecord>,
                   std::tuple{Field{"pulled", &MoeLayerOfRanksRecord::pulled}});

/// The tiles of both products, which one kernel has room for, with the least cost together.
struct MoeLayerChoice {
    Choice up, down;
    MoeLayerConfig config() const { return {.up = up.config, .down = down.config}; }
};
MoeLayerChoice choose_moe_layer(const Problem& up, const Problem& down, bool travels);
jit::KernelSource render(const MoeLayerChoice& choice, bool travels);

/// Refuses what cannot be right in a sentence.
void run_moe_layer(const MoeLayerRecord& record);
void run_moe_layer(const MoeLayerOfRanksRecord& record);

}  // namespace deep_gemm
