// The PTX simulator: runs PTX text on the CPU and reports what a GPU would have got wrong silently.
//
// It knows nothing of GEMM or of this library's kernels: it sees PTX text, parameters and memory.
// docs/simulator.md says what it models and what it does not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../extent.hpp"
#include "../tensor_map.hpp"

namespace deep_gemm::simulator {

/// When asynchronous work (copies, matrix products) takes effect: as late as possible, at once, or whenever `seed`
/// says.
enum class Schedule { lazy, eager, random };
/// Whether the first hazard ends the run with an error, or all of them are collected in the report.
enum class HazardMode { error, report };

/// What is a hazard: all that the manual does not promise, or only what machines are not known to do anyhow.
enum class Rules { manual, hardware };

struct Options {
    Schedule schedule = Schedule::eager;
    uint64_t seed = 0;
    HazardMode hazards = HazardMode::error;
    Rules rules = Rules::manual;
    int threads = 0;  // 0: one per core
    bool timeline = false;
};

struct Hazard {
    std::string kind;
    std::string message;  // full text: PTX line, source line, addresses, warps, barrier states
};

struct Statistics {
    std::map<std::string, uint64_t> instructions;  // warp instructions by opcode
    uint64_t warp_instructions = 0;
    uint64_t tma_load_bytes = 0;
    uint64_t tma_store_bytes = 0;
    uint64_t tma_copies = 0;
    uint64_t boxes_asked_for = 0;  // of the L2, in advance, of which the next so many its cluster does not copy
    uint64_t boxes_asked_in_vain = 0;
    uint64_t global_load_bytes = 0;
    uint64_t global_store_bytes = 0;
    uint64_t shared_accesses = 0;
    uint64_t bank_conflicts = 0;  // extra shared-memory passes that conflicting lanes cost
    uint64_t barrier_waits = 0;   // mbarrier waits, of which the next so many had to block
    uint64_t barrier_waits_blocked = 0;
    uint64_t matrix_multiplies = 0;  // wgmma and tcgen05.mma instructions of a warpgroup or issuer
    uint64_t multiply_adds = 0;
    uint64_t blocks = 0;
    double seconds = 0;
    void add(const Statistics& other);
};

enum class BarrierKind : uint8_t { mbarrier, block, cluster };

/// Something that happened at a barrier.
struct BarrierEvent {
    enum class What : uint8_t { init, arrive, expect, bytes, complete, blocked, pass };
    uint64_t time;  // warp instructions that its cluster had executed
    uint32_t cluster, block;
    BarrierKind kind;
    What what;
    uint32_t place;  // an mbarrier's address, a block's barrier's number
    int64_t amount;  // arrivals, bytes, or the phase
    int32_t warp;    // of the block; -1: a copy or product
    uint32_t line;   // of the PTX text; 0 with no warp
};
constexpr size_t kMaxTimeline = 1 << 18;  // events of a cluster that are kept

struct Report {
    std::vector<Hazard> hazards;
    Statistics statistics;
    std::vector<BarrierEvent> timeline;  // by cluster, then as they happened
    uint64_t timeline_left_out = 0;      // behind kMaxTimeline
};

class Module;  // decoded PTX: immutable, shareable between threads

/// Decode PTX text. Throws deep_gemm::Error that names the line of anything not understood.
std::shared_ptr<const Module> load(std::string_view ptx);

struct Launch {
    const char* entry = nullptr;
    uint32_t grid[3] = {1, 1, 1};
    uint32_t block[3] = {1, 1, 1};
    uint32_t cluster[3] = {1, 1, 1};
    uint32_t smem_bytes = 0;
    const void* params = nullptr;
    size_t params_bytes = 0;
    std::span<const Extent> extents;
};

/// Run one kernel to its end, or to its first hazard in HazardMode::error. Nothing is thrown for a hazard.
Report collect(const Module& module, const Launch& launch, const Options& options);
/// The same, but in HazardMode::error the first hazard is thrown as a runtime Error.
Report run(const Module& module, const Launch& launch, const Options& options);
/// Throw the first hazard, if there is one.
void raise_first(const Report& report, const char* kernel);

/// What one of several devices runs. `extents` are its own memory.
struct DeviceLaunch {
    std::shared_ptr<const Module> module;
    Launch launch;
    uint32_t device = 0;
};

/// Run kernels on several devices at the same time, which also have `shared`, those of one device in their order; a
/// report for each.
/// `options.threads` is of no use: clusters take turns. Nothing is thrown for a hazard.
std::vector<Report> collect_devices(std::span<const DeviceLaunch> launches, std::span<const Extent> shared,
                                    const Options& options);

/// Validate by the driver's rules and encode into a form that only this simulator reads.
EncodedTensorMap encode(const TensorMapSpec& spec);

/// A report as JSON text, for Python.
std::string to_json(const Report& report);

}  // namespace deep_gemm::simulator
