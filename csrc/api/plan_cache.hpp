// Problem -> choice and loaded kernel, remembered for each device, and by each thread once more: a warm look-up costs
// one hash and one comparison, and takes no lock.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "../config/dispatch.hpp"
#include "../device/device.hpp"
#include "../jit/render.hpp"
#include "../jit/settings.hpp"
#include "generation.hpp"
#include "tuning.hpp"

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
    bool on = jit::settings().autotune;
    MeasureForTest measure = {};
};

inline LaunchPlan make_plan(Device& device, const Choice& choice) {
    const GemmConfig& c = choice.config;
    LaunchPlan plan{.choice = choice,
                    .shape = {.grid = static_cast<uint32_t>(choice.num_ctas),
                              .block = static_cast<uint32_t>(c.threads()),
                              .cluster = static_cast<uint32_t>(c.cluster.size()),
                              .smem_bytes = static_cast<uint32_t>(plan_smem(c).bytes)}};
    plan.kernel = jit::get_kernel(device, render(choice), plan.shape.smem_bytes);
    return plan;
}

class PlanCache {
public:
    static PlanCache& of(const Device& device) {
        static PlanCache caches[kMaxDevices];
        const DeviceId id = device.id();
        if (id.simulated) return of_simulated(device.facts().target);
        require_runtime(id.index >= 0 && id.index < kMaxDevices, "device index ", id.index, " is not below ",
                        kMaxDevices);
        return caches[id.index];
    }

    /// `generation` is of before the problem was made. The plan is this thread's own and stays until its next look-up,
    /// whatever other threads force meanwhile.
    const LaunchPlan& get(Device& device, const Problem& problem, uint64_t generation) {
        struct Latest {
            uint64_t generation = Generation::kNone;
            const PlanCache* cache = nullptr;
            Problem problem;
            LaunchPlan plan;
        };
        constexpr int kLatestBits = 8;
        thread_local std::array<std::unique_ptr<Latest>, 1 << kLatestBits> latest;
        std::unique_ptr<Latest>& slot = latest[ProblemHash{}(problem) >> (64 - kLatestBits)];
        if (slot == nullptr) slot = std::make_unique<Latest>();
        if (slot->generation == generation && slot->cache == this && slot->problem == problem) return slot->plan;
        slot->generation = Generation::kNone;  // should `find_or_make` throw
        slot->plan = find_or_make(device, problem);
        slot->cache = this, slot->problem = problem;
        if (!slot->plan.untuned) slot->generation = generation;
        return slot->plan;
    }

    /// Serve a problem with this plan from now on, unless it was chosen for what is no longer in force.
    void remember(const Problem& problem, const LaunchPlan& plan) {
        const std::lock_guard lock(mutex_);
        if (plan.forcings != forcings_) return;
        plans_.try_emplace(problem, plan).first->second.untuned = false;
    }

    /// Serve every problem of this device with one tiling: for tuning, and for tests that reach every config.
    void force(std::optional<Tiling> tiling) {
        change([&] { forced_ = tiling; });
    }

    /// Choose plans of this device in this way from now on: for tests, and for benchmarks that compare.
    void set_autotune(AutotuneMode mode) {
        change([&] { autotune_ = std::move(mode); });
    }
    MeasureForTest measure_for_test() {
        const std::lock_guard lock(mutex_);
        return autotune().measure;
    }

    /// Held by whoever measures on this device, so that measurements do not disturb each other.
    std::mutex& measuring() { return measuring_; }

private:
    static constexpr int kMaxDevices = 64;

    /// Of what decides plans: those made before serve no more.
    template <typename Change>
    void change(const Change& make) {
        {
            const std::lock_guard lock(mutex_);
            make();
            ++forcings_;
            plans_.clear();
        }
        Generation::advance();
    }

    LaunchPlan find_or_make(Device& device, const Problem& problem) {
        std::optional<Tiling> forced;
        int64_t forcings = 0;
        bool tunes = false;
        {
            const std::lock_guard lock(mutex_);
            if (const auto found = plans_.find(problem); found != plans_.end()) return found->second;
            forced = forced_, forcings = forcings_;
            tunes = !forced && autotune().on && (device.has_clock() || autotune().measure);
        }
        bool untuned = false;
        const Choice choice = forced  ? serve_with(*forced, problem)
                              : tunes ? find_tuned(device, problem, untuned)
                                      : select(problem);
        if (jit::settings().print_configs) print(problem, choice);
        LaunchPlan plan = make_plan(device, choice);  // compiles outside the lock; the JIT makes each kernel once
        plan.untuned = untuned, plan.forcings = forcings;
        if (!untuned) remember(problem, plan);
        return plan;
    }

    /// What is in force. The environment is not read before a plan is wanted.
    const AutotuneMode& autotune() const {
        static const auto& kFromEnvironment = *new AutotuneMode;
        return autotune_ ? *autotune_ : kFromEnvironment;
    }

    /// What was measured to be best; where nothing was, the model's pick, and `untuned` is set if there is a choice.
    static Choice find_tuned(const Device& device, const Problem& problem, bool& untuned) {
        const Tuning tuning = make_tuning(device, problem);
        const std::optional<size_t> winner = find_winner(tuning);
        untuned = !winner && tuning.candidates.size() > 1;
        return tuning.candidates[winner.value_or(0)];
    }

    /// The simulator can become another architecture while the process runs, and a plan holds a kernel of one of them.
    /// Its number of SMs can change too: that is part of a problem, and kernels do not depend on it.
    static PlanCache& of_simulated(const std::string& target) {
        static std::mutex mutex;
        static auto& caches = *new std::map<std::string, PlanCache>;  // never destroyed: threads may outlive main
        std::lock_guard lock(mutex);
        return caches[target];
    }

    static Choice serve_with(const Tiling& forced, const Problem& problem) {
        const Candidate candidate = make_candidate(problem, forced, /*tolerate_waste=*/true);
        require(candidate.refusal.empty(), "the forced config cannot serve this problem: ", candidate.refusal);
        return finish(problem, candidate);
    }

    static void print(const Problem& p, const Choice& choice) {
        std::fprintf(stderr, "deep_gemm: M=%d N=%d K=%d groups=%d: %d CTAs, estimated %.1f us, GemmConfig%s\n", p.m,
                     p.n, p.k, p.num_groups, choice.num_ctas, choice.cost_us, render_value(choice.config).c_str());
    }

    std::mutex mutex_;
    std::unordered_map<Problem, LaunchPlan, ProblemHash> plans_;
    std::optional<Tiling> forced_;
    std::optional<AutotuneMode> autotune_;
    int64_t forcings_ = 0;  // counts changes of the two above
    std::mutex measuring_;
};

}  // namespace deep_gemm
