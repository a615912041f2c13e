#include "group.hpp"

#include "../api/call/dtypes.hpp"

namespace deep_gemm {

constexpr int64_t kNumbers = 8;  // of a group, before the addresses

Ranks ranks_of(const Group& group, DeviceId device, const char* like, std::vector<Extent>& extents) {
    const ffi::Integers& numbers = group.numbers;
    const int64_t count = numbers.size() - kNumbers;
    require(count >= 1 && count <= kMaxRanks, "a group must have 1 to ", kMaxRanks, " ranks, got ", count);
    Ranks ranks{};
    ranks.rank = to_int32(numbers[0], "rank"), ranks.count = to_int32(count, "ranks");
    require(ranks.rank >= 0 && ranks.rank < ranks.count, "rank must be below ", count, ", got ", ranks.rank);
    ranks.timeout_ns = static_cast<uint64_t>(numbers[1]);
    ranks.ids = numbers[3], ranks.weights = numbers[4], ranks.x = numbers[5], ranks.x_scales = numbers[6],
    ranks.results = numbers[7];
    for (int32_t i = 0; i < count; ++i) {
        ranks.parts[i] = reinterpret_cast<uint8_t*>(numbers[kNumbers + i]);
        extents.push_back({ranks.parts[i], static_cast<size_t>(numbers[2]), "memory of a rank", true});
    }
    require_type(is_int32(group.calls.dtype()), "calls must be int32, got ", describe(group.calls.dtype()));
    require_device(group.calls, "calls", device, like);
    ranks.calls = reinterpret_cast<uint32_t*>(group.calls.data());
    extents.push_back({group.calls.data(), extent_bytes(group.calls), "calls", true});
    return ranks;
}

}  // namespace deep_gemm
