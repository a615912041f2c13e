// Problem -> choice and loaded kernel, remembered for each device, and by each thread once more: a warm look-up costs
// one hash and one comparison, and takes no lock.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "../../config/candidate.hpp"
#include "../../device/device.hpp"

namespace deep_gemm {

struct LaunchPlan {
    Choice choice = {};
    const Kernel* kernel = nullptr;
    LaunchShape shape = {};
    bool untuned = false;  // the model's pick where measuring is asked for: see autotune.hpp. Never remembered
    int64_t forcings = 0;  // when it was chosen: see PlanCache::remember
};

/// Stands for the device's clock in tests: microseconds of a config, given as text.
using MeasureForTest = std::function<double(const std::string& config)>;

/// How a device's plans are chosen where no config is forced.
struct AutotuneMode {
    bool on = false;
    MeasureForTest measure = {};
};

LaunchPlan make_plan(Device& device, const Choice& choice);

/// What this thread's latest recorded call (device/recorder.hpp) was, and what was chosen for it.
struct RecordedPlan {
    Problem problem = {};
    Choice choice = {};
};
const RecordedPlan& latest_recorded_plan();

class PlanCache {
public:
    static PlanCache& of(const Device& device);

    /// `generation` is of before the problem was made. The plan is this thread's own and stays until its next look-up,
    /// whatever other threads force meanwhile.
    const LaunchPlan& get(Device& device, const Problem& problem, uint64_t generation);

    /// Serve a problem with this plan from now on, unless it was chosen for what is no longer in force.
    void remember(const Problem& problem, const LaunchPlan& plan);

    /// Serve every problem of this device with one tiling: for tuning, and for tests that reach every config.
    void force(std::optional<Tiling> tiling);

    /// Choose plans of this device in this way from now on: for tests, and for benchmarks that compare.
    void set_autotune(AutotuneMode mode);
    MeasureForTest measure_for_test();

    /// Held by whoever measures on this device, so that measurements do not disturb each other.
    std::mutex& measuring() { return measuring_; }

private:
    template <typename Change>
    void change(const Change& make);
    LaunchPlan find_or_make(Device& device, const Problem& problem);
    const AutotuneMode& autotune() const;

    std::mutex mutex_;
    std::unordered_map<Problem, LaunchPlan, ProblemHash> plans_;
    std::optional<Tiling> forced_;
    std::optional<AutotuneMode> autotune_;
    int64_t forcings_ = 0;  // counts changes of the two above
    std::mutex measuring_;
};

}  // namespace deep_gemm
