#include "group.hpp"

#include "../api/call/dtypes.hpp"

namespace deep_gemm {

Ranks ranks_of(const GroupRecord& group, DeviceId device, const char* like, std::vector<Extent>& extents) {
    const int64_t count = group.parts.size();
    require(count >= 1 && count <= kMaxRanks, "a group must have 1 to ", kMaxRanks, " ranks, got ", count);
    Ranks ranks{};
    ranks.rank = to_int32(group.rank, "rank"), ranks.count = to_int32(count, "ranks");
    require(ranks.rank >= 0 && ranks.rank < ranks.count, "rank must be below ", count, ", got ", ranks.rank);
    ranks.timeout_ns = static_cast<uint64_t>(group.timeout_ns);
    ranks.ids = group.ids_at, ranks.weights = group.weights_at;
    ranks.x = group.x_at, ranks.x_scales = group.x_scales_at, ranks.results = group.results_at;
    for (int32_t i = 0; i < count; ++i) {
        ranks.parts[i] = reinterpret_cast<uint8_t*>(group.parts[i]);
        extents.push_back({ranks.parts[i], static_cast<size_t>(group.part_bytes), "memory of a rank", true});
    }
    require_type(is_int32(group.calls.dtype()), "calls must be int32, got ", describe(group.calls.dtype()));
    require_device(group.calls, "calls", device, like);
    ranks.calls = reinterpret_cast<uint32_t*>(group.calls.data());
    extents.push_back({group.calls.data(), extent_bytes(group.calls), "calls", true});
    return ranks;
}

}  // namespace deep_gemm
