// A rank's view of its group, as deep_gemm/mega_moe_ranks.py gives it.
#pragma once

#include <deep_gemm/ranks/config.cuh>

#include "../api/call/tensors.hpp"
#include "../device/device.hpp"
#include "../util/ffi.hpp"

namespace deep_gemm {

/// Rank, timeout in ns, bytes of a part, where ids, weights, x, its scales and results begin in one, then each rank's
/// part as an address.
struct Group {
    const ffi::Integers& numbers;
    const TensorView& calls;  // int32 [1]: how many calls there were
};

/// Tokens of a call that travel together: `room` of each rank, from `first_token` on.
struct TokenRange {
    int64_t first, room, choices;
};

/// What kernels are told of a group. What they may touch of it is added to `extents`; `like`: what lies on `device`.
Ranks ranks_of(const Group& group, DeviceId device, const char* like, std::vector<Extent>& extents);

}  // namespace deep_gemm
