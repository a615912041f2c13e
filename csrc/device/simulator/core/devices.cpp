#include "devices.hpp"

#include <chrono>
#include <optional>
#include <thread>

#include "../../../util/interrupt.hpp"
#include "../../../util/require.hpp"
#include "../memory/arena.hpp"
#include "launch.hpp"

namespace deep_gemm::simulator {

Devices::Devices(std::span<const Extent> shared, const Options& options)
    : arena(std::make_unique<Arena>(*this, shared)),
      schedule(options.schedule),
      dice{std::mt19937_64(options.seed * 0x9e3779b97f4a7c15ull + 1)} {}

Devices::~Devices() = default;

void Devices::begin_launch(uint32_t of_device) {
    device = of_device;
    if (streams.size() <= device) streams.resize(device + 1);
    streams[device].clusters.push_back(0);
}

void Devices::add(Cluster& cluster) {
    Stream& stream = streams[device];
    cluster.place_among_devices = turns.size();
    turns.push_back({&cluster, device, stream.clusters.size() - 1});
    ++stream.clusters.back();
    for (Warp* warp : cluster.warps) {
        warp->far_agent = lanes();
        warps.push_back({warp, device});
    }
}

void Devices::choose_next() {
    const size_t start = schedule == Schedule::random ? dice.next() % turns.size() : turn + 1;
    for (size_t i = 0; i < turns.size(); ++i)
        if (const size_t at = (start + i) % turns.size(); may_run(turns[at])) {
            turn = at;
            break;
        }
    turn_changed.notify_all();
}

void Devices::pass(const Cluster& cluster) {
    std::unique_lock lock(mutex);
    choose_next();
    turn_changed.wait(lock, [&] { return stopped || turn == index_of(cluster); });
    if (stopped) throw HazardStop{};
}

void Devices::enter(Cluster& cluster) {
    std::unique_lock lock(mutex);
    turn_changed.wait(lock, [&] { return stopped || turn == index_of(cluster); });
    if (stopped) throw HazardStop{};
    const Turn& own = turns[turn];
    if (own.launch > 0)
        for (Warp* warp : cluster.warps) learn(*warp, kAllLanes, streams[own.device].known);
}

void Devices::leave(const Cluster& cluster, bool failed) {
    const std::lock_guard lock(mutex);
    Turn& own = turns[index_of(cluster)];
    Stream& stream = streams[own.device];
    own.live = false;
    stopped |= failed;
    if (stream.clusters.size() > 1)
        for (const Warp* warp : cluster.warps) stream.known.join(released(*warp, kAllLanes).far_part());
    if (--stream.clusters[own.launch] == 0) ++stream.launch;
    choose_next();
}

bool Devices::have_moved(const Cluster& cluster) {
    uint64_t all = 0;
    for (const Turn& each : turns) all += each.cluster->progress;
    return std::exchange(turns[index_of(cluster)].moved, all) != all;
}

Scope Devices::between(uint32_t a, uint32_t b) const {
    const Place &one = warps[a / kLanes], &other = warps[b / kLanes];
    if (one.device != other.device) return Scope::sys;
    if (one.warp->cluster != other.warp->cluster) return Scope::gpu;
    return one.warp->cta == other.warp->cta ? Scope::cta : Scope::cluster;
}

std::string Devices::describe(uint32_t lane) const {
    const Place& place = warps[lane / kLanes];
    return concat("lane ", lane % kLanes, " of ", describe_warp(*place.warp), " of device ", place.device);
}

std::vector<Report> collect_devices(std::span<const DeviceLaunch> given, std::span<const Extent> shared,
                                    const Options& options) {
    const auto begin = std::chrono::steady_clock::now();
    require(given.size() >= 1, "launches must be at least one, got none");
    Devices devices(shared, options);
    std::vector<std::unique_ptr<LaunchState>> launches;
    std::vector<std::vector<Extent>> extents(given.size());
    std::vector<Launch> with_shared(given.size());
    std::vector<std::unique_ptr<Cluster>> clusters;
    for (uint32_t i = 0; i < given.size(); ++i) {
        extents[i].assign(given[i].launch.extents.begin(), given[i].launch.extents.end());
        extents[i].insert(extents[i].end(), shared.begin(), shared.end());
        with_shared[i] = given[i].launch;
        with_shared[i].extents = extents[i];
        LaunchState& launch = *launches.emplace_back(std::make_unique<LaunchState>());
        Options own = options;
        own.seed = options.seed * given.size() + i;
        prepare(launch, *given[i].module, with_shared[i], own);
        launch.devices = &devices, launch.device = given[i].device;
        devices.begin_launch(given[i].device);
        // All of them are there from the beginning: devices may wait for each other.
        for (; launch.next_cluster < launch.clusters; ++launch.next_cluster) {
            devices.add(*clusters.emplace_back(build_cluster(launch, launch.next_cluster)));
            require(clusters.size() <= kMaxClusters, "all devices together must have at most ", kMaxClusters,
                    " clusters, got more");
        }
    }
    std::mutex mutex;
    std::condition_variable one_ended;
    size_t running = clusters.size();
    std::exception_ptr failure;
    std::optional<Interrupted> interrupted;
    const auto stop_all = [&] {
        for (const auto& launch : launches) launch->stop = true;
    };
    {
        std::vector<std::jthread> threads;  // joined whatever happens
        for (const auto& each : clusters)
            threads.emplace_back([&, cluster = each.get()] {
                bool failed = true;
                try {
                    devices.enter(*cluster);
                    cluster->run();
                    finish_cluster(*cluster);
                    failed = false;
                } catch (const HazardStop&) {
                } catch (...) {
                    const std::lock_guard lock(mutex);
                    if (!failure) failure = std::current_exception();
                }
                if (failed) stop_all();
                devices.leave(*cluster, failed);
                const std::lock_guard lock(mutex);
                --running;
                one_ended.notify_one();
            });
        for (std::unique_lock lock(mutex); running > 0;) {
            if (one_ended.wait_for(lock, kInterruptPause, [&] { return running == 0; })) break;
            lock.unlock();
            try {
                check_interrupt();
            } catch (const Interrupted& by) {
                interrupted = by;
                stop_all();
            }
            lock.lock();
        }
    }
    if (interrupted) throw *interrupted;
    if (failure) std::rethrow_exception(failure);
    std::vector<Report> reports;
    for (const auto& launch : launches) {
        std::vector<uint64_t> counts(launch->entry->code.size());
        for (const auto& cluster : clusters)
            if (cluster->launch == launch.get()) add_counts(*launch, *cluster, counts);
        reports.push_back(report_of(*launch, counts));
        reports.back().statistics.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    return reports;
}

}  // namespace deep_gemm::simulator
