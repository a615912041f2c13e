// What selection believes of single architectures: for benchmarks that fit its constants, and for tests. Bindings only.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "api/run/plan_cache.hpp"
#include "config/dispatch.hpp"
#include "config/explain.hpp"
#include "config/sm90/clusters.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

/// Where constants of a cost model can be tried: `use(p, Spec)`.
template <typename Use>
Object with_constants(const Use& use) {
    const Problem& p = latest_recorded_plan().problem;
    return with_spec(p, [&]<typename Spec>(Spec spec) -> Object {
        if constexpr (!std::is_same_v<Spec, sm90::Spec>)  // fitted by benchmarks/calibrate.py
            return use(p, spec);
        else
            fail(ErrorKind::value, "constants can be tried for SM80, SM100 and SM120, not for ", name(p.arch));
    });
}

/// What the cost model goes by for this thread's latest recorded call, by name.
Object recorded_constants() {
    return with_constants([]<typename Spec>(const Problem& p, Spec) {
        Object found;
        auto constants = Spec::cost_constants(p);
        for_each_field(constants, [&](const auto& field, double value) { found.emplace_back(field.name, value); });
        return found;
    });
}

/// Legal configs for this thread's latest recorded call, by their text, with what they would cost in microseconds if
/// `given` were constants of the cost model.
Object recorded_estimates(const Numbers& given) {
    return with_constants([&]<typename Spec>(const Problem& p, Spec) {
        auto constants = Spec::cost_constants(p);
        for (const auto& [constant, number] : given) {
            bool known = false;
            for_each_field(constants, [&](const auto& field, double& value) {
                if (field.name == constant) known = true, value = number;
            });
            require(known, "the cost model of ", name(p.arch), " has no constant ", constant);
        }
        Object found;
        for (const Candidate& candidate : enumerate(p))
            if (candidate.rejection.empty())
                found.emplace_back(tile_text(candidate.tiling), Spec::cost_us(p, candidate, constants));
        return found;
    });
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
DEEP_GEMM_EXPORT(recorded_estimates, deep_gemm::recorded_estimates);
