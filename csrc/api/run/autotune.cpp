#include "autotune.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "../../config/explain.hpp"
#include "../../jit/compile.hpp"
#include "../../jit/render.hpp"
#include "../../jit/settings.hpp"
#include "../../jit/winners.hpp"
#include "../../util/interrupt.hpp"
#include "../call/workspace.hpp"
#include "tuning.hpp"

namespace deep_gemm {
namespace {

/// What is written before each launch, in sizes of the L2: nothing that a launch reads is left in it.
constexpr int64_t kFlushL2s = 2;
constexpr double kFlushUs = 50;     // about what that takes
constexpr double kBudgetUs = 20e3;  // for all launches together: short kernels are measured more often

struct Scratch {
    Workspace d = {};
    Workspace flush = {};
};

/// Whether a candidate may write D itself: where each writes what the call writes, no more. Not where C is D, as what
/// it wrote would be added to the result, and not for experts, as a taller tile reaches further into their padding.
bool may_write_d(const Problem& p) { return !p.in_place && !is_m_grouped(p.grouping); }

/// Nothing where there is no memory for it.
std::optional<Scratch> allocate_scratch(const Device& device, const GemmCall& call) {
    try {
        Scratch scratch{.flush = allocate_bytes(device, device.has_clock() ? kFlushL2s * device.facts().l2_bytes : 4)};
        if (!may_write_d(call.problem)) scratch.d = allocate_bytes(device, static_cast<int64_t>(call.d.bytes));
        return scratch;
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

/// Compiles kernels, several at once. Where one does not compile, whoever asks for it next is told.
void compile_all(const Device& device, const std::vector<Choice>& candidates) {
    std::atomic<size_t> next{0};
    const auto compile = [&] {
        for (size_t i = next++; i < candidates.size(); i = next++) {
            try {
                jit::compile_to_image(render(candidates[i]), device.facts().target, device.facts().output);
            } catch (const std::exception&) {
            }
        }
    };
    std::vector<std::jthread> helpers;  // joined at the end of the scope
    try {
        const size_t cores = std::max(1u, std::thread::hardware_concurrency());
        while (helpers.size() + 1 < std::min(cores, candidates.size())) helpers.emplace_back(compile);
    } catch (const std::system_error&) {  // no more threads: fewer do the work
    }
    try {
        compile();
    } catch (const Interrupted&) {
        next = candidates.size();  // helpers end what they have begun
        throw;
    }
}

/// The candidate's plan, after a first launch that has brought its code into the caches. Nothing where it cannot run.
std::optional<LaunchPlan> rehearse(Device& device, const Choice& candidate, const GemmCall& call,
                                   const LaunchCall& launch) {
    try {
        const LaunchPlan plan = make_plan(device, candidate);
        launch(call, plan);
        return plan;
    } catch (const Error& error) {
        std::fprintf(stderr, "deep_gemm: DG_AUTOTUNE leaves out %s: %s\n", tile_text(candidate.tiling).c_str(),
                     error.what());
        return std::nullopt;
    }
}

struct Measurement {
    size_t candidate = 0;
    LaunchPlan plan = {};
    double us = 0;
};

/// All candidates that run, with their times. `call` writes where it may be written.
std::vector<Measurement> measure(Device& device, const Tuning& tuning, const GemmCall& call, void* stream,
                                 const Scratch& scratch, const LaunchCall& launch, const MeasureForTest& for_test) {
    compile_all(device, tuning.candidates);
    std::vector<Measurement> measured;
    for (size_t i = 0; i < tuning.candidates.size(); ++i)
        if (const auto plan = rehearse(device, tuning.candidates[i], call, launch)) measured.push_back({i, *plan});
    if (measured.empty()) return measured;
    if (for_test) {
        for (Measurement& m : measured) m.us = for_test(tile_text(m.plan.choice.tiling));
        return measured;
    }
    double round_us = 0;
    std::vector<std::function<void()>> launches;
    for (const Measurement& m : measured) {
        round_us += kFlushUs + tuning.candidates[m.candidate].cost_us;
        launches.push_back([&] { launch(call, m.plan); });
    }
    const std::vector<double> times =
        device.time_launches(stream, launches,
                             {.rounds = static_cast<int>(std::clamp(kBudgetUs / round_us, 5.0, 25.0)),
                              .flush = scratch.flush.data(),
                              .flush_bytes = static_cast<size_t>(kFlushL2s * device.facts().l2_bytes)});
    for (size_t i = 0; i < measured.size(); ++i) measured[i].us = times[i];
    return measured;
}

/// The fastest. The first one, the model's pick, stays where nothing is clearly faster: equal machines then agree.
const Measurement& fastest(const std::vector<Measurement>& measured) {
    constexpr double kClearly = 0.99;
    const auto best = std::min_element(measured.begin(), measured.end(),
                                       [](const Measurement& x, const Measurement& y) { return x.us < y.us; });
    return best->us < kClearly * measured.front().us ? *best : measured.front();
}

std::string problem_text(const Problem& p) {
    return concat(name(p.grouping), " M=", p.m, " N=", p.n, " K=", p.k, " groups=", p.num_groups);
}

}  // namespace

LaunchPlan tune(Device& device, const GemmCall& call, const LaunchPlan& pick, void* stream, const LaunchCall& launch) {
    PlanCache& plans = PlanCache::of(device);
    if (device.is_capturing(stream)) return pick;  // nothing may wait for the stream
    if (Device::compiles_only()) return pick;      // nothing runs
    // Not waiting for another thread's turn: its stream may wait for what this thread is about to launch.
    const std::unique_lock turn(plans.measuring(), std::try_to_lock);
    if (!turn) return pick;
    const std::optional<Scratch> scratch = allocate_scratch(device, call);
    if (!scratch) {
        // In this process the pick stays: each failing allocation costs torch all its cached memory.
        if (jit::settings().print_configs)
            std::fprintf(stderr, "deep_gemm: no memory for measuring %s\n", problem_text(call.problem).c_str());
        plans.remember(call.problem, pick);
        return pick;
    }
    const Tuning tuning = make_tuning(device, call.problem);
    GemmCall rehearsal = call;
    if (scratch->d) rehearsal.d.data = scratch->d.data();
    const std::vector<Measurement> measured =
        measure(device, tuning, rehearsal, stream, *scratch, launch, plans.measure_for_test());
    if (measured.empty()) return pick;
    Measurement best = fastest(measured);
    std::string table;
    for (const Measurement& m : measured)
        table += concat(table.empty() ? "" : "; ", tile_text(m.plan.choice.tiling), " ", m.us, " us (estimated ",
                        tuning.candidates[m.candidate].cost_us, ")");
    if (jit::settings().print_configs)
        std::fprintf(stderr, "deep_gemm: measured %s: %s. Best: %s\n", problem_text(call.problem).c_str(),
                     table.c_str(), tile_text(best.plan.choice.tiling).c_str());
    // Processes that started together measured at once: the first to get here decides for all, so that they agree.
    if (const auto winner = find_winner(tuning, /*report=*/false); winner && *winner != best.candidate)
        best.plan = make_plan(device, tuning.candidates[*winner]);
    else if (!winner)
        jit::store_winner(tuning.key, {.kernel = tuning.kernels[best.candidate],
                                       .device = device.facts().name,
                                       .problem = problem_text(call.problem),
                                       .measured = table});
    best.plan.forcings = pick.forcings;
    plans.remember(call.problem, best.plan);
    return best.plan;
}

}  // namespace deep_gemm
