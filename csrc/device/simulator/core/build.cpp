// What a launch is made of: its parameters and memory, and clusters as they begin.
#include <algorithm>
#include <cstring>

#include "../../../util/require.hpp"
#include "../memory/map_changes.hpp"
#include "dice.hpp"
#include "execute.hpp"
#include "launch.hpp"
#include "targets.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr uint32_t kRegisterFile = 65536, kMaximumThreads = 1024, kFirstWithClusters = 90;

uint64_t special_value(const Cta& cta, const Warp& warp, Special special, unsigned lane) {
    const LaunchState& launch = *cta.cluster->launch;
    const auto *grid = launch.launch->grid, *block = launch.launch->block;
    const uint32_t* shape = launch.cluster_shape;
    const uint32_t thread = warp.index * kLanes + lane;
    const auto axis = [](Special s, Special first) { return unsigned(s) - unsigned(first); };
    switch (special) {
        case Special::tid_x:
            return thread % block[0];
        case Special::tid_y:
            return thread / block[0] % block[1];
        case Special::tid_z:
            return thread / block[0] / block[1];
        case Special::ntid_x:
        case Special::ntid_y:
        case Special::ntid_z:
            return block[axis(special, Special::ntid_x)];
        case Special::ctaid_x:
        case Special::ctaid_y:
        case Special::ctaid_z:
            return cta.id[axis(special, Special::ctaid_x)];
        case Special::nctaid_x:
        case Special::nctaid_y:
        case Special::nctaid_z:
            return grid[axis(special, Special::nctaid_x)];
        case Special::laneid:
            return lane;
        case Special::warpid:
            return warp.index;
        case Special::nwarpid:
            return cta.warps.size();
        case Special::smid:
            return cta.linear;
        case Special::nsmid:
            return grid[0] * grid[1] * grid[2];
        case Special::clusterid_x:
        case Special::clusterid_y:
        case Special::clusterid_z: {
            const unsigned i = axis(special, Special::clusterid_x);
            return cta.id[i] / shape[i];
        }
        case Special::nclusterid_x:
        case Special::nclusterid_y:
        case Special::nclusterid_z: {
            const unsigned i = axis(special, Special::nclusterid_x);
            return grid[i] / shape[i];
        }
        case Special::cluster_ctaid_x:
        case Special::cluster_ctaid_y:
        case Special::cluster_ctaid_z: {
            const unsigned i = axis(special, Special::cluster_ctaid_x);
            return cta.id[i] % shape[i];
        }
        case Special::cluster_nctaid_x:
        case Special::cluster_nctaid_y:
        case Special::cluster_nctaid_z:
            return shape[axis(special, Special::cluster_nctaid_x)];
        case Special::cluster_ctarank:
            return cta.rank;
        case Special::cluster_nctarank:
            return launch.cluster_size;
        case Special::is_explicit_cluster:
            return launch.cluster_size > 1;
        case Special::lanemask_eq:
            return 1u << lane;
        case Special::lanemask_le:
            return (2u << lane) - 1;
        case Special::lanemask_lt:
            return (1u << lane) - 1;
        case Special::lanemask_ge:
            return ~((1u << lane) - 1);
        case Special::lanemask_gt:
            return ~((2u << lane) - 1);
        case Special::dynamic_smem_size:
            return launch.launch->smem_bytes;
        case Special::total_smem_size:
        case Special::aggr_smem_size:
            return launch.shared_bytes;
        default:
            return 0;
    }
}

void start_warp(Warp& warp) {
    const Entry& entry = *warp.entry;
    const LaunchState& launch = *warp.cluster->launch;
    // Rows are aligned for the host's vectors.
    warp.registers.assign(entry.register_bytes + 64, 0);
    warp.warp_values.assign(entry.warp_value_bytes + 64, 0);
    const auto aligned = [](std::vector<char>& data) {
        return data.data() + (64 - reinterpret_cast<uintptr_t>(data.data()) % 64) % 64;
    };
    warp.bank[static_cast<int>(Bank::registers)] = aligned(warp.registers);
    warp.bank[static_cast<int>(Bank::warp_values)] = aligned(warp.warp_values);
    warp.bank[static_cast<int>(Bank::constants)] = const_cast<char*>(launch.module->constants.data());
    warp.local.assign(size_t(entry.local_bytes) * kLanes, '\xff');
    if (entry.has_wgmma) {
        warp.pending_register.assign(entry.register_count, 0);
        warp.written_register.assign(entry.register_count, 0);
    }
    if (entry.has_tensor_load) warp.loading_register.assign(entry.register_count, 0);
    uint32_t offset = 0;
    for (const WarpValue& value : entry.warp_values) {
        offset = (offset + 63) / 64 * 64;
        char* row = warp.bank[static_cast<int>(Bank::warp_values)] + offset;
        for (unsigned lane = 0; lane < kLanes; ++lane) {
            uint64_t bits =
                value.kind == WarpValue::Kind::special
                    ? special_value(*warp.cta, warp, Special(value.index), lane)
                    : (warp.cta->rank << kRankShift | (kReservedShared + launch.module->shared[value.index].offset)) +
                          uint64_t(value.addend);
            std::memcpy(row + lane * value.bytes, &bits, value.bytes);
        }
        offset += value.bytes * kLanes;
    }
    const uint32_t threads = launch.launch->block[0] * launch.launch->block[1] * launch.launch->block[2];
    const uint32_t here = std::min(kLanes, threads - warp.index * kLanes);
    warp.created = here == kLanes ? kAllLanes : (1u << here) - 1;
    warp.fragments.push_back({0, warp.created, {}, 0});
    warp.knowledge.push_back(std::make_unique<Knowledge>(Knowledge{kAllLanes, {}}));
    std::fill_n(warp.known_by, kLanes, warp.knowledge.front().get());
}

void add_extents(LaunchState& launch) {
    const Launch& given = *launch.launch;
    // Parameters live in a copy that is aligned as the constant bank is.
    launch.param_storage.assign(std::max<size_t>(given.params_bytes, launch.entry->param_bytes) + 128, 0);
    launch.params =
        launch.param_storage.data() + (128 - reinterpret_cast<uintptr_t>(launch.param_storage.data()) % 128) % 128;
    if (given.params_bytes) std::memcpy(launch.params, given.params, given.params_bytes);
    const size_t bytes = std::max<size_t>(given.params_bytes, launch.entry->param_bytes);
    launch.extents.assign(given.extents.begin(), given.extents.end());
    launch.extents.push_back({launch.params, bytes, "kernel parameters", false});
    for (const auto& storage : launch.module->globals)
        launch.extents.push_back({storage.data(), storage.size(), "module variable", true});
    const auto sort = [&] {
        std::sort(launch.extents.begin(), launch.extents.end(),
                  [](const Extent& a, const Extent& b) { return a.data < b.data; });
    };
    sort();
    // What a tensor map among the parameters covers belongs to the launch too, unless its tensor is given (then that
    // decides).
    for (size_t at = 0; at + sizeof(StoredTensorMap) <= bytes; at += 64) {
        const auto* map = reinterpret_cast<const StoredTensorMap*>(launch.params + at);
        if (map->magic != kTensorMapMagic) continue;
        bool known = false;
        for (const Extent& extent : given.extents)
            known |= map->address - reinterpret_cast<uint64_t>(extent.data) < extent.bytes;
        if (!known)
            launch.extents.push_back({reinterpret_cast<void*>(map->address), covered_bytes(*map), "tensor map", true});
    }
    sort();
    for (const Extent& extent : launch.extents) {
        if (!extent.writable) continue;
        const auto first = reinterpret_cast<uint64_t>(extent.data);
        if (launch.writable.empty() || first > launch.writable.back().second)
            launch.writable.emplace_back(first, first + extent.bytes);
        else
            launch.writable.back().second = std::max(launch.writable.back().second, first + extent.bytes);
    }
}

void check_shape(const LaunchState& launch) {
    const Launch& given = *launch.launch;
    const uint64_t threads = uint64_t(given.block[0]) * given.block[1] * given.block[2];
    require(threads >= 1 && threads <= kMaximumThreads, "a block must have 1 to ", kMaximumThreads, " threads, got ",
            threads);
    require(!launch.entry->max_threads || threads <= launch.entry->max_threads, "the kernel allows ",
            launch.entry->max_threads, " threads a block, got ", threads);
    const Target target = parse_target(launch.module->target);
    require(launch.shared_bytes <= shared_bytes_of(target), "on ", target.name, " a block may have ",
            shared_bytes_of(target), " bytes of shared memory, got ", launch.shared_bytes);
    require(launch.cluster_size == 1 || target.number >= kFirstWithClusters, target.name,
            " has no clusters of blocks, got one of ", launch.cluster_size);
    require(launch.cluster_size >= 1 && launch.cluster_size <= 16, "a cluster must have 1 to 16 blocks, got ",
            launch.cluster_size);
    for (int i = 0; i < 3; ++i) {
        require(given.grid[i] >= 1, "the grid is empty");
        require(given.grid[i] % launch.cluster_shape[i] == 0, "the grid (", given.grid[i],
                " blocks) is not a multiple of the cluster (", launch.cluster_shape[i], ")");
    }
    require(given.params_bytes >= launch.entry->param_bytes, "the kernel takes ", launch.entry->param_bytes,
            " bytes of parameters, got ", given.params_bytes);
}

}  // namespace

std::unique_ptr<Cluster> build_cluster(LaunchState& launch, uint32_t index) {
    auto cluster = std::make_unique<Cluster>();
    cluster->known_maps = std::make_shared<KnownMaps>();
    cluster->launch = &launch;
    cluster->module = launch.module;
    cluster->index = index;
    cluster->dice = std::make_shared<Dice>(std::mt19937_64(launch.options.seed * 0x9e3779b97f4a7c15ull + index));
    cluster->counts.assign(launch.entry->code.size(), 0);
    const auto *grid = launch.launch->grid, *block = launch.launch->block, *shape = launch.cluster_shape;
    uint32_t first[3];
    find_first_block(launch, index, first);
    const uint32_t threads = block[0] * block[1] * block[2], warps = (threads + kLanes - 1) / kLanes;
    const uint32_t limit =
        launch.entry->max_registers
            ? launch.entry->max_registers
            : std::min(255u, kRegisterFile / std::max(1u, launch.entry->min_blocks) / (warps * kLanes)) / 8 * 8;
    for (uint32_t rank = 0; rank < launch.cluster_size; ++rank) {
        auto cta = std::make_unique<Cta>();
        cta->cluster = cluster.get();
        cta->rank = rank;
        const uint32_t inside[3] = {rank % shape[0], rank / shape[0] % shape[1], rank / shape[0] / shape[1]};
        for (int i = 0; i < 3; ++i) cta->id[i] = first[i] + inside[i];
        cta->linear = cta->id[0] + grid[0] * (cta->id[1] + grid[1] * cta->id[2]);
        cta->shared.assign(kReservedShared + (launch.shared_bytes + 15) / 16 * 16, '\xff');
        cta->words.assign(cta->shared.size() / 4 + 1, {});
        cta->mbarrier_at.assign(cta->shared.size() / 8 + 1, -1);
        cta->live_warps = warps;
        for (uint32_t i = 0; i < warps; ++i) {
            auto warp = std::make_unique<Warp>();
            warp->cta = cta.get();
            warp->cluster = cluster.get();
            warp->entry = launch.entry;
            warp->index = i;
            warp->registers_per_thread = limit;
            warp->number = uint32_t(cluster->warps.size());
            warp->agent = Agent(warp->number * kLanes);
            cluster->warps.push_back(warp.get());
            cta->warps.push_back(std::move(warp));
        }
        cluster->ctas.push_back(std::move(cta));
    }
    cluster->next_agent = cluster->lane_agents();
    for (Warp* warp : cluster->warps) {
        start_warp(*warp);
        warp->bulk_agent = cluster->new_agent("a bulk copy of " + describe_warp(*warp));
    }
    for (auto& cta : cluster->ctas) {
        cta->warpgroups = std::vector<Warpgroup>((warps + 3) / 4);
        for (size_t g = 0; g < cta->warpgroups.size(); ++g)
            cta->warpgroups[g].agent =
                cluster->new_agent(concat("wgmma of warps ", 4 * g, " to ", 4 * g + 3, " of block ", cta->id[0]));
    }
    cluster->cluster_arrivals.assign(cluster->warps.size(), 0);
    cluster->cluster_waiting.assign(cluster->lane_agents(), 0);
    return cluster;
}

void prepare(LaunchState& launch, const Module& module, const Launch& given, const Options& options) {
    launch.module = &module;
    launch.entry = &module.find(given.entry);
    launch.launch = &given;
    launch.options = options;
    launch.map_changes = std::make_shared<MapChanges>();
    launch.shared_bytes = module.static_shared_bytes + given.smem_bytes;
    for (int i = 0; i < 3; ++i) {
        launch.cluster_shape[i] = given.cluster[i] > 1 || !launch.entry->cluster[i] ? std::max(1u, given.cluster[i])
                                                                                    : launch.entry->cluster[i];
        if (launch.entry->cluster[i])
            require(launch.cluster_shape[i] == launch.entry->cluster[i], "the kernel requires a cluster of ",
                    launch.entry->cluster[i], ", the launch has ", given.cluster[i]);
    }
    launch.cluster_size = launch.cluster_shape[0] * launch.cluster_shape[1] * launch.cluster_shape[2];
    check_shape(launch);
    add_extents(launch);
    launch.clusters = given.grid[0] * given.grid[1] * given.grid[2] / launch.cluster_size;
}

}  // namespace deep_gemm::simulator
