#include "plan_cache.hpp"

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "../../config/archs.hpp"
#include "../../config/dispatch.hpp"
#include "../../config/shortlist.hpp"
#include "../../device/recorder.hpp"
#include "../../jit/compile.hpp"
#include "../../jit/kernel.hpp"
#include "../../jit/render.hpp"
#include "../../jit/settings.hpp"
#include "../call/generation.hpp"
#include "tuning.hpp"

namespace deep_gemm {
namespace {

/// What was measured to be best; where nothing was, the model's pick, and `untuned` is set if there is a choice.
Choice find_tuned(const Device& device, const Problem& problem, bool& untuned) {
    const Tuning tuning = make_tuning(device, problem);
    const std::optional<size_t> winner = find_winner(tuning);
    untuned = !winner && tuning.candidates.size() > 1;
    return tuning.candidates[winner.value_or(0)];
}

/// The simulator can become another architecture while the process runs, and a plan holds a kernel of one of them.
/// Its number of SMs can change too: that is part of a problem, and kernels do not depend on it.
PlanCache& of_simulated(const std::string& target) {
    static std::mutex mutex;
    static auto& caches = *new std::map<std::string, PlanCache>;  // never destroyed: threads may outlive main
    std::lock_guard lock(mutex);
    return caches[target];
}

RecordedPlan& recorded_plan() {
    thread_local RecordedPlan plan;
    return plan;
}

Choice serve_with(const Tiling& forced, const Problem& problem) {
    const Candidate candidate = make_candidate(problem, forced);
    require(candidate.rejection.empty(), "the forced config cannot serve this problem: ", candidate.rejection);
    return finish(problem, candidate);
}

std::string shape_text(const Problem& p) { return concat("M=", p.m, " N=", p.n, " K=", p.k, " groups=", p.num_groups); }

void print(const Problem& p, const Choice& choice) {
    std::fprintf(stderr, "deep_gemm: %s: %d CTAs, estimated %.1f us, GemmConfig%s\n", shape_text(p).c_str(),
                 choice.num_ctas, choice.cost_us, config_text(choice.config).c_str());
}

/// Once for each kernel. ptxas of the compilers that tests know spills none; another one, or the driver where it
/// translates, may.
void report_spills(const DeviceFacts& facts, const jit::KernelSource& source, const Choice& choice,
                   const Kernel& kernel) {
    static std::mutex mutex;
    static auto& reported = *new std::set<const Kernel*>;  // never destroyed: threads may outlive main
    const std::lock_guard lock(mutex);
    if (!reported.insert(&kernel).second) return;
    std::fprintf(
        stderr,
        "deep_gemm: %s for %s keeps %d bytes of each thread in local memory (%s%s). Its results are right, but "
        "it may be slow: please report this, GemmConfig%s\n",
        source.name.c_str(), facts.target.c_str(), kernel.local_bytes(), jit::compiler_identity().c_str(),
        facts.output == Output::cubin ? "" : ", then the driver", config_text(choice.config).c_str());
}

LaunchPlan plan_of(const Choice& choice, const Kernel* kernel) {
    return {.choice = choice,
            .kernel = kernel,
            .shape = {.grid = static_cast<uint32_t>(choice.num_ctas),
                      .block = static_cast<uint32_t>(choice.footprint.threads),
                      .cluster = static_cast<uint32_t>(choice.config.cluster.size()),
                      .smem_bytes = static_cast<uint32_t>(choice.footprint.smem_bytes)}};
}

/// Remembers the latest plan only: it is the recorder that knows which kernels are new. But neighbouring problems often
/// have one kernel, of which it knows then, and writing its text takes longer than most else.
const LaunchPlan& record(Device& device, const Problem& problem) {
    thread_local LaunchPlan plan;
    thread_local uint64_t of_choice = 0;
    const uint64_t now = Recorder::choices_of_thread();
    if (of_choice == now && recorded_plan().problem == problem) return plan;
    recorded_plan() = {problem, select(problem)};
    const Choice& choice = recorded_plan().choice;
    const Choice& last = plan.choice;
    const bool known = of_choice == now && last.config == choice.config && last.hint == choice.hint &&
                       last.tiling.preconvert == choice.tiling.preconvert &&
                       last.footprint.ctas_per_sm == choice.footprint.ctas_per_sm;
    of_choice = 0;  // should `make_plan` throw
    plan = known ? plan_of(choice, plan.kernel) : make_plan(device, choice);
    of_choice = now;
    return plan;
}

/// Where the pick's kernel keeps registers in memory: the cheapest config whose kernel does not, if there is one near
/// it. Not where only what is in the cache may be loaded, which has the pick.
LaunchPlan without_spills(Device& device, const Problem& problem, const LaunchPlan& pick) {
    if (pick.kernel->local_bytes() == 0 || jit::settings().refuse) [[likely]]
        return pick;
    for (const Choice& choice : shortlist(problem)) {
        const LaunchPlan plan = make_plan(device, choice);
        if (plan.kernel->local_bytes() == 0) return plan;
    }
    return pick;
}

/// Compiles outside of any lock; the JIT makes each kernel once.
LaunchPlan plan_for(Device& device, const Problem& problem, const Choice& choice) {
    try {
        return make_plan(device, choice);
    } catch (const Error& error) {
        if (!jit::settings().refuse) throw;
        fail(error.kind(), error.what(), "; the call has ", shape_text(problem));
    }
}

}  // namespace

const RecordedPlan& latest_recorded_plan() { return recorded_plan(); }

LaunchPlan make_plan(Device& device, const Choice& choice) {
    LaunchPlan plan = plan_of(choice, nullptr);
    const TargetRow* const target = find_target(device.facts(), choice.config.block_sum());
    require_runtime(target != nullptr, kNoIntegers, device.facts().target);
    const jit::KernelSource source = render(choice);
    plan.kernel = jit::get_kernel(device, source, plan.shape.smem_bytes, std::string(target->target));
    if (plan.kernel->local_bytes() != 0) report_spills(device.facts(), source, choice, *plan.kernel);
    return plan;
}

PlanCache& PlanCache::of(const Device& device) {
    static PlanCache caches[Device::kSlots];
    if (device.id().simulated) return of_simulated(device.facts().target);
    return caches[device.slot()];
}

const LaunchPlan& PlanCache::get(Device& device, const Problem& problem, uint64_t generation) {
    struct Latest {
        uint64_t generation = Generation::kNone;
        const PlanCache* cache = nullptr;
        Problem problem;
        LaunchPlan plan;
    };
    if (device.id().recorded) return record(device, problem);
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

void PlanCache::remember(const Problem& problem, const LaunchPlan& plan) {
    const std::lock_guard lock(mutex_);
    if (plan.forcings != forcings_) return;
    plans_.try_emplace(problem, plan).first->second.untuned = false;
}

/// Of what decides plans: those made before serve no more.
template <typename Change>
void PlanCache::change(const Change& make) {
    {
        const std::lock_guard lock(mutex_);
        make();
        ++forcings_;
        plans_.clear();
    }
    Generation::advance();
}

void PlanCache::force(std::optional<Tiling> tiling) {
    change([&] { forced_ = tiling; });
}

void PlanCache::set_autotune(AutotuneMode mode) {
    change([&] { autotune_ = std::move(mode); });
}

MeasureForTest PlanCache::measure_for_test() {
    const std::lock_guard lock(mutex_);
    return autotune().measure;
}

LaunchPlan PlanCache::find_or_make(Device& device, const Problem& problem) {
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
    LaunchPlan plan = plan_for(device, problem, choice);
    if (!forced && !tunes) plan = without_spills(device, problem, plan);
    if (jit::settings().print_configs) print(problem, plan.choice);
    plan.untuned = untuned, plan.forcings = forcings;
    if (!untuned) remember(problem, plan);
    return plan;
}

/// What is in force. The environment is not read before a plan is wanted.
const AutotuneMode& PlanCache::autotune() const {
    static const auto& kFromEnvironment = *new AutotuneMode{.on = jit::settings().autotune};
    return autotune_ ? *autotune_ : kFromEnvironment;
}

}  // namespace deep_gemm
