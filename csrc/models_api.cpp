// What selection believes of single architectures: for benchmarks that fit its constants, and for tests. Bindings only.
#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/run/plan_cache.hpp"
#include "config/dispatch.hpp"
#include "config/explain.hpp"
#include "config/sm90/clusters.hpp"
#include "config/sm90/cost_fields.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

/// What the cost model goes by for this thread's latest recorded call, by name.
Object recorded_constants() {
    const Problem& p = latest_recorded_plan().problem;
    return with_spec(p, [&]<typename Spec>(Spec) {
        Object found;
        auto constants = Spec::cost_constants(p);
        for_each_field(constants, [&](const auto& field, double value) { found.emplace_back(field.name, value); });
        return found;
    });
}

/// A call's configs, found once, since a fit asks what they cost thousands of times.
struct Estimated {
    Problem problem;
    std::vector<Candidate> candidates;
};
std::mutex estimates_mutex;
std::map<int64_t, std::vector<Estimated>> estimates_of_keys;
int64_t keys_made = 0;

std::vector<Estimated>& estimates_of(int64_t key) {
    const auto found = estimates_of_keys.find(key);
    require(found != estimates_of_keys.end(), "there are no estimates ", key);
    return found->second;
}

int64_t new_estimates() {
    const std::lock_guard lock(estimates_mutex);
    estimates_of_keys[++keys_made];
    return keys_made;
}

void delete_estimates(int64_t key) {
    const std::lock_guard lock(estimates_mutex);
    estimates_of_keys.erase(key);
}

/// Takes the legal configs of this thread's latest recorded call among those of these texts; all, where there are none.
/// They are returned by their text, with what they cost.
Object add_to_estimates(int64_t key, const std::vector<std::string>& texts) {
    const std::lock_guard lock(estimates_mutex);
    Estimated added{latest_recorded_plan().problem, {}};
    Object found;
    for (Candidate& candidate : with_spec(added.problem, [&](auto) { return enumerate(added.problem); })) {
        const std::string text = tile_text(candidate.tiling);
        if (!candidate.rejection.empty() || (!texts.empty() && std::ranges::find(texts, text) == texts.end())) continue;
        found.emplace_back(text, candidate.cost_us);
        added.candidates.push_back(std::move(candidate));
    }
    estimates_of(key).push_back(std::move(added));
    return found;
}

/// What all configs that were taken cost in microseconds, in this order, as doubles, if `given` were constants of their
/// cost models.
ffi::Bytes estimates(int64_t key, const Numbers& given) {
    const std::lock_guard lock(estimates_mutex);
    ffi::Bytes found;
    for (const Estimated& each : estimates_of(key)) {
        with_spec(each.problem, [&]<typename Spec>(Spec) {
            auto constants = Spec::cost_constants(each.problem);
            for (const auto& [constant, number] : given) {
                bool known = false;
                for_each_field(constants, [&](const auto& field, double& value) {
                    if (field.name == constant) known = true, value = number;
                });
                require(known, "the cost model of ", name(each.problem.arch), " has no constant ", constant);
            }
            for (const Candidate& candidate : each.candidates) {
                const double us = Spec::cost_us(each.problem, candidate, constants);
                found.content.append(reinterpret_cast<const char*>(&us), sizeof us);
            }
        });
    }
    return found;
}

/// Where clusters of CTAs begin to walk the tiles, if by GPC.
std::vector<int64_t> cta_order_by_gpc(int64_t num_sms, int64_t clusters, int64_t size) {
    require(num_sms >= 1 && num_sms <= INT32_MAX, "a device has SMs, not ", num_sms);
    require(clusters >= 0 && clusters <= kMaxClusters, "up to ", kMaxClusters, " clusters have places, not ", clusters);
    require(std::ranges::any_of(sm90::cluster_shapes(), [&](const ClusterShape& c) { return c.size() == size; }),
            "no cluster has ", size, " CTAs");
    const auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
    const CtaOrder places = sm90::cta_order_by_gpc(narrow(num_sms), narrow(clusters), narrow(size));
    std::vector<int64_t> result;
    for (int64_t cluster = 0; cluster < clusters; ++cluster) result.push_back(places[cluster]);
    return result;
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(cta_order_by_gpc, deep_gemm::cta_order_by_gpc);
DEEP_GEMM_EXPORT(recorded_constants, deep_gemm::recorded_constants);
DEEP_GEMM_EXPORT(new_estimates, deep_gemm::new_estimates);
DEEP_GEMM_EXPORT(delete_estimates, deep_gemm::delete_estimates);
DEEP_GEMM_EXPORT(add_to_estimates, deep_gemm::add_to_estimates);
DEEP_GEMM_EXPORT(estimates, deep_gemm::estimates);
