// Calls of the routing kernels: checks, and launches. Results are allocated in deep_gemm/_routing.py.
#pragma once

#include <deep_gemm/routing/config.cuh>

#include "../api/call/record.hpp"
#include "../api/call/tensors.hpp"

namespace deep_gemm {

struct RouteRecord {
    TensorView ids;
    OptionalTensor weights;  // of choices
    // Written.
    TensorView row_of, source, ends, counts;
    OptionalTensor indices;
    OptionalTensor row_weights;  // of rows: where there are weights
    bool masked = false;
    int64_t alignment = 0;
};

template <>
inline constexpr auto kFieldsOf<RouteRecord> =
    std::tuple{Field{"ids", &RouteRecord::ids},         Field{"weights", &RouteRecord::weights},
               Field{"row_of", &RouteRecord::row_of},   Field{"source", &RouteRecord::source},
               Field{"ends", &RouteRecord::ends},       Field{"counts", &RouteRecord::counts},
               Field{"indices", &RouteRecord::indices}, Field{"row_weights", &RouteRecord::row_weights},
               Field{"masked", &RouteRecord::masked},   Field{"alignment", &RouteRecord::alignment}};

void route(const RouteRecord& record);

struct GatherRecord {
    TensorView x;
    OptionalTensor scales;
    TensorView source;
    // Written.
    TensorView out;
    OptionalTensor out_scales;
    int64_t choices = 0;  // of a token
    bool clear = false;   // whether rows of no token become zeros
};

template <>
inline constexpr auto kFieldsOf<GatherRecord> = std::tuple{Field{"x", &GatherRecord::x},
                                                           Field{"scales", &GatherRecord::scales},
                                                           Field{"source", &GatherRecord::source},
                                                           Field{"out", &GatherRecord::out},
                                                           Field{"out_scales", &GatherRecord::out_scales},
                                                           Field{"choices", &GatherRecord::choices},
                                                           Field{"clear", &GatherRecord::clear}};

void gather_rows(const GatherRecord& record);

struct CombineRecord {
    TensorView x;
    OptionalTensor weights;
    TensorView row_of;
    TensorView out;  // written
};

template <>
inline constexpr auto kFieldsOf<CombineRecord> =
    std::tuple{Field{"x", &CombineRecord::x}, Field{"weights", &CombineRecord::weights},
               Field{"row_of", &CombineRecord::row_of}, Field{"out", &CombineRecord::out}};

void combine_rows(const CombineRecord& record);

}  // namespace deep_gemm
