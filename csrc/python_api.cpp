// What deep_gemm/gemm.py calls. Bindings only.
#include "api/gemm.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::Optional;

std::optional<TensorView> to_optional(const Optional<TensorView>& tensor) {
    return tensor.has_value() ? std::optional<TensorView>(tensor.value()) : std::nullopt;
}

bool fp8_gemm(TensorView a, TensorView sfa, TensorView b, TensorView sfb, TensorView d, Optional<TensorView> c, int64_t granularity_a,
              int64_t granularity_b, int64_t compiled_dims, bool a_transposed, bool b_transposed) {
    return run_gemm(check_dense(a, sfa, b, sfb, d, to_optional(c), granularity_a, granularity_b, compiled_dims, {a_transposed, b_transposed}));
}

/// Every candidate for a dense FP8 problem, cheapest first, refused ones last, one a line: cost, CTAs, stages, config, refusal.
std::string explain(int64_t m, int64_t n, int64_t k, int64_t num_sms) {
    Problem p{.m = to_int32(m, "M"), .n = to_int32(n, "N"), .k = to_int32(k, "K"), .num_sms = static_cast<int32_t>(num_sms)};
    std::vector<Candidate> candidates = enumerate(p);
    std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& x, const Candidate& y) {
        return x.refusal.empty() != y.refusal.empty() ? x.refusal.empty() : x.cost_us < y.cost_us;
    });
    std::string text;
    for (const Candidate& x : candidates) {
        const GemmConfig& c = x.config;
        text += concat(c.swap_ab ? "swapped" : "straight", " ", c.tile.rows, "x", c.tile.cols, " cluster ", c.cluster.rows, "x", c.cluster.cols, "x", c.cluster.k,
                       " warpgroups ", c.math_warpgroups, " stages ", c.stages, " smem ", c.stages > 0 ? plan_smem(c).bytes : 0, " ctas ", x.num_ctas, " strip ",
                       x.strip_blocks);
        text += x.refusal.empty() ? concat(": ", x.cost_us, " us\n") : concat(": refused, ", x.refusal, "\n");
    }
    return text;
}

/// Clusters of each size that fit the device at once, with the kernel that serves this problem best.
std::string measure_clusters(int64_t index) {
    Device& device = Device::get({.simulated = false, .index = static_cast<int>(index)});
    std::string text;
    for (const ClusterShape cluster : {ClusterShape{.cols = 2}, ClusterShape{.rows = 2, .cols = 2}, ClusterShape{.k = 2}, ClusterShape{.k = 4}, ClusterShape{.k = 8}}) {
        const Problem p{.m = 16, .n = 64 * 16 / cluster.k, .k = 7168, .num_sms = device.facts().num_sms};
        Candidate x = make_candidate(p, true, {64, cluster.cols == 2 ? 8 : 16, 128}, cluster);
        if (!x.refusal.empty()) { text += x.refusal + "; "; continue; }
        const LaunchPlan plan = make_plan(device, x);
        text += concat(cluster.size(), ": ", device.max_clusters(*plan.kernel, plan.shape), "; ");
    }
    return text;
}

/// Serve all calls on a device with this config (rows = 0: select again). For tuning and tests.
void force_config(bool simulated, int64_t index, int64_t m, int64_t n, int64_t k, int64_t swap_ab, int64_t rows, int64_t cols, int64_t cluster_rows,
                  int64_t cluster_cols, int64_t cluster_k) {
    Device& device = Device::get({.simulated = simulated, .index = static_cast<int>(index)});
    if (rows == 0) return PlanCache::of(device).force({});
    const Problem p{.m = to_int32(m, "M"), .n = to_int32(n, "N"), .k = to_int32(k, "K"), .num_sms = device.facts().num_sms};
    for (const Candidate& x : enumerate(p)) {
        const GemmConfig& c = x.config;
        if (c.swap_ab == (swap_ab != 0) && c.tile.rows == rows && c.tile.cols == cols &&
            c.cluster == ClusterShape{static_cast<int32_t>(cluster_rows), static_cast<int32_t>(cluster_cols), static_cast<int32_t>(cluster_k)}) {
            require(x.refusal.empty(), "this config is refused for the problem: ", x.refusal);
            return PlanCache::of(device).force(x);
        }
    }
    fail(ErrorKind::value, "selection knows no such config");
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(fp8_gemm, deep_gemm::fp8_gemm);
DEEP_GEMM_EXPORT(explain, deep_gemm::explain);
DEEP_GEMM_EXPORT(measure_clusters, deep_gemm::measure_clusters);
DEEP_GEMM_EXPORT(force_config, deep_gemm::force_config);
