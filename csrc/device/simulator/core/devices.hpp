// Several simulated devices that run at the same time and share memory, the arena.
//
// Clusters of all devices take turns on one of the host's threads at a time, in an order that the schedule says, so a
// run is repeated exactly by its seed.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "dice.hpp"
#include "machine.hpp"

namespace deep_gemm::simulator {

class Arena;

/// Who includes whom: threads of one block, of one cluster, of one device, or of two.
enum class Scope : uint8_t { cta, cluster, gpu, sys };

inline constexpr size_t kMaxClusters = 256;  // a thread of the host each

struct Devices {
    Devices(std::span<const Extent> shared, const Options& options);
    ~Devices();

    /// The launch that clusters are added to from now on. A device's launches run one behind the other.
    void begin_launch(uint32_t device);
    /// Gives every warp of a cluster its lanes' numbers among those of all devices.
    void add(Cluster& cluster);
    /// Lets another cluster go on; comes back when it is this one's turn again. Throws HazardStop once one has stopped.
    void pass(const Cluster& cluster);
    /// Until it is this cluster's turn for the first time; afterwards, that it has ended.
    void enter(Cluster& cluster);
    void leave(const Cluster& cluster, bool failed);
    /// Whether any cluster has made progress since this one asked last.
    bool have_moved(const Cluster& cluster);

    /// Of two lanes, by their numbers among all.
    Scope between(uint32_t a, uint32_t b) const;
    uint32_t device_of(uint32_t lane) const { return warps[lane / kLanes].device; }
    std::string describe(uint32_t lane) const;
    uint32_t lanes() const { return uint32_t(warps.size() * kLanes); }

    std::unique_ptr<Arena> arena;
    Schedule schedule;
    Dice dice;

private:
    struct Place {
        const Warp* warp;
        uint32_t device;
    };
    /// What a device has to do. Whatever one launch did or learnt, the next one knows.
    struct Stream {
        std::vector<uint32_t> clusters;  // of each launch, those that have not ended
        size_t launch = 0;               // that runs
        Clock known;
    };
    struct Turn {
        const Cluster* cluster;
        uint32_t device;
        size_t launch;
        bool live = true;
        uint64_t moved = 0;
    };
    size_t index_of(const Cluster& cluster) const { return cluster.place_among_devices; }
    bool may_run(const Turn& turn) const { return turn.live && streams[turn.device].launch == turn.launch; }
    void choose_next();

    std::vector<Place> warps;  // of all devices
    std::vector<Turn> turns;
    std::vector<Stream> streams;
    uint32_t device = 0;
    std::mutex mutex;
    std::condition_variable turn_changed;
    size_t turn = 0;
    bool stopped = false;
};

}  // namespace deep_gemm::simulator
