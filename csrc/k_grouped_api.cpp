// What deep_gemm/k_grouped.py calls. Bindings only. Each returns false where no group has any K: the caller makes D C
// or zero.
#include <tvm/ffi/container/array.h>

#include "api/k_grouped.hpp"
#include "config/explain.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::Array;
using tvm::ffi::Optional;

bool k_grouped_fp8_gemm(TensorView a, TensorView sfa, TensorView b, TensorView sfb, TensorView d, Array<int64_t> ks,
                        TensorView grouped_layout, Optional<TensorView> c, int64_t compiled_dims, bool psum,
                        bool group_by_group) {
    const std::vector<int64_t> sizes(ks.begin(), ks.end());
    const std::optional<TensorView> added = c.has_value() ? std::optional<TensorView>(c.value()) : std::nullopt;
    const auto check = group_by_group ? check_k_grouped_nt : check_k_grouped_tn;
    return run_k_grouped(check(a, sfa, b, sfb, d, sizes, grouped_layout, added, compiled_dims, psum));
}

/// What `explain` says of a dense problem, of one with FP32 D and scales per row on both sides. `groups` = 0: dense;
/// `in_place`: C is D.
std::string explain_per_row(int64_t groups, int64_t m, int64_t n, int64_t k, bool group_by_group, bool in_place,
                            int64_t num_sms) {
    Problem p{.output = ElementType::fp32, .scales_b = ScaleKind::per_row, .num_sms = static_cast<int32_t>(num_sms)};
    p.m = to_int32(m, "M"), p.n = to_int32(n, "N"), p.k = to_int32(k, "K");
    p.add_c = p.in_place = in_place;
    if (groups > 0) {
        p.grouping = Grouping::k_contiguous;
        p.num_groups = to_int32(groups, "the number of groups");
        p.group_maps = group_by_group;
    }
    pack_rows(p);
    return explain(p);
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(explain_per_row, deep_gemm::explain_per_row);
DEEP_GEMM_EXPORT(k_grouped_fp8_gemm, deep_gemm::k_grouped_fp8_gemm);
