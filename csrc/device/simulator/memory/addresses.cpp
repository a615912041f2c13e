// Where addresses lead: whose memory it is, and whether all of an access lies in it.
#include "../../../util/require.hpp"
#include "../core/execute.hpp"
#include "arena.hpp"
#include "memory.hpp"

namespace deep_gemm::simulator {

const Extent* find_extent(const LaunchState& launch, uint64_t address) {
    const auto& extents = launch.extents;
    auto after = std::upper_bound(extents.begin(), extents.end(), address,
                                  [](uint64_t a, const Extent& e) { return a < reinterpret_cast<uint64_t>(e.data); });
    // Extents may overlap (a tensor and a view of it): look back a little.
    for (int back = 0; back < 16 && after != extents.begin(); ++back) {
        --after;
        if (address < reinterpret_cast<uint64_t>(after->data) + after->bytes) return &*after;
    }
    return nullptr;
}

namespace {

char* range_of_launch(Cluster& cluster, uint64_t address, uint64_t bytes, bool write, const Warp* warp,
                      const Instruction* in) {
    const auto& extents = cluster.launch->extents;
    const Extent* nearest = nullptr;
    bool read_only = false;
    for (const Extent& extent : extents) {
        const uint64_t start = reinterpret_cast<uint64_t>(extent.data);
        if (start > address) break;
        if (address + bytes <= start + extent.bytes) {
            if (!write || extent.writable) return reinterpret_cast<char*>(address);
            read_only = true;
        }
        nearest = &extent;
    }
    report(cluster, "out of bounds",
           concat("global memory ", hex(address), " (", bytes, " bytes) is ", write ? "written" : "read",
                  read_only ? " but the tensor '" : ", ",
                  read_only ? concat(nearest->name, "' is an input")
                  : nearest ? concat("which is ", address - reinterpret_cast<uint64_t>(nearest->data), " bytes into '",
                                     nearest->name, "' of ", nearest->bytes, " bytes")
                            : std::string("which belongs to no tensor of the launch")),
           warp, in);
    return nullptr;
}

}  // namespace

char* global_range(Cluster& cluster, uint64_t address, uint64_t bytes, bool write, const Warp* warp,
                   const Instruction* in) {
    if (arena_at(cluster, address) || (bytes > 0 && arena_at(cluster, address + bytes - 1)))
        fail(ErrorKind::runtime, "simulator: copies of memory that several devices share are not modelled, at ",
             cluster.module->location(in ? *in : warp->instruction()), ": use loads and stores");
    return range_of_launch(cluster, address, bytes, write, warp, in);
}

Place shared_place(Warp& warp, uint32_t address, uint32_t bytes, bool own_only, const char* what) {
    Cluster& cluster = *warp.cluster;
    const uint32_t rank = address >> kRankShift, offset = address & ((1u << kRankShift) - 1);
    if (rank >= cluster.ctas.size() || (own_only && rank != warp.cta->rank)) {
        report(cluster, "out of bounds",
               concat(what, ": shared address ", hex(address), " is in block ", rank,
                      rank < cluster.ctas.size() ? " of the cluster, but this instruction reaches only its own block"
                                                 : ", which does not exist"),
               &warp);
        return {};
    }
    Cta& cta = *cluster.ctas[rank];
    if (offset < kReservedShared || uint64_t(offset) + bytes > cta.shared.size()) {
        report(cluster, "out of bounds",
               concat(what, ": shared address ", hex(address), " (", bytes, " bytes) is outside [",
                      hex(kReservedShared), ", ", hex(cta.shared.size()), ") of block ", rank),
               &warp);
        return {};
    }
    return {cta.shared.data() + offset, &cta, offset};
}

Place resolve(Warp& warp, Space space, uint64_t address, uint32_t bytes, bool write, unsigned lane) {
    if (address % bytes)
        report(*warp.cluster, "misaligned",
               concat(write ? "store of " : "load of ", bytes, " bytes at ", hex(address),
                      ", which is not aligned to them"),
               &warp);
    if (space == Space::generic) {
        const uint64_t window = address & kWindowMask;
        if (window == kSharedWindow)
            space = Space::shared_cluster, address = uint32_t(address);
        else if (window == kLocalWindow)
            space = Space::local, address &= ~kWindowMask;
        else
            space = Space::global;
    }
    switch (space) {
        case Space::shared_cta:
            return shared_place(warp, uint32_t(address), bytes, true, write ? "store" : "load");
        case Space::shared_cluster:
            return shared_place(warp, uint32_t(address), bytes, false, write ? "store" : "load");
        case Space::local:
            if (address + bytes > warp.entry->local_bytes) {
                report(*warp.cluster, "out of bounds",
                       concat("local address ", hex(address), " is beyond the thread's ", warp.entry->local_bytes,
                              " bytes"),
                       &warp);
                return {};
            }
            return {warp.local.data() + size_t(lane) * warp.entry->local_bytes + address};
        case Space::param:
            if (address + bytes > warp.cluster->launch->param_storage.size()) {
                report(*warp.cluster, "out of bounds",
                       concat("parameter offset ", address, " is beyond the parameters"), &warp);
                return {};
            }
            return {warp.cluster->launch->params + address};
        default:
            return {range_of_launch(*warp.cluster, address, bytes, write, &warp, nullptr)};
    }
}

}  // namespace deep_gemm::simulator
