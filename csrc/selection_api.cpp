// Which kernel an FP8 problem gets, as source text: for `python -m deep_gemm`, precompiling and tests. Needs no
// device.
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/string.h>

#include <deep_gemm/plan.cuh>

#include <string>
#include <string_view>

#include "config/explain.hpp"
#include "jit/render.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Map;
using tvm::ffi::String;

int32_t extent(int64_t value, const char* what) {
    require(value >= 1 && value < (int64_t{1} << 31), what, " must be between 1 and 2^31 - 1, but is ", value);
    return static_cast<int32_t>(value);
}

/// A config's kernel: {name, text, smem_bytes, num_ctas, threads, estimated_us}.
Map<String, Any> kernel_of(const Candidate& candidate) {
    const jit::KernelSource source = render(candidate.config);
    Map<String, Any> facts;
    facts.Set("name", String(source.name));
    facts.Set("text", String(source.text));
    facts.Set("smem_bytes", static_cast<int64_t>(plan_smem(candidate.config).bytes));
    facts.Set("num_ctas", candidate.num_ctas);
    facts.Set("threads", candidate.config.threads());
    facts.Set("estimated_us", candidate.cost_us);
    return facts;
}

Map<String, Any> dense_kernel(int64_t m, int64_t n, int64_t k, int64_t num_sms, bool fp32_output, bool add_c) {
    Problem problem{.m = extent(m, "M"), .n = extent(n, "N"), .k = extent(k, "K")};
    problem.output = fp32_output ? ElementType::fp32 : ElementType::bf16;
    problem.aligned_store = n * element_bytes(problem.output) % 16 == 0;
    problem.add_c = add_c;
    problem.compiled = {.m = 0, .n = problem.n, .k = problem.k};  // as compiled_dims="nk", the default of the calls
    problem.num_sms = extent(num_sms, "num_sms");
    pack_rows(problem);
    return kernel_of(select(problem));
}

/// `kind` is "m_contiguous", "m_psum" or "masked"; m is max_m of a masked problem; expected_m is 0 where the call has
/// no hint.
Map<String, Any> grouped_kernel(String kind, int64_t groups, int64_t m, int64_t expected_m, int64_t n, int64_t k,
                                int64_t alignment, int64_t num_sms, bool fp32_output) {
    Problem problem{.grouping = m_grouping(std::string_view(kind.data(), kind.size())),
                    .m = extent(m, "M"),
                    .n = extent(n, "N"),
                    .k = extent(k, "K"),
                    .num_groups = extent(groups, "the number of experts"),
                    .m_alignment = extent(alignment, "the alignment")};
    problem.expected_m = coarse_hint(problem, expected_m);
    problem.output = fp32_output ? ElementType::fp32 : ElementType::bf16;
    problem.aligned_store = n * element_bytes(problem.output) % 16 == 0;
    problem.compiled = {.m = 0, .n = problem.n, .k = problem.k};
    problem.num_sms = extent(num_sms, "num_sms");
    pack_rows(problem);
    return kernel_of(select(problem));
}

/// A problem of any kind, with the selected config or, where `fields` names tile_rows and tile_cols, with that one.
/// What `fields` does not name is as in `Problem`; `compiled_dims` has bits 1, 2, 4 for M, N, K and is the calls'
/// default otherwise.
Map<String, Any> problem_kernel(String grouping, Map<String, int64_t> fields) {
    const std::string_view kind(grouping.data(), grouping.size());
    Problem p;
    if (kind == "k_contiguous")
        p.grouping = Grouping::k_contiguous;
    else if (kind != "dense")
        p.grouping = m_grouping(kind);
    bool swap_ab = false;
    TileShape tile = {0, 0, 128};
    ClusterShape cluster;
    int32_t turns = 1;
    const auto part_of_config = [&](const std::string& name) -> int32_t* {
        if (name == "tile_rows") return &tile.rows;
        if (name == "tile_cols") return &tile.cols;
        if (name == "cluster_rows") return &cluster.rows;
        if (name == "cluster_cols") return &cluster.cols;
        if (name == "cluster_k") return &cluster.k;
        return name == "turns" ? &turns : nullptr;
    };
    int64_t expected_m = 0, dims = p.grouping == Grouping::k_contiguous ? 1 | 2 : 2 | 4;  // "mn" and "nk"
    const auto set = [&](const std::string& name, int64_t value) {
        if (name == "m")
            p.m = extent(value, "M");
        else if (name == "n")
            p.n = extent(value, "N");
        else if (name == "k")
            p.k = extent(value, "K");
        else if (name == "groups")
            p.num_groups = extent(value, "the number of groups");
        else if (name == "alignment")
            p.m_alignment = extent(value, "the alignment");
        else if (name == "num_sms")
            p.num_sms = extent(value, "num_sms");
        else if (name == "compiled_dims")
            dims = value;
        else if (name == "expected_m")
            expected_m = value;
        else if (name == "fp32_output")
            p.output = value != 0 ? ElementType::fp32 : ElementType::bf16;
        else if (name == "per_row_b")
            p.scales_b = value != 0 ? ScaleKind::per_row : ScaleKind::per_block;
        else if (name == "add_c")
            p.add_c = value != 0;
        else if (name == "in_place")
            p.in_place = value != 0;
        else if (name == "group_maps")
            p.group_maps = value != 0;
        else if (name == "swap_ab")
            swap_ab = value != 0;
        else if (int32_t* part = part_of_config(name))
            *part = extent(value, name.c_str());
        else
            fail(ErrorKind::value, "a problem has no field ", name);
    };
    for (const auto& [name, value] : fields) set(name, value);
    for (const int32_t value : {p.m, p.n, p.k, p.num_sms}) require(value > 0, "a problem needs m, n, k and num_sms");
    if (p.grouping == Grouping::k_contiguous) {  // see finish_k_grouped
        p.k = round_up_coarsely(p.k);
        dims &= ~int64_t{4};
    }
    p.expected_m = coarse_hint(p, expected_m);
    p.aligned_store = int64_t{p.n} * element_bytes(p.output) % 16 == 0;
    pack_rows(p);
    p.compiled = {.m = dims & 1 ? p.m : 0, .n = dims & 2 ? p.n : 0, .k = dims & 4 ? p.k : 0};
    if (tile.rows == 0 && tile.cols == 0) return kernel_of(select(p));
    require(tile.rows > 0 && tile.cols > 0, "a config has both tile_rows and tile_cols");
    const Candidate forced = make_candidate(p, swap_ab, tile, cluster, turns, true);
    require(forced.refusal.empty(), "the config cannot serve the problem: ", forced.refusal);
    return kernel_of(forced);
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(dense_kernel, deep_gemm::dense_kernel);
DEEP_GEMM_EXPORT(grouped_kernel, deep_gemm::grouped_kernel);
DEEP_GEMM_EXPORT(problem_kernel, deep_gemm::problem_kernel);
