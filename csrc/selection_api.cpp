// Which kernel a recorded call gets, as source text, and which pairs there are: for `python -m deep_gemm`, precompiling
// and tests. Needs no device.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>

#include "api/call/tensors.hpp"
#include "api/prepare/layout_kernels.hpp"
#include "api/prepare/unpack_weights.hpp"
#include "api/prepare/widen.hpp"
#include "api/run/plan_cache.hpp"
#include "config/dispatch.hpp"
#include "config/explain.hpp"
#include "config/fields.hpp"
#include "config/pairs.hpp"
#include "jit/render.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

/// A config's kernel: {name, text, smem_bytes, num_ctas, threads, estimated_us}, and {preconvert_name, preconvert_text}
/// of one that converts an operand before it.
Object kernel_of(const Problem& p, const Choice& candidate) {
    const jit::KernelSource source = render(candidate);
    Object kernel = {{"name", source.name},
                     {"text", source.text},
                     {"smem_bytes", candidate.footprint.smem_bytes},
                     {"num_ctas", candidate.num_ctas},
                     {"threads", candidate.footprint.threads},
                     {"estimated_us", candidate.cost_us}};
    const Preconvert preconvert = candidate.tiling.preconvert;
    if (preconvert == Preconvert::none) return kernel;
    const jit::KernelSource before = preconvert == Preconvert::a ? widen_source() : unpack_source(p);
    kernel.emplace_back("preconvert_name", before.name);
    kernel.emplace_back("preconvert_text", before.text);
    return kernel;
}

/// A config by the names of its fields; none where there are no names.
std::optional<Tiling> tiling_of(const Object& fields) {
    if (fields.empty()) return std::nullopt;
    Tiling tiling;
    for (const auto& [name, value] : fields) {
        bool known = false;
        for_each_number(tiling, [&, &name = name, &value = value](const std::string& part, auto& number) {
            if (part != name) return;
            known = true;
            using Number = std::remove_cvref_t<decltype(number)>;
            const int64_t given = std::get<int64_t>(value);
            if constexpr (std::is_same_v<Number, bool>)
                number = given != 0;
            else if constexpr (std::is_enum_v<Number>)
                number = value_at<Number>(given, part);
            else
                number = to_int32(given, part.c_str());
        });
        require(known, "a config has no field ", name);
    }
    require(tiling.tile_rows > 0 && tiling.tile_cols > 0, "a config has both tile_rows and tile_cols");
    return tiling;
}

/// The same of a tiling that somebody names.
Object forced_kernel(const Problem& problem, const Tiling& tiling, Tolerated tolerated) {
    const Candidate forced = make_candidate(problem, tiling, tolerated);
    require(forced.rejection.empty(), "the config cannot serve the problem: ", forced.rejection);
    return kernel_of(problem, finish(problem, forced));
}

/// The same of this thread's latest recorded call, with this config instead of the selected one.
Object recorded_kernel(const Object& config) {
    const auto& [problem, choice] = latest_recorded_plan();
    const std::optional<Tiling> tiling = tiling_of(config);
    return tiling ? forced_kernel(problem, *tiling, Tolerated::waste) : kernel_of(problem, choice);
}

/// Also of a config that is refused because it would spill.
Object recorded_spilling_kernel(const Object& config) {
    const std::optional<Tiling> tiling = tiling_of(config);
    require(tiling.has_value(), "no config is named");
    return forced_kernel(latest_recorded_plan().problem, *tiling, Tolerated::waste_and_spills);
}

/// Every candidate for it, one a line.
std::string explain_recorded() { return explain(latest_recorded_plan().problem); }

/// What rearranges operands and scales for it: {name: text}.
Object recorded_layout_kernels() {
    Object sources;
    const RecordedPlan& plan = latest_recorded_plan();
    for (const jit::KernelSource& source : layout_kernels(plan.problem, plan.choice))
        sources.emplace_back(source.name, source.text);
    return sources;
}

constexpr const char* kMnMajorNames[] = {"as_it_lies", "transposed", "refused"};

/// The pair table: a pair of an architecture a line, "key=value" by spaces, values by commas.
std::string pairs() {
    const auto joined = [](const auto& list, const auto& text_of) {
        std::string text;
        for (const auto& value : list)
            if (const std::string one = text_of(value); !one.empty()) text += (text.empty() ? "" : ",") + one;
        return text;
    };
    const auto scaling = [](const Scaling& s) {
        return s.any() ? concat(name(s.type), ":", s.rows, "x", s.k) : std::string();
    };
    const auto element = [](Element e) { return e == Element::none ? std::string() : concat(name(e)); };
    std::string text;
    const auto line = [&](Arch arch, const Pair& pair) {
        std::string groupings;
        for (size_t i = 0; i < std::size(Names<Grouping>::kValues); ++i)
            if (pair.serves(static_cast<Grouping>(i)))
                groupings += concat(groupings.empty() ? "" : ",", Names<Grouping>::kValues[i]);
        text +=
            concat("arch=", name(arch), " a=", name(pair.a), " b=", name(pair.b), " sum=", name(pair.sum),
                   " mn_major=", kMnMajorNames[static_cast<size_t>(pair.mn_major)],
                   " scalings_a=", joined(pair.scalings_a, scaling), " scalings_b=", joined(pair.scalings_b, scaling),
                   " equal_scalings=", pair.equal_scalings ? 1 : 0, " outputs=", joined(pair.outputs, element),
                   " groupings=", groupings, "\n");
    };
    for (int32_t arch = 0; arch < kArchCount; ++arch)
        for (const Pair& pair : kPairs)
            if (pair.is_of(static_cast<Arch>(arch))) line(static_cast<Arch>(arch), pair);
    return text;
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(pairs, deep_gemm::pairs);
DEEP_GEMM_EXPORT(recorded_kernel, deep_gemm::recorded_kernel);
DEEP_GEMM_EXPORT(recorded_spilling_kernel, deep_gemm::recorded_spilling_kernel);
DEEP_GEMM_EXPORT(explain_recorded, deep_gemm::explain_recorded);
DEEP_GEMM_EXPORT(recorded_layout_kernels, deep_gemm::recorded_layout_kernels);
