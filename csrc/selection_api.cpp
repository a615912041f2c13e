// Which kernel a problem gets, as source text, and which pairs there are: for `python -m deep_gemm`, precompiling and
// tests. Needs no device.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "api/check/request.hpp"
#include "api/prepare/layout_kernels.hpp"
#include "api/prepare/unpack_weights.hpp"
#include "api/prepare/widen.hpp"
#include "api/run/plan_cache.hpp"
#include "config/explain.hpp"
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

Choice choice_of(const Request& r) {
    if (r.tiling.tile_rows == 0) return select(r.problem);
    const Candidate forced = make_candidate(r.problem, r.tiling);
    require(forced.rejection.empty(), "the config cannot serve the problem: ", forced.rejection);
    return finish(r.problem, forced);
}

Object problem_kernel(const std::string& grouping, const Object& fields, const Target& target) {
    const Request r = request_of(grouping, fields, target);
    return kernel_of(r.problem, choice_of(r));
}

/// The same of this thread's latest recorded call.
Object recorded_kernel() { return kernel_of(latest_recorded_plan().problem, latest_recorded_plan().choice); }
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

/// Every candidate, one a line.
std::string explain_problem(const std::string& grouping, const Object& fields, const Target& target) {
    return explain(request_of(grouping, fields, target).problem);
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(pairs, deep_gemm::pairs);
DEEP_GEMM_EXPORT(explain, deep_gemm::explain_problem);
DEEP_GEMM_EXPORT(problem_kernel, deep_gemm::problem_kernel);
DEEP_GEMM_EXPORT(recorded_kernel, deep_gemm::recorded_kernel);
DEEP_GEMM_EXPORT(explain_recorded, deep_gemm::explain_recorded);
DEEP_GEMM_EXPORT(recorded_layout_kernels, deep_gemm::recorded_layout_kernels);
