// Plans by other ways than selection, for tuning, benchmarks and tests: a config that is forced, a measuring that is
// switched on or replaced. Bindings only.
#include <algorithm>

#include "api/call/call_settings.hpp"
#include "api/call/tensors.hpp"
#include "api/run/plan_cache.hpp"
#include "config/dispatch.hpp"
#include "config/pairs.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

/// Serve all calls on a device with this config (rows = 0: select again). For tuning and tests.
void force_config(bool simulated, int64_t index, int64_t m, int64_t n, int64_t k, int64_t swap_ab, int64_t rows,
                  int64_t cols, int64_t cluster_rows, int64_t cluster_cols, int64_t cluster_k, int64_t k_warpgroups,
                  int64_t preconvert) {
    Device& device = Device::get({.simulated = simulated, .index = static_cast<int>(index)});
    if (rows == 0) return PlanCache::of(device).force(std::nullopt);
    const auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
    const Tiling tiling{.swap_ab = swap_ab != 0,
                        .tile_rows = narrow(rows),
                        .tile_cols = narrow(cols),
                        .cluster = {narrow(cluster_rows), narrow(cluster_cols), narrow(cluster_k)},
                        .k_warpgroups = narrow(k_warpgroups),
                        .preconvert = value_at<Preconvert>(preconvert, "what is converted before the product")};
    std::string_view rejection = kUnknownTiling;
    for (const Pair& pair : kPairs) {
        Problem p;
        p.a = {.element = pair.a, .scaling = pair.scalings_a[0]};
        p.b = {.element = pair.b, .scaling = pair.scalings_b[0]};
        p.m = to_int32(m, "M"), p.n = to_int32(n, "N"), p.k = to_int32(k, "K");
        CallSettings::of(device.id()).apply(p, device.facts());
        if (!pair.is_of(p.arch)) continue;
        const Candidate candidate = make_candidate(p, tiling);
        if (candidate.rejection.empty()) return PlanCache::of(device).force(tiling);
        if (candidate.rejection != kUnknownTiling) rejection = candidate.rejection;
    }
    fail(ErrorKind::value, "this config is refused for the problem: ", rejection);
}

/// Measure new problems on a device, or do not, whatever DG_AUTOTUNE says; forgets its plans. `measure` stands for the
/// device's clock in tests: it is given a config's tile as text and returns microseconds.
void set_autotune(bool simulated, int64_t index, bool on, std::optional<MeasureForTest> measure) {
    Device& device = Device::get({.simulated = simulated, .index = static_cast<int>(index)});
    PlanCache::of(device).set_autotune({.on = on, .measure = measure.value_or(nullptr)});
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(force_config, deep_gemm::force_config);
DEEP_GEMM_EXPORT(set_autotune, deep_gemm::set_autotune);
