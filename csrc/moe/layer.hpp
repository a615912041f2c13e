// Both products of a MoE layer in one launch (kernels/moe_layer_sm90.cuh).
#pragma once

#include <deep_gemm/moe/config.cuh>

#include "../api/check/checks_gate.hpp"
#include "../config/candidate.hpp"
#include "../jit/kernel.hpp"
#include "../ranks/group.hpp"

namespace deep_gemm {

/// What both products read and write.
struct BothProductsRecord {
    TensorView up, down;
    OptionalTensor up_scales, down_scales;
    // Of packed weights, with what their tensors do not say (PackedWeights.record_numbers).
    OptionalTensor up_second_scales, up_zeros, down_second_scales, down_zeros;
    std::optional<ffi::Integers> up_packing, down_packing;
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
};

template <>
inline constexpr auto kFieldsOf<BothProductsRecord> = std::tuple{
    Field{"up", &BothProductsRecord::up},
    Field{"up_scales", &BothProductsRecord::up_scales},
    Field{"up_second_scales", &BothProductsRecord::up_second_scales},
    Field{"up_zeros", &BothProductsRecord::up_zeros},
    Field{"up_packing", &BothProductsRecord::up_packing},
    Field{"down", &BothProductsRecord::down},
    Field{"down_scales", &BothProductsRecord::down_scales},
    Field{"down_second_scales", &BothProductsRecord::down_second_scales},
    Field{"down_zeros", &BothProductsRecord::down_zeros},
    Field{"down_packing", &BothProductsRecord::down_packing},
    Field{"ends", &BothProductsRecord::ends},
    Field{"row_weights", &BothProductsRecord::row_weights},
    Field{"ready", &BothProductsRecord::ready},
    Field{"expected_m", &BothProductsRecord::expected_m},
    Field{"gate", &BothProductsRecord::gate},
    Field{"rows", &BothProductsRecord::rows},
    Field{"row_scales", &BothProductsRecord::row_scales},
    Field{"inner", &BothProductsRecord::inner},
    Field{"inner_scales", &BothProductsRecord::inner_scales},
};

struct MoeLayerRecord : BothProductsRecord {
    TensorView out;  // written
};

template <>
inline constexpr auto kFieldsOf<MoeLayerRecord> =
    std::tuple_cat(kFieldsOf<BothProductsRecord>, std::tuple{Field{"out", &MoeLayerRecord::out}});

/// Rows come from other ranks, and results go there. `rows` are written first; they may be fewer than there are, which
/// then take turns there.
struct MoeLayerOfRanksRecord : BothProductsRecord, TravelRecord {
    TensorView pulled;  // counters as `ready`, of `rows`
};

template <>
inline constexpr auto kFieldsOf<MoeLayerOfRanksRecord> =
    std::tuple_cat(kFieldsOf<BothProductsRecord>, kFieldsOf<TravelRecord>,
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
