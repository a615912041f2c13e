// A rank's view of its group, as deep_gemm/mega_moe_ranks.py gives it. Records of calls are derived from it.
#pragma once

#include <deep_gemm/ranks/config.cuh>

#include "../api/call/record.hpp"
#include "../api/call/tensors.hpp"
#include "../device/device.hpp"

namespace deep_gemm {

struct GroupRecord {
    int64_t rank = 0, timeout_ns = 0;
    ffi::Integers parts;  // addresses: of each rank's part of the shared memory
    int64_t part_bytes = 0;
    int64_t ids_at = 0, weights_at = 0, x_at = 0, x_scales_at = 0, results_at = 0;  // in a part
    TensorView calls;  // int32 [1]: how many calls there were
};

template <>
inline constexpr auto kFieldsOf<GroupRecord> = std::tuple{
    Field{"rank", &GroupRecord::rank},
    Field{"timeout_ns", &GroupRecord::timeout_ns},
    Field{"parts", &GroupRecord::parts},
    Field{"part_bytes", &GroupRecord::part_bytes},
    Field{"ids_at", &GroupRecord::ids_at},
    Field{"weights_at", &GroupRecord::weights_at},
    Field{"x_at", &GroupRecord::x_at},
    Field{"x_scales_at", &GroupRecord::x_scales_at},
    Field{"results_at", &GroupRecord::results_at},
    Field{"calls", &GroupRecord::calls},
};

/// Tokens of a call that travel together, and the rows that experts here have of their choices.
struct TravelRecord : GroupRecord {
    TensorView source;                               // int32 [rows]: which choice
    int64_t first_token = 0, room = 0, choices = 0;  // `room` tokens of each rank; choices of a token
};

template <>
inline constexpr auto kFieldsOf<TravelRecord> =
    std::tuple_cat(kFieldsOf<GroupRecord>,
                   std::tuple{Field{"source", &TravelRecord::source}, Field{"first_token", &TravelRecord::first_token},
                              Field{"room", &TravelRecord::room}, Field{"choices", &TravelRecord::choices}});

/// What kernels are told of a group. What they may touch of it is added to `extents`; `like`: what lies on `device`.
Ranks ranks_of(const GroupRecord& group, DeviceId device, const char* like, std::vector<Extent>& extents);

}  // namespace deep_gemm
