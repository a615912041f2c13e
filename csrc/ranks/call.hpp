// Calls of the kernels by which a MoE layer's tokens travel between ranks. Results are allocated in
// deep_gemm/mega_moe_ranks.py, which checks what a user gives.
#pragma once

#include "group.hpp"

namespace deep_gemm {

struct ChoicesRecord : GroupRecord {
    TensorView ids, row_weights;                                  // written: [ranks x tokens of each, choices]
    int64_t first_token = 0, tokens = 0, bound = 0, experts = 0;  // `tokens` of this rank, at most `bound` of any
};

template <>
inline constexpr auto kFieldsOf<ChoicesRecord> =
    std::tuple_cat(kFieldsOf<GroupRecord>,
                   std::tuple{Field{"ids", &ChoicesRecord::ids}, Field{"row_weights", &ChoicesRecord::row_weights},
                              Field{"first_token", &ChoicesRecord::first_token},
                              Field{"tokens", &ChoicesRecord::tokens}, Field{"bound", &ChoicesRecord::bound},
                              Field{"experts", &ChoicesRecord::experts}});

void exchange_choices(const ChoicesRecord& record);

struct PullRecord : TravelRecord {
    TensorView out, out_scales;  // written
};

template <>
inline constexpr auto kFieldsOf<PullRecord> =
    std::tuple_cat(kFieldsOf<TravelRecord>,
                   std::tuple{Field{"out", &PullRecord::out}, Field{"out_scales", &PullRecord::out_scales}});

void pull_rows(const PullRecord& record);

struct PushRecord : TravelRecord {
    TensorView down;
};

template <>
inline constexpr auto kFieldsOf<PushRecord> =
    std::tuple_cat(kFieldsOf<TravelRecord>, std::tuple{Field{"down", &PushRecord::down}});

void push_rows(const PushRecord& record);

struct ResultsRecord : GroupRecord {
    TensorView out;  // written
    int64_t choices = 0, num_experts = 0;
};

template <>
inline constexpr auto kFieldsOf<ResultsRecord> =
    std::tuple_cat(kFieldsOf<GroupRecord>,
                   std::tuple{Field{"out", &ResultsRecord::out}, Field{"choices", &ResultsRecord::choices},
                              Field{"num_experts", &ResultsRecord::num_experts}});

void combine_results(const ResultsRecord& record);

}  // namespace deep_gemm
