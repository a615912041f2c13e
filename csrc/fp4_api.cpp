// What deep_gemm/fp4.py calls: products of FP4 with FP4, of which both operands are int8 tensors of two E2M1 codes
// each. Bindings only, which return what those of products_api.cpp do.
#include "api/check/checks_channel_scales.hpp"
#include "api/check/checks_grouped.hpp"
#include "api/check/checks_k_grouped.hpp"
#include "api/run/gemm.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

OperandArgument fp4_a(const TensorView& a, const OptionalTensor& scales) {
    return {.data = a, .scales = scales, .name = "a", .scales_name = "a's scales", .fp4 = true};
}
OperandArgument fp4_b(const TensorView& b, const OptionalTensor& scales) {
    return {.data = b, .scales = scales, .fp4 = true};
}

/// Both operands have a scale for each row and so much of K.
Granularities shared_by(int64_t gran_k) { return {.a = {.rows = 1, .k = gran_k}, .b = {.rows = 1, .k = gran_k}}; }

GemmCall with_steps(GemmCall call, const Alpha& alpha, const OptionalTensor& row_scale, const TensorView& d) {
    check_alpha(call, alpha, d);
    if (row_scale) check_row_scale(call, *row_scale, d);
    return call;
}

bool fp4_gemm(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales, const TensorView& b,
              const OptionalTensor& b_scales, const OutputArgument& d, const OptionalTensor& c,
              const OptionalTensor& alpha, int64_t alpha_number, int64_t gran_k, int64_t layout,
              const OptionalTensor& row_scale) {
    return run_gemm(CallKey(arguments), [&] {
        return with_steps(check_dense(fp4_a(a, a_scales), fp4_b(b, b_scales), d, c, shared_by(gran_k), layout),
                          {alpha, alpha_number}, row_scale, d);
    });
}

bool fp4_m_grouped_gemm_contiguous(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales,
                                   const TensorView& b, const OptionalTensor& b_scales, const OutputArgument& d,
                                   const TensorView& grouped_layout, const OptionalTensor& alpha, int64_t alpha_number,
                                   int64_t gran_k, int64_t layout, bool psum, bool zero_padding, int64_t expected_m,
                                   const OptionalTensor& row_scale) {
    return run_gemm(CallKey(arguments), [&] {
        const ContiguousOptions options{.psum = psum, .zero_padding = zero_padding, .expected_m = expected_m};
        return with_steps(check_contiguous(fp4_a(a, a_scales), fp4_b(b, b_scales), d, grouped_layout, shared_by(gran_k),
                                           layout, options),
                          {alpha, alpha_number}, row_scale, d);
    });
}

bool fp4_m_grouped_gemm_masked(const ffi::Given& arguments, const TensorView& a, const OptionalTensor& a_scales,
                               const TensorView& b, const OptionalTensor& b_scales, const OutputArgument& d,
                               const TensorView& masked_m, int64_t expected_m, const OptionalTensor& alpha,
                               int64_t alpha_number, int64_t gran_k, int64_t layout, const OptionalTensor& row_scale) {
    return run_gemm(CallKey(arguments), [&] {
        return with_steps(check_masked(fp4_a(a, a_scales), fp4_b(b, b_scales), d, masked_m, expected_m,
                                       shared_by(gran_k), layout),
                          {alpha, alpha_number}, row_scale, d);
    });
}

bool fp4_k_grouped_gemm(const TensorView& a, const OptionalTensor& a_scales, const TensorView& b,
                        const OptionalTensor& b_scales, const TensorView& d, const std::vector<int64_t>& ks,
                        const TensorView& grouped_layout, const OptionalTensor& c, const OptionalTensor& alpha,
                        int64_t alpha_number, int64_t gran_k, int64_t layout, bool psum) {
    KGroupedCall k = check_k_grouped_nt(fp4_a(a, a_scales), fp4_b(b, b_scales), d, grouped_layout, c,
                                        {.ks = ks, .layout = layout, .psum = psum, .gran_k = gran_k});
    check_alpha(k.call, {alpha, alpha_number}, d);
    return run_k_grouped(std::move(k));
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(fp4_gemm, deep_gemm::fp4_gemm);
DEEP_GEMM_EXPORT(fp4_m_grouped_gemm_contiguous, deep_gemm::fp4_m_grouped_gemm_contiguous);
DEEP_GEMM_EXPORT(fp4_m_grouped_gemm_masked, deep_gemm::fp4_m_grouped_gemm_masked);
DEEP_GEMM_EXPORT(fp4_k_grouped_gemm, deep_gemm::fp4_k_grouped_gemm);
